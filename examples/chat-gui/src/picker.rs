//! The page where the user chooses a model: one on this machine, one to download, a file, or the demonstration model.
//!
//! It is the first page without a model. The models on this machine are looked for at once. The hub is asked only if
//! none of them fits, if a download is unfinished, or when the user wants it.

use crate::file_row::FileRow;
use crate::protocol::{Loaded, Source};
use crate::shelf::Shelf;
use crate::shop::Shop;
use crate::status::Places;
use crate::{look, row};
use eframe::egui::{Context, DragValue, ProgressBar, RichText, ScrollArea, Ui};
use wglm::{Gpu, LoadProgress, LoadStage};

/// An action of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Load(Source, Option<usize>),
    Cancel,
    /// Go back to the conversation.
    Close,
}

/// The page.
pub struct Picker {
    pub open: bool,
    pub shelf: Shelf,
    pub shop: Shop,
    /// Whether the hub was asked, or need not be.
    settled: bool,
    pub file: FileRow,
    context: Option<usize>,
    /// The progress of the load, while there is one.
    pub loading: Option<Option<LoadProgress>>,
}

impl Picker {
    /// A page on which a file may be chosen at first.
    pub fn new(window: &Context, gpu: Gpu, source: Option<&Source>, context: Option<usize>) -> Self {
        let path = match source {
            Some(Source::File(path)) => path.display().to_string(),
            _ => String::new(),
        };
        let (mut shelf, shop) = (Shelf::new(gpu.clone()), Shop::new(gpu.clone()));
        shelf.look(window, context);
        // There is a model to load already, so the hub need not be asked.
        let (file, settled) = (FileRow::new(gpu, path), source.is_some());
        Self { open: true, shelf, shop, settled, file, context, loading: None }
    }

    /// The length of the context that models are loaded with.
    pub fn context(&self) -> Option<usize> {
        self.context
    }

    /// Shows the page, or the conversation.
    pub fn turn(&mut self, window: &Context, open: bool) {
        if open && !self.open {
            self.shelf.look(window, self.context);
        }
        self.open = open;
    }

    /// Takes results that have arrived. Returns a model that was downloaded.
    pub fn receive(&mut self, window: &Context) -> Option<Source> {
        self.shelf.receive();
        if let (Some(has_one), false) = (self.shelf.has_one(), self.settled) {
            self.settled = true;
            self.shop.add_unfinished(window, self.shelf.unfinished());
            if !has_one {
                self.shop.ask(window);
            }
        }
        let downloaded = self.shop.receive();
        if downloaded.is_some() {
            self.shelf.look(window, self.context);
        }
        downloaded
    }

    /// Shows the page.
    pub fn show(&mut self, ui: &mut Ui, loaded: Option<&Loaded>, places: &mut Places) -> Option<Action> {
        ScrollArea::vertical()
            .auto_shrink(false)
            .show(ui, |ui| look::column(ui, |ui| self.page(ui, loaded.is_some(), places)))
            .inner
    }

    fn page(&mut self, ui: &mut Ui, can_close: bool, places: &mut Places) -> Option<Action> {
        let top = self.top(ui, can_close, places);
        let can_open = self.loading.is_none();
        let local = self.local(ui, can_open, places);
        ui.add_space(14.0);
        self.shop.show(ui, can_open, places);
        ui.add_space(14.0);
        self.length(ui);
        top.or(local.map(|source| Action::Load(source, self.context)))
    }

    /// The title, and the progress of a load.
    fn top(&self, ui: &mut Ui, can_close: bool, places: &mut Places) -> Option<Action> {
        ui.add_space(6.0);
        let mut action = None;
        ui.horizontal(|ui| {
            ui.heading(if self.loading.is_some() { "Loading the model" } else { "Choose a model" });
            if can_close && self.loading.is_none() && ui.button("Back").clicked() {
                action = Some(Action::Close);
            }
        });
        ui.add_space(6.0);
        if let Some(progress) = self.loading {
            action = bar(ui, progress, places);
            ui.add_space(10.0);
        }
        action
    }

    /// The models on this machine, the demonstration model, and any other file.
    fn local(&mut self, ui: &mut Ui, can_open: bool, places: &mut Places) -> Option<Source> {
        ui.label("On this machine");
        ui.add_space(2.0);
        let opened = self.shelf.show(ui, can_open, places);
        let demo = row::show(ui, "The demonstration model", "Open", can_open, |ui| {
            let bytes = look::bytes(wglm::DEMO_MODEL.len() as u64);
            let text = format!("{bytes}  ·  included in this program  ·  tells fables, for a quick test");
            ui.label(RichText::new(text).small().weak());
        });
        places.note("demo", demo.rect);
        let demo = demo.clicked().then_some(Source::Demo);
        let file = self.file.show(ui, self.context, can_open, places);
        file.or(demo).or(opened)
    }

    /// The length of the context, for which models on this machine are judged.
    fn length(&mut self, ui: &mut Ui) {
        ui.horizontal_wrapped(|ui| {
            let name = ui.label("Context length").id;
            let mut automatic = self.context.is_none();
            if ui.checkbox(&mut automatic, "Automatic").changed() {
                self.context = (!automatic).then_some(8192);
            }
            if let Some(context) = &mut self.context {
                ui.add(DragValue::new(context).range(0..=1 << 20).speed(64)).labelled_by(name);
                ui.weak(if *context == 0 { "(the longest that the model supports)" } else { "tokens" });
            }
        });
        // While the number is being dragged, it is not final.
        if self.shelf.context() != self.context && !ui.input(|input| input.pointer.any_down()) {
            self.shelf.look(ui.ctx(), self.context);
        }
    }
}

fn bar(ui: &mut Ui, progress: Option<LoadProgress>, places: &mut Places) -> Option<Action> {
    let (done, total) = progress.map_or((0, 0), |progress| (progress.done, progress.total));
    let text = match progress.map(|progress| progress.stage) {
        None => "Reading the file".into(),
        Some(LoadStage::Weights) if done == total => "Checking the weights on the GPU".into(),
        Some(LoadStage::Weights) => format!("{} of {} loaded", look::bytes(done), look::bytes(total)),
        Some(LoadStage::Kernels) => format!("{done} of {total} kernels compiled"),
        Some(_) => "Checking the kernels".into(),
    };
    ui.add(ProgressBar::new(done as f32 / total.max(1) as f32).text(text).animate(true));
    let cancel = ui.button("Cancel");
    places.note("cancel", cancel.rect);
    cancel.clicked().then_some(Action::Cancel)
}
