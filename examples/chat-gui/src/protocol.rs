//! What the window asks of the worker, and what the worker tells it.

use crate::settings::Settings;
use std::path::PathBuf;
use wglm::{Estimate, Event, Message, Progress, SamplerParams};

/// Where a model comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The demonstration model, which is part of the program.
    Demo,
    /// A GGUF file.
    File(PathBuf),
}

impl Source {
    /// Its name in the window.
    pub fn name(&self) -> String {
        match self {
            Self::Demo => "demonstration model".into(),
            Self::File(path) => path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
        }
    }
}

/// A conversation's place: its file, and that of its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub conversation: PathBuf,
    pub snapshot: PathBuf,
}

/// What the window asks for. Everything is done in turn.
#[derive(Debug)]
pub enum Command {
    /// How much memory a model would take.
    Estimate(Source, Option<usize>),
    /// A model in place of the one that is there, with so many tokens of context.
    Load(Source, Option<usize>),
    /// The session of a conversation, as it was left.
    Open(Place),
    /// The reply to some messages.
    Reply(Box<Request>),
}

/// A reply that is asked for.
#[derive(Debug)]
pub struct Request {
    pub place: Place,
    /// All of the conversation but the system's message, which is one of the settings.
    pub messages: Vec<Message>,
    pub settings: Settings,
}

/// What the worker tells.
#[derive(Debug)]
pub enum Told {
    /// What a model takes, or why it cannot be told.
    Estimate(Source, Result<Box<Estimate>, String>),
    /// How far a load has come.
    Loading(Progress),
    /// A model is there.
    Loaded(Loaded),
    /// A load ended without a model, with an error or because it was cancelled.
    NotLoaded(Option<String>),
    /// Tokens in the cache of the conversation that was opened, as far as they are known to be its own.
    Opened(usize),
    /// A part of the reply.
    Event(Event),
    /// The reply is over: the message that came of it, the tokens in the cache, and what went wrong.
    Replied { message: Option<Box<Message>>, held: usize, error: Option<String> },
    /// Something that the user should know and that stops nothing.
    Notice(String),
}

/// A model that was loaded.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub name: String,
    /// Tokens that a conversation may have.
    pub context: usize,
    /// How its makers want tokens to be chosen.
    pub sampling: SamplerParams,
}
