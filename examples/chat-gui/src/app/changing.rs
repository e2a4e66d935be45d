//! How the user changes messages: by editing and deleting them, and by switching between their versions.

use super::{App, Edit, Undo};
use crate::conversation::{Asked, Conversation};
use crate::message_tools::{Action, Offered};

impl App {
    pub(super) fn on_message_action(&mut self, action: Action) {
        match action {
            Action::Again(position) => self.ask(Asked::Again(position)),
            Action::Rest => self.ask(Asked::Rest),
            Action::Edit(position) => self.edit(position),
            Action::Delete(position) => self.delete_message(position),
            Action::Version(position, version) => {
                self.undo = None;
                self.chats.open_mut().tree.switch(position, version);
                self.save(&self.chats.open().id.clone());
                self.view.changed(position);
            }
        }
    }

    /// What can be done with the message at a position of the open conversation.
    pub(super) fn offered(&self, position: usize) -> Offered<'static> {
        let (conversation, free) = (self.chats.open(), self.is_free());
        let Some(turn) = conversation.tree.get(position) else { return Offered::default() };
        let last = position + 1 == conversation.tree.len();
        let is_reply = turn.message.role == "assistant";
        let can_ask = free && self.loaded.is_some();
        // A reply is regenerated at its own position; the answer to the last message is generated after it.
        let again = if is_reply { position } else { position + 1 };
        let unanswered = last && conversation.open_calls().is_empty();
        let can_reply = (is_reply || unanswered) && conversation.can_reply(again);
        Offered {
            position,
            again: (can_ask && can_reply).then(|| (again, self.hint(is_reply))),
            rest: can_ask && last && self.is_cut(),
            change: free,
            version: conversation.tree.version(position),
        }
    }

    /// Whether the open conversation may be changed.
    pub(super) fn is_free(&self) -> bool {
        self.pending.is_none() && self.tuning.is_none() && self.editing.is_none()
    }

    fn hint(&self, is_reply: bool) -> &'static str {
        let sampling = &self.chats.open().settings.sampling;
        match (is_reply, sampling.temperature == 0.0, sampling.seed) {
            (false, ..) => "Generate an answer to this message",
            (true, true, _) => "Generate this reply again. With a temperature of 0 it will be the same.",
            (true, false, Some(_)) => "Generate this reply again. With a fixed seed it will be the same.",
            (true, false, None) => "Generate this reply again. This one and what follows it are kept.",
        }
    }

    /// Deletes a message, which can be undone.
    fn delete_message(&mut self, position: usize) {
        self.change("The message was deleted.", position, |conversation| conversation.tree.remove(position));
    }

    /// Changes the open conversation from a position on, in a way that can be undone.
    fn change(&mut self, done: &'static str, position: usize, change: impl FnOnce(&mut Conversation)) {
        let conversation = self.chats.open_mut();
        let (id, said) = (conversation.id.clone(), conversation.said());
        change(conversation);
        let said = said.before(conversation);
        self.save(&id);
        self.view.changed(position);
        self.undo = Some(Undo { conversation: id, said, done });
    }

    /// Undoes the last change.
    pub(super) fn undo(&mut self) {
        let Some(Undo { conversation: id, said, .. }) = self.undo.take() else { return };
        if let Some(conversation) = self.chats.get_mut(&id) {
            conversation.bring_back(said);
        }
        self.save(&id);
        self.view.changed(0);
    }

    /// Puts a message into the text field.
    pub(super) fn edit(&mut self, position: usize) {
        let conversation = self.chats.open();
        let Some(turn) = conversation.tree.get(position).filter(|_| self.is_free()) else { return };
        let (text, own) = (turn.message.text().into_owned(), turn.message.role == "user");
        let before = std::mem::replace(&mut self.text, text);
        self.editing = Some(Edit { position, own, before });
    }

    /// Changes the message that is edited, without asking for a reply.
    pub(super) fn rewrite(&mut self) {
        let text = self.text.trim().to_owned();
        let Some(Edit { position, .. }) = self.editing else { return };
        self.leave_edit();
        self.change("The message was changed.", position, |conversation| conversation.rewrite(position, &text));
    }

    /// Leaves the message as it is: what was typed before is in the text field again.
    pub(super) fn leave_edit(&mut self) {
        if let Some(Edit { before, .. }) = self.editing.take() {
            self.text = before;
        }
    }
}
