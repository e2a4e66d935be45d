//! The work of the worker thread: it holds the model and the one session that all conversations share.
//!
//! For every reply the session is synced with the messages of a conversation, and computes only what its cache lacks. A
//! conversation therefore consists of its messages only. Its snapshot saves time when it is opened again; if the
//! snapshot is missing, damaged or another model's, the messages are computed again.

use crate::count;
use crate::protocol::{Command, Loaded, Place, Request, Source, WorkerMessage};
use crate::restart::Restart;
use crate::saver::Jobs;
use crate::tunings::{self, Tunings};
use crate::worker::WindowSender;
use wglm::tune::{TuneOptions, Tuning};
use wglm::{Cancel, Chat, Error, Event, Gguf, Gpu, LoadOptions, Message, Model, Overflow, PromptOptions, Result};

/// The model, and the conversation whose messages its session holds.
pub struct Engine {
    gpu: Gpu,
    window: WindowSender,
    /// The folder of tunings.
    tunings: Tunings,
    restart: Restart,
    /// The thread that saves conversations, which must finish before the program restarts.
    saves: Jobs,
    /// What is loaded, or is being loaded.
    source: Option<(Source, Option<usize>)>,
    chat: Option<Chat>,
    place: Option<Place>,
    /// Whether the session has more tokens than its snapshot.
    unsaved: bool,
}

impl Engine {
    /// An engine without a model.
    pub fn new(gpu: Gpu, window: WindowSender, tunings: Tunings, restart: Restart, saves: Jobs) -> Self {
        Self { gpu, window, tunings, restart, saves, source: None, chat: None, place: None, unsaved: false }
    }

    /// Carries out a command, unless it was cancelled. Errors are reported to the window.
    pub fn obey(&mut self, command: Command, cancel: &Cancel) {
        match command {
            Command::Load(source, context) => self.load(&source, context, cancel),
            Command::Tune(options) => self.tune(&options, cancel),
            Command::Open(place) => self.open(place),
            Command::Forget(id) => self.forget(&id),
            Command::Reply(request) => self.reply(*request, cancel),
            Command::Unload => self.unload(),
            Command::Count(request) => {
                let tokens = self.chat.as_mut().and_then(|chat| count::tokens(chat, *request));
                self.window.send(WorkerMessage::Counted(tokens));
            }
        }
    }

    /// Loads a model. The previous one is dropped first, since the device may not have memory for both.
    fn load(&mut self, source: &Source, context: Option<usize>, cancel: &Cancel) {
        self.leave();
        self.chat = None;
        self.source = Some((source.clone(), context));
        let message = match self.loaded(source, context, cancel) {
            Ok((chat, loaded)) => {
                self.chat = Some(chat);
                WorkerMessage::Loaded(loaded)
            }
            Err(Error::Cancelled) => WorkerMessage::NotLoaded(None),
            Err(error) if self.starts_again(&error, "") => return,
            Err(error) => WorkerMessage::NotLoaded(Some(format!("{}: {}", source.name(), error.cause()))),
        };
        self.window.send(message);
    }

    /// Drops the model, with all that it holds on the GPU.
    fn unload(&mut self) {
        self.leave();
        (self.chat, self.source) = (None, None);
        self.window.send(WorkerMessage::Unloaded);
    }

    fn loaded(&self, source: &Source, context: Option<usize>, cancel: &Cancel) -> Result<(Chat, Loaded)> {
        let file = read(source)?;
        let tuning = self.tunings.of(&self.gpu, &file);
        let options = LoadOptions { tuning, ..options(&self.gpu, context) };
        let model = Model::load_with(&file, &self.gpu, &options, cancel, &mut |progress| {
            self.window.send(WorkerMessage::Loading(progress));
        })?;
        let notices = model.config().notices.iter();
        notices.for_each(|notice| self.window.send(WorkerMessage::Notice(format!("Note: {notice}."))));
        let chat = Chat::new(&model)?;
        let (name, context) = (source.name(), chat.session().context());
        let (sampling, first_tuning) = (model.sampling()?, self.tunings.first(&model));
        Ok((chat, Loaded { name, context, sampling, first_tuning }))
    }

