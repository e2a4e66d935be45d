//! A field for JSON, with the error in it below. A check may take long, so it is done on a thread.

use crate::status::Places;
use crate::task::Task;
use eframe::egui::{TextEdit, Ui};

/// Returns the error in a text, if there is one.
pub type Check = fn(&str) -> Option<String>;

/// State that is kept from frame to frame.
#[derive(Default)]
pub struct JsonField {
    /// The text that is being checked.
    task: Option<(String, Task<Option<String>>)>,
    /// The text that was checked last, and the error in it.
    checked: (String, Option<String>),
}

impl JsonField {
    /// The error in the text.
    pub fn error(&self) -> Option<&str> {
        self.checked.1.as_deref()
    }

    /// Shows the field. `hint` is an example.
    pub fn show(
        &mut self,
        ui: &mut Ui,
        (name, hint): (&'static str, &str),
        text: &mut String,
        check: Check,
        places: &mut Places,
    ) {
        let label = ui.label(name);
        let field = TextEdit::multiline(text).code_editor().desired_rows(3).desired_width(f32::INFINITY);
        let field = ui.add(field.hint_text(hint)).labelled_by(label.id);
        places.note(name, field.rect);
        self.check(ui, text, check);
        if let Some(error) = self.error() {
            ui.colored_label(ui.visuals().error_fg_color, error);
        }
    }

    /// Takes the result of a check, and begins another if the text has changed.
    fn check(&mut self, ui: &Ui, text: &str, check: Check) {
        if let Some(error) = self.task.as_ref().and_then(|(_, task)| task.result()) {
            let of = self.task.take().map(|(of, _)| of).unwrap_or_default();
            self.checked = (of, error.unwrap_or_else(|| Some("The check crashed.".into())));
        }
        if self.task.is_none() && self.checked.0 != text {
            let of = text.to_owned();
            let same = of.clone();
            self.task = Some((of, Task::start(ui.ctx(), move |_| check(&same))));
        }
    }
}
