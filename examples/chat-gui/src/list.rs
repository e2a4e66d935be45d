//! The list of conversations, in which the user opens, begins, renames and deletes them.

use crate::conversation::Conversation;
use crate::status::Places;
use eframe::egui::{Align, Button, Layout, ScrollArea, TextEdit, Ui, vec2};

/// An action of the user. Numbers are positions in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    New,
    Open(usize),
    Rename(usize, String),
    Delete(usize),
}

/// State that is kept from frame to frame.
#[derive(Default)]
pub struct List {
    /// The id of the conversation that is being renamed, and the name so far.
    renaming: Option<(String, String)>,
    /// The id of the conversation that will be deleted if the user confirms.
    deleting: Option<String>,
}

impl List {
    /// Shows the list.
    pub fn show(
        &mut self,
        ui: &mut Ui,
        conversations: &[Conversation],
        active: usize,
        places: &mut Places,
    ) -> Option<Action> {
        let mut action = None;
        ui.add_space(6.0);
        let new = ui.add_sized(vec2(ui.available_width(), 30.0), Button::new("+  New conversation"));
        places.note("new", new.rect);
        if new.clicked() {
            action = Some(Action::New);
        }
        ui.add_space(4.0);
        ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
            for (place, conversation) in conversations.iter().enumerate() {
                let asked = ui.push_id(&conversation.id, |ui| self.row(ui, place, conversation, active, places));
                action = asked.inner.or(action.take());
            }
        });
        action
    }

    fn row(
        &mut self,
        ui: &mut Ui,
        place: usize,
        conversation: &Conversation,
        active: usize,
        places: &mut Places,
    ) -> Option<Action> {
        if self.renaming.as_ref().is_some_and(|(id, _)| *id == conversation.id) {
            return self.rename(ui, place);
        }
        let name = Button::selectable(place == active, conversation.name()).truncate();
        let row = ui.add_sized(vec2(ui.available_width(), 26.0), name);
        if place == active {
            return self.tools(ui, place, conversation, places);
        }
        row.clicked().then_some(Action::Open(place))
    }

    /// The buttons for the open conversation.
    fn tools(&mut self, ui: &mut Ui, place: usize, conversation: &Conversation, places: &mut Places) -> Option<Action> {
        let id = &conversation.id;
        let confirming = self.deleting.as_ref() == Some(id);
        let mut action = None;
        ui.with_layout(Layout::right_to_left(Align::TOP), |ui| {
            let delete = ui.small_button(if confirming { "Delete for good" } else { "Delete" });
            places.note(if confirming { "really delete" } else { "delete" }, delete.rect);
            if delete.clicked() {
                self.deleting = (!confirming).then(|| id.clone());
                action = confirming.then_some(Action::Delete(place));
            }
            if confirming && ui.small_button("Keep").clicked() {
                self.deleting = None;
            }
            if confirming {
                return;
            }
            let rename = ui.small_button("Rename");
            places.note("rename", rename.rect);
            if rename.clicked() {
                self.renaming = Some((id.clone(), conversation.name().to_owned()));
            }
        });
        action
    }

    fn rename(&mut self, ui: &mut Ui, place: usize) -> Option<Action> {
        let (_, name) = self.renaming.as_mut()?;
        let edit = TextEdit::singleline(name).desired_width(f32::INFINITY);
        let edit = ui.name_inputs("Name of the conversation", |ui| ui.add(edit));
        if !edit.lost_focus() {
            edit.request_focus();
            return None;
        }
        let (_, name) = self.renaming.take()?;
        let name = name.trim().to_owned();
        (!name.is_empty()).then_some(Action::Rename(place, name))
    }
}
