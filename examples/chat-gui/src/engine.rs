//! What the worker does: it holds the model and the one session that all conversations take turns in.
//!
//! A session is brought to whatever messages it is to reply to, and computes only what its cache lacks. So a
//! conversation is no more than its messages, and its snapshot saves time when it is opened again: if that is missing,
//! damaged or another model's, the messages are read anew.

use crate::protocol::{Command, Loaded, Place, Request, Source, Told};
use crate::worker::Teller;
use std::ops::ControlFlow;
use wglm::{Cancel, Chat, Error, Gguf, Gpu, LoadOptions, Message, Model, PromptOptions, Result};

/// The model, and the conversation that its session is at.
pub struct Engine {
    gpu: Gpu,
    teller: Teller,
    chat: Option<Chat>,
    place: Option<Place>,
    /// Whether the session is further than its snapshot.
    unsaved: bool,
}

impl Engine {
    /// Without a model.
    pub fn new(gpu: Gpu, teller: Teller) -> Self {
        Self { gpu, teller, chat: None, place: None, unsaved: false }
    }

    /// Does what it is asked, unless that is cancelled. Whatever goes wrong is told.
    pub fn obey(&mut self, command: Command, cancel: &Cancel) {
        match command {
            Command::Estimate(source, context) => {
                let estimate = self.estimate(&source, context).map(Box::new).map_err(|error| error.to_string());
                self.teller.tell(Told::Estimate(source, estimate));
            }
            Command::Load(source, context) => self.load(&source, context, cancel),
            Command::Open(place) => self.open(place),
            Command::Reply(request) => self.reply(*request, cancel),
        }
    }

    fn estimate(&self, source: &Source, context: Option<usize>) -> Result<wglm::Estimate> {
        Model::estimate(&read(source)?, &options(&self.gpu, context), Some(&self.gpu))
    }

    /// Loads a model. The one before goes first, for both might be too much for the device.
    fn load(&mut self, source: &Source, context: Option<usize>, cancel: &Cancel) {
        self.leave();
        self.chat = None;
        let told = match self.loaded(source, context, cancel) {
            Ok((chat, loaded)) => {
                self.chat = Some(chat);
                Told::Loaded(loaded)
            }
            Err(Error::Cancelled) => Told::NotLoaded(None),
            Err(error) => Told::NotLoaded(Some(format!("{}: {}", source.name(), error.cause()))),
        };
        self.teller.tell(told);
    }

    fn loaded(&self, source: &Source, context: Option<usize>, cancel: &Cancel) -> Result<(Chat, Loaded)> {
        let file = read(source)?;
        let model = Model::load_with(&file, &self.gpu, &options(&self.gpu, context), &mut |progress| {
            self.teller.tell(Told::Loading(progress));
            if cancel.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let chat = Chat::new(&model)?;
        let (name, context) = (source.name(), chat.session().context());
        Ok((chat, Loaded { name, context, sampling: model.sampling()? }))
    }

    /// Goes to a conversation: its session becomes what it was when it was left.
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
        // What is there otherwise is another's, and kept for what both have in common.
        self.teller.tell(Told::Opened(if restored { self.held() } else { 0 }));
    }

    /// True if the session is what it was.
    fn restore(&mut self, place: &Place) -> bool {
        let Some(chat) = self.chat.as_mut().filter(|_| place.snapshot.exists()) else { return false };
        let restored = chat.session_mut().load_snapshot(&place.snapshot);
        if let Err(error) = &restored {
            self.teller.tell(Told::Notice(format!("{error}. The conversation will be read anew.")));
        }
        restored.is_ok()
    }

    /// Saves the session of the conversation that it is at, unless that was deleted meanwhile.
    pub fn leave(&mut self) {
        let (Some(place), Some(chat)) = (self.place.take(), self.chat.as_mut()) else { return };
        if !std::mem::take(&mut self.unsaved) || !place.conversation.exists() {
            return;
        }
        if let Err(error) = chat.session_mut().save_snapshot(&place.snapshot) {
            self.teller.tell(Told::Notice(format!("The conversation's cache was not saved: {error}.")));
        }
    }

    fn reply(&mut self, request: Request, cancel: &Cancel) {
        self.open(request.place.clone());
        let answered = match &mut self.chat {
            Some(chat) => answer(chat, request, &self.teller, cancel),
            None => (None, Some("There is no model: load one first.".into())),
        };
        self.unsaved = true;
        let (message, error) = answered;
        self.teller.tell(Told::Replied { message: message.map(Box::new), held: self.held(), error });
    }

    /// Tokens in the cache.
    fn held(&self) -> usize {
        self.chat.as_ref().map_or(0, |chat| chat.session().tokens().len())
    }
}

/// The reply to a request, as far as it came, and what stopped it.
fn answer(chat: &mut Chat, request: Request, teller: &Teller, cancel: &Cancel) -> (Option<Message>, Option<String>) {
    chat.clear();
    let Request { messages, settings, .. } = request;
    let system = Some(settings.system.trim()).filter(|text| !text.is_empty()).map(Message::system);
    system.into_iter().chain(messages).for_each(|message| chat.push(message));
    chat.reasoning = settings.thinking.wanted();
    chat.options = settings.options();
    let before = chat.messages().len();
    let error = stream(chat, teller, cancel).err().map(|error| error.to_string());
    (chat.messages().get(before).cloned(), error)
}

fn stream(chat: &mut Chat, teller: &Teller, cancel: &Cancel) -> Result<()> {
    for event in chat.reply()?.with_cancel(cancel) {
        teller.tell(Told::Event(event?));
    }
    Ok(())
}

fn read(source: &Source) -> Result<Gguf> {
    match source {
        Source::Demo => Gguf::from_static(wglm::DEMO_MODEL),
        Source::File(path) => Gguf::open(path),
    }
}

/// In software a prompt is read token by token: each step of a chunk would keep a frame waiting for long, and its kernels
/// are compiled when the first prompt comes, which is longer still.
fn options(gpu: &Gpu, context: Option<usize>) -> LoadOptions {
    let usual = PromptOptions::default();
    let prompt = if gpu.report().is_software() { PromptOptions { chunk: 1, ..usual } } else { usual };
    LoadOptions { context, prompt, ..LoadOptions::default() }
}
