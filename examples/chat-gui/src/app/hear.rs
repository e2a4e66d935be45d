//! What is done when the worker tells something, and when the user wants something.

use super::App;
use crate::protocol::{Command, Told};
use crate::{list, picker};
use wglm::Message;

impl App {
    /// Takes what the worker told since the last frame.
    pub(super) fn hear(&mut self) {
        self.worker.hear().into_iter().for_each(|told| self.take(told));
        if self.moves() && !self.worker.lives() {
            (self.pending, self.picker.loading, self.loaded) = (None, None, None);
            self.notices.push("The thread of the model died. Please report it, and start the program again.".into());
        }
    }

    fn take(&mut self, told: Told) {
        match told {
            Told::Estimate(source, estimate) => self.picker.tell(&source, estimate),
            Told::Loading(progress) => self.picker.loading = Some(Some(progress)),
            Told::Loaded(mut loaded) => {
                loaded.sampling.temperature = self.temperature.unwrap_or(loaded.sampling.temperature);
                if self.chats.open().messages.is_empty() {
                    self.chats.open_mut().settings.sampling = loaded.sampling.clone();
                }
                self.loaded = Some(loaded);
                (self.picker.loading, self.picker.open) = (None, false);
                self.open();
            }
            Told::NotLoaded(error) => {
                (self.picker.loading, self.held) = (None, 0);
                self.notices.extend(error);
            }
            Told::Opened(held) => self.held = held,
            Told::Event(event) => {
                if let Some(pending) = &mut self.pending {
                    pending.take(event);
                }
            }
            Told::Replied { message, held, error } => self.replied(message, held, error),
            Told::Notice(notice) => self.notices.push(notice),
        }
    }

    fn replied(&mut self, message: Option<Box<Message>>, held: usize, error: Option<String>) {
        self.held = held;
        self.notices.extend(error);
        let Some(pending) = self.pending.take() else { return };
        self.stats = pending.stats;
        if let Some(conversation) = self.chats.get_mut(&pending.conversation) {
            match message {
                Some(message) => conversation.messages.push(*message),
                // What was asked in vain is there to be asked in other words.
                None => {
                    let asked = conversation.take_back();
                    if self.text.is_empty() {
                        self.text = asked.unwrap_or_default();
                    }
                }
            }
        }
        self.save(&pending.conversation);
        if self.chats.open().id != pending.conversation {
            self.open();
        }
    }

    pub(super) fn grant_list(&mut self, wish: list::Wish) {
        let before = self.chats.open().id.clone();
        match wish {
            list::Wish::New => self.chats.begin(),
            list::Wish::Open(place) => self.chats.go_to(place),
            list::Wish::Rename(place, name) => {
                self.chats.go_to(place);
                self.chats.open_mut().title = name;
                self.save(&self.chats.open().id.clone());
            }
            list::Wish::Delete(place) => self.delete(place),
        }
        if self.chats.open().id != before {
            self.open();
        }
    }

    fn delete(&mut self, place: usize) {
        let deleted = self.chats.delete(place);
        let Some(id) = self.note_failure(deleted) else { return };
        if self.pending.as_ref().is_some_and(|pending| pending.conversation == id) {
            self.worker.stop();
        }
    }

    pub(super) fn grant_picker(&mut self, wish: picker::Wish) {
        match wish {
            picker::Wish::Estimate(source, context) => {
                self.worker.ask(Command::Estimate(source, context));
            }
            picker::Wish::Load(source, context) => self.load(source, context),
            picker::Wish::Cancel => self.worker.stop(),
            picker::Wish::Close => self.picker.open = false,
        }
    }
}
