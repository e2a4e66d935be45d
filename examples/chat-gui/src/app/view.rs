//! Draws the window, frame by frame.

use super::{App, Edit, REST};
use crate::access::Names;
use crate::bar::Bar;
use crate::composer::{self, Can, Edited};
use crate::conversation::Asked;
use crate::export_row::Outcome;
use crate::last_model::LastModel;
use crate::protocol::{Command, Request};
use crate::status::Status;
use crate::turns::FRAME;
use crate::{count, list, look, markdown};
use eframe::egui::{
    Button, CentralPanel, Context, Frame, Key, Modifiers, Panel, ScrollArea, Ui, ViewportCommand, Visuals,
};
use std::time::{Duration, Instant};
use wglm::Message;
use wglm::tune::TuneOptions;

impl eframe::App for App {
    fn logic(&mut self, _: &Context, _: &mut eframe::Frame) {
        let during = self.worker.turns.rest(self.frames.last());
        self.frames.end(during);
        self.receive();
        self.save_settings(REST);
    }

    fn ui(&mut self, ui: &mut Ui, frame: &mut eframe::Frame) {
        if self.worker.turns.are_taken() {
            self.surface.pause(); // until the frame is presented
        }
        self.worker.turns.draw();
        self.frames.begin(Instant::now(), self.moves(), frame.info().cpu_usage);
        self.places.clear(ui.ctx());
        let bare = || Frame::new().inner_margin(look::MARGIN);
        self.background = ui.visuals().panel_fill;
        self.pages.narrow = ui.available_width() < look::NARROW;
        self.keys(ui);
        let (narrow, list_shown, settings_shown) = (self.pages.narrow, self.pages.list(), self.pages.settings());
        if list_shown && !narrow {
            Panel::left("conversations").frame(bare()).default_size(220.0).show(ui, |ui| self.conversations(ui));
        }
        if settings_shown && !narrow {
            let panel = Panel::right("settings").frame(bare()).default_size(350.0);
            panel.show(ui, |ui| self.settings(ui));
        }
        Panel::top("model").frame(bare()).show(ui, |ui| self.top(ui));
        Panel::bottom("bar").frame(bare()).show(ui, |ui| self.bar(ui));
        let page = narrow && (self.pages.list() || self.pages.settings());
        if !self.picker.open && !page {
            let panel = Panel::bottom("composer").frame(bare()).show_separator_line(false);
            panel.show(ui, |ui| look::column(ui, |ui| self.composer(ui)));
        }
        CentralPanel::default().frame(bare()).show(ui, |ui| {
            if !self.notices.is_empty() {
                look::column(ui, |ui| self.notices(ui));
            }
            match page {
                true if self.pages.settings() => self.settings(ui),
                true => self.conversations(ui),
                false => self.center(ui),
            }
        });
        markdown::keep_links(ui.ctx());
        self.count(ui.ctx());
        let later = self.write_status(ui.ctx());
        if self.moves() {
            ui.ctx().request_repaint_after(self.worker.turns.delay());
        } else if later {
            ui.ctx().request_repaint_after(FRAME);
        }
    }

    /// The background of everything. Panels paint none, because that would write every pixel in every frame, whereas
    /// clearing the frame with this colour is free. It is not taken from the visuals of this moment: a theme that the
    /// user has chosen in this frame is that of the next one.
    fn clear_color(&self, _: &Visuals) -> [f32; 4] {
        self.background.to_normalized_gamma_f32()
    }

    #[allow(clippy::print_stderr)] // the window is closed
    fn on_exit(&mut self) {
        self.surface.resume(); // or the worker could not end
        self.save_settings(Duration::ZERO);
        self.picker.shop.end();
        self.keep_asked();
        let prepares = self.picker.loading.is_some() || self.tuning.is_some();
        self.worker.end();
        self.receive(); // a reply that this has stopped is kept as far as it was generated
        if prepares {
            // A load that the closing window has stopped did not fail. One that hangs does not get here.
            self.note_last_model(LastModel::loaded);
        }
        self.chats.finish().iter().for_each(|error| eprintln!("{error}"));
    }
}

