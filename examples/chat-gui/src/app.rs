//! The window: its parts, and how it reacts to the user and to the worker.

mod asking;
mod changing;
mod receive;
mod view;

use crate::access::Names;
use crate::appearance::Appearance;
use crate::chats::Chats;
use crate::conversation::Said;
use crate::count::Counter;
use crate::export_row::ExportRow;
use crate::frames::Frames;
use crate::last_model::LastModel;
use crate::list::List;
use crate::messages::View;
use crate::pages::Pages;
use crate::pending::Pending;
use crate::picker::Picker;
use crate::presets::Presets;
use crate::protocol::{Command, Loaded, Source};
use crate::restart::Restart;
use crate::results::Results;
use crate::settings::Panel;
use crate::status::{Places, StatusFile};
use crate::store::Store;
use crate::surface::Surface;
use crate::tunings::Tunings;
use crate::worker::Worker;
use crate::{device, fonts, look};
use anyhow::Context as _;
use eframe::CreationContext;
use eframe::egui::{Color32, Context};
use std::time::{Duration, Instant};
use wglm::Stats;
use wglm::tune::{TuneOptions, TuneProgress};

/// How long the settings have to stay unchanged before they are saved, since a slider changes them in every frame.
const REST: Duration = Duration::from_secs(1);

/// The options that the window starts with.
pub struct Start {
    /// A model to load at the start.
    pub source: Option<Source>,
    pub context: Option<usize>,
    /// The conversation in which to ask again, once the model is loaded.
    pub again: Option<String>,
    pub restart: Restart,
    /// See [`Tunings::first`].
    pub first_tuning: Option<f32>,
}

/// The window.
pub struct App {
    window: Context,
    worker: Worker,
    chats: Chats,
    /// The typed text.
    text: String,
    editing: Option<Edit>,
    /// The last change of messages, while it can be undone.
    undo: Option<Undo>,
    /// The results of functions that the user is typing.
    results: Results,
    loaded: Option<Loaded>,
    last_model: LastModel,
    /// What was loaded last.
    source: Option<(Source, Option<usize>)>,
    /// The progress of tuning, while there is some.
    tuning: Option<Option<TuneProgress>>,
    /// The conversation in which to ask again, once the model is loaded.
    again: Option<String>,
    /// The settings of new conversations.
    temperature: Option<f32>,
    pending: Option<Pending>,
    /// The statistics of the last reply.
    stats: Option<Stats>,
    /// The number of replies that have ended.
    replies: usize,
    /// The number of tokens in the cache.
    held: usize,
    counter: Counter,
    appearance: Appearance,
    /// Errors that the user has not yet dismissed.
    notices: Vec<String>,
    list: List,
    view: View,
    picker: Picker,
    export: Option<ExportRow>,
    panel: Panel,
    pages: Pages,
    /// The background of the current frame.
    background: Color32,
    /// A conversation whose settings were changed, and the time of the change. They are saved a moment later.
    unsaved: Option<(String, Instant)>,
    frames: Frames,
    /// Pauses wglm while the window's surface changes.
    surface: Surface,
    places: Places,
    status: Option<StatusFile>,
}

/// A message that is edited.
struct Edit {
    /// The position of the message in the open conversation.
    position: usize,
    /// Whether it is the user's.
    own: bool,
    /// What was typed before.
    before: String,
}

/// A change that can be undone.
struct Undo {
    /// The id of the conversation, and its messages before the change.
    conversation: String,
    said: Said,
    /// What was done.
    done: &'static str,
}

