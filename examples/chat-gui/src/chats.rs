//! The conversations in the store and in the list. One of them is always open.

use crate::conversation::Conversation;
use crate::protocol::Place;
use crate::saver::{Failure, Job, Jobs, Saver};
use crate::settings::Settings;
use crate::store::Store;
use eframe::egui::Context;
use std::cell::Cell;
use std::io::Result;
use std::sync::Arc;

/// The conversations.
pub struct Chats {
    store: Store,
    saver: Saver,
    /// What is being written or searched is shared with other threads, and copied if it changes meanwhile.
    list: Vec<Arc<Conversation>>,
    active: usize,
    changes: Cell<usize>,
    /// The ids of conversations whose files are older than they are, because they could not be written.
    unsaved: Vec<String>,
}

impl Chats {
    /// The conversations of a store, the newest of which is open, and messages about files that cannot be read.
    ///
    /// # Errors
    /// The errors of [`Store::read`] and [`Saver::start`].
    pub fn read(store: Store, window: &Context) -> Result<(Self, Vec<String>)> {
        let (list, damaged) = store.read()?;
        let mut list: Vec<Arc<Conversation>> = list.into_iter().map(Arc::new).collect();
        if list.is_empty() {
            list.push(Arc::new(Conversation::new(Settings::default())));
        }
        let saver = Saver::start(store.clone(), window.clone())?;
        Ok((Self { store, saver, list, active: 0, changes: Cell::new(0), unsaved: Vec::new() }, damaged))
    }

    /// All conversations, newest first.
    pub fn list(&self) -> &[Arc<Conversation>] {
        &self.list
    }

    /// The position of the open conversation in the list.
    pub fn active(&self) -> usize {
        self.active
    }

    /// A number that rises whenever a conversation is saved, begun or deleted, and so after each change.
    pub fn changes(&self) -> usize {
        self.changes.get()
    }

    fn note_change(&self) {
        self.changes.set(self.changes.get() + 1);
    }

    /// The open conversation.
    pub fn open(&self) -> &Conversation {
        &self.list[self.active]
    }

    /// The open conversation, to change it. The caller has to [save](Self::save) it.
    pub fn open_mut(&mut self) -> &mut Conversation {
        Arc::make_mut(&mut self.list[self.active])
    }

    /// A conversation by its id, to change it.
    pub fn get_mut(&mut self, id: &str) -> Option<&mut Conversation> {
        self.list.iter_mut().find(|conversation| conversation.id == id).map(Arc::make_mut)
    }

    /// Opens another conversation.
    pub fn go_to(&mut self, place: usize) {
        self.active = place.min(self.list.len() - 1);
    }

    /// Opens the conversation with this id, if there is one.
    pub fn go_to_id(&mut self, id: &str) {
        self.active = self.list.iter().position(|conversation| conversation.id == id).unwrap_or(self.active);
    }

    /// Begins a conversation with the settings of the open one, unless the open one is empty.
    pub fn begin(&mut self) {
        if !self.open().is_empty() {
            let settings = self.open().settings.clone();
            self.list.insert(0, Arc::new(Conversation::new(settings)));
            self.active = 0;
            self.note_change();
        }
    }

    /// Has a conversation saved. Empty ones have no file: returns true if it is empty.
    ///
    /// # Errors
    /// The errors of [`Jobs::give`].
    pub fn save(&self, id: &str) -> Result<bool> {
        self.note_change();
        let Some(conversation) = self.list.iter().find(|conversation| conversation.id == id) else { return Ok(false) };
        let (shared, empty) = (conversation.clone(), conversation.is_empty());
        self.saver.jobs().give(if empty { Job::Delete(shared) } else { Job::Write(shared) })?;
        Ok(empty)
    }

    /// Deletes a conversation, and has its files deleted. Returns its id.
    ///
    /// # Errors
    /// The errors of [`Jobs::give`].
    pub fn delete(&mut self, place: usize) -> Result<String> {
        let gone = self.list.remove(place);
        self.note_change();
        if self.list.is_empty() {
            self.list.push(Arc::new(Conversation::new(gone.settings.clone())));
        }
        self.active = self.active.min(self.list.len() - 1);
        let id = gone.id.clone();
        self.saver.jobs().give(Job::Delete(gone))?;
        Ok(id)
    }

    /// The errors of saving and deleting since the last call. A conversation whose files could not be deleted returns
    /// to the list.
    pub fn failures(&mut self) -> Vec<String> {
        let failures: Vec<_> = self.saver.failures().collect();
        failures.iter().for_each(|failure| self.note_failure(failure));
        let remedy = |failure: &Failure| match failure.deleting {
            true => " It stays in the list.",
            false => " It will be saved with its next change, or when the window closes.",
        };
        failures.iter().map(|failure| message(failure) + remedy(failure)).collect()
    }

