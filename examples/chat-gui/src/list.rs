//! The list of conversations: open one, begin, rename or delete one.

use crate::conversation::Conversation;
use crate::status::Places;
use eframe::egui::{Align, Button, Layout, ScrollArea, TextEdit, Ui, vec2};

/// What the user wants of the list. Numbers are places in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    New,
    Open(usize),
    Rename(usize, String),
    Delete(usize),
}

/// What is remembered from frame to frame.
#[derive(Default)]
pub struct List {
    /// The id of the conversation that is renamed, and the name so far.
    renaming: Option<(String, String)>,
    /// The id of the conversation to delete, if the user says so once more.
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
    ) -> Option<Wish> {
        let mut wish = None;
        ui.add_space(6.0);
        let new = ui.add_sized(vec2(ui.available_width(), 30.0), Button::new("+  New conversation"));
        places.note("new", new.rect);
        if new.clicked() {
            wish = Some(Wish::New);
        }
        ui.add_space(4.0);
        ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
            for (place, conversation) in conversations.iter().enumerate() {
                let asked = ui.push_id(&conversation.id, |ui| self.row(ui, place, conversation, active, places));
                wish = asked.inner.or(wish.take());
            }
        });
        wish
    }

    fn row(
        &mut self,
        ui: &mut Ui,
        place: usize,
        conversation: &Conversation,
        active: usize,
        places: &mut Places,
    ) -> Option<Wish> {
        if self.renaming.as_ref().is_some_and(|(id, _)| *id == conversation.id) {
            return self.rename(ui, place);
        }
        let name = Button::selectable(place == active, conversation.name()).truncate();
        let row = ui.add_sized(vec2(ui.available_width(), 26.0), name);
        if place == active {
            return self.tools(ui, place, conversation, places);
        }
        row.clicked().then_some(Wish::Open(place))
    }

    /// What can be done with the conversation that is open.
    fn tools(&mut self, ui: &mut Ui, place: usize, conversation: &Conversation, places: &mut Places) -> Option<Wish> {
        let id = &conversation.id;
        let sure = self.deleting.as_ref() == Some(id);
        let mut wish = None;
        ui.with_layout(Layout::right_to_left(Align::TOP), |ui| {
            let delete = ui.small_button(if sure { "Really delete" } else { "Delete" });
            places.note(if sure { "really delete" } else { "delete" }, delete.rect);
            if delete.clicked() {
                self.deleting = (!sure).then(|| id.clone());
                wish = sure.then_some(Wish::Delete(place));
            }
            if sure && ui.small_button("Keep").clicked() {
                self.deleting = None;
            }
            if sure {
                return;
            }
            let rename = ui.small_button("Rename");
            places.note("rename", rename.rect);
            if rename.clicked() {
                self.renaming = Some((id.clone(), conversation.name().to_owned()));
            }
        });
        wish
    }

    fn rename(&mut self, ui: &mut Ui, place: usize) -> Option<Wish> {
        let (_, name) = self.renaming.as_mut()?;
        let edit = ui.add(TextEdit::singleline(name).desired_width(f32::INFINITY));
        if !edit.lost_focus() {
            edit.request_focus();
            return None;
        }
        let (_, name) = self.renaming.take()?;
        let name = name.trim().to_owned();
        (!name.is_empty()).then_some(Wish::Rename(place, name))
    }
}
