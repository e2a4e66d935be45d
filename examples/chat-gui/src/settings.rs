//! The settings of a conversation, which are saved with it, and the panel that changes them.

use crate::status::Places;
use eframe::egui::{self, DragValue, Slider, TextEdit, Ui};
use serde::{Deserialize, Serialize};
use wglm::{GenerateOptions, SamplerParams};

/// The settings of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The system prompt; blank for none.
    pub system: String,
    pub thinking: Thinking,
    /// The sampling parameters.
    #[serde(flatten)]
    pub sampling: SamplerParams,
    /// The most tokens of a reply; `None` for as many as the context has room for.
    pub max_tokens: Option<usize>,
}

/// Whether the model thinks before it answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Thinking {
    /// As the chat template decides.
    #[default]
    Template,
    On,
    Off,
}

impl Thinking {
    const ALL: [(Self, &str); 3] = [(Self::Template, "Model default"), (Self::On, "On"), (Self::Off, "Off")];

    /// The value for [`wglm::Chat::reasoning`].
    pub fn wanted(self) -> Option<bool> {
        match self {
            Self::Template => None,
            Self::On => Some(true),
            Self::Off => Some(false),
        }
    }
}

impl Settings {
    /// The options for wglm.
    pub fn options(&self) -> GenerateOptions {
        let (sampling, max_tokens) = (self.sampling.clone(), self.max_tokens);
        GenerateOptions { sampling, max_tokens, ..GenerateOptions::default() }
    }

    /// Shows the panel. Returns true if something was changed. `recommended` are the parameters that the model file
    /// recommends.
    pub fn show(&mut self, ui: &mut Ui, recommended: Option<&SamplerParams>, places: &mut Places) -> bool {
        let before = self.clone();
        ui.heading("Settings");
        ui.add_space(6.0);
        let name = ui.label("System prompt").id;
        let system = ui.add(TextEdit::multiline(&mut self.system).desired_rows(4).desired_width(f32::INFINITY));
        let system = system.labelled_by(name);
        places.note("system", system.rect);
        ui.add_space(10.0);
        ui.label("Thinking");
        ui.horizontal(|ui| {
            for (value, name) in Thinking::ALL {
                ui.selectable_value(&mut self.thinking, value, name);
            }
        });
        ui.add_space(10.0);
        egui::Grid::new("sampling").num_columns(2).spacing([10.0, 8.0]).show(ui, |ui| self.numbers(ui));
        if let Some(recommended) = recommended {
            ui.add_space(10.0);
            if ui.button("Reset to the model's recommended values").clicked() {
                self.sampling = recommended.clone();
            }
        }
        *self != before
    }

    fn numbers(&mut self, ui: &mut Ui) {
        let sampling = &mut self.sampling;
        let mut slider = |name: &str, hint: &str, slider: Slider<'_>| {
            let name = ui.label(name).on_hover_text(hint).id;
            ui.label_inputs_by(name, |ui| ui.add(slider));
            ui.end_row();
        };
        slider(
            "Temperature",
            "How varied the replies are. 0 always takes the most likely token.",
            Slider::new(&mut sampling.temperature, 0.0..=2.0),
        );
        slider(
            "Top-k",
            "Samples from this many of the most likely tokens. 0 keeps all.",
            Slider::new(&mut sampling.top_k, 0..=200),
        );
        slider(
            "Top-p",
            "Samples from the most likely tokens whose probabilities add up to this. 1 keeps all.",
            Slider::new(&mut sampling.top_p, 0.0..=1.0),
        );
        slider(
            "Min-p",
            "Drops tokens less likely than this share of the most likely one. 0 keeps all.",
            Slider::new(&mut sampling.min_p, 0.0..=1.0),
        );
        slider(
            "Repeat penalty",
            "Makes tokens that were used before less likely. 1 turns it off.",
            Slider::new(&mut sampling.repeat_penalty, 1.0..=2.0),
        );
        optional(ui, "Maximum tokens", &mut self.max_tokens, 512);
        optional(ui, "Seed", &mut sampling.seed, 1);
    }
}

/// Shows a number that can be absent.
fn optional<T: egui::emath::Numeric>(ui: &mut Ui, name: &str, value: &mut Option<T>, usual: T) {
    let mut there = value.is_some();
    if ui.checkbox(&mut there, name).changed() {
        *value = there.then_some(usual);
    }
    match value {
        Some(value) => ui.name_inputs(name, |ui| ui.add(DragValue::new(value))),
        None => ui.weak("not set"),
    };
    ui.end_row();
}
