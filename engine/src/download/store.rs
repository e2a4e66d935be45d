//! Puts files where other programs find them.

use super::part;
use super::{RemoteFile, RemoteModel};
use crate::catalog::RepoFolder;
use crate::error::{Error, Result, Size};
use crate::files::{self, Links, Readers};
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// The disk space to leave free after the download, for other programs that write meanwhile.
const SPARE: u64 = 64 << 20;

/// Whether a file of a commit exists already, under its name or as a blob.
pub(super) fn is_there(folder: &RepoFolder, commit: &str, file: &RemoteFile) -> bool {
    let is_it = |path: &Path| fs::metadata(path).is_ok_and(|about| about.is_file() && about.len() == file.bytes);
    is_it(&folder.blob(file.id())) || is_it(&folder.file(commit, &file.path))
}

/// How many bytes of a model are present.
pub(super) fn bytes_there(folder: &RepoFolder, commit: &str, model: &RemoteModel) -> u64 {
    let begun = |file: &RemoteFile| fs::symlink_metadata(folder.part(file.id())).map_or(0, |about| about.len());
    let there = |file: &RemoteFile| match is_there(folder, commit, file) {
        true => file.bytes,
        false => begun(file).min(file.bytes),
    };
    model.files.iter().map(there).fold(0, u64::saturating_add)
}

/// Deletes the files of an incomplete model. Contents that another commit shares stay.
pub(super) fn discard(folder: &RepoFolder, commit: &str, model: &RemoteModel) -> Result<()> {
    if model.files.iter().all(|file| is_there(folder, commit, file)) {
        return Ok(());
    }
    // Fails before any complete file is deleted if another program is writing one of them.
    part::remove(model.files.iter().map(|file| folder.part(file.id())))?;
    for file in &model.files {
        remove(&folder.file(commit, &file.path))?;
        if !folder.is_linked(file.id()) {
            remove(&folder.blob(file.id()))?;
        }
    }
    Ok(())
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(reason) if reason.kind() != io::ErrorKind::NotFound => Err(Error::io("delete", path)(reason)),
        _ => Ok(()),
    }
}

/// Checks that the disk has space for the missing files of a model.
pub(super) fn make_room(folder: &RepoFolder, commit: &str, model: &RemoteModel) -> Result<()> {
    let needed = model.bytes().saturating_sub(bytes_there(folder, commit, model));
    let blobs = folder.blob("");
    // The nearest folder that exists is on the same disk.
    let Some(there) = blobs.ancestors().find(|folder| folder.is_dir()) else { return Ok(()) };
    let Ok(free) = fs4::available_space(there) else { return Ok(()) };
    if needed == 0 || needed.saturating_add(SPARE) <= free {
        return Ok(());
    }
    let reason = format!(
        "{} left to download, but only {} free, of which {} is kept in reserve for other programs",
        Size(needed),
        Size(free),
        Size(SPARE)
    );
    Err(Error::io("write", &blobs)(io::Error::new(io::ErrorKind::StorageFull, reason)))
}

/// Creates a file of a commit: a relative link to its contents or, on systems without links, the contents themselves.
pub(super) fn link(folder: &RepoFolder, commit: &str, file: &RemoteFile) -> Result<()> {
    let (blob, name) = (folder.blob(file.id()), folder.file(commit, &file.path));
    if !blob.exists() || fs::canonicalize(&name).is_ok_and(|place| fs::canonicalize(&blob).is_ok_and(|it| it == place))
    {
        return Ok(());
    }
    if let Some(parent) = name.parent() {
        fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
    }
    if name.symlink_metadata().is_ok() {
        fs::remove_file(&name).map_err(Error::io("write", &name))?;
    }
    // From snapshots/COMMIT/, and from each folder below it, to blobs/.
    let up = "../".repeat(2 + file.path.matches('/').count());
    let to = PathBuf::from(format!("{up}blobs/{}", file.id()));
    symlink(&to, &name).or_else(|_| fs::rename(&blob, &name)).map_err(Error::io("write", &name))
}

/// Records the commit of a revision. Other programs may read the file at any time, so it is replaced atomically.
pub(super) fn refer(folder: &RepoFolder, revision: &str, commit: &str) -> Result<()> {
    let is_name = !revision.split('/').any(|part| part.is_empty() || part.starts_with('.')) && !revision.contains('\\');
    if revision == commit || !is_name {
        return Ok(());
    }
    let path = folder.reference(revision);
    let parent = path.parent().unwrap_or(Path::new(""));
    fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
    let allowed = match files::open(&path, OpenOptions::new().write(true), Links::Refused) {
        Err(reason) if reason.kind() == io::ErrorKind::NotFound => Ok(()),
        opened => opened.map(drop),
    };
    let written = allowed.and_then(|()| files::replace(&path, commit.as_bytes(), Readers::Usual));
    written.map_err(Error::io("write", &path))
}

