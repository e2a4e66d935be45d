//! The form for results of functions that the model called: the user types or pastes what each returned.

use crate::look;
use crate::status::Places;
use eframe::egui::{Button, Key, Modifiers, RichText, ScrollArea, TextEdit, Ui};
use wglm::{Message, ToolCall};

/// The results as far as they are typed.
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
        ui.set_max_width(ui.available_width().min(look::LINE));
        ui.weak("The model called a function. Type or paste what it returns.");
        ScrollArea::vertical().max_height(220.0).show(ui, |ui| {
            for (number, (call, typed)) in calls.iter().zip(&mut self.typed).enumerate() {
                let label = ui.label(RichText::new(title(call)).monospace());
                let field = TextEdit::multiline(typed).code_editor().desired_rows(2).desired_width(f32::INFINITY);
                let field = ui.add(field.hint_text("the result, as text or JSON")).labelled_by(label.id);
                places.note(format!("result {number}"), field.rect);
            }
        });
        let send = ui
            .add_enabled(can_send, Button::new(if calls.len() == 1 { "Send the result" } else { "Send the results" }));
        let send = send.on_hover_text("Control or Command with Enter");
        places.note("send results", send.rect);
        let keys = can_send && ui.input_mut(|input| input.consume_key(Modifiers::COMMAND, Key::Enter));
        let result = |(call, typed): (&&ToolCall, String)| {
            let result = Message::tool(call.id.clone().unwrap_or_default(), typed);
            Message { name: Some(call.function.name.clone()), ..result }
        };
        (send.clicked() || keys).then(|| calls.iter().zip(std::mem::take(self).typed).map(result).collect())
    }
}

/// A call in a line.
fn title(call: &ToolCall) -> String {
    let line = format!("{}({})", call.function.name, call.function.arguments);
    match line.char_indices().nth(90) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
