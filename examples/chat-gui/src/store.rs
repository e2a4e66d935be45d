//! The folder of conversations. Each is a JSON file, with the snapshot of its session next to it.

use crate::conversation::Conversation;
use crate::files::{self, named};
use crate::protocol::Place;
use std::fs;
use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};

/// The folder.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// Opens the folder, and creates it if necessary.
    ///
    /// # Errors
    /// The errors of the file system, with the name of the folder.
    pub fn open(folder: PathBuf) -> Result<Self> {
        fs::create_dir_all(&folder).map_err(|error| named(&folder, error))?;
        Ok(Self { folder })
    }

    /// The conversations, newest first, and messages about files that cannot be read.
    ///
    /// # Errors
    /// The errors of the file system if the folder cannot be read.
    pub fn read(&self) -> Result<(Vec<Conversation>, Vec<String>)> {
        let (mut found, mut damaged) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.folder).map_err(|error| named(&self.folder, error))? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            match read(&path) {
                Ok(conversation) => found.push(conversation),
                Err(error) => damaged.push(format!("A conversation could not be read: {error}.")),
            }
        }
        found.sort_by(|a, b| b.id.cmp(&a.id));
        Ok((found, damaged))
    }

    /// Writes a conversation, as [`files::replace`] does.
    ///
    /// # Errors
    /// The errors of the file system, with the name of the file.
    pub fn write(&self, conversation: &Conversation) -> Result<()> {
        files::replace(&self.file(&conversation.id, "json"), &serde_json::to_vec_pretty(conversation)?)
    }

    /// Deletes a conversation and its snapshot.
    ///
    /// # Errors
    /// The errors of the file system, with the name of the file. A missing file is not an error.
    pub fn delete(&self, id: &str) -> Result<()> {
        for path in [self.file(id, "json"), self.file(id, "json.new"), self.file(id, "session")] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(named(&path, error)),
                _ => {}
            }
        }
        Ok(())
    }

    /// A conversation, and the path of its snapshot.
    pub fn place(&self, id: &str) -> Place {
        Place { id: id.to_owned(), snapshot: self.file(id, "session") }
    }

    fn file(&self, id: &str, extension: &str) -> PathBuf {
        self.folder.join(id).with_extension(extension)
    }
}

fn read(path: &Path) -> Result<Conversation> {
    let json = fs::read(path).map_err(|error| named(path, error))?;
    let mut conversation: Conversation = serde_json::from_slice(&json).map_err(|error| named(path, error.into()))?;
    conversation.id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(conversation)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Conversation, Store, fs};
    use crate::settings::Settings;
    use wglm::{Message, Stop};

    fn conversation(id: &str) -> Conversation {
        let mut conversation = Conversation::new(Settings::default());
        conversation.settings.sampling.seed = Some(7);
        conversation.id = id.into();
        conversation.ask("What is an owl?");
        conversation.tree.push(Message::assistant("A bird.").with_reasoning("Birds …"), Some(Stop::Length));
        conversation
    }

    #[test]
    fn conversations_come_back_newest_first() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("not/yet")).unwrap();
        let (old, new) = (conversation("1"), conversation("2"));
        store.write(&old).unwrap();
        store.write(&new).unwrap();
        assert_eq!(store.read().unwrap(), (vec![new.clone(), old], vec![]));
        store.delete("1").unwrap();
        store.delete("1").unwrap();
        assert_eq!(store.read().unwrap(), (vec![new], vec![]));
    }

    #[test]
    fn damaged_files_are_reported_and_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().to_owned()).unwrap();
        store.write(&conversation("good")).unwrap();
        let json = fs::read_to_string(folder.path().join("good.json")).unwrap();
        fs::write(folder.path().join("short.json"), &json[..json.len() / 2]).unwrap();
        fs::write(folder.path().join("later.json"), json.replace("\"version\": 2", "\"version\": 9")).unwrap();
        fs::write(folder.path().join("other.txt"), "no conversation").unwrap();
        let (found, mut damaged) = store.read().unwrap();
        damaged.sort();
        assert_eq!(found, [conversation("good")]);
        assert_eq!(damaged.len(), 2);
        assert!(damaged[0].contains("later.json: expected version 1 to 2, found 9"), "{damaged:?}");
        assert!(damaged[1].contains("short.json: EOF"), "{damaged:?}");
    }
}
