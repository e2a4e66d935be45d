//! Opens regular files only. In a shared cache or a temporary folder, somebody else may have put something else under
//! the same name: a pipe, which blocks until another program opens it, a device, or a symbolic link to a file that
//! should not be written to. Files that are written as a whole are replaced by [`Replacement`].

mod replacement;

pub use replacement::{Readers, Replacement, for_owner, remove_abandoned, replace, replaced_by};

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Whether the path may be a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// It may: caches use such links.
    Followed,
    /// It may not: only the file of this name is written to.
    Refused,
}

/// Opens a regular file and never blocks.
///
/// # Errors
/// The system's, and one of kind `InvalidInput` for anything but a regular file.
pub fn open(path: &Path, options: &mut OpenOptions, links: Links) -> io::Result<File> {
    let is_link = || fs::symlink_metadata(path).is_ok_and(|about| about.is_symlink());
    if links == Links::Refused && is_link() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is a symbolic link, which is not followed; delete it"));
    }
    // A link may appear after that check, so the system checks again.
    set_flags(options, links);
    let file = options.open(path)?;
    let about = file.metadata()?;
    if about.is_file() {
        return Ok(file);
    }
    let kind = if about.is_dir() { ErrorKind::IsADirectory } else { ErrorKind::InvalidInput };
    Err(if about.is_dir() { kind.into() } else { io::Error::new(kind, "not a regular file") })
}

/// Whether a path names this open file, and not another one that has replaced it.
#[cfg(unix)]
pub fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let number = |about: &fs::Metadata| (about.dev(), about.ino());
    matches!((file.metadata(), fs::symlink_metadata(path)), (Ok(own), Ok(named)) if number(&own) == number(&named))
}

/// Whether a path names this open file: an open file cannot be replaced.
#[cfg(not(unix))]
pub fn is_at(_: &File, _: &Path) -> bool {
    true
}

/// Whether the disk has lost a part of a file.
pub fn is_lost(error: &io::Error) -> bool {
    #[cfg(unix)]
    return rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::IO);
    #[cfg(not(unix))]
    return error.raw_os_error() == Some(1117); // ERROR_IO_DEVICE
}

/// Whether a file system refuses all locks.
pub fn has_no_locks(error: &io::Error) -> bool {
    #[cfg(unix)]
    if rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::NOLCK) {
        return true;
    }
    error.kind() == ErrorKind::Unsupported
}

/// Reads a text of at most `most` bytes from a regular file.
///
/// # Errors
/// The errors of [`open`], and one of kind `InvalidData` for a longer file or one that is not UTF-8.
pub fn read_text(path: &Path, most: usize) -> io::Result<String> {
    let mut text = String::new();
    let file = open(path, OpenOptions::new().read(true), Links::Followed)?;
    file.take(most as u64 + 1).read_to_string(&mut text)?;
    if text.len() > most {
        return Err(io::Error::new(ErrorKind::InvalidData, format!("expected at most {most} bytes, found more")));
    }
    Ok(text)
}

/// Makes opening a pipe or a device return at once, and opening a symbolic link fail unless links are followed.
#[cfg(unix)]
fn set_flags(options: &mut OpenOptions, links: Links) {
    use rustix::fs::OFlags;
    use std::os::unix::fs::OpenOptionsExt;
    let follow = if links == Links::Refused { OFlags::NOFOLLOW } else { OFlags::empty() };
    options.custom_flags((OFlags::NONBLOCK | follow).bits() as i32);
}

/// Opens a link itself, which is then not a regular file.
#[cfg(windows)]
fn set_flags(options: &mut OpenOptions, links: Links) {
    use std::os::windows::fs::OpenOptionsExt;
    const FILE_FLAG_OPEN_REPARSE_POINT: u32 = 0x0020_0000;
    if links == Links::Refused {
        options.custom_flags(FILE_FLAG_OPEN_REPARSE_POINT);
    }
}

#[cfg(not(any(unix, windows)))]
fn set_flags(_: &mut OpenOptions, _: Links) {}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn regular_files_alone_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let [file, link, pipe] = ["file", "link", "pipe"].map(|name| dir.path().join(name));
        fs::write(&file, "text").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let writing = || OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
        assert!(open(&file, &mut writing(), Links::Refused).is_ok());
        assert!(open(&link, &mut writing(), Links::Followed).is_ok());
        for path in [&link, &pipe, Path::new("/dev/null")] {
            assert_eq!(open(path, &mut writing(), Links::Refused).unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        // Must not wait for a writer.
        assert_eq!(read_text(&pipe, 10).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(read_text(dir.path(), 10).unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(read_text(&link, 4).unwrap(), "text");
        assert_eq!(read_text(&file, 3).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
