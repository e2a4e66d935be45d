//! The row in which the user names a file by its path.

use crate::protocol::Source;
use crate::shelf::judge_file;
use crate::status::Places;
use crate::task::Task;
use crate::{access, row, verdict};
use eframe::egui::{Button, Context, Key, TextEdit, Ui, vec2};
use std::path::PathBuf;
use wglm::Gpu;
use wglm::offers::Judged;

/// The row.
pub struct FileRow {
    gpu: Gpu,
    path: String,
    /// What the user chooses in a file dialogue.
    dialogue: Option<Task<Option<PathBuf>>>,
    asked: Option<Asked>,
    /// The size of the file, and whether it fits.
    judged: Option<(u64, Judged)>,
}

/// A file that is judged for a context.
struct Asked {
    path: PathBuf,
    context: Option<usize>,
    task: Task<(u64, Judged)>,
}

impl FileRow {
    /// A row with a path, or without one.
    pub fn new(gpu: Gpu, path: String) -> Self {
        Self { gpu, path, dialogue: None, asked: None, judged: None }
    }

    /// The verdict on the file, in words.
    pub fn words(&self) -> Option<String> {
        self.judged.as_ref().map(|(_, judged)| verdict::words(judged))
    }

    /// Shows the row, and returns the file if the user opens it.
    pub fn show(&mut self, ui: &mut Ui, context: Option<usize>, can_open: bool, places: &mut Places) -> Option<Source> {
        self.receive(ui.ctx(), context);
        let opened = row::frame(ui, |ui| {
            ui.strong("Another GGUF file");
            let opened = ui.horizontal(|ui| self.path(ui, can_open, places)).inner;
            if let Some((bytes, judged)) = &self.judged {
                verdict::show(ui, *bytes, judged, None);
            }
            opened
        });
        opened.then(|| Source::File(PathBuf::from(self.path.trim())))
    }

    /// The field and its buttons. True if the user opens the file.
    fn path(&mut self, ui: &mut Ui, can_open: bool, places: &mut Places) -> bool {
        let width = ui.available_width() - 2.0 * (row::BUTTON + ui.spacing().item_spacing.x);
        let edit = TextEdit::singleline(&mut self.path).desired_width(width).hint_text("Path to a GGUF file");
        let edit = ui.add(edit);
        access::name(&edit, "Path to a GGUF file");
        places.note("path", edit.rect);
        let enter = edit.lost_focus() && ui.input(|input| input.key_pressed(Key::Enter));
        let choose = ui.add(Button::new("Choose …").min_size(vec2(row::BUTTON, 0.0)));
        if choose.clicked() && self.dialogue.is_none() {
            let dialogue = || rfd::FileDialog::new().add_filter("GGUF", &["gguf"]).pick_file();
            self.dialogue = Some(Task::start(ui.ctx(), move |_| dialogue()));
        }
        let ready = can_open && self.judged.as_ref().is_some_and(|(_, judged)| judged.may_fit());
        let open = ui.add_enabled(ready, Button::new("Open").min_size(vec2(row::BUTTON, 0.0)));
        places.note("open path", open.rect);
        open.clicked() || enter && ready
    }

    /// Takes the path that the user chose, and has the file judged if it is a new one.
    fn receive(&mut self, window: &Context, context: Option<usize>) {
        if let Some(chosen) = self.dialogue.as_ref().and_then(Task::result) {
            self.dialogue = None;
            chosen.flatten().into_iter().for_each(|path| self.path = path.display().to_string());
        }
        let path = PathBuf::from(self.path.trim());
        match &self.asked {
            _ if path.as_os_str().is_empty() => (self.asked, self.judged) = (None, None),
            Some(asked) if asked.path == path && asked.context == context => {
                if let Some(Some(judged)) = asked.task.result() {
                    self.judged = Some(judged);
                }
            }
            _ => {
                let (file, gpu) = (path.clone(), self.gpu.clone());
                let task = Task::start(window, move |_| {
                    let bytes = std::fs::metadata(&file).map_or(0, |about| about.len());
                    (bytes, judge_file(&file, &gpu, context))
                });
                (self.asked, self.judged) = (Some(Asked { path, context, task }), None);
            }
        }
    }
}
