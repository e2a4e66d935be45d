//! The form in which the user types or pastes the results of the functions that the model called.

use crate::status::Places;
use eframe::egui::{Button, Key, Modifiers, RichText, ScrollArea, TextEdit, Ui};
use wglm::{Message, ToolCall};

/// The results that the user has typed so far.
#[derive(Default)]
pub struct Results {
    /// The ids of the calls, and the result of each.
    of: Vec<Option<String>>,
    typed: Vec<String>,
}

impl Results {
    /// Forgets what was typed.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Shows the form, and returns the results once the user sends them.
    pub fn show(
        &mut self,
        ui: &mut Ui,
        calls: &[&ToolCall],
        can_send: bool,
        places: &mut Places,
    ) -> Option<Vec<Message>> {
        let of: Vec<Option<String>> = calls.iter().map(|call| call.id.clone()).collect();
        if of != self.of {
            *self = Self { typed: vec![String::new(); of.len()], of };
        }
        ui.weak("The model called a function. Type or paste what it returns.");
        ScrollArea::vertical().max_height(220.0).show(ui, |ui| {
            for (number, (call, typed)) in calls.iter().zip(&mut self.typed).enumerate() {
                let label = ui.label(RichText::new(title(call)).monospace());
                let field = TextEdit::multiline(typed).code_editor().desired_rows(2).desired_width(f32::INFINITY);
                let field = ui.add(field.hint_text("Result, as text or JSON")).labelled_by(label.id);
                places.note(format!("result {number}"), field.rect);
            }
        });
        // An empty result is more often a slip than what a function returned.
        let ready = can_send && self.typed.iter().all(|typed| !typed.trim().is_empty());
        let send =
            ui.add_enabled(ready, Button::new(if calls.len() == 1 { "Send the result" } else { "Send the results" }));
        let send = send.on_hover_text("Control or Command with Enter");
        let send =
            send.on_disabled_hover_text("Every call needs a result. Type null for a function that returns nothing.");
        places.note("send results", send.rect);
        let keys = ready && ui.input_mut(|input| input.consume_key(Modifiers::COMMAND, Key::Enter));
        let result = |(call, typed): (&&ToolCall, String)| {
            let result = Message::tool(call.id.clone().unwrap_or_default(), typed);
            Message { name: Some(call.function.name.clone()), ..result }
        };
        (send.clicked() || keys).then(|| calls.iter().zip(std::mem::take(self).typed).map(result).collect())
    }
}

/// A call on one line.
fn title(call: &ToolCall) -> String {
    let line = format!("{}({})", call.function.name, call.function.arguments);
    match line.char_indices().nth(90) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Key, Message, Modifiers, Places, Results, ToolCall};
    use eframe::egui::{Context, Event, RawInput};

    #[test]
    fn results_are_sent_once_every_call_has_one() {
        let call = |id: &str| ToolCall { id: Some(id.into()), ..ToolCall::new("owls", Default::default()) };
        let calls = [call("1"), call("2")];
        let (context, mut results) = (Context::default(), Results::default());
        let frame = |results: &mut Results, can_send| {
            let (key, modifiers) = (Key::Enter, Modifiers::COMMAND);
            let event = Event::Key { key, physical_key: None, pressed: true, repeat: false, modifiers };
            let input = RawInput { events: vec![event], ..RawInput::default() };
            let mut sent = None;
            let output = context.run_ui(input, |ui| {
                sent = results.show(ui, &calls.each_ref(), can_send, &mut Places::new(false)).or(sent.take());
            });
            output.drop_without_applying_deltas();
            sent
        };
        assert_eq!(frame(&mut results, true), None, "nothing was typed");
        results.typed = vec!["seven".into(), " \n".into()];
        assert_eq!(frame(&mut results, true), None, "one call has no result");
        results.typed[1] = "null".into();
        assert_eq!(frame(&mut results, false), None, "no model is loaded");
        let sent = frame(&mut results, true).unwrap();
        let named = |id: &str, text: &str| Message { name: Some("owls".into()), ..Message::tool(id, text) };
        assert_eq!(sent, [named("1", "seven"), named("2", "null")]);
    }
}