    fn note_failure(&mut self, Failure { conversation, deleting, .. }: &Failure) {
        let id = &conversation.id;
        if !deleting {
            self.unsaved.push(id.clone());
        } else if self.list.iter().all(|other| other.id != *id) {
            let place = self.list.partition_point(|other| other.id > *id);
            self.list.insert(place, conversation.clone());
            self.active += usize::from(place <= self.active);
            self.note_change();
        }
    }

    /// Waits until everything is saved, and tries once more what could not be saved, since there may be space on the
    /// disk by now. Returns the errors that are left.
    pub fn finish(&mut self) -> Vec<String> {
        self.saver.jobs().wait();
        let failures: Vec<_> = self.saver.failures().collect();
        failures.iter().for_each(|failure| self.note_failure(failure));
        let mut unsaved = std::mem::take(&mut self.unsaved);
        unsaved.sort_unstable();
        unsaved.dedup();
        let mut errors: Vec<String> = failures.iter().filter(|failure| failure.deleting).map(message).collect();
        errors.extend(unsaved.iter().filter_map(|id| self.save(id).err()).map(|error| format!("{error}.")));
        self.saver.jobs().wait();
        errors.extend(self.saver.failures().map(|failure| message(&failure)));
        errors
    }

    /// A way to wait for what is being saved.
    pub fn jobs(&self) -> &Jobs {
        self.saver.jobs()
    }

    /// The paths of the open conversation and of its session.
    pub fn place(&self) -> Place {
        self.store.place(&self.open().id)
    }
}

/// What failed, and why.
fn message(Failure { error, deleting, .. }: &Failure) -> String {
    format!("A conversation could not be {}: {error}.", if *deleting { "deleted" } else { "saved" })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Chats, Context, Store};
    use std::fs;

    #[test]
    fn there_is_always_one() {
        let folder = tempfile::tempdir().unwrap();
        let store = || Store::open(folder.path().to_owned()).unwrap();
        let read = || Chats::read(store(), &Context::default()).unwrap();
        let (mut chats, damaged) = read();
        assert!(damaged.is_empty());
        chats.begin();
        assert_eq!(chats.list().len(), 1, "the open one is empty: it will do");
        chats.open_mut().ask("first");
        chats.open_mut().settings.sampling.seed = Some(3);
        let first = chats.open().id.clone();
        let before = chats.changes();
        chats.save(&first).unwrap();
        assert!(chats.changes() > before);
        chats.begin();
        assert_eq!((chats.list().len(), chats.open().settings.sampling.seed), (2, Some(3)));
        chats.save(&chats.open().id).unwrap();
        chats.jobs().wait();
        assert_eq!(read().0.list(), &chats.list()[1..], "the empty one has no file");
        chats.go_to(1);
        assert_eq!(chats.delete(1).unwrap(), first);
        assert_eq!((chats.active(), chats.list().len()), (0, 1));
        chats.delete(0).unwrap();
        assert!(chats.open().is_empty());
    }

    #[test]
    fn what_cannot_be_saved_is_saved_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let read = || Chats::read(Store::open(folder.path().to_owned()).unwrap(), &Context::default()).unwrap().0;
        let mut chats = read();
        chats.open_mut().ask("first");
        let id = chats.open().id.clone();
        let file = folder.path().join(format!("{id}.json"));
        fs::create_dir_all(file.join("x")).unwrap(); // a folder in its place cannot be replaced
        chats.save(&id).unwrap();
        chats.save(&id).unwrap();
        chats.jobs().wait();
        let errors = chats.failures();
        assert!(errors.len() == 2 && errors[0].contains(&id), "{errors:?}");
        let errors = chats.finish();
        assert!(errors.len() == 1 && errors[0].contains(&id), "it still cannot: {errors:?}");
        chats.save(&id).unwrap();
        chats.jobs().wait();
        chats.failures();
        fs::remove_dir_all(file).unwrap();
        assert!(chats.finish().is_empty());
        assert_eq!(read().list(), chats.list());
    }

    #[test]
    fn what_cannot_be_deleted_returns_to_the_list() {
        let folder = tempfile::tempdir().unwrap();
        let (mut chats, _) = Chats::read(Store::open(folder.path().to_owned()).unwrap(), &Context::default()).unwrap();
        let mut ids = Vec::new();
        for text in ["first", "second", "third"] {
            chats.begin();
            chats.open_mut().ask(text);
            ids.insert(0, chats.open().id.clone());
        }
        fs::create_dir_all(folder.path().join(format!("{}.json/x", ids[1]))).unwrap();
        chats.go_to(2);
        assert_eq!(chats.delete(1).unwrap(), ids[1]);
        chats.jobs().wait();
        let errors = chats.failures();
        assert!(errors.len() == 1 && errors[0].contains(&ids[1]), "{errors:?}");
        let listed: Vec<_> = chats.list().iter().map(|conversation| conversation.id.clone()).collect();
        assert_eq!((listed, &chats.open().id), (ids.clone(), &ids[2]));
    }
}
