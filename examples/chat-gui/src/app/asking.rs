//! How the user asks for a reply: by sending a new or edited message or the results of functions, or with a button for
//! another reply or the rest of one.

use super::{App, Edit};
use crate::conversation::Asked;
use crate::pending::Pending;
use crate::protocol::{Command, Request};
use wglm::{Message, Stop};

impl App {
    /// Sends what was typed: a new message, or another version of the one that is edited. An edited message of
    /// the model only changes.
    pub(super) fn send(&mut self) {
        let text = self.text.trim().to_owned();
        match &self.editing {
            Some(edit) if !edit.own => self.rewrite(),
            Some(edit) => {
                let asked = Asked::Edited(edit.position, text);
                self.leave_edit();
                self.ask(asked);
            }
            None => {
                self.text.clear();
                self.ask(Asked::New(text));
            }
        }
    }

    /// Asks for a reply. The messages before this are remembered until there is one. The conversation's file is written
    /// now only if the user has typed something new.
    pub(super) fn ask(&mut self, asked: Asked) {
        let conversation = self.chats.open_mut();
        let (said, id, settings) = (conversation.said(), conversation.id.clone(), conversation.settings.clone());
        let Some(messages) = conversation.begin_reply(&asked) else { return };
        let (said, shown) = (said.before(conversation), conversation.tree.len());
        let rest = asked == Asked::Rest;
        let begun = messages.last().filter(|_| rest).cloned();
        if !matches!(asked, Asked::Again(_) | Asked::Rest) {
            self.save(&id);
        }
        self.view.changed(shown.saturating_sub(1));
        self.undo = None;
        self.frames.clear();
        self.pending = Some(Pending::new(id, said, asked, begun));
        let request = Request { place: self.chats.place(), messages, settings, rest };
        if !self.worker.ask(Command::Reply(Box::new(request))) {
            self.not_replied();
        }
    }

    /// Ends a reply: adds its message, which may be incomplete, or, if there is none, brings back the messages before
    /// it and what the user typed.
    pub(super) fn replied(&mut self, message: Option<Box<Message>>, held: usize, error: Option<String>) {
        (self.held, self.replies) = (held, self.replies + 1);
        self.notices.extend(error);
        let Some(pending) = self.pending.take() else { return };
        let Pending { conversation: id, said, asked, stats, failed_call, .. } = pending;
        self.notices.extend(
            failed_call
                .map(|text| format!("The model called a function, but the call is not valid or was cut off: {text}")),
        );
        self.stats = stats;
        let (is_open, stop) = (self.chats.open().id == id, stats.map(|stats| stats.stop));
        if is_open && held > 0 {
            self.counter.note(held); // the old number would be shown until the new one is counted
        }
        let back = message.is_none() && self.gives_back(&asked, is_open);
        if let Some(conversation) = self.chats.get_mut(&id) {
            match message {
                Some(message) => conversation.end_reply(&asked, said, *message, stop),
                None if back => conversation.bring_back(said),
                None => {}
            }
        }
        self.save(&id);
        if !is_open {
            self.open();
        }
    }

    /// Ends a reply that will never arrive, because the worker has ended.
    pub(super) fn not_replied(&mut self) {
        self.replied(None, 0, None);
    }

    /// Keeps the unanswered message in the conversation, even if the reply fails: the window closes, so the message
    /// cannot return to its field.
    pub(super) fn keep_asked(&mut self) {
        let typed = |pending: &&mut Pending| !matches!(pending.asked, Asked::Again(_) | Asked::Rest);
        let Some(pending) = self.pending.as_mut().filter(typed) else { return };
        if let Some(conversation) = self.chats.get_mut(&pending.conversation) {
            pending.said = conversation.said();
        }
    }

    /// Puts what was typed back into its field, to be changed and sent again. False if the user is already typing
    /// something else there: then the message stays in the conversation.
    fn gives_back(&mut self, asked: &Asked, is_open: bool) -> bool {
        let free = is_open && self.editing.is_none();
        match asked {
            Asked::Again(_) | Asked::Rest => true,
            Asked::New(text) if free && self.text.is_empty() => {
                self.text.clone_from(text);
                true
            }
            Asked::Edited(position, text) if free => {
                let before = std::mem::replace(&mut self.text, text.clone());
                self.editing = Some(Edit { position: *position, own: true, before });
                true
            }
            Asked::New(_) | Asked::Edited(..) | Asked::Results(_) => false,
        }
    }

    /// Whether the last reply was cut off, as far as that is known.
    pub(super) fn is_cut(&self) -> bool {
        let last = self.chats.open().tree.last();
        last.is_some_and(|turn| {
            let whole = matches!(turn.stop, Some(Stop::End | Stop::StopString));
            turn.message.role == "assistant" && turn.message.tool_calls.is_empty() && !whole
        })
    }
}