    /// Tunes the model that is loaded, and keeps what is faster.
    fn tune(&mut self, options: &TuneOptions, cancel: &Cancel) {
        let tuned = self.tuned(options, cancel);
        let error = tuned.as_ref().err().and_then(|error| error.downcast_ref::<Error>());
        let lost = error.is_some_and(|error| matches!(error.cause(), Error::DeviceLost { .. }));
        let (summary, faster) = match tuned {
            Ok(Some(tuning)) => (tunings::summary(&tuning), !tuning.choices.is_empty()),
            Ok(None) => ("No model is loaded. Load one first.".into(), false),
            Err(error) => (format!("Tuning failed: {error}."), false),
        };
        self.window.send(WorkerMessage::Tuned { summary, faster, lost });
    }

    fn tuned(&self, options: &TuneOptions, cancel: &Cancel) -> anyhow::Result<Option<Tuning>> {
        let Some(chat) = &self.chat else { return Ok(None) };
        let tuning = wglm::tune::tune(chat.session().model(), options, cancel, &mut |progress| {
            self.window.send(WorkerMessage::Tuning(progress.clone()));
        })?;
        self.tunings.keep(&tuning, options.strict)?;
        Ok(Some(tuning))
    }

    /// Switches to a conversation: restores the session as it was left.
    fn open(&mut self, place: Place) {
        if self.chat.is_none() {
            return;
        }
        if self.place.as_ref() == Some(&place) {
            return;
        }
        self.leave();
        let restored = self.restore(&place);
        self.place = Some(place);
        // If nothing was restored, the session keeps the tokens of the other conversation: both may begin alike.
        self.window.send(WorkerMessage::Opened(if restored { self.held() } else { 0 }));
    }

    /// Restores the session of the conversation; true if that succeeded.
    fn restore(&mut self, place: &Place) -> bool {
        let Some(chat) = self.chat.as_mut().filter(|_| place.snapshot.exists()) else { return false };
        let restored = chat.session_mut().load_snapshot(&place.snapshot);
        if let Err(error) = &restored {
            self.window.send(WorkerMessage::Notice(format!("{error}. The model will read the conversation again.")));
        }
        restored.is_ok()
    }

    /// Forgets the open conversation if it has this id, so that no snapshot of it is saved: its files are deleted.
    fn forget(&mut self, id: &str) {
        if self.place.as_ref().is_some_and(|place| place.id == id) {
            (self.place, self.unsaved) = (None, false);
        }
    }

    /// Saves the session of the current conversation.
    pub fn leave(&mut self) {
        let (Some(place), Some(chat)) = (self.place.take(), self.chat.as_mut()) else { return };
        if !std::mem::take(&mut self.unsaved) {
            return;
        }
        if let Err(error) = chat.session_mut().save_snapshot(&place.snapshot) {
            self.window
                .send(WorkerMessage::Notice(format!("The cache of the conversation could not be saved: {error}.")));
        }
    }

    fn reply(&mut self, request: Request, cancel: &Cancel) {
        let id = request.place.id.clone();
        self.open(request.place.clone());
        let answered = match &mut self.chat {
            Some(chat) => answer(chat, request, &self.window, cancel),
            None => return self.window.send(WorkerMessage::no_model()),
        };
        self.unsaved = true;
        let (message, error) = answered;
        match &error {
            Some(error) if self.starts_again(error, &id) => return,
            Some(_) => {}
            None => self.restart.allowed = true,
        }
        let error = error.map(|error| error.to_string());
        self.window.send(WorkerMessage::Replied { message: message.map(Box::new), held: self.held(), error });
    }

    /// If the device was lost, restarts the program, which then asks again in the conversation with this id. False if
    /// the error is another one, or if the program cannot restart.
    fn starts_again(&self, error: &Error, conversation: &str) -> bool {
        let Some((source, context)) = self.source.as_ref() else { return false };
        if !matches!(error.cause(), Error::DeviceLost { .. }) {
            return false;
        }
        self.saves.wait();
        let started = self.restart.run((source, *context), conversation);
        started.unwrap_or_else(|error| {
            self.window.send(WorkerMessage::Notice(format!("The program could not restart itself: {error}.")));
            false
        })
    }

