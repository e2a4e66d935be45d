//! The text field for messages, with the button that sends a message or stops a reply. While a model is tuned, a
//! progress bar takes its place.

use crate::status::Places;
use crate::{access, look};
use eframe::egui::text::{CCursor, CCursorRange};
use eframe::egui::text_edit::TextEditState;
use eframe::egui::{
    Button, Event, Frame, Id, ImeEvent, Key, KeyboardShortcut, Margin, Modifiers, ProgressBar, Rect, Response,
    ScrollArea, TextEdit, Ui,
};
use wglm::tune::TuneProgress;

/// An action of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Nothing,
    Send,
    Stop,
    /// Edit the last message.
    Edit,
    /// Change the edited message, without asking for a reply.
    Rewrite,
    /// Leave the edited message as it is.
    Leave,
}

/// The message that is edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edited {
    /// One of the user, which can be sent again.
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

/// The size of the button.
const BUTTON: [f32; 2] = [90.0, 44.0];

/// Shows the field, which holds a new message, or one that is `edited`. Enter sends it, Shift with Enter begins a new
/// line. In an empty field the arrow up edits the user's last message; Escape leaves that as it is, or stops a reply.
pub fn show(ui: &mut Ui, text: &mut String, can: Can, edited: Option<Edited>, places: &mut Places) -> Action {
    let mut action = Action::Nothing;
    ui.add_space(4.0);
    let asked = edited.and_then(|edited| editing(ui, edited, places));
    // Changing a message needs no model.
    let can = if edited == Some(Edited::Other) && can == Can::Nothing { Can::Send } else { can };
    ui.horizontal(|ui| {
        let width = ui.available_width() - BUTTON[0] - 10.0;
        let was_empty = text.is_empty();
        let (edit, rect) = field(ui, text, width);
        places.note("input", rect);
        let keys = keys(ui, edit.id);
        let enter = edit.has_focus() && keys.enter;
        let up = edit.has_focus() && keys.up && was_empty;
        let escape = (edit.has_focus() || edit.lost_focus()) && keys.escape;
        begin_at_end(ui, &edit, edited.is_some(), text);
        let button = match can {
            Can::Stop => ui.add(Button::new("■  Stop").min_size(BUTTON.into())),
            Can::Nothing | Can::Send => {
                let ready = can == Can::Send && !text.trim().is_empty();
                let name = if edited == Some(Edited::Other) { "Save" } else { "Send" };
                ui.add_enabled(ready, Button::new(name).min_size(BUTTON.into()))
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

/// The field alone. It grows to at most a third of the window and then scrolls. Also returns its visible area.
fn field(ui: &mut Ui, text: &mut String, width: f32) -> (Response, Rect) {
    let most = ui.ctx().content_rect().height() / 3.0;
    let id = Id::unique("message"); // independent of what is shown above the field
    let focused = ui.memory(|memory| memory.has_focus(id));
    let visuals = ui.visuals();
    let stroke = if focused { visuals.selection.stroke } else { visuals.widgets.inactive.bg_stroke };
    let frame = Frame::new().fill(visuals.text_edit_bg_color()).stroke(stroke).corner_radius(4.0).inner_margin(4.0);
    let inside = width - 8.0;
    // The panel around this has the height of the frame before, which must not limit the text.
    let scroll = ScrollArea::vertical().id_salt("message").max_height(most).min_scrolled_height(most);
    let edit = TextEdit::multiline(text)
        .id(id)
        .frame(Frame::NONE)
        .margin(Margin::ZERO)
        .desired_rows(2)
        .desired_width(inside)
        .hint_text("Write a message. Enter sends it, Shift+Enter starts a new line.")
        .return_key(KeyboardShortcut::new(Modifiers::SHIFT, Key::Enter));
    let shown = frame.show(ui, |ui| {
        let column = ui.vertical(|ui| {
            ui.set_width(inside);
            scroll.show(ui, |ui| ui.add(edit)).inner
        });
        column.inner
    });
    access::name(&shown.inner, "Message");
    (shown.inner, shown.response.rect)
}

/// The keys that were pressed since the last frame, each without Shift or any other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Keys {
    enter: bool,
    up: bool,
    escape: bool,
}

/// The keys that concern the field.
fn keys(ui: &Ui, field: Id) -> Keys {
    let id = field.with("composing");
    let mut composing = ui.data(|data| data.get_temp(id)).unwrap_or(false);
    let keys = ui.input(|input| pressed(&input.events, &mut composing));
    ui.data_mut(|data| data.insert_temp(id, composing));
    keys
}

/// The keys that were pressed, by the modifiers at the time of each event: someone who types fast has released Shift
/// before the frame ends. Keys that an input method uses to compose a word do not count.
fn pressed(events: &[Event], composing: &mut bool) -> Keys {
    let mut keys = Keys::default();
    for event in events {
        match event {
            Event::Ime(ImeEvent::Preedit { text, .. }) => *composing = !text.is_empty(),
            Event::Ime(ImeEvent::Commit(_)) => *composing = false,
            Event::Key { key, pressed: true, modifiers, .. } if modifiers.is_none() && !*composing => match key {
                Key::Enter => keys.enter = true,
                Key::ArrowUp => keys.up = true,
                Key::Escape => keys.escape = true,
                _ => {}
            },
            _ => {}
        }
    }
    keys
}

/// Moves the cursor to the end of a message when its editing begins.
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

/// Says that the field holds a message that is being edited, and offers to save it without sending and to cancel.
fn editing(ui: &mut Ui, edited: Edited, places: &mut Places) -> Option<Action> {
    let mut action = None;
    ui.horizontal_wrapped(|ui| {
        if edited == Edited::Own {
            ui.weak("Editing your message. Sending it creates a new version and keeps this one.");
            let rewrite = ui.add(look::small("Save without sending"));
            places.note("rewrite", rewrite.rect);
            action = rewrite.clicked().then_some(Action::Rewrite);
        } else {
            ui.weak("Editing this message. What follows it stays.");
        }
        let leave = ui.add(look::small("Cancel"));
        places.note("leave", leave.rect);
        action = leave.clicked().then_some(Action::Leave).or(action);
    });
    action
}

/// Shows the progress of tuning. True if the user stops it, which keeps what was found so far.
pub fn tuning(ui: &mut Ui, progress: Option<&TuneProgress>, places: &mut Places) -> bool {
    let (share, text) = match progress {
        None => (0.0, "Tuning".to_owned()),
        Some(it) => (it.share(), format!("{} of {} kept, trying {}", it.kept, it.trials, it.doing)),
    };
    ui.add_space(4.0);
    let stop = ui.horizontal(|ui| {
        let width = ui.available_width() - BUTTON[0] - 10.0;
        ui.add(ProgressBar::new(share).desired_width(width).text(text).animate(true));
        ui.add(Button::new("■  Stop").min_size(BUTTON.into()))
    });
    places.note("stop", stop.inner.rect);
    ui.add_space(4.0);
    stop.inner.clicked()
}

#[cfg(test)]
mod tests {
    use super::*;
    use eframe::egui::{Context, Panel, RawInput, pos2, vec2};

    fn key(key: Key, modifiers: Modifiers) -> Event {
        Event::Key { key, physical_key: None, pressed: true, repeat: false, modifiers }
    }

    fn preedit(text: &str) -> Event {
        Event::Ime(ImeEvent::Preedit { text: text.into(), active_range_chars: None })
    }

    /// A field at the bottom of a window that is drawn frame by frame.
    #[derive(Default)]
    struct Desk {
        context: Context,
        text: String,
        height: f32,
    }

    impl Desk {
        /// Draws a frame in which these events came, after which no key is held down.
        fn frame(&mut self, events: Vec<Event>) -> Action {
            let screen_rect = Some(Rect::from_min_size(pos2(0.0, 0.0), vec2(800.0, 600.0)));
            let input = RawInput { screen_rect, events, focused: true, ..RawInput::default() };
            let (mut action, mut places) = (Action::Nothing, Places::new(false));
            let (text, height) = (&mut self.text, &mut self.height);
            let output = self.context.run_ui(input, |ui| {
                Panel::bottom("composer").show(ui, |ui| {
                    let shown = ui.scope(|ui| show(ui, text, Can::Send, None, &mut places));
                    (action, *height) = (shown.inner, shown.response.rect.height());
                });
            });
            output.drop_without_applying_deltas();
            action
        }
    }

    #[test]
    fn shift_and_enter_begin_a_line_however_fast() {
        let mut desk = Desk::default();
        desk.frame(vec![]);
        // All in one frame, at whose end Shift is no longer held.
        let typed = vec![Event::Text("a".into()), key(Key::Enter, Modifiers::SHIFT), Event::Text("b".into())];
        assert_eq!(desk.frame(typed), Action::Nothing);
        assert_eq!(desk.text, "a\nb");
        assert_eq!(desk.frame(vec![key(Key::Enter, Modifiers::NONE)]), Action::Send);
    }

    #[test]
    fn keys_of_an_input_method_send_nothing() {
        let (enter, mut composing) = (key(Key::Enter, Modifiers::NONE), false);
        assert_eq!(pressed(&[preedit("ni"), enter.clone()], &mut composing), Keys::default());
        assert_eq!(pressed(std::slice::from_ref(&enter), &mut composing), Keys::default(), "it still composes");
        let done = [enter.clone(), Event::Ime(ImeEvent::Commit("你".into()))];
        assert_eq!(pressed(&done, &mut composing), Keys::default());
        assert!(pressed(&[enter], &mut composing).enter);
    }

    #[test]
    fn a_long_text_takes_a_third_of_the_window() {
        let mut desk = Desk::default();
        desk.frame(vec![]);
        let empty = desk.height;
        desk.frame(vec![Event::Paste("line\n".repeat(200))]);
        (0..3).for_each(|_| assert_eq!(desk.frame(vec![]), Action::Nothing));
        let full = desk.height;
        assert!(empty < 70.0 && full > 190.0 && full < 240.0, "{empty} grew to {full}");
    }
}
