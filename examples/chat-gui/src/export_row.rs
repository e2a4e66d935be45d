//! The row in which the user says where a conversation is exported to, and in which form.

use crate::access;
use crate::conversation::Conversation;
use crate::export::{self, Form};
use crate::files;
use crate::status::Places;
use crate::task::Task;
use crate::{look, row};
use directories::UserDirs;
use eframe::egui::{Key, TextEdit, Ui};
use std::path::{Path, PathBuf};

/// The row, while it is shown.
pub struct ExportRow {
    /// The conversation's id.
    conversation: String,
    form: Form,
    path: String,
    /// What the user chooses in a file dialogue.
    dialogue: Option<Task<Option<PathBuf>>>,
    /// Whether it has been shown, so that the path has the focus at first.
    begun: bool,
}

/// What the user wants of the row.
pub enum Outcome {
    /// It stays open.
    Stay,
    /// It closes, with a message about what was done.
    Close(Option<String>),
}

impl ExportRow {
    /// A row for a conversation, with a path where the user keeps documents.
    pub fn new(conversation: &Conversation) -> Self {
        let folder = UserDirs::new().map(|dirs| dirs.document_dir().unwrap_or(dirs.home_dir()).to_owned());
        let path = folder.unwrap_or_default().join(export::file_name(conversation, Form::Markdown));
        let (conversation, path) = (conversation.id.clone(), path.display().to_string());
        Self { conversation, form: Form::Markdown, path, dialogue: None, begun: false }
    }

    /// Shows the row.
    pub fn show(&mut self, ui: &mut Ui, conversation: &Conversation, places: &mut Places) -> Outcome {
        if conversation.id != self.conversation {
            return Outcome::Close(None);
        }
        if let Some(chosen) = self.dialogue.as_ref().and_then(Task::result) {
            self.dialogue = None;
            chosen.flatten().into_iter().for_each(|path| self.path = path.display().to_string());
        }
        row::frame(ui, |ui| {
            ui.horizontal_wrapped(|ui| {
                ui.strong("Export as");
                self.forms(ui, places);
            });
            let enter = self.field(ui, places);
            ui.horizontal_wrapped(|ui| self.buttons(ui, enter, conversation, places)).inner
        })
    }

    fn forms(&mut self, ui: &mut Ui, places: &mut Places) {
        let before = self.form;
        for (form, name) in Form::ALL {
            let button = ui.selectable_value(&mut self.form, form, name);
            places.note(format!("export {name}"), button.rect);
        }
        if before != self.form {
            self.path = Path::new(&self.path).with_extension(self.form.extension()).display().to_string();
        }
    }

    /// The field for the path; true if the user pressed Enter in it.
    fn field(&mut self, ui: &mut Ui, places: &mut Places) -> bool {
        let width = ui.available_width().min(look::LINE);
        let field = TextEdit::singleline(&mut self.path).desired_width(width).hint_text("Path of the file");
        let field = ui.add(field);
        access::name(&field, "Path of the file");
        places.note("export path", field.rect);
        if !std::mem::replace(&mut self.begun, true) {
            field.request_focus();
        }
        field.lost_focus() && ui.input(|input| input.key_pressed(Key::Enter))
    }

    fn buttons(&mut self, ui: &mut Ui, enter: bool, conversation: &Conversation, places: &mut Places) -> Outcome {
        let path = PathBuf::from(self.path.trim());
        // An existing file is replaced only by the button that says so.
        let there = path.exists();
        let save = ui.button(if there { "Replace this file" } else { "Save" });
        places.note("export", save.rect);
        if ui.button("Browse …").clicked() && self.dialogue.is_none() {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let dialogue = rfd::FileDialog::new().set_file_name(name);
            let dialogue = path.parent().map_or(dialogue.clone(), |folder| dialogue.set_directory(folder));
            self.dialogue = Some(Task::start(ui.ctx(), move |_| dialogue.save_file()));
        }
        let copy = ui.button("Copy").on_hover_text("Copy the text instead of saving it");
        places.note("export copy", copy.rect);
        if copy.clicked() {
            ui.copy_text(self.form.write(conversation));
            return Outcome::Close(None);
        }
        if ui.button("Cancel").clicked() || ui.input(|input| input.key_pressed(Key::Escape)) {
            return Outcome::Close(None);
        }
        if !save.clicked() && (!enter || there) {
            return Outcome::Stay;
        }
        Outcome::Close(Some(match files::export(&path, self.form.write(conversation).as_bytes()) {
            Ok(()) => format!("The conversation was exported to {}.", path.display()),
            Err(error) => format!("The conversation was not exported: {error}."),
        }))
    }
}
