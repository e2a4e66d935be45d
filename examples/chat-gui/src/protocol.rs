//! The messages between the window and the worker.

use crate::settings::Settings;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use wglm::tune::{TuneOptions, TuneProgress};
use wglm::{Event, LoadProgress, Message, SamplerParams};

/// The source of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The demonstration model, which is part of the program.
    Demo,
    /// A GGUF file.
    File(PathBuf),
    /// A model by its name, and its file.
    Model(String, PathBuf),
}

impl Source {
    /// The name in the window.
    pub fn name(&self) -> String {
        match self {
            Self::Demo => "demonstration model".into(),
            Self::Model(name, _) => name.clone(),
            Self::File(path) => path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
        }
    }
}

/// A conversation, and the path of the snapshot of its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub id: String,
    pub snapshot: PathBuf,
}

/// A command of the window. Commands are carried out in order.
#[derive(Debug)]
pub enum Command {
    /// Load a model in place of the current one, with this context in tokens.
    Load(Source, Option<usize>),
    /// Find settings that make the model faster on this GPU, and keep them for the next load.
    Tune(TuneOptions),
    /// Restore the session of a conversation.
    Open(Place),
    /// Do not save a snapshot of the conversation with this id, because its files are deleted.
    Forget(String),
    /// Generate a reply.
    Reply(Box<Request>),
    /// Drop the model and its session, to free the GPU's memory.
    Unload,
    /// Count the tokens of a conversation.
    Count(Box<Request>),
}

/// A request for a reply.
#[derive(Debug)]
pub struct Request {
    pub place: Place,
    /// All messages of the conversation except the system prompt, which is one of the settings.
    pub messages: Vec<Message>,
    pub settings: Settings,
    /// Whether the last message is a reply that is to be continued.
    pub rest: bool,
}

/// A message of the worker.
#[derive(Debug)]
pub enum WorkerMessage {
    /// The progress of a load.
    Loading(LoadProgress),
    /// A model was loaded.
    Loaded(Loaded),
    /// A load failed or was cancelled.
    NotLoaded(Option<String>),
    /// The progress of tuning.
    Tuning(TuneProgress),
    /// Tuning has ended: its result in words, whether the next load will be faster, and whether the GPU was lost.
    Tuned { summary: String, faster: bool, lost: bool },
    /// The model was dropped.
    Unloaded,
    /// The number of tokens in the cache that belong to the opened conversation.
    Opened(usize),
    /// An event of the reply.
    Event(Event),
    /// The reply has ended, with its message, the number of tokens in the cache, and the error if there was one.
    Replied { message: Option<Box<Message>>, held: usize, error: Option<String> },
    /// The number of tokens of a conversation, if it could be counted.
    Counted(Option<usize>),
    /// A message for the user that interrupts nothing.
    Notice(String),
}

impl WorkerMessage {
    /// The end of a reply for which there is no model.
    pub fn no_model() -> Self {
        Self::Replied { message: None, held: 0, error: Some("No model is loaded. Load one first.".into()) }
    }
}

/// A model that was loaded.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub name: String,
    /// The context in tokens.
    pub context: usize,
    /// The sampling parameters that the file recommends.
    pub sampling: SamplerParams,
    /// How it should be tuned before it is used, if wglm has no measurements of this GPU and it was not tuned yet.
    pub first_tuning: Option<TuneOptions>,
}