#[cfg(unix)]
fn symlink(to: &Path, name: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(to, name)
}

#[cfg(windows)]
fn symlink(to: &Path, name: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(to, name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_stays_in_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let name: crate::catalog::ModelName = "a/b".parse().unwrap();
        let folder = RepoFolder::new(dir.path(), &name.repo);
        for revision in ["../../x", "/x", "a/../x", "..\\x"] {
            refer(&folder, revision, "c0ffee").unwrap();
        }
        assert!(fs::read_dir(dir.path()).unwrap().next().is_none());
        refer(&folder, "refs/pr/1", "c0ffee").unwrap();
        assert_eq!(fs::read_to_string(folder.reference("refs/pr/1")).unwrap(), "c0ffee");
    }

    /// Everything of an incomplete model is deleted except contents that another commit shares.
    #[cfg(unix)]
    #[test]
    fn a_discarded_model_leaves_what_others_have() {
        let dir = tempfile::tempdir().unwrap();
        let name: crate::catalog::ModelName = "a/b".parse().unwrap();
        let folder = RepoFolder::new(dir.path(), &name.repo);
        let mut model = RemoteModel::of_file("x.gguf", 10);
        let mut more = |path: &str, number: &str| {
            let mut file = RemoteModel::of_file(path, 10).files.remove(0);
            file.git = Some(number.repeat(40));
            model.files.push(file);
        };
        more("sub/y.gguf", "1");
        more("z.gguf", "2");
        let [x, y, z] = [0, 1, 2].map(|index| &model.files[index]);
        fs::create_dir_all(folder.blob("")).unwrap();
        for (path, bytes) in [(folder.blob(x.id()), 10), (folder.blob(y.id()), 10), (folder.part(z.id()), 4)] {
            fs::write(path, vec![0; bytes]).unwrap();
        }
        for (commit, file) in [("c0ffee", x), ("c0ffee", y), ("0ther", y)] {
            link(&folder, commit, file).unwrap();
        }
        assert_eq!(bytes_there(&folder, "c0ffee", &model), 24);
        let other = fs::File::open(folder.part(z.id())).unwrap();
        other.lock().unwrap();
        discard(&folder, "c0ffee", &model).unwrap_err();
        assert!(folder.blob(x.id()).exists(), "another program is downloading the model");
        drop(other);
        discard(&folder, "c0ffee", &model).unwrap();
        assert!(!folder.blob(x.id()).exists() && !folder.part(z.id()).exists());
        assert!(folder.file("c0ffee", &x.path).symlink_metadata().is_err());
        assert!(folder.file("0ther", &y.path).exists(), "another commit has it");
        let mut whole = model.clone();
        whole.files = vec![y.clone()];
        discard(&folder, "0ther", &whole).unwrap();
        assert!(folder.file("0ther", &y.path).exists(), "it is there as a whole");
        discard(&folder, "c0ffee", &model).unwrap();
    }

    /// A model that exists, as a blob or under its name, needs no space.
    #[test]
    fn only_what_is_missing_needs_room() {
        let dir = tempfile::tempdir().unwrap();
        let name: crate::catalog::ModelName = "a/b".parse().unwrap();
        let folder = RepoFolder::new(dir.path(), &name.repo);
        let bytes = fs4::available_space(dir.path()).unwrap() + (1 << 30);
        let model = RemoteModel::of_file("x.gguf", bytes);
        let file = folder.file("c0ffee", "x.gguf");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let error = make_room(&folder, "c0ffee", &model).unwrap_err().to_string();
        for words in ["GiB left to download, but only ", "iB free, of which 64.0 MiB is kept in reserve"] {
            assert!(error.contains(words), "{error}");
        }
        for there in [file, folder.blob(model.files[0].id())] {
            fs::create_dir_all(there.parent().unwrap()).unwrap();
            // A file of that size without contents, if this system has such files.
            if fs::File::create(&there).unwrap().set_len(bytes).is_err() {
                return;
            }
            assert!(make_room(&folder, "c0ffee", &model).is_ok());
            fs::remove_file(&there).unwrap();
        }
        assert!(make_room(&folder, "c0ffee", &RemoteModel::of_file("x.gguf", u64::MAX)).is_err());
    }
}
