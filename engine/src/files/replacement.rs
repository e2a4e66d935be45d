//! Replaces files as a whole. The new contents go to a temporary file in the same folder, which is synced to the disk
//! and then renamed, so that a full disk, an error, a kill or a power cut leaves either the old file or the new one,
//! never a part.
//!
//! The writer locks its temporary file, and the system releases the lock when the process ends for any reason. So the
//! next writer of the same file recognizes an abandoned temporary file and removes it, even if the folder is shared
//! between machines. Process ids would not do: they are reused, and other machines have their own. No crate that
//! replaces files does this.

use super::{Links, open};
use std::fs::{self, File, Metadata, OpenOptions, Permissions, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The maximum number of symbolic links that are followed from one name, as on Linux.
const LINKS: usize = 40;

/// How many characters of a file's name go into the name of its temporary file; names have at most 255 bytes.
const NAMED: usize = 40;

/// The end of a temporary file's name.
const ENDING: &str = ".new";

/// How long a temporary file must be unchanged to count as abandoned, on a file system without locks.
const ABANDONED: Duration = Duration::from_secs(60 * 60);

/// Who may read a new file. An existing file keeps its permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// Those whom the process's umask allows.
    Usual,
    /// Only the user.
    Owner,
}

/// The new contents of a file. [`commit`](Self::commit) replaces the file by them; dropping them before that removes
/// them.
#[derive(Debug)]
pub struct Replacement {
    file: File,
    to: PathBuf,
    /// The temporary file; `None` after the commit, and for a pipe, a device or an open file, which is written to
    /// directly.
    beside: Option<PathBuf>,
}

impl Replacement {
    /// Begins to replace a file, or to create it. A symbolic link stays, and the file it points to is replaced. A path
    /// in `/dev` or `/proc`, such as `/dev/stdout`, is a file that a process has open: writes are appended to it,
    /// because replacing it would take it away from everyone else who has it open.
    ///
    /// # Errors
    /// The system's, even if the file exists and is not writable, or if no file can be created in its folder.
    pub fn begin(path: &Path, readers: Readers) -> io::Result<Self> {
        if let Some(stream) = standard_stream(path)? {
            return Ok(Self { file: stream, to: path.into(), beside: None });
        }
        let there = match fs::metadata(path) {
            Ok(about) => Some(about),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if let Some(about) = &there {
            // A file that is not writable must not be replaced either. A directory fails here.
            let is_open_file = hops(path)?.iter().any(|hop| is_device(hop));
            let file = OpenOptions::new().write(true).append(is_open_file).open(path)?;
            if !about.is_file() || is_open_file {
                return Ok(Self { file, to: path.into(), beside: None });
            }
        }
        // Only for a file: the link /dev/stdout may point to a pipe, which has no name.
        let to = followed(path)?;
        remove_abandoned_of(&to);
        let private = readers == Readers::Owner || there.is_some();
        let (file, beside) = create_beside(&to, private)?;
        let replacement = Self { file, to, beside: Some(beside) };
        if let Some(about) = there {
            let mut permissions = about.permissions();
            if !keep_owner(&replacement.file, &about) {
                deny_group(&mut permissions);
            }
            replacement.file.set_permissions(permissions)?;
        }
        Ok(replacement)
    }

    /// Begins to put a file that only the user can read in the place of whatever has this name: a symbolic link or a
    /// pipe is itself replaced. Abandoned temporary files stay.
    ///
    /// # Errors
    /// The system's.
    pub fn instead_of(path: &Path) -> io::Result<Self> {
        let (file, beside) = create_beside(path, true)?;
        Ok(Self { file, to: path.into(), beside: Some(beside) })
    }

    /// The file that is written to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Syncs the new contents to the disk and renames the temporary file. Later writes are appended to the file itself.
    ///
    /// # Errors
    /// The system's. The old file is then still there.
    pub fn commit(&mut self) -> io::Result<()> {
        let Some(beside) = &self.beside else { return self.file.flush() };
        self.file.sync_all()?;
        fs::rename(beside, &self.to)?;
        self.beside = None;
        let _ = self.file.unlock(); // on Windows the lock would keep others from reading the file
        sync_folder(&self.to);
        Ok(())
    }

    /// Syncs what was appended to the disk, if the system can.
    ///
    /// # Errors
    /// The system's.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

impl Write for Replacement {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            let _ = fs::remove_file(beside);
        }
    }
}

/// Replaces the whole contents of a file, or creates it.
///
/// # Errors
/// The system's. The old file is then still there.
pub fn replace(path: &Path, bytes: &[u8], readers: Readers) -> io::Result<()> {
    let mut replacement = Replacement::begin(path, readers)?;
    replacement.write_all(bytes)?;
    replacement.commit()
}

/// The file that a path points to through symbolic links. It need not exist.
fn followed(path: &Path) -> io::Result<PathBuf> {
    Ok(hops(path)?.pop().unwrap_or_default())
}

