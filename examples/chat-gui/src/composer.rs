//! The text field for messages, with the button that sends a message or stops a reply. While a model is tuned, a progress
//! bar takes its place.

use crate::look;
use crate::status::Places;
use eframe::egui::text::{CCursor, CCursorRange};
use eframe::egui::text_edit::TextEditState;
use eframe::egui::{Button, Id, Key, KeyboardShortcut, Modifiers, ProgressBar, Response, TextEdit, Ui, vec2};
use wglm::TuneProgress;

/// An action of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Nothing,
    Send,
    Stop,
    /// Edit the last message.
    Edit,
    /// Change the edited message, and ask nothing.
    Rewrite,
    /// Leave the edited message as it is.
    Leave,
}

/// The message that is edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edited {
    /// One of the user, which can be asked again.
    Own,
    /// One of the model or of a function, which can only be changed.
    Other,
}

/// What the button does at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Can {
    /// Nothing, because no model is loaded.
    Nothing,
    Send,
    Stop,
}

/// Shows the field, which holds a new message, or one that is `edited`. Enter sends it, Shift with Enter begins a new
/// line. In an empty field the arrow up edits the user's last message; Escape leaves that as it is, or stops a reply.
pub fn show(ui: &mut Ui, text: &mut String, can: Can, edited: Option<Edited>, places: &mut Places) -> Action {
    let mut action = Action::Nothing;
    ui.add_space(4.0);
    let asked = edited.and_then(|edited| editing(ui, edited, places));
    // To change a message takes no model.
    let can = if edited == Some(Edited::Other) && can == Can::Nothing { Can::Send } else { can };
    ui.horizontal(|ui| {
        let size = vec2(84.0, 48.0);
        let width = (ui.available_width() - size.x - 10.0).min(look::LINE);
        let edit = TextEdit::multiline(text)
            .id(Id::unique("message")) // the same with what stands above it and without
            .desired_rows(2)
            .desired_width(width)
            .hint_text("Write a message. Enter sends it, Shift and Enter begin a line.")
            .return_key(KeyboardShortcut::new(Modifiers::SHIFT, Key::Enter));
        let edit = ui.add(edit);
        places.note("input", edit.rect);
        let pressed = |key| ui.input(|input| input.key_pressed(key) && input.modifiers.is_none());
        let enter = edit.has_focus() && pressed(Key::Enter);
        let up = edit.has_focus() && pressed(Key::ArrowUp) && text.is_empty();
        let escape = (edit.has_focus() || edit.lost_focus()) && pressed(Key::Escape);
        begin_at_end(ui, &edit, edited.is_some(), text);
        let button = match can {
            Can::Stop => ui.add(Button::new("■  Stop").min_size(size)),
            Can::Nothing | Can::Send => {
                let ready = can == Can::Send && !text.trim().is_empty();
                let name = if edited == Some(Edited::Other) { "Save" } else { "Send" };
                ui.add_enabled(ready, Button::new(name).min_size(size))
            }
        };
        places.note(if can == Can::Stop { "stop" } else { "send" }, button.rect);
        action = match can {
            Can::Stop if button.clicked() || escape => Action::Stop,
            Can::Send if (button.clicked() || enter) && !text.trim().is_empty() => Action::Send,
            _ if edited.is_some() && escape => Action::Leave,
            _ if up && edited.is_none() => Action::Edit,
            _ => asked.unwrap_or(Action::Nothing),
        };
        if action != Action::Nothing || ui.memory(|memory| memory.focused().is_none()) {
            edit.request_focus();
        }
    });
    ui.add_space(4.0);
    action
}

/// Puts the cursor behind the text of a message that is edited from now on.
fn begin_at_end(ui: &Ui, edit: &Response, edited: bool, text: &str) {
    let id = edit.id.with("edited");
    let before = ui.data_mut(|data| std::mem::replace(data.get_temp_mut_or_default::<bool>(id), edited));
    if edited
        && !before
        && let Some(mut state) = TextEditState::load(ui.ctx(), edit.id)
    {
        state.cursor.set_char_range(Some(CCursorRange::one(CCursor::new(text.chars().count()))));
        state.store(ui.ctx(), edit.id);
    }
}

/// Says that the field holds a message that is edited, and offers what can be done but to send it.
fn editing(ui: &mut Ui, edited: Edited, places: &mut Places) -> Option<Action> {
    let mut action = None;
    ui.horizontal_wrapped(|ui| {
        if edited == Edited::Own {
            ui.weak("Editing your message. Sending it makes a new version and keeps this one.");
            let rewrite = ui.small_button("Save without sending");
            places.note("rewrite", rewrite.rect);
            action = rewrite.clicked().then_some(Action::Rewrite);
        } else {
            ui.weak("Editing this message. What follows it stays.");
        }
        let leave = ui.small_button("Leave it as it is");
        places.note("leave", leave.rect);
        action = leave.clicked().then_some(Action::Leave).or(action);
    });
    action
}

/// Shows how far tuning is. True if it should stop, which keeps what was found so far.
pub fn tuning(ui: &mut Ui, progress: Option<&TuneProgress>, places: &mut Places) -> bool {
    let (share, text) = match progress {
        None => (0.0, "tuning".to_owned()),
        Some(it) => (it.share(), format!("{} of {} kept, trying {}", it.kept, it.trials, it.doing)),
    };
    ui.add_space(4.0);
    let stop = ui.horizontal(|ui| {
        let button = vec2(84.0, 48.0);
        let width = (ui.available_width() - button.x - 10.0).min(look::LINE);
        ui.add(ProgressBar::new(share).desired_width(width).text(text).animate(true));
        ui.add(Button::new("■  Stop").min_size(button))
    });
    places.note("stop", stop.inner.rect);
    ui.add_space(4.0);
    stop.inner.clicked()
}
