//! How the user asks: with a new message, with the last one edited, or again.

use super::App;
use crate::message_tools::{Action, Offered};
use crate::pending::{Pending, Typed};
use crate::protocol::{Command, Request};
use wglm::{Message, Stop};

impl App {
    /// Sends the typed message, in place of the last one if that was edited.
    pub(super) fn send(&mut self) {
        let text = std::mem::take(&mut self.text);
        let text = text.trim().to_owned();
        let typed = match self.editing.take() {
            Some((_, before)) => {
                self.text = before;
                Typed::Edited(text)
            }
            None => Typed::New(text),
        };
        self.ask(typed);
    }

    /// Asks for a reply. What was said until now is kept until there is one, and so is the file of the conversation if
    /// nothing new was typed.
    pub(super) fn ask(&mut self, typed: Typed) {
        let conversation = self.chats.open_mut();
        let said = conversation.said();
        match &typed {
            Typed::New(text) => conversation.ask(text),
            Typed::Edited(text) => conversation.ask_instead(text),
            Typed::Nothing => {
                if !conversation.reply_again() {
                    return;
                }
            }
        }
        let (messages, settings) = (conversation.messages.clone(), conversation.settings.clone());
        let id = conversation.id.clone();
        if typed != Typed::Nothing {
            self.save(&id);
        }
        self.frames.clear();
        let request = Request { place: self.chats.place(), messages, settings };
        if self.worker.ask(Command::Reply(Box::new(request))) {
            self.pending = Some(Pending::new(id, said, typed));
        }
    }

    /// Ends a reply: with its message, or with what was said before it and what the user typed, if nothing was replied,
    /// or if it was to take the place of something and was stopped or failed.
    pub(super) fn replied(&mut self, message: Option<Box<Message>>, held: usize, error: Option<String>) {
        (self.held, self.replies) = (held, self.replies + 1);
        let failed = error.is_some();
        self.notices.extend(error);
        let Some(pending) = self.pending.take() else { return };
        let Pending { conversation: id, said, typed, stats, .. } = pending;
        let whole = !failed && stats.as_ref().is_some_and(|stats| stats.stop != Stop::Cancelled);
        let message = message.filter(|_| whole || matches!(typed, Typed::New(_)));
        self.stats = stats;
        let is_open = self.chats.open().id == id;
        if let Some(conversation) = self.chats.get_mut(&id) {
            match message {
                Some(message) => conversation.messages.push(*message),
                None => {
                    conversation.bring_back(said);
                    self.give_back(id.clone(), typed, is_open);
                }
            }
        }
        self.save(&id);
        if !is_open {
            self.open();
        }
    }

    /// Keeps a new message that is not replied to yet, whatever comes of the reply: there will be no field to put it back
    /// into.
    pub(super) fn keep_asked(&mut self) {
        let Some(pending) = self.pending.as_mut().filter(|pending| matches!(pending.typed, Typed::New(_))) else {
            return;
        };
        if let Some(conversation) = self.chats.get_mut(&pending.conversation) {
            pending.said = conversation.said();
        }
    }

    /// Puts what was typed back where it was typed, to be changed and sent again, unless the user types something else.
    fn give_back(&mut self, id: String, typed: Typed, is_open: bool) {
        match typed {
            Typed::New(text) if self.text.is_empty() => self.text = text,
            Typed::Edited(text) if is_open && self.editing.is_none() => {
                self.editing = Some((id, std::mem::replace(&mut self.text, text)));
            }
            _ => {}
        }
    }

    /// Puts the user's last message into the text field.
    pub(super) fn edit(&mut self) {
        let conversation = self.chats.open();
        let Some(own) = conversation.last_own().filter(|_| self.editing.is_none()) else { return };
        let text = conversation.messages[own].text().into_owned();
        self.editing = Some((conversation.id.clone(), std::mem::replace(&mut self.text, text)));
    }

    /// Leaves the last message as it is: what was typed before is in the text field again.
    pub(super) fn leave_edit(&mut self) {
        if let Some((_, before)) = self.editing.take() {
            self.text = before;
        }
    }

    /// What can be done with the last messages of the open conversation.
    pub(super) fn offered(&self) -> Offered<'static> {
        let free = self.pending.is_none() && self.tuning.is_none() && self.editing.is_none();
        let conversation = self.chats.open();
        let sampling = &conversation.settings.sampling;
        let hint = match (sampling.temperature == 0.0, sampling.seed) {
            (true, _) => "Generate this reply again. With a temperature of 0 it will be the same.",
            (false, Some(_)) => "Generate this reply again. With a fixed seed it will be the same.",
            (false, None) => "Generate this reply again",
        };
        let can_ask = free && self.loaded.is_some() && conversation.last_own().is_some();
        Offered { again: can_ask.then_some(hint), edit: free }
    }

    pub(super) fn on_message_action(&mut self, action: Action) {
        match action {
            Action::Again => self.ask(Typed::Nothing),
            Action::Edit => self.edit(),
        }
    }
}
