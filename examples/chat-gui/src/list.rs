//! The list of conversations, in which the user opens, begins, renames, exports and deletes them, and the search, whose
//! results replace the list.

use crate::access;
use crate::chats::Chats;
use crate::conversation::Conversation;
use crate::look;
use crate::search::{Found, Search};
use crate::status::Places;
use eframe::egui::{Align, Button, Frame, Key, Layout, Margin, RichText, ScrollArea, TextEdit, Ui, vec2};
use std::sync::Arc;

/// An action of the user. Numbers are positions in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    New,
    Open(usize),
    /// Open a conversation at a message, by its number in the tree.
    Show(usize, usize),
    Rename(usize, String),
    /// Export the open conversation.
    Export,
    Delete(usize),
}

/// State that is kept from frame to frame.
#[derive(Default)]
pub struct List {
    /// The id of the conversation that is being renamed, and the name so far.
    renaming: Option<(String, String)>,
    /// The id of the conversation that will be deleted if the user confirms.
    deleting: Option<String>,
    search: Search,
    /// Whether the search field should get the cursor, and whether it has it.
    seek: bool,
    seeking: bool,
    /// Whether the first result is to be opened as soon as it is known.
    entered: bool,
}

impl List {
    /// Moves the cursor to the search field.
    pub fn seek(&mut self) {
        self.seek = true;
    }

    /// Whether the cursor is in the search field.
    pub fn is_seeking(&self) -> bool {
        self.seeking
    }

    /// What the search found, in words.
    pub fn words(&self) -> Vec<String> {
        let messages = self.search.found().iter().flat_map(|found| &found.messages);
        messages.map(|(_, text)| text.clone()).collect()
    }

