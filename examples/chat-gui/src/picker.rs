//! The page where the user chooses a model to load: a path or the demonstration model, with an estimate of the memory
//! that it needs.

use crate::protocol::{Loaded, Source};
use crate::status::Places;
use crate::{figures, look};
use eframe::egui::{DragValue, ProgressBar, RichText, TextEdit, Ui};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use wglm::{Estimate, Progress, Stage};

/// An action of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Estimate(Source, Option<usize>),
    Load(Source, Option<usize>),
    Cancel,
    /// Go back to the conversation.
    Close,
}

/// The estimate for the chosen source.
type Known = Option<Result<Box<Estimate>, String>>;

/// The page.
pub struct Picker {
    pub open: bool,
    path: String,
    demo: bool,
    context: Option<usize>,
    /// Receives the path that the user chooses in a file dialogue, which runs on a thread of its own.
    dialogue: Option<Receiver<Option<PathBuf>>>,
    /// The source for which an estimate was last requested.
    asked: Option<(Source, Option<usize>)>,
    known: Known,
    /// The progress of the load, while there is one.
    pub loading: Option<Option<Progress>>,
}

impl Picker {
    /// A page on which `source` is chosen at first.
    pub fn new(source: Option<Source>, context: Option<usize>) -> Self {
        let path = match &source {
            Some(Source::File(path)) => path.display().to_string(),
            _ => String::new(),
        };
        let (dialogue, asked, known, loading) = (None, None, None, None);
        Self { open: true, demo: path.is_empty(), path, context, dialogue, asked, known, loading }
    }

    /// The chosen source.
    pub fn source(&self) -> Source {
        if self.demo { Source::Demo } else { Source::File(PathBuf::from(self.path.trim())) }
    }

    /// Stores the estimate for a source.
    pub fn tell(&mut self, source: &Source, estimate: Result<Box<Estimate>, String>) {
        if self.source() == *source {
            self.known = Some(estimate);
        }
    }

    /// Whether there is an estimate for the chosen source, so that it can be loaded.
    pub fn is_estimated(&self) -> bool {
        matches!(self.known, Some(Ok(_)))
    }

    /// Shows the page.
    pub fn show(&mut self, ui: &mut Ui, loaded: Option<&Loaded>, places: &mut Places) -> Option<Action> {
        ui.set_max_width(560.0);
        ui.add_space(24.0);
        ui.heading("Choose a model");
        ui.add_space(10.0);
        ui.add_enabled_ui(self.loading.is_none(), |ui| self.choice(ui, places));
        ui.add_space(12.0);
        self.estimate(ui);
        ui.add_space(12.0);
        let action = match self.loading {
            Some(progress) => bar(ui, progress, places),
            None => self.buttons(ui, loaded.is_some(), places),
        };
        action.or_else(|| self.question())
    }

    fn choice(&mut self, ui: &mut Ui, places: &mut Places) {
        let demo = ui.radio_value(&mut self.demo, true, "The demonstration model (6 MB, part of this program)");
        places.note("demo", demo.rect);
        ui.radio_value(&mut self.demo, false, "A GGUF file of GLM-4.7-Flash");
        ui.horizontal(|ui| {
            ui.add_space(24.0);
            let width = ui.available_width() - 90.0;
            if ui.add(TextEdit::singleline(&mut self.path).desired_width(width).hint_text("its path")).changed() {
                self.demo = false;
            }
            if ui.button("Open …").clicked() && self.dialogue.is_none() {
                self.dialogue = Some(dialogue());
            }
        });
        if let Some(Ok(picked)) = self.dialogue.as_ref().map(Receiver::try_recv) {
            self.dialogue = None;
            if let Some(path) = picked {
                (self.path, self.demo) = (path.display().to_string(), false);
            }
        }
        ui.horizontal(|ui| {
            let mut usual = self.context.is_none();
            if ui.checkbox(&mut usual, "Usual length of context").changed() {
                self.context = (!usual).then_some(8192);
            }
            if let Some(context) = &mut self.context {
                ui.add(DragValue::new(context).range(0..=1 << 20).speed(64));
                ui.weak(if *context == 0 { "tokens: all that the model was made for" } else { "tokens" });
            }
        });
    }

    /// Requests an estimate for the chosen source, once.
    fn question(&mut self) -> Option<Action> {
        let picked = (self.source(), self.context);
        let asked = self.asked.as_ref() == Some(&picked);
        if asked || self.loading.is_some() || picked.0 == Source::File(PathBuf::new()) {
            return None;
        }
        (self.asked, self.known) = (Some(picked.clone()), None);
        Some(Action::Estimate(picked.0, picked.1))
    }

    fn estimate(&self, ui: &mut Ui) {
        match &self.known {
            None => {
                ui.weak("…");
            }
            Some(Err(error)) => {
                ui.colored_label(ui.visuals().error_fg_color, error);
            }
            Some(Ok(estimate)) => figures::show(ui, estimate),
        }
    }

    fn buttons(&self, ui: &mut Ui, can_close: bool, places: &mut Places) -> Option<Action> {
        let mut action = None;
        ui.horizontal(|ui| {
            let load = ui.add_enabled(self.is_estimated(), eframe::egui::Button::new(RichText::new("Load").strong()));
            places.note("load", load.rect);
            if load.clicked() {
                action = Some(Action::Load(self.source(), self.context));
            }
            if can_close && ui.button("Back").clicked() {
                action = Some(Action::Close);
            }
        });
        action
    }
}

/// Opens the platform's file dialogue.
fn dialogue() -> Receiver<Option<PathBuf>> {
    let (picked, waiting) = channel();
    // If the system refuses the thread, the receiver reports that, and the path can still be typed.
    let _ = std::thread::Builder::new().spawn(move || {
        let _ = picked.send(rfd::FileDialog::new().add_filter("GGUF", &["gguf"]).pick_file());
    });
    waiting
}

fn bar(ui: &mut Ui, progress: Option<Progress>, places: &mut Places) -> Option<Action> {
    let (done, total) = progress.map_or((0, 0), |progress| (progress.done, progress.total));
    let text = match progress.map(|progress| progress.stage) {
        None => "reading the file".into(),
        Some(Stage::Weights) if done == total => "looking whether all of it arrived".into(),
        Some(Stage::Weights) => format!("{} of {}", look::bytes(done), look::bytes(total)),
        Some(Stage::Kernels) => format!("{done} of {total} kernels compiled"),
        Some(_) => "checking the kernels".into(),
    };
    ui.add(ProgressBar::new(done as f32 / total.max(1) as f32).text(text).animate(true));
    let cancel = ui.button("Cancel");
    places.note("cancel", cancel.rect);
    cancel.clicked().then_some(Action::Cancel)
}
