//! Runs GLM-4.7-Flash from a GGUF file on the GPU, through Metal, Vulkan or DirectX 12: pure Rust, with wgpu. So far it has run
//! on NVIDIA's H100 and H200 and on Mesa's software driver, with Vulkan, and not yet on a Mac or on Windows.
//!
//! ```no_run
//! use wglm::{Chat, Event, Gguf, Gpu, GpuOptions, LoadOptions, Model};
//!
//! # fn main() -> wglm::Result<()> {
//! let gpu = Gpu::open(&GpuOptions::default())?;
//! let file = Gguf::open("GLM-4.7-Flash-Q4_0.gguf")?;
//! let model = Model::load(&file, &gpu, &LoadOptions::default())?;
//! let mut chat = Chat::new(&model)?;
//! for event in chat.send("Tell me a story about an owl.")? {
//!     if let Event::Text(text) = event? {
//!         print!("{text}");
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A [`Model`] is loaded once and can be shared. A [`Session`] holds one sequence of tokens and its KV cache. A
//! [`Chat`] is a conversation in a session. Everything that can fail returns a [`Result`]. Nothing here panics, prints,
//! or starts a thread that outlives what it belongs to: the call that started it, an [`OwnedReply`] or a [`Scheduler`].
//! Work happens on the calling thread, so an app with a window calls wglm from a worker thread, or keeps its [`Chat`] in a
//! [`SharedChat`], whose replies can be looked at in each frame, waited for, or, with the feature `stream`, awaited.
//!
//! Every call that may take long takes a [`Cancel`], in a form of its own where most callers need none: [`Model::load`]
//! and [`Model::load_with`], [`Chat::ask`] and [`Chat::ask_with`]. Callbacks that report progress return nothing.
//!
//! A failure is an [`Error`]: too little memory on the GPU, a damaged file, a lost device. It prints as a sentence, and
//! [`Error::kind`] is what an app decides by. A failed call releases what it had allocated, and the next one can succeed. After a device was lost, every call on it returns
//! [`Error::DeviceLost`]: [`Gpu::reopen`] opens it again, and a reply continues there ([`Reply::move_to`]).
//!
//! An app that draws with wgpu can let wglm compute on the app's own device: [`Gpu::descriptor`] says how to open the
//! device, [`Gpu::from_wgpu`] takes it, and [`wgpu`] is the version of wgpu to use. [`Model::estimate`] says how much
//! GPU memory a file needs, and [`GpuOptions::memory_limit`] keeps wglm within a budget. [`Session::save_snapshot`]
//! writes a session to bytes, so that an app can continue it later.
//!
//! [The guide](guide) shows how an app with a window uses all of this.
//!
//! Options, messages and whatever else an app makes are plain structs with a `Default`. Any release may add fields, and some
//! fields exist with a feature only, so construct them as `LoadOptions { context: Some(4096), ..LoadOptions::default() }`.
//! What wglm returns (statistics, progress, estimates, reports, errors) is `#[non_exhaustive]`: read its fields, and match
//! it with `..`.
//!
//! No call reads environment variables unless its documentation says so: [`GpuOptions::from_env`], [`Places::default`] and
//! `HubOptions::default` do.
//!
//! What an app needs stands at the root of the crate, in [`text`] and in [`sample`]. The other modules are the engine:
//! public only for the crate's own command, tests and benches, hidden from this documentation, and free to change in any
//! release.

