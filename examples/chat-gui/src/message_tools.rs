//! The buttons below a message: to copy it, to have another reply, to edit what was asked.

use crate::status::Places;
use eframe::egui::{Button, Response, RichText, Ui};
use wglm::Message;

/// An action of the user that concerns the last message of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Generate the last reply anew.
    Again,
    /// Edit the user's last message.
    Edit,
}

/// What can be done with a message besides copying it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Offered<'a> {
    /// Generate a reply anew, with a hint about it.
    pub again: Option<&'a str>,
    pub edit: bool,
}

/// Shows the buttons. What is copied is the text as it was written, with its Markdown, and without the thinking.
pub fn show(ui: &mut Ui, message: &Message, offered: Offered<'_>, places: &mut Places) -> Option<Action> {
    let mut action = None;
    let own = message.role == "user";
    copy(ui, &message.text(), if own { "copy question" } else { "copy reply" }, places);
    if offered.edit {
        let edit = small(ui, "Edit").on_hover_text("Edit this message and send it again");
        places.note("edit", edit.rect);
        action = edit.clicked().then_some(Action::Edit);
    }
    if let Some(hint) = offered.again {
        let again = small(ui, "Again").on_hover_text(hint);
        places.note("again", again.rect);
        action = again.clicked().then_some(Action::Again).or(action);
    }
    action
}

/// The button that copies a text. It says so until the mouse leaves it.
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

fn small(ui: &mut Ui, text: &str) -> Response {
    ui.add(Button::new(RichText::new(text).small().weak()).small().frame_when_inactive(false))
}
