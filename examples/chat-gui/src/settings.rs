//! The settings of a conversation, which are saved with it, and the panel that changes them.

use crate::json_field::JsonField;
use crate::presets::Presets;
use crate::status::Places;
use crate::structure;
use eframe::egui::{self, Button, CollapsingHeader, DragValue, Slider, TextEdit, Ui};
use serde::{Deserialize, Serialize};
use wglm::serde_json::Value;
use wglm::{GenerateOptions, Result, SamplerParams};

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
    /// The most tokens of a reply; `None` for as many as the context has space for.
    pub max_tokens: Option<usize>,
    /// The functions that the model may call, as the user typed them: the JSON may be invalid.
    pub tools: String,
    /// The JSON schema of the answer; blank for none.
    pub schema: String,
    /// The preset that the settings were taken from. They may have changed since.
    pub preset: Option<String>,
}

/// Whether the model thinks before it answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
    ///
    /// # Errors
    /// The errors of [`structure::schema`].
    pub fn options(&self) -> Result<GenerateOptions> {
        let (sampling, max_tokens) = (self.sampling.clone(), self.max_tokens);
        let constraint = structure::schema(&self.schema)?;
        Ok(GenerateOptions { sampling, max_tokens, constraint, ..GenerateOptions::default() })
    }

    /// The functions for wglm.
    ///
    /// # Errors
    /// The errors of [`structure::tools`].
    pub fn tools(&self) -> Result<Vec<Value>> {
        structure::tools(&self.tools)
    }

    /// Shows the sampling parameters. `recommended` are those that the model file recommends.
    fn sampling(&mut self, ui: &mut Ui, recommended: Option<&SamplerParams>) {
        ui.spacing_mut().slider_width = 90.0;
        egui::Grid::new("sampling").num_columns(2).spacing([10.0, 8.0]).show(ui, |ui| self.numbers(ui));
        if let Some(recommended) = recommended {
            ui.add_space(10.0);
            if ui.add(Button::new("Reset to the model's recommended values").wrap()).clicked() {
                self.sampling = recommended.clone();
            }
        }
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
            "Drops tokens whose probability is less than this share of the most likely token's. 0 keeps all.",
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

/// The panel.
pub struct Panel {
    pub presets: Presets,
    tools: JsonField,
    schema: JsonField,
}

impl Panel {
    /// A panel with these presets.
    pub fn new(presets: Presets) -> Self {
        Self { presets, tools: JsonField::default(), schema: JsonField::default() }
    }

    /// The errors in the fields.
    pub fn errors(&self) -> impl Iterator<Item = &str> {
        [&self.tools, &self.schema].into_iter().filter_map(JsonField::error)
    }

    /// Shows the panel. Returns true if something was changed.
    ///
    /// # Errors
    /// The errors of [`Presets::show`].
    pub fn show(
        &mut self,
        ui: &mut Ui,
        settings: &mut Settings,
        recommended: Option<&SamplerParams>,
        places: &mut Places,
    ) -> std::io::Result<bool> {
        let before = settings.clone();
        ui.heading("Settings");
        ui.add_space(6.0);
        let presets = self.presets.show(ui, settings, places);
        ui.add_space(10.0);
        let label = ui.label("System prompt");
        let system = TextEdit::multiline(&mut settings.system).desired_rows(4).desired_width(f32::INFINITY);
        places.note("system", ui.add(system).labelled_by(label.id).rect);
        ui.add_space(10.0);
        ui.label("Thinking");
        ui.horizontal(|ui| {
            for (value, name) in Thinking::ALL {
                ui.selectable_value(&mut settings.thinking, value, name);
            }
        });
        ui.add_space(10.0);
        let sampling = CollapsingHeader::new("Sampling").default_open(true);
        let sampling = sampling.show(ui, |ui| settings.sampling(ui, recommended));
        places.note("sampling", sampling.header_response.rect);
        self.structure(ui, settings, places);
        presets.map(|()| *settings != before)
    }

    /// The fields for what the model writes as JSON: calls and answers.
    fn structure(&mut self, ui: &mut Ui, settings: &mut Settings, places: &mut Places) {
        let used = !settings.tools.is_empty() || !settings.schema.is_empty();
        let header = CollapsingHeader::new("Functions and structured output").default_open(used).show(ui, |ui| {
            let check = |text: &str| structure::tools(text).err().map(|error| format!("{error}."));
            self.tools.show(ui, ("Functions", structure::TOOL), &mut settings.tools, check, places);
            ui.add_space(10.0);
            let check = |text: &str| structure::schema(text).err().map(|error| format!("{error}."));
            self.schema.show(ui, ("JSON schema", structure::SCHEMA), &mut settings.schema, check, places);
        });
        places.note("structure", header.header_response.rect);
    }
}

/// Shows a number that need not be set.
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
