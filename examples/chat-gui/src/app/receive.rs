//! Reactions to messages from the worker, and to actions of the user.

use super::App;
use crate::conversation::Asked;
use crate::count::Counter;
use crate::export_row::ExportRow;
use crate::last_model::LastModel;
use crate::protocol::{Command, Source, WorkerMessage};
use crate::{list, picker};
use wglm::tune::TuneOptions;

impl App {
    /// Handles all messages from the worker since the last frame.
    pub(super) fn receive(&mut self) {
        for failure in self.chats.failures() {
            // A full disk fails every time, and is reported until the user has seen it.
            if !self.notices.contains(&failure) {
                self.notices.push(failure);
            }
        }
        let downloaded = self.picker.receive(&self.window);
        downloaded.into_iter().for_each(|model| self.downloaded(model));
        self.worker.received().into_iter().for_each(|message| self.take(message));
        if self.moves() && !self.worker.lives() {
            (self.picker.loading, self.loaded, self.tuning) = (None, None, None);
            self.not_replied();
            self.notices
                .push("The model's thread ended unexpectedly. Please report this, and restart the program.".into());
        }
    }

    fn take(&mut self, message: WorkerMessage) {
        match message {
            WorkerMessage::Loading(progress) => self.picker.loading = Some(Some(progress)),
            WorkerMessage::Loaded(mut loaded) => {
                loaded.sampling.temperature = self.temperature.unwrap_or(loaded.sampling.temperature);
                let open = self.chats.open_mut();
                if open.is_empty() && open.settings.preset.is_none() {
                    open.settings.sampling = loaded.sampling.clone();
                }
                // A first tuning is part of the load: if the program crashes in it, the next start must not repeat it.
                let first_tuning = loaded.first_tuning.take();
                if first_tuning.is_none() || self.again.is_some() {
                    self.note_last_model(LastModel::loaded);
                }
                self.loaded = Some(loaded);
                (self.picker.loading, self.picker.open) = (None, false);
                self.open();
                if self.again.take().is_some_and(|id| id == self.chats.open().id) {
                    self.notices.push("The GPU was lost, so the program restarted.".into());
                    self.ask_again();
                } else if let Some(options) = first_tuning {
                    self.tune_first(options);
                }
            }
            WorkerMessage::NotLoaded(error) => {
                (self.picker.loading, self.held) = (None, 0);
                self.notices.extend(error);
            }
            WorkerMessage::Tuning(progress) => self.tuning = Some(Some(progress)),
            WorkerMessage::Tuned { summary, faster, lost } => {
                if !lost {
                    self.note_last_model(LastModel::loaded);
                }
                self.tuned(summary, faster);
            }
            WorkerMessage::Opened(held) => self.held = held,
            WorkerMessage::Unloaded => (self.held, self.counter) = (0, Counter::default()),
            WorkerMessage::Counted(tokens) => self.counter.take(tokens),
            WorkerMessage::Event(event) => {
                if let Some(pending) = &mut self.pending {
                    pending.take(event);
                }
            }
            WorkerMessage::Replied { message, held, error } => self.replied(message, held, error),
            WorkerMessage::Notice(notice) => self.notices.push(notice),
        }
    }

    /// Asks again for the reply that was lost with the GPU.
    fn ask_again(&mut self) {
        let tree = &self.chats.open().tree;
        let reply = tree.last().filter(|turn| turn.message.role == "assistant");
        self.ask(Asked::Again(tree.len() - usize::from(reply.is_some())));
    }

    /// Opens a model that was downloaded, if the user is still waiting for one.
    fn downloaded(&mut self, model: Source) {
        if self.picker.open && !self.moves() {
            let context = self.picker.context();
            self.load(model, context);
        } else {
            self.notices.push(format!("{} has been downloaded. Open it under \"Model …\".", model.name()));
        }
    }

    /// Tunes a model before it is used.
    fn tune_first(&mut self, options: TuneOptions) {
        let seconds = options.budget.unwrap_or_default().as_secs_f32();
        self.notices.push(format!(
            "This GPU has not been tuned yet; tuning takes at most {seconds} seconds. Press Stop to skip."
        ));
        self.tune(options);
    }

    /// Shows the result of tuning, and reloads the model if it will be faster.
    fn tuned(&mut self, summary: String, faster: bool) {
        self.tuning = None;
        self.notices.push(summary);
        if let Some((source, context)) = self.source.clone().filter(|_| faster && self.worker.lives()) {
            self.picker.open = true;
            self.load(source, context);
        }
    }

    pub(super) fn on_list_action(&mut self, action: list::Action) {
        let before = self.chats.open().id.clone();
        if !matches!(action, list::Action::Rename(..)) {
            self.leave_edit();
        }
        if !matches!(action, list::Action::Rename(..) | list::Action::Delete(_)) {
            self.pages.show_center();
        }
        match action {
            list::Action::New => self.chats.begin(),
            list::Action::Open(place) => {
                self.chats.go_to(place);
                self.show_messages();
            }
            list::Action::Show(place, turn) => self.show_turn(place, turn),
            list::Action::Export => self.export = Some(ExportRow::new(self.chats.open())),
            list::Action::Rename(place, name) => {
                self.chats.go_to(place);
                self.chats.open_mut().title = name;
                self.save(&self.chats.open().id.clone());
            }
            list::Action::Delete(place) => self.delete(place),
        }
        if self.chats.open().id != before {
            (self.undo, self.export) = (None, None);
            self.results.clear();
            self.open();
        }
    }

    /// Opens a conversation at a message, which may belong to a version that is not shown.
    fn show_turn(&mut self, place: usize, turn: usize) {
        self.chats.go_to(place);
        let id = self.chats.open().id.clone();
        if self.pending.as_ref().is_none_or(|pending| pending.conversation != id) {
            self.view.target = self.chats.open_mut().tree.show(turn);
            self.save(&id);
            self.view.changed(0);
        }
        self.show_messages();
    }

    /// Shows the open conversation in place of the page of models, unless one is being loaded.
    fn show_messages(&mut self) {
        self.picker.open &= self.picker.loading.is_some();
    }

    fn delete(&mut self, place: usize) {
        let deleted = self.chats.delete(place);
        let Some(id) = self.note_failure(deleted) else { return };
        if self.pending.as_ref().is_some_and(|pending| pending.conversation == id) {
            self.worker.stop();
        }
        self.worker.ask(Command::Forget(id));
    }

    pub(super) fn on_picker_action(&mut self, action: picker::Action) {
        match action {
            picker::Action::Load(source, context) => self.load(source, context),
            picker::Action::Cancel => {
                self.note_last_model(LastModel::forget);
                self.worker.stop();
            }
            picker::Action::Close => self.picker.turn(&self.window, false),
        }
    }
}
