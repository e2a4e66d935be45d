//! The text field for messages, with the button that sends a message or stops a reply. While a model is tuned, a progress
//! bar takes its place.

use crate::look;
use crate::status::Places;
use eframe::egui::{Button, Key, KeyboardShortcut, Modifiers, ProgressBar, TextEdit, Ui, vec2};
use wglm::TuneProgress;

/// An action of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Nothing,
    Send,
    Stop,
}

/// What the button does at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Can {
    /// Nothing, because no model is loaded.
    Nothing,
    Send,
    Stop,
}

/// Shows the field. Enter sends the message, Shift with Enter begins a new line.
pub fn show(ui: &mut Ui, text: &mut String, can: Can, places: &mut Places) -> Action {
    let mut action = Action::Nothing;
    ui.add_space(4.0);
    ui.horizontal(|ui| {
        let button = vec2(84.0, 48.0);
        let width = (ui.available_width() - button.x - 10.0).min(look::LINE);
        let edit = TextEdit::multiline(text)
            .desired_rows(2)
            .desired_width(width)
            .hint_text("Write a message. Enter sends it, Shift and Enter begin a line.")
            .return_key(KeyboardShortcut::new(Modifiers::SHIFT, Key::Enter));
        let edit = ui.add(edit);
        places.note("input", edit.rect);
        let enter = edit.has_focus() && ui.input(|input| input.key_pressed(Key::Enter) && input.modifiers.is_none());
        let pressed = match can {
            Can::Stop => ui.add(Button::new("■  Stop").min_size(button)),
            Can::Nothing | Can::Send => {
                let ready = can == Can::Send && !text.trim().is_empty();
                ui.add_enabled(ready, Button::new("Send").min_size(button))
            }
        };
        places.note(if can == Can::Stop { "stop" } else { "send" }, pressed.rect);
        action = match can {
            Can::Stop if pressed.clicked() => Action::Stop,
            Can::Send if (pressed.clicked() || enter) && !text.trim().is_empty() => Action::Send,
            _ => Action::Nothing,
        };
        if action == Action::Send || ui.memory(|memory| memory.focused().is_none()) {
            edit.request_focus();
        }
    });
    ui.add_space(4.0);
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