/// A path, and those that it points to through symbolic links; the last one is not a link.
fn hops(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut hops, mut path) = (Vec::new(), path.to_owned());
    for _ in 0..LINKS {
        let is_link = fs::symlink_metadata(&path).is_ok_and(|about| about.is_symlink());
        hops.push(path.clone());
        if !is_link {
            return Ok(hops);
        }
        path = folder(&path).join(fs::read_link(&path)?);
    }
    Err(io::Error::new(ErrorKind::InvalidInput, "too many symbolic links"))
}

/// Whether a path is the system's, of a device or of a file that a process has open. `/dev/shm` holds ordinary files.
fn is_device(path: &Path) -> bool {
    cfg!(unix) && (path.starts_with("/proc") || path.starts_with("/dev") && !path.starts_with("/dev/shm"))
}

/// The process's stdout or stderr, if a path points to it. Opening the path on Linux would give the file a second
/// position, so the shell's later output would overwrite ours.
#[cfg(unix)]
fn standard_stream(path: &Path) -> io::Result<Option<File>> {
    use std::os::fd::AsFd;
    let hops = hops(path).unwrap_or_default();
    let is = |names: [&str; 3]| hops.iter().any(|hop| names.iter().any(|name| hop == Path::new(name)));
    let stream = if is(["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"]) {
        io::stdout().as_fd().try_clone_to_owned()?
    } else if is(["/dev/stderr", "/dev/fd/2", "/proc/self/fd/2"]) {
        io::stderr().as_fd().try_clone_to_owned()?
    } else {
        return Ok(None);
    };
    Ok(Some(stream.into()))
}

#[cfg(not(unix))]
fn standard_stream(_: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

/// The folder of a file.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The beginning of the names of a file's temporary files.
fn beginning(to: &Path) -> io::Result<String> {
    let name = to.file_name().ok_or(ErrorKind::IsADirectory)?.to_string_lossy();
    Ok(name.chars().take(NAMED).chain(['.']).collect())
}

/// Creates a temporary file and locks it. If another process removed it before it was locked, taking it for an
/// abandoned one, creates another.
fn create_beside(to: &Path, private: bool) -> io::Result<(File, PathBuf)> {
    let beginning = beginning(to)?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    if private {
        for_owner(&mut options);
    }
    loop {
        let random = RandomState::new().build_hasher().finish();
        let path = folder(to).join(format!("{beginning}{}-{random:016x}{ENDING}", std::process::id()));
        let file = options.open(&path)?;
        let _ = file.lock(); // on a file system without locks, nobody removes it
        if path.exists() {
            return Ok((file, path));
        }
    }
}

/// Removes the temporary files of a file that no process is writing, if it can.
fn remove_abandoned_of(to: &Path) {
    let Ok(beginning) = beginning(to) else { return };
    for entry in fs::read_dir(folder(to)).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| is_temporary(name, &beginning)) {
            remove_abandoned(&entry.path());
        }
    }
}

/// The name of the file that is to be replaced by the temporary file of this name, if that has at most 40 characters.
pub fn replaced_by(temporary: &str) -> Option<&str> {
    let (replaced, _) = temporary.strip_suffix(ENDING)?.rsplit_once('.')?;
    is_temporary(temporary, &format!("{replaced}.")).then_some(replaced)
}

/// Removes a temporary file, unless a process is writing it. It stays locked until it is removed, so that a process
/// that has just created it waits and then sees that it is gone. On a file system without locks, a file that has not
/// changed for an hour is abandoned. Returns false if it stays.
pub fn remove_abandoned(temporary: &Path) -> bool {
    let Ok(file) = open(temporary, OpenOptions::new().write(true), Links::Refused) else { return false };
    let is_abandoned = match file.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(_)) => {
            let changed = file.metadata().and_then(|about| about.modified()).ok();
            changed.and_then(|time| time.elapsed().ok()).is_some_and(|age| age > ABANDONED)
        }
    };
    is_abandoned && fs::remove_file(temporary).is_ok() // before the file is unlocked
}