#[cfg(feature = "schema")]
mod asking;
mod cancel;
#[doc(hidden)]
pub mod catalog;
#[doc(hidden)]
pub mod chat;
#[cfg(feature = "constrain")]
#[doc(hidden)]
pub mod constrain;
#[cfg(feature = "download")]
#[doc(hidden)]
pub mod download;
#[doc(hidden)]
pub mod error;
#[doc(hidden)]
pub mod files;
#[doc(hidden)]
pub mod generate;
#[doc(hidden)]
pub mod gguf;
#[doc(hidden)]
pub mod gpu;
#[doc(hidden)]
pub mod kernels;
mod memory;
#[doc(hidden)]
pub mod model;
#[doc(hidden)]
pub mod offers;
mod owned;
#[doc(hidden)]
pub mod plan;
#[doc(hidden)]
pub mod quant;
#[doc(hidden)]
pub mod reference;
pub mod sample;
#[doc(hidden)]
pub mod scheduler;
#[doc(hidden)]
pub mod session;
#[doc(hidden)]
pub mod shader;
#[doc(hidden)]
pub mod speculate;
#[cfg(feature = "stream")]
#[doc(hidden)]
pub mod stream;
pub mod text;
mod threads;
#[doc(hidden)]
pub mod tune;
#[doc(hidden)]
pub mod visible;
#[doc(hidden)]
pub mod wgsl;

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/embedding.md")]
pub mod guide {}

#[cfg(feature = "schema")]
pub use asking::Asking;
pub use cancel::Cancel;
pub use catalog::{LocalModel, ModelName, Places, RepoName, Source, find_model, local_models};
#[cfg(feature = "schema")]
pub use chat::AskError;
pub use chat::{Chat, ChatState, Overflow, Reply};
#[cfg(feature = "constrain")]
pub use constrain::{Calls, Constraint, SchemaOptions};
#[cfg(feature = "download")]
pub use download::{
    FileState, Hub, HubOptions, PullProgress, PullStage, Pulled, RemoteFile, RemoteModel, Removal, Repository,
    VerifiedFile, verify_local,
};
#[doc(hidden)]
pub use error::Size;
pub use error::{Error, ErrorKind, KernelFault, KernelFinding, Result, Verdict};
pub use generate::{Chooser, Event, GenerateOptions, Generation, Stats, Stop, TokenLogprobs};
pub use gguf::{Array as MetadataArray, Gguf, Value as MetadataValue, ValueType as MetadataType};
pub use gpu::{AdapterKind, AdapterReport, Backend, Capabilities, Gpu, GpuOptions, Matrices, Memory, Pause, adapters};
pub use kernels::{CacheType, Gating, Routing};
pub use model::{
    CacheShape, Check, Comparison, Config, Estimate, Experts, Figure, Fit, LoadOptions, Model, Outcome, Progress,
    PromptOptions, RopeScaling, Stage, Trial, Tuning, TuningSubject, Yarn,
};
pub use offers::{Judged, Recommended, recommended};
#[cfg(feature = "download")]
pub use offers::{Offer, Offers, offers};
pub use owned::{OwnedReply, SharedChat};
pub use plan::Choices;
pub use quant::Arithmetic;
pub use sample::{Logprob, Sampler, SamplerParams};
pub use scheduler::{
    PreparedChat, ScheduledReply, Scheduler, SchedulerCounts, SchedulerOptions, SchedulerState, SlotState, Tenant,
};
/// The version of schemars whose `JsonSchema` [`Chat::ask`] takes types of (feature `schema`).
#[cfg(feature = "schema")]
pub use schemars;
pub use serde_json;
pub use session::{Pool, Reuse, Session};
pub use speculate::{DraftKind, DraftStats, Speculation};
#[cfg(feature = "stream")]
pub use stream::{ReplyStream, Stream};
pub use text::{ChatTemplate, Content, FunctionCall, Message, Tokenizer, ToolCall};
pub use tune::{TuneOptions, TuneProgress, first_tuning, tune};
/// The version of wgpu that [`Gpu::from_wgpu`] takes devices of, for apps that open a device themselves.
pub use wgpu;

/// The demonstration model: a GGUF file of 6 MB with the architecture of GLM-4.7-Flash, trained to tell fables and to
/// add small numbers.
#[cfg(feature = "demo-model")]
pub static DEMO_MODEL: &[u8] = include_bytes!("../models/fable-10m-q4_0.gguf");