    /// The number of tokens in the cache.
    fn held(&self) -> usize {
        self.chat.as_ref().map_or(0, |chat| chat.session().tokens().len())
    }
}

/// The reply to a request, as far as it was generated, and the error that ended it, if any. The messages at the
/// beginning that were not edited or deleted since the last reply are in the cache.
fn answer(
    chat: &mut Chat,
    request: Request,
    window: &WindowSender,
    cancel: &Cancel,
) -> (Option<Message>, Option<Error>) {
    let rest = request.rest;
    let mut gone = 0;
    let begun = ask(chat, request).and_then(|()| if rest { free_context(chat) } else { Ok(0) });
    let before = chat.messages().len() - usize::from(rest && !chat.messages().is_empty());
    let error = begun.and_then(|dropped| {
        report_dropped(window, dropped);
        stream(chat, rest, window, cancel, &mut gone)
    });
    let reply = before.checked_sub(gone).and_then(|place| chat.messages().get(place));
    (reply.filter(|message| message.role == "assistant").cloned(), error.err())
}

/// Gives the chat the messages and the settings of a request.
fn ask(chat: &mut Chat, Request { messages, settings, .. }: Request) -> Result<()> {
    let system = Some(settings.system.trim()).filter(|text| !text.is_empty()).map(Message::system);
    chat.set_messages(system.into_iter().chain(messages).collect());
    chat.reasoning = settings.thinking.wanted();
    chat.tools = settings.tools()?;
    chat.options = settings.options()?;
    chat.overflow = Overflow::DROP_OLDEST;
    Ok(())
}

/// Drops the oldest turns if the context has no space for the rest of the last message. Returns the number of messages
/// that were dropped.
fn free_context(chat: &mut Chat) -> Result<usize> {
    let Some(begun) = chat.messages().last().cloned() else { return Ok(0) };
    let text = format!("{}{}", begun.reasoning_content.as_deref().unwrap_or_default(), begun.text());
    let said = chat.session().model().tokenizer()?.encode(&text, false)?.len();
    let context = chat.session().context();
    chat.truncate(chat.messages().len() - 1);
    let short = chat.prompt().map(|prompt| prompt.len() + said + context / 16 > context);
    let gone = short.and_then(|short| if short { chat.fit(said + context / 4) } else { Ok(Vec::new()) });
    chat.push(begun); // even after an error, because the last message is taken as the reply
    gone.map(|gone| gone.len())
}

/// Sends the events of a reply, or of the `rest` of one, to the window. If a conversation has outgrown its context, the
/// window keeps all messages but the model does not see the oldest; `gone` is set to their number.
fn stream(chat: &mut Chat, rest: bool, window: &WindowSender, cancel: &Cancel, gone: &mut usize) -> Result<()> {
    let reply = if rest { chat.resume() } else { chat.reply() };
    for event in reply?.with_cancel(cancel) {
        let event = event?;
        if let Event::Dropped { messages } = &event {
            *gone = messages.len();
            report_dropped(window, *gone);
        }
        window.send(WorkerMessage::Event(event));
    }
    Ok(())
}

fn report_dropped(window: &WindowSender, messages: usize) {
    let oldest = match messages {
        0 => return,
        1 => "message".to_owned(),
        _ => format!("{messages} messages"),
    };
    let notice = format!("The context is full: the model no longer sees the oldest {oldest}.");
    window.send(WorkerMessage::Notice(notice));
}

fn read(source: &Source) -> Result<Gguf> {
    match source {
        Source::Demo => Gguf::from_static(wglm::DEMO_MODEL),
        Source::File(path) | Source::Model(_, path) => Gguf::open(path),
    }
}

/// The options that models are loaded with. With a software driver a prompt is computed token by token: each step of a
/// chunk would delay a frame noticeably, and compiling the kernels for chunks at the first prompt would take even
/// longer.
pub fn options(gpu: &Gpu, context: Option<usize>) -> LoadOptions {
    let usual = PromptOptions::default();
    let prompt = if gpu.report().is_software() { PromptOptions { chunk: Some(1), ..usual } } else { usual };
    LoadOptions { context, prompt, ..LoadOptions::default() }
}