impl App {
    /// Creates the contents of the window, and the worker on its device.
    ///
    /// # Errors
    /// If wglm cannot use the device, or the folder of conversations cannot be read.
    pub fn new(creation: &CreationContext<'_>, start: Start, surface: Surface) -> anyhow::Result<Self> {
        look::set(&creation.egui_ctx);
        fonts::install(&creation.egui_ctx);
        Names::install(&creation.egui_ctx, start.restart.status.is_some());
        let window = creation.wgpu_render_state.as_ref().context("eframe opened no wgpu device")?;
        let gpu = device::shared_gpu(window, &surface)?;
        let window = creation.egui_ctx.clone();
        let Restart { data, temperature, status, .. } = start.restart.clone();
        let own = data.join("window");
        std::fs::create_dir_all(&own).with_context(|| format!("cannot create {}", own.display()))?;
        let (last_model, damaged_model) = LastModel::read(own.join("last-model.json"));
        let (presets, damaged_presets) = Presets::read(own.join("presets.json"));
        let (appearance, damaged_appearance) = Appearance::read(own.join("appearance.json"));
        window.set_theme(appearance.theme());
        let (last, not_loaded) = last_model.wanted();
        let (source, context) = match start.source {
            Some(source) => (Some(source), start.context),
            None => last.map_or((None, start.context), |(source, context)| (Some(source), start.context.or(context))),
        };
        let picker = Picker::new(&window, gpu.clone(), source.as_ref(), context);
        let tunings = Tunings { folder: data.join("tunings"), first: start.first_tuning };
        let (mut chats, mut notices) = Chats::read(Store::open(data)?, &window)?;
        let worker = Worker::start(gpu.clone(), window.clone(), tunings, start.restart, chats.jobs().clone())?;
        surface.guard(&gpu, &worker.turns);
        notices.extend([damaged_model, damaged_presets, damaged_appearance].into_iter().flatten());
        if let Some(id) = &start.again {
            chats.go_to_id(id);
        }
        let mut app = Self {
            window,
            worker,
            chats,
            text: String::new(),
            editing: None,
            undo: None,
            results: Results::default(),
            loaded: None,
            last_model,
            source: None,
            tuning: None,
            again: start.again,
            temperature,
            pending: None,
            stats: None,
            replies: 0,
            held: 0,
            counter: Counter::default(),
            appearance,
            notices,
            list: List::default(),
            view: View::default(),
            picker,
            export: None,
            panel: Panel::new(presets),
            pages: Pages::default(),
            background: Color32::default(),
            unsaved: None,
            frames: Frames::default(),
            surface,
            places: Places::new(status.is_some()),
            status: status.map(StatusFile::new),
        };
        match (source, not_loaded) {
            (Some(source), _) => app.load(source, context),
            (None, Some(notice)) => {
                app.notices.push(notice);
                app.note_last_model(LastModel::forget);
            }
            (None, None) => {}
        }
        Ok(app)
    }

    /// Whether anything changes from frame to frame.
    fn moves(&self) -> bool {
        self.pending.is_some() || self.picker.loading.is_some() || self.tuning.is_some()
    }

    fn load(&mut self, source: Source, context: Option<usize>) {
        self.loaded = None;
        self.picker.loading = Some(None);
        self.source = Some((source.clone(), context));
        self.note_last_model(|last| last.begin(&source, context));
        self.worker.ask(Command::Load(source, context));
    }

    /// Drops the model, to free the GPU's memory. The conversations stay, and the next window loads no model.
    fn unload(&mut self) {
        (self.loaded, self.stats) = (None, None);
        self.note_last_model(LastModel::forget);
        self.worker.ask(Command::Unload);
    }

    fn note_last_model(&mut self, note: impl FnOnce(&mut LastModel) -> std::io::Result<()>) {
        let noted = note(&mut self.last_model);
        self.note_failure(noted);
    }

    /// Makes the worker tune the model.
    fn tune(&mut self, options: TuneOptions) {
        self.tuning = self.worker.ask(Command::Tune(options)).then_some(None);
    }

    /// Saves settings whose last change is at least this long ago.
    fn save_settings(&mut self, rest: Duration) {
        if let Some((id, _)) = self.unsaved.take_if(|(_, changed)| changed.elapsed() >= rest) {
            self.save(&id);
        }
    }

    fn save(&mut self, id: &str) {
        let saved = self.chats.save(id);
        if self.note_failure(saved) == Some(true) {
            self.worker.ask(Command::Forget(id.to_owned()));
        }
    }

    fn note_failure<T>(&mut self, result: std::io::Result<T>) -> Option<T> {
        result.map_err(|error| self.notices.push(format!("{error}."))).ok()
    }

    /// Makes the worker sync the session with the open conversation.
    fn open(&mut self) {
        self.stats = None;
        self.worker.ask(Command::Open(self.chats.place()));
    }
}
