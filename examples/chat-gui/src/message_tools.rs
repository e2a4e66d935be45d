//! The buttons below a message, which copy, edit and delete it, ask for another reply or the rest of one, and show
//! other versions.

use crate::status::Places;
use eframe::egui::{Button, Response, RichText, Ui};
use wglm::Message;

/// An action of the user. Numbers are positions in the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Generate a reply for this position.
    Again(usize),
    /// Generate the rest of the last reply.
    Rest,
    Edit(usize),
    Delete(usize),
    /// Show this version, counted from 0, of the message.
    Version(usize, usize),
}

/// What can be done with a message besides copying it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Offered<'a> {
    /// The position of the message.
    pub position: usize,
    /// Generate a reply for this position, with a hint about it.
    pub again: Option<(usize, &'a str)>,
    /// Generate the rest of it.
    pub rest: bool,
    /// Edit and delete it, and show another version of it.
    pub change: bool,
    /// Which version it is, counted from 0, and how many there are.
    pub version: (usize, usize),
}

/// Shows the buttons. What is copied is the text as it was written, with its Markdown, and without the thinking.
pub fn show(ui: &mut Ui, message: &Message, offered: Offered<'_>, places: &mut Places) -> Option<Action> {
    let Offered { position, again, rest, change, .. } = offered;
    let own = message.role == "user";
    copy(ui, &message.text(), if own { "copy question" } else { "copy reply" }, places);
    let mut actions = Vec::new();
    let mut button = |text: &str, hint: &str, name: &str, action: Action| {
        let button = small(ui, text).on_hover_text(hint);
        places.note(name, button.rect);
        places.note(format!("{name} {position}"), button.rect);
        actions.extend(button.clicked().then_some(action));
    };
    if change {
        let (hint, name) = match own {
            true => ("Edit this message, to send it again or only save it", "edit"),
            false => ("Edit this message", "edit reply"),
        };
        button("Edit", hint, name, Action::Edit(position));
        button("Delete", "Delete this message. What follows it stays.", "delete message", Action::Delete(position));
    }
    if let Some((at, hint)) = again {
        let text = if at == position { "Regenerate" } else { "Answer" };
        button(text, hint, "again", Action::Again(at));
    }
    if rest {
        button("Continue", "Continue this reply, which was cut off or changed", "continue", Action::Rest);
    }
    versions(ui, offered, places).or(actions.pop())
}

/// Shows the number of the version, between buttons for the previous and the next one.
fn versions(ui: &mut Ui, offered: Offered<'_>, places: &mut Places) -> Option<Action> {
    let Offered { position, change, version: (version, count), .. } = offered;
    if count < 2 {
        return None;
    }
    let mut shown = None;
    let mut parts = [("‹", "previous", version.checked_sub(1)), ("", "", None), ("›", "next", Some(version + 1))];
    if ui.layout().prefer_right_to_left() {
        parts.reverse();
    }
    for (text, name, other) in parts {
        if text.is_empty() {
            ui.label(RichText::new(format!("{}/{count}", version + 1)).small().weak());
            continue;
        }
        let other = other.filter(|other| change && *other < count);
        let button = ui.add_enabled_ui(other.is_some(), |ui| small(ui, text)).inner;
        let button = button.on_hover_text(format!("The {name} version"));
        places.note(format!("{name} {position}"), button.rect);
        shown = other.filter(|_| button.clicked()).or(shown);
    }
    shown.map(|version| Action::Version(position, version))
}

/// The button that copies a text, and then says "Copied" until the mouse leaves it.
fn copy(ui: &mut Ui, text: &str, place: &'static str, places: &mut Places) {
    let id = ui.make_persistent_id("copied");
    let copied = ui.data(|data| data.get_temp::<bool>(id)).unwrap_or(false);
    let button = small(ui, if copied { "Copied" } else { "Copy" });
    places.note(place, button.rect);
    if button.clicked() {
        ui.copy_text(text.to_owned());
    }
    let copied = button.clicked() || copied && (button.hovered() || button.has_focus());
    ui.data_mut(|data| data.insert_temp(id, copied));
}

/// A small button. The window scrolls to it when it is reached with the keyboard.
fn small(ui: &mut Ui, text: &str) -> Response {
    let button = ui.add(Button::new(RichText::new(text).small().weak()).small().frame_when_inactive(false));
    if button.gained_focus() {
        button.scroll_to_me(None);
    }
    button
}