impl App {
    /// Handles keys that do the same wherever the cursor is.
    fn keys(&mut self, ui: &mut Ui) {
        let pressed = |key| ui.input_mut(|input| input.consume_key(Modifiers::COMMAND, key));
        if pressed(Key::Q) {
            ui.ctx().send_viewport_cmd(ViewportCommand::Close);
        }
        if pressed(Key::N) {
            self.on_list_action(list::Action::New);
        }
        if pressed(Key::F) {
            self.pages.show_list();
            self.list.seek();
        }
        if pressed(Key::R) {
            let last = self.chats.open().tree.len().saturating_sub(1);
            let again = self.offered(last).again.map(|(position, _)| Asked::Again(position));
            again.into_iter().for_each(|again| self.ask(again));
        }
    }

    fn conversations(&mut self, ui: &mut Ui) {
        let action = self.list.show(ui, &self.chats, &mut self.places);
        action.into_iter().for_each(|action| self.on_list_action(action));
    }

    fn settings(&mut self, ui: &mut Ui) {
        ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
            ui.set_max_width(ui.available_width() - look::SCROLL_BAR);
            self.all_settings(ui);
        });
    }

    fn all_settings(&mut self, ui: &mut Ui) {
        ui.add_space(6.0);
        let recommended = self.loaded.as_ref().map(|loaded| &loaded.sampling);
        let settings = &mut self.chats.open_mut().settings;
        let changed = self.panel.show(ui, settings, recommended, &mut self.places);
        if self.note_failure(changed).unwrap_or(true) {
            let open = &self.chats.open().id;
            if self.unsaved.as_ref().is_some_and(|(id, _)| id != open) {
                self.save_settings(Duration::ZERO); // those of another conversation
            }
            self.unsaved = Some((self.chats.open().id.clone(), Instant::now()));
            ui.ctx().request_repaint_after(REST);
        }
        ui.add_space(16.0);
        let saved = self.appearance.show(ui, &mut self.places);
        self.note_failure(saved);
    }

    /// Has the tokens counted that would be sent now.
    fn count(&mut self, window: &Context) {
        let Some(loaded) = self.loaded.as_ref().filter(|_| !self.moves()) else { return };
        let (conversation, (sent, typed)) = (self.chats.open(), self.unsent());
        let of = count::hash(&loaded.name, &conversation.settings, conversation.tree.messages().take(sent), typed);
        if self.counter.is_due(of, Instant::now()) {
            self.worker.ask(Command::Count(Box::new(self.to_count())));
        } else if self.counter.waits() {
            window.request_repaint_after(count::REST);
        }
    }

    fn to_count(&self) -> Request {
        let (conversation, (sent, typed)) = (self.chats.open(), self.unsent());
        let typed = Some(typed).filter(|text| !text.is_empty()).map(Message::user);
        let messages = conversation.tree.messages().take(sent).cloned().chain(typed).collect();
        Request { place: self.chats.place(), messages, settings: conversation.settings.clone(), rest: false }
    }

    /// How many messages would be sent, and the text after them. An edited user message also replaces what follows it;
    /// an edited reply is not sent.
    fn unsent(&self) -> (usize, &str) {
        let (all, typed) = (self.chats.open().tree.len(), self.text.trim());
        match &self.editing {
            None => (all, typed),
            Some(Edit { own: true, position, .. }) => (*position, typed),
            Some(_) => (all, ""),
        }
    }

    fn top(&mut self, ui: &mut Ui) {
        ui.add_space(4.0);
        ui.horizontal_wrapped(|ui| {
            let list = ui.selectable_label(self.pages.list(), "☰").on_hover_text("Show or hide the conversations");
            self.places.note("list", list.rect);
            if list.clicked() {
                self.pages.turn_list();
            }
            ui.strong(self.loaded.as_ref().map_or("No model", |loaded| &loaded.name));
            let busy = self.moves();
            let model = ui.add_enabled(!busy, Button::new("Model …").selected(self.picker.open));
            self.places.note("model", model.rect);
            if model.clicked() {
                let hidden = self.pages.show_center();
                self.picker.turn(ui.ctx(), hidden || !self.picker.open || self.loaded.is_none());
            }
            if let Some(fetch) = self.picker.shop.fetch() {
                let share = ui.weak(format!("⬇ {:.0} %", 100.0 * fetch.share()));
                share.on_hover_text(format!("Downloading {}", fetch.name()));
            }
            let can_tune = !busy && self.loaded.is_some();
            let unload = ui.add_enabled(can_tune, Button::new("Unload"));
            self.places.note("unload", unload.rect);
            if unload.on_hover_text("Frees the GPU's memory. The conversations stay.").clicked() {
                self.unload();
            }
            let tune = ui.add_enabled(can_tune, Button::new("Tune"));
            self.places.note("tune", tune.rect);
            let hint =
                "Measures which settings make this model fastest on this GPU. Takes a minute, or five on a slow GPU.";
            if tune.on_hover_text(hint).clicked() {
                self.tune(TuneOptions::default());
            }
            let settings = ui.add(Button::new("Settings").selected(self.pages.settings()));
            self.places.note("settings", settings.rect);
            if settings.clicked() {
                self.pages.turn_settings();
            }
        });
        ui.add_space(2.0);
    }

    fn bar(&self, ui: &mut Ui) {
        let (loaded, pending, stats) = (self.loaded.as_ref(), self.pending.as_ref(), self.stats.as_ref());
        let tokens = match pending {
            Some(pending) if pending.conversation == self.chats.open().id => pending.tokens().or(self.counter.tokens()),
            Some(_) => None,
            None => self.counter.tokens(),
        };
        let tokens = tokens.unwrap_or(self.held);
        let frames = self.appearance.frame_times.then_some(&self.frames);
        Bar { loaded, tokens, pending, stats, frames }.show(ui);
    }

    fn composer(&mut self, ui: &mut Ui) {
        if let Some(progress) = &self.tuning {
            if composer::tuning(ui, progress.as_ref(), &mut self.places) {
                self.worker.stop();
            }
            return;
        }
        let can = match (&self.loaded, &self.pending) {
            (_, Some(_)) => Can::Stop,
            (Some(_), None) => Can::Send,
            (None, None) => Can::Nothing,
        };
        self.results(ui, can == Can::Send);
        let edited = self.editing.as_ref().map(|edit| if edit.own { Edited::Own } else { Edited::Other });
        match composer::show(ui, &mut self.text, can, edited, &mut self.places) {
            composer::Action::Send => self.send(),
            composer::Action::Stop => self.worker.stop(),
            composer::Action::Edit => self.chats.open().last_own().into_iter().for_each(|own| self.edit(own)),
            composer::Action::Rewrite => self.rewrite(),
            composer::Action::Leave => self.leave_edit(),
            composer::Action::Nothing => {}
        }
    }

    /// The form for results of functions, if the model waits for some.
    fn results(&mut self, ui: &mut Ui, can_send: bool) {
        let calls = self.chats.open().open_calls();
        if calls.is_empty() || self.pending.is_some() || self.editing.is_some() {
            return;
        }
        if let Some(results) = self.results.show(ui, &calls, can_send, &mut self.places) {
            self.ask(Asked::Results(results));
        }
    }

    fn center(&mut self, ui: &mut Ui) {
        if self.undo.is_some() || self.export.is_some() {
            look::column(ui, |ui| {
                self.undo_row(ui);
                self.export_row(ui);
            });
        }
        if self.picker.open {
            let action = self.picker.show(ui, self.loaded.as_ref(), &mut self.places);
            return action.into_iter().for_each(|action| self.on_picker_action(action));
        }
        let mut view = std::mem::take(&mut self.view);
        let mut places = std::mem::take(&mut self.places);
        let conversation = self.chats.open();
        let pending = self.pending.as_ref().filter(|pending| pending.conversation == conversation.id);
        let action = view.show(ui, conversation, pending, &|position| self.offered(position), &mut places);
        (self.view, self.places) = (view, places);
        action.into_iter().for_each(|action| self.on_message_action(action));
    }

    /// Names the last change and offers to undo it, unless a message is being edited: undoing could move it to another
    /// position.
    fn undo_row(&mut self, ui: &mut Ui) {
        let open = &self.chats.open().id;
        let Some(undo) = self.undo.as_ref().filter(|undo| undo.conversation == *open && self.is_free()) else { return };
        let row = ui.horizontal(|ui| {
            ui.weak(undo.done);
            let undo = ui.add(look::small("Undo"));
            self.places.note("undo", undo.rect);
            (undo.clicked(), ui.add(look::small("Dismiss")).clicked())
        });
        match row.inner {
            (true, _) => self.undo(),
            (_, true) => self.undo = None,
            _ => {}
        }
    }

    fn export_row(&mut self, ui: &mut Ui) {
        let Some(row) = &mut self.export else { return };
        if let Outcome::Close(notice) = row.show(ui, self.chats.open(), &mut self.places) {
            self.export = None;
            self.notices.extend(notice);
        }
    }

    /// Shows an error in full until the user dismisses it.
    fn notices(&mut self, ui: &mut Ui) {
        let mut seen = None;
        for (index, notice) in self.notices.iter().enumerate() {
            Frame::new().fill(look::error(ui)).corner_radius(6.0).inner_margin(look::MARGIN).show(ui, |ui| {
                ui.set_width(ui.available_width());
                ui.label(notice);
                let dismiss = ui.add(look::small("Dismiss"));
                self.places.note("dismiss", dismiss.rect);
                if dismiss.clicked() {
                    seen = Some(index);
                }
            });
        }
        seen.map(|index| self.notices.remove(index));
    }

    /// Reports what is shown, for tests; true if it has to be reported again.
    fn write_status(&mut self, window: &Context) -> bool {
        let Some(file) = &mut self.status else { return false };
        let (pending, stats) = (self.pending.as_ref(), self.stats.as_ref());
        let (offered, fetching) = self.picker.shop.words();
        let boxes = look::boxes(window, self.chats.open().tree.messages().map(Message::text));
        file.write(Status {
            model: self.loaded.as_ref().map(|loaded| loaded.name.clone()),
            local: self.picker.shelf.words(),
            file: self.picker.file.words(),
            offered,
            fetching,
            loading: self.picker.loading.is_some(),
            tuning: self.tuning.is_some(),
            replying: pending.is_some(),
            conversations: self.chats.list().iter().map(|conversation| conversation.name().to_owned()).collect(),
            system: self.chats.open().settings.system.clone(),
            messages: self.chats.open().tree.messages().map(|message| message.text().into_owned()).collect(),
            versions: (0..self.chats.open().tree.len()).map(|at| self.chats.open().tree.version(at)).collect(),
            preset: self.chats.open().settings.preset.clone(),
            presets: self.panel.presets.names().map(str::to_owned).collect(),
            errors: self.panel.errors().map(str::to_owned).collect(),
            seeking: self.list.is_seeking(),
            found: self.list.words(),
            memory: self.worker.turns.memory(),
            replies: self.replies,
            typed: self.text.clone(),
            editing: self.editing.is_some(),
            pending: pending.map(|reply| format!("{}{}", reply.thinking, reply.text)).unwrap_or_default(),
            held: self.held,
            tokens: self.counter.tokens().filter(|_| !self.counter.waits()),
            nameless: Names::nameless(window),
            boxes,
            cached: stats.map(|stats| stats.prompt.cached),
            new: stats.map(|stats| stats.prompt.new),
            generated: stats.map(|stats| stats.generated),
            stop: stats.map(|stats| format!("{:?}", stats.stop)),
            notices: self.notices.clone(),
            met: self.surface.met(),
            frames: self.frames.count(),
            dispatches: self.frames.dispatches(),
            between_ms: self.frames.between(),
            work_ms: self.frames.work(),
            places: self.places.clone(),
        })
    }
}
