//! The list of models on this machine, with a button to open each.

use crate::protocol::Source;
use crate::status::Places;
use crate::task::Task;
use crate::{engine, row, verdict};
use eframe::egui::{Context, Ui};
use std::path::Path;
use wglm::catalog::{LocalModel, Source as Folder, local_models};
use wglm::offers::Judged;
use wglm::{Gguf, Gpu};

/// The list.
pub struct Shelf {
    gpu: Gpu,
    /// The context for which the models are judged.
    context: Option<usize>,
    look: Option<Task<Vec<Local>>>,
    models: Option<Vec<Local>>,
}

/// A model, and what is known of it.
struct Local {
    model: LocalModel,
    judged: Judged,
}

impl Shelf {
    /// A list that is not known yet.
    pub fn new(gpu: Gpu) -> Self {
        Self { gpu, context: None, look: None, models: None }
    }

    /// Looks for models on a thread, judges them for a context, and lists those that fit first. The previous list is
    /// shown until then.
    pub fn look(&mut self, window: &Context, context: Option<usize>) {
        self.context = context;
        let gpu = self.gpu.clone();
        self.look = Some(Task::start(window, move |stop| {
            let found = local_models(&wglm::catalog::Places::default()).into_iter();
            let going = found.take_while(|_| !stop.is_cancelled());
            let judged = going.map(|model| Local { judged: judge(&model, &gpu, context), model });
            let mut models: Vec<Local> = judged.collect();
            models.sort_by_key(|local| !local.judged.may_fit());
            models
        }));
    }

    /// Takes the models once they are found.
    pub fn receive(&mut self) {
        if let Some(found) = self.look.as_ref().and_then(Task::result) {
            self.look = None;
            self.models = found.or(self.models.take()).or_else(|| Some(Vec::new()));
        }
    }

    /// The context for which the models are or will be judged.
    pub fn context(&self) -> Option<usize> {
        self.context
    }

    /// Whether a model fits, once all are known.
    pub fn has_one(&self) -> Option<bool> {
        Some(self.models.as_ref()?.iter().any(|local| local.judged.may_fit()))
    }

    /// The repositories with unfinished downloads.
    pub fn unfinished(&self) -> Vec<String> {
        let models = self.models.iter().flatten().map(|local| &local.model);
        let unfinished = models.filter(|model| is_unfinished(model));
        unfinished.map(|model| model.name.split(':').next().unwrap_or_default().to_owned()).collect()
    }

    /// The models that are listed. Unfinished downloads are shown among those that can be downloaded.
    fn listed(&self) -> impl Iterator<Item = &Local> {
        self.models.iter().flatten().filter(|local| !is_unfinished(&local.model))
    }

    /// The models in words.
    pub fn words(&self) -> Vec<String> {
        let words = |local: &Local| format!("{}: {}", local.model.name, verdict::words(&local.judged));
        self.listed().map(words).collect()
    }

    /// Shows the list, and returns the model that the user opens.
    pub fn show(&self, ui: &mut Ui, can_open: bool, places: &mut Places) -> Option<Source> {
        let mut opened = None;
        for Local { model, judged } in self.listed() {
            let can_open = can_open && judged.may_fit();
            let open = row::show(ui, &model.name, "Open", can_open, |ui| {
                verdict::show(ui, model.bytes, judged, Some(model.source.name()));
            });
            places.note(format!("open {}", model.name), open.rect);
            if open.clicked() {
                opened = Some(Source::Model(model.name.clone(), model.path.clone()));
            }
        }
        // A second search shows nothing until it is done, so that no button moves while the user is about to press it.
        if self.models.is_none() {
            ui.horizontal(|ui| {
                ui.spinner();
                ui.weak("Looking for models on this machine");
            });
        } else if self.listed().next().is_none() {
            ui.weak("No models from Hugging Face, LM Studio, llama.cpp or Ollama were found on this machine.");
        }
        opened
    }
}

/// Whether it is an unfinished download from the hub.
fn is_unfinished(model: &LocalModel) -> bool {
    !model.whole && model.source == Folder::HuggingFace
}

/// Judges a model on this machine.
fn judge(model: &LocalModel, gpu: &Gpu, context: Option<usize>) -> Judged {
    match model.whole {
        true => judge_file(&model.path, gpu, context),
        false => Judged::unfit("part of the file is missing"),
    }
}

/// Judges a file.
pub fn judge_file(path: &Path, gpu: &Gpu, context: Option<usize>) -> Judged {
    Judged::of(&Gguf::open(path), &engine::options(gpu, context), Some(gpu))
}
