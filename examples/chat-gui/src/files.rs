//! Replaces files so that each is always either the old or the new one, even after a crash or with a full disk, and
//! keeps damaged files.

use serde::de::DeserializeOwned;
use std::fs::{self, File};
use std::io::{Error, ErrorKind, Result, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// Writes a file next to the old one, and then renames it over that.
///
/// # Errors
/// The errors of the file system, with the name of the file. The old file is then unchanged, and nothing is left next
/// to it.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let beside = path.with_added_extension("new");
    let made = File::create(&beside);
    write(path, &beside, made, bytes)
}

/// Like [`replace`], but in a folder of the user's, in which the temporary file must not replace another file.
///
/// # Errors
/// The errors of [`replace`].
pub fn export(path: &Path, bytes: &[u8]) -> Result<()> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut free = (0..100).map(|_| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let beside = path.with_added_extension(format!("{}-{number}.new", std::process::id()));
        (File::create_new(&beside), beside)
    });
    let taken = |made: &Result<File>| made.as_ref().is_err_and(|error| error.kind() == ErrorKind::AlreadyExists);
    let found = free.find(|(made, _)| !taken(made));
    let (made, beside) = found.ok_or_else(|| named(path, ErrorKind::AlreadyExists.into()))?;
    write(path, &beside, made, bytes)
}

/// Writes a new file, and renames it over the old one.
fn write(path: &Path, beside: &Path, made: Result<File>, bytes: &[u8]) -> Result<()> {
    let made_one = made.is_ok();
    let fill = |mut file: File| file.write_all(bytes).and_then(|()| file.sync_all());
    let written = made.and_then(fill).and_then(|()| fs::rename(beside, path));
    if written.is_err() && made_one {
        let _ = fs::remove_file(beside); // the error that is reported is that of the writing
    }
    written.map_err(|error| named(path, error))
}

/// Reads a JSON file; a missing one counts as the default. A damaged file is renamed, so that nothing overwrites it,
/// and a message names it.
pub fn read_or_put_aside<T: DeserializeOwned + Default>(path: &Path) -> (T, Option<String>) {
    let read = fs::read(path).and_then(|json| Ok(serde_json::from_slice(&json)?));
    match read {
        Ok(read) => (read, None),
        Err(error) if error.kind() == ErrorKind::NotFound => (T::default(), None),
        Err(error) => {
            let aside = path.with_added_extension("damaged");
            let kept = match fs::rename(path, &aside) {
                Ok(()) => format!("It is kept as {}", aside.display()),
                Err(error) => format!("It cannot be put aside: {error}"),
            };
            (T::default(), Some(format!("{} cannot be read: {error}. {kept}.", path.display())))
        }
    }
}

/// Adds the name of the file to an error.
pub fn named(path: &Path, error: Error) -> Error {
    Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{export, fs, read_or_put_aside, replace};

    #[test]
    fn a_file_that_cannot_be_written_leaves_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.json");
        replace(&path, b"[1]").unwrap();
        replace(&path, b"[1, 2]").unwrap();
        assert_eq!(read_or_put_aside::<Vec<u8>>(&path), (vec![1, 2], None));
        fs::create_dir(folder.path().join("taken")).unwrap();
        let error = replace(&folder.path().join("taken"), b"[]").unwrap_err();
        assert!(error.to_string().contains("taken"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left next to it");
    }

    #[test]
    fn an_export_replaces_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("owls.md");
        fs::write(folder.path().join("owls.md.new"), "mine").unwrap();
        export(&path, b"1").unwrap();
        export(&path, b"2").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "2");
        assert_eq!(fs::read_to_string(folder.path().join("owls.md.new")).unwrap(), "mine");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left next to it");
    }

    #[test]
    fn a_damaged_file_is_put_aside_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.json");
        assert_eq!(read_or_put_aside::<Vec<u8>>(&path), (vec![], None));
        fs::write(&path, "[1,").unwrap();
        let (read, notice) = read_or_put_aside::<Vec<u8>>(&path);
        assert!(read.is_empty() && notice.unwrap().contains("file.json.damaged"));
        assert_eq!(fs::read_to_string(folder.path().join("file.json.damaged")).unwrap(), "[1,");
        assert!(!path.exists());
    }
}
