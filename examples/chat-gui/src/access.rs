//! What screen readers say about the window.
//!
//! egui names its widgets by their texts. Buttons that show only a symbol get a name here that says what they do. For
//! tests, buttons and fields without a name are listed.

use eframe::egui::accessibility::is_input;
use eframe::egui::accesskit::TreeUpdate;
use eframe::egui::{Context, FullOutput, Plugin, Response};

/// Symbols on buttons, and what the buttons do.
const SYMBOLS: [(&str, &str); 5] = [
    ("☰", "Conversations"),
    ("🗐", "Copy the code"),
    ("■  Stop", "Stop"),
    ("‹", "The previous version"),
    ("›", "The next version"),
];

/// Names a field. egui passes the hint of an empty field on as a placeholder, which not every screen reader reads.
pub fn name(field: &Response, name: &str) {
    field.ctx.accesskit_node_builder(field.id, |node| node.set_label(name));
}

/// Names the buttons that show symbols.
#[derive(Default)]
pub struct Names {
    /// Whether to list what has no name.
    checks: bool,
    nameless: Vec<String>,
}

impl Names {
    /// Adds this to the window. `checks` lists what has no name.
    pub fn install(window: &Context, checks: bool) {
        if checks {
            window.enable_accesskit();
        }
        window.add_plugin(Self { checks, nameless: Vec::new() });
    }

    /// The buttons and fields that had no name in the last frame.
    pub fn nameless(window: &Context) -> Vec<String> {
        window.with_plugin(|names: &mut Self| names.nameless.clone()).unwrap_or_default()
    }
}

impl Plugin for Names {
    fn debug_name(&self) -> &'static str {
        "names for screen readers"
    }

    fn output_hook(&mut self, _: &Context, output: &mut FullOutput) {
        let Some(update) = &mut output.platform_output.accesskit_update else { return };
        for (_, node) in &mut update.nodes {
            let name = SYMBOLS.iter().find(|(symbol, _)| node.label() == Some(symbol));
            name.into_iter().for_each(|(_, name)| node.set_label(*name));
        }
        if self.checks {
            self.nameless = nameless(update);
        }
    }
}

/// The buttons and fields of a window that have no name, with their roles and positions.
fn nameless(update: &TreeUpdate) -> Vec<String> {
    let nameless = update.nodes.iter().filter(|(_, node)| {
        let named = node.label().is_some_and(|label| !label.trim().is_empty()) || !node.labelled_by().is_empty();
        is_input(node.role()) && !named
    });
    nameless.map(|(_, node)| format!("{:?} at {:?}", node.role(), node.bounds())).collect()
}

#[cfg(test)]
mod tests {
    use super::Names;
    use eframe::egui::{Context, RawInput, TextEdit};

    #[test]
    fn symbols_are_named_and_what_has_no_name_is_listed() {
        let context = Context::default();
        Names::install(&context, true);
        let mut text = String::new();
        let mut labels = Vec::new();
        for _ in 0..2 {
            let mut output = context.run_ui(RawInput::default(), |ui| {
                ui.button("☰").clicked();
                let field = ui.add(TextEdit::multiline(&mut text).hint_text("Write a message."));
                super::name(&field, "Message");
                ui.add(TextEdit::singleline(&mut String::new()));
            });
            let update = output.platform_output.accesskit_update.take().map(|update| update.nodes);
            labels = update.into_iter().flatten().filter_map(|(_, node)| node.label().map(str::to_owned)).collect();
            output.drop_without_applying_deltas();
        }
        assert!(["Conversations", "Message"].iter().all(|name| labels.iter().any(|label| label == name)), "{labels:?}");
        let nameless = Names::nameless(&context);
        assert!(nameless.len() == 1 && nameless[0].starts_with("TextInput"), "{nameless:?}");
    }
}
