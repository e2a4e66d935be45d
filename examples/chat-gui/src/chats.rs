//! The conversations in the store and in the list. One of them is always open.

use crate::conversation::Conversation;
use crate::protocol::Place;
use crate::settings::Settings;
use crate::store::Store;
use std::cell::Cell;
use std::io::Result;

/// The conversations.
pub struct Chats {
    store: Store,
    list: Vec<Conversation>,
    active: usize,
    changes: Cell<usize>,
}

impl Chats {
    /// The conversations of a store, the newest of which is open, and messages about files that cannot be read.
    ///
    /// # Errors
    /// Those of [`Store::read`].
    pub fn read(store: Store) -> Result<(Self, Vec<String>)> {
        let (mut list, damaged) = store.read()?;
        if list.is_empty() {
            list.push(Conversation::new(Settings::default()));
        }
        Ok((Self { store, list, active: 0, changes: Cell::new(0) }, damaged))
    }

    /// All conversations, newest first.
    pub fn list(&self) -> &[Conversation] {
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
        &mut self.list[self.active]
    }

    /// A conversation by its id.
    pub fn get_mut(&mut self, id: &str) -> Option<&mut Conversation> {
        self.list.iter_mut().find(|conversation| conversation.id == id)
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
            self.list.insert(0, Conversation::new(settings));
            self.active = 0;
            self.note_change();
        }
    }

    /// Saves a conversation. Empty ones have no file.
    ///
    /// # Errors
    /// Those of [`Store::write`] and [`Store::delete`].
    pub fn save(&self, id: &str) -> Result<()> {
        self.note_change();
        match self.list.iter().find(|conversation| conversation.id == id) {
            Some(empty) if empty.is_empty() => self.store.delete(id),
            Some(conversation) => self.store.write(conversation),
            None => Ok(()),
        }
    }

    /// Deletes a conversation, in the store as well, and returns its id.
    ///
    /// # Errors
    /// Those of [`Store::delete`]; the conversation then stays in the list.
    pub fn delete(&mut self, place: usize) -> Result<String> {
        let id = self.list[place].id.clone();
        self.store.delete(&id)?;
        let gone = self.list.remove(place);
        self.note_change();
        if self.list.is_empty() {
            self.list.push(Conversation::new(gone.settings));
        }
        self.active = self.active.min(self.list.len() - 1);
        Ok(id)
    }

    /// The paths of the open conversation and of its session.
    pub fn place(&self) -> Place {
        self.store.place(&self.open().id)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Chats, Store};

    #[test]
    fn there_is_always_one() {
        let folder = tempfile::tempdir().unwrap();
        let store = || Store::open(folder.path().to_owned()).unwrap();
        let (mut chats, damaged) = Chats::read(store()).unwrap();
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
        assert_eq!(Chats::read(store()).unwrap().0.list(), &chats.list()[1..], "the empty one has no file");
        chats.go_to(1);
        assert_eq!(chats.delete(1).unwrap(), first);
        assert_eq!((chats.active(), chats.list().len()), (0, 1));
        chats.delete(0).unwrap();
        assert!(chats.open().is_empty());
    }
}