    /// Shows the list, or the results of the search.
    pub fn show(&mut self, ui: &mut Ui, chats: &Chats, places: &mut Places) -> Option<Action> {
        let (conversations, active) = (chats.list(), chats.active());
        let mut action = None;
        ui.add_space(6.0);
        let new = ui.add_sized(vec2(ui.available_width(), 30.0), Button::new("+  New conversation"));
        places.note("new", new.rect);
        if new.clicked() {
            action = Some(Action::New);
        }
        ui.add_space(4.0);
        self.search(ui, chats, places);
        ui.add_space(4.0);
        ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
            if self.search.is_wanted() {
                let enter = !self.search.is_running() && std::mem::take(&mut self.entered);
                let opened = self.found(ui, conversations, places);
                action = opened.or(self.first(conversations).filter(|_| enter)).or(action.take());
                return;
            }
            for (place, conversation) in conversations.iter().enumerate() {
                let asked = ui.push_id(&conversation.id, |ui| self.row(ui, place, conversation, active, places));
                action = asked.inner.or(action.take());
            }
        });
        action
    }

    /// The search field.
    fn search(&mut self, ui: &mut Ui, chats: &Chats, places: &mut Places) {
        let field = TextEdit::singleline(&mut self.search.text).hint_text("Search").desired_width(f32::INFINITY);
        let field = ui.add(field);
        access::name(&field, "Search");
        places.note("search", field.rect);
        if std::mem::take(&mut self.seek) {
            field.request_focus();
        }
        self.seeking = field.has_focus();
        let pressed = |key| field.lost_focus() && ui.input(|input| input.key_pressed(key));
        if pressed(Key::Escape) {
            self.search.text.clear();
        }
        self.entered = pressed(Key::Enter) || self.entered && !field.changed();
        self.search.update(ui.ctx(), chats);
    }

    /// The action that opens the first result.
    fn first(&self, conversations: &[Arc<Conversation>]) -> Option<Action> {
        let first = self.search.found().first()?;
        let place = place(conversations, first)?;
        Some(match first.messages.first() {
            Some((turn, _)) => Action::Show(place, *turn),
            None => Action::Open(place),
        })
    }

    fn found(&self, ui: &mut Ui, conversations: &[Arc<Conversation>], places: &mut Places) -> Option<Action> {
        let mut action = None;
        if self.search.found().is_empty() {
            ui.weak(if self.search.is_running() { "Searching …" } else { "No results" });
        }
        for found in self.search.found() {
            let Some(place) = place(conversations, found) else { continue };
            let name = RichText::new(conversations[place].name()).strong();
            if ui.add(Button::selectable(false, name).truncate()).clicked() {
                action = Some(Action::Open(place));
            }
            for (turn, text) in &found.messages {
                let row = Button::new(RichText::new(text).small()).wrap().frame_when_inactive(false);
                let row = ui.add(row);
                places.note(format!("found {place} {turn}"), row.rect);
                if row.clicked() {
                    action = Some(Action::Show(place, *turn));
                }
            }
            if found.more > 0 {
                let messages = if found.more == 1 { "message" } else { "messages" };
                let more = RichText::new(format!("and {} more {messages}", found.more)).small().weak();
                let margin = Margin::symmetric(ui.spacing().button_padding.x as i8, 0); // as in the rows above
                Frame::new().inner_margin(margin).show(ui, |ui| ui.label(more));
            }
            ui.add_space(6.0);
        }
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
        let name = Button::selectable(place == active, conversation.name()).truncate().min_size(vec2(0.0, 26.0));
        let row = ui.with_layout(Layout::top_down_justified(Align::Min), |ui| ui.add(name)).inner;
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
        let size = vec2(ui.available_width(), look::SMALL);
        ui.allocate_ui_with_layout(size, Layout::right_to_left(Align::Center), |ui| {
            let delete = ui.add(look::small(if confirming { "Delete for good" } else { "Delete" }));
            places.note(if confirming { "really delete" } else { "delete" }, delete.rect);
            if delete.clicked() {
                self.deleting = (!confirming).then(|| id.clone());
                action = confirming.then_some(Action::Delete(place));
            }
            if confirming && ui.add(look::small("Keep")).clicked() {
                self.deleting = None;
            }
            if confirming {
                return;
            }
            let rename = ui.add(look::small("Rename"));
            places.note("rename", rename.rect);
            if rename.clicked() {
                self.renaming = Some((id.clone(), conversation.name().to_owned()));
            }
            let export = ui.add_enabled(!conversation.is_empty(), look::small("Export"));
            places.note("export conversation", export.rect);
            if export.clicked() {
                action = Some(Action::Export);
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

/// The position of the conversation in which something was found.
fn place(conversations: &[Arc<Conversation>], found: &Found) -> Option<usize> {
    conversations.iter().position(|conversation| conversation.id == found.conversation)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Chats, List, Places};
    use crate::store::Store;
    use eframe::egui::{Context, Pos2, RawInput, Rect, Shape, vec2};

    #[test]
    fn the_words_on_buttons_are_in_their_middle() {
        let folder = tempfile::tempdir().unwrap();
        let (window, store) = (Context::default(), Store::open(folder.path().to_owned()).unwrap());
        crate::look::set(&window);
        let (chats, _) = Chats::read(store, &window).unwrap();
        let (mut list, mut places) = (List::default(), Places::new(true));
        let screen_rect = Some(Rect::from_min_size(Pos2::ZERO, vec2(220.0, 600.0)));
        let mut output = window.run_ui(RawInput { screen_rect, ..RawInput::default() }, |ui| {
            places.clear(ui.ctx());
            list.show(ui, &chats, &mut places);
        });
        output.textures_delta.clear(); // nothing is drawn here
        let words = output.shapes.iter().find_map(|shape| match &shape.shape {
            Shape::Text(text) if text.galley.text() == "Rename" => {
                Some(Rect::from_min_size(text.pos, text.galley.size()))
            }
            _ => None,
        });
        let (words, places) = (words.unwrap().center(), serde_json::to_value(&places).unwrap());
        let button = places["rename"][1].as_f64().unwrap() as f32;
        assert!((words.y - button).abs() < 1.5, "{} in a button around {button}", words.y);
    }
}