/// Whether a name is `beginning`, a process id, a dash, a hexadecimal number and the ending.
fn is_temporary(name: &str, beginning: &str) -> bool {
    let numbers = name.strip_prefix(beginning).and_then(|rest| rest.strip_suffix(ENDING));
    numbers.and_then(|numbers| numbers.split_once('-')).is_some_and(|(process, random)| {
        is_number(process) && !random.is_empty() && random.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Syncs a folder's entries to the disk, which not all systems can.
#[cfg(unix)]
fn sync_folder(of: &Path) {
    let _ = File::open(folder(of)).and_then(|folder| folder.sync_all());
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) {}

/// Lets only the user read a file that is created.
#[cfg(unix)]
pub fn for_owner(options: &mut OpenOptions) {
    use std::os::unix::fs::OpenOptionsExt;
    options.mode(0o600);
}

/// Lets only the user read a file that is created.
#[cfg(not(unix))]
pub fn for_owner(_: &mut OpenOptions) {}

/// Gives a file the owner and the group of another, if the user is allowed to, and returns whether it has that group.
#[cfg(unix)]
fn keep_owner(file: &File, about: &Metadata) -> bool {
    use std::os::unix::fs::{MetadataExt, fchown};
    let own = file.metadata().map(|own| (own.uid(), own.gid()));
    if own.is_ok_and(|own| own == (about.uid(), about.gid())) {
        return true;
    }
    fchown(file, Some(about.uid()), Some(about.gid())).or_else(|_| fchown(file, None, Some(about.gid()))).is_ok()
}

#[cfg(not(unix))]
fn keep_owner(_: &File, _: &Metadata) -> bool {
    true
}

/// Removes the group's permissions: they were for a different group than the new file's.
#[cfg(unix)]
fn deny_group(permissions: &mut Permissions) {
    use std::os::unix::fs::PermissionsExt;
    permissions.set_mode(permissions.mode() & !0o070);
}

#[cfg(not(unix))]
fn deny_group(_: &mut Permissions) {}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The names in a folder, in order.
    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_the_old_one_or_the_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("chat.json");
        replace(&path, b"old", Readers::Usual).unwrap();
        let mut replacement = Replacement::begin(&path, Readers::Usual).unwrap();
        replacement.write_all(b"new").unwrap();
        assert_eq!((fs::read(&path).unwrap().as_slice(), names(dir.path()).len()), (b"old".as_slice(), 2));
        drop(replacement);
        assert_eq!((fs::read(&path).unwrap().as_slice(), names(dir.path()).len()), (b"old".as_slice(), 1));
        let mut replacement = Replacement::begin(&path, Readers::Usual).unwrap();
        replacement.write_all(b"new").unwrap();
        replacement.commit().unwrap();
        replacement.write_all(b"er").unwrap();
        drop(replacement);
        assert_eq!(fs::read(&path).unwrap(), b"newer");
        assert_eq!(names(dir.path()), ["chat.json"]);
        assert!(replace(dir.path(), b"", Readers::Usual).is_err());
        assert!(replace(&dir.path().join("nosuch/file"), b"", Readers::Usual).is_err());
    }

    /// Only abandoned files are removed: no file that another writer has begun, and none of another name.
    #[test]
    fn abandoned_files_are_removed_at_the_next_write() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("chat.json");
        let kept = ["chat.json.new", "chat.json.12-.new", "chat.json.x-1.new", "other.json.12-3.new", "chat.41.tmp"];
        for name in ["chat.json.12-3.new", "chat.json.999-00ff.new"].iter().chain(&kept) {
            fs::write(dir.path().join(name), "part").unwrap();
        }
        let begun = Replacement::begin(&path, Readers::Usual).unwrap();
        replace(&path, b"new", Readers::Usual).unwrap();
        let mut wanted: Vec<String> = kept.map(str::to_owned).into();
        wanted.push("chat.json".into());
        wanted.push(begun.beside.as_ref().unwrap().file_name().unwrap().to_str().unwrap().to_owned());
        wanted.sort();
        assert_eq!(names(dir.path()), wanted);
        drop(begun);
        let long = dir.path().join("é".repeat(120));
        replace(&long, b"", Readers::Usual).unwrap();
    }

    /// Everyone who has the file open sees the new bytes after the old ones.
    #[cfg(unix)]
    #[test]
    fn open_files_are_appended_to() {
        use std::os::fd::AsRawFd;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, "first, ").unwrap();
        let open = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let name = format!("/dev/fd/{}", open.as_raw_fd());
        replace(Path::new(&name), b"second", Readers::Usual).unwrap();
        let mut text = String::new();
        io::Read::read_to_string(&mut &open, &mut text).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first, second");
        assert!(text.ends_with("second"), "{text}");
        assert_eq!(names(dir.path()), ["log"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_and_permissions_stay() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = tempfile::tempdir().unwrap();
        let [file, link, dangling, ring] = ["file", "link", "dangling", "ring"].map(|name| dir.path().join(name));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        replace(&file, b"one", Readers::Owner).unwrap();
        assert_eq!(mode(&file), 0o600);
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        symlink("file", &link).unwrap();
        replace(&link, b"two", Readers::Owner).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!((fs::read(&file).unwrap().as_slice(), mode(&file)), (b"two".as_slice(), 0o640));
        symlink("made", &dangling).unwrap();
        replace(&dangling, b"three", Readers::Usual).unwrap();
        assert_eq!(fs::read(dir.path().join("made")).unwrap(), b"three");
        symlink("ring", &ring).unwrap();
        assert!(replace(&ring, b"", Readers::Usual).is_err());
        replace(Path::new("/dev/null"), b"gone", Readers::Usual).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o400)).unwrap();
        if OpenOptions::new().write(true).open(&file).is_err() {
            assert_eq!(replace(&file, b"", Readers::Usual).unwrap_err().kind(), ErrorKind::PermissionDenied);
        }
        assert_eq!(fs::read(&file).unwrap(), b"two");
        assert_eq!(names(dir.path()), ["dangling", "file", "link", "made", "ring"]);
    }
}
