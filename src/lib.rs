//! Runs GLM-4.7-Flash from a GGUF file on the GPU, through Metal, Vulkan or DirectX 12: pure Rust, with wgpu. So far it
//! has run on NVIDIA's H100 and H200 and on Mesa's software driver, through Vulkan, but not yet on a Mac or on Windows.
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
//! Work happens on the calling thread, so an app with a window calls wglm from a worker thread, or keeps its [`Chat`]
//! in a [`SharedChat`], whose replies can be polled in each frame, waited for, or, with the feature `stream`, awaited.
//!
//! Every long-running call can be cancelled through a [`Cancel`]. Where most callers need none, the variant that takes
//! one ends in `_with`: [`Model::load`] and [`Model::load_with`], [`Chat::ask`] and [`Chat::ask_with`]. Callbacks that
//! report progress return nothing.
//!
//! A failure is an [`Error`]: too little memory on the GPU, a damaged file, a lost device. It prints as a sentence;
//! apps should branch on [`Error::kind`]. A failed call releases what it had allocated, and the next one can succeed.
//! After a device was lost, every call on it returns [`Error::DeviceLost`]: [`Gpu::reopen`] opens it again, and a reply
//! continues there ([`Reply::move_to`]).
//!
//! An app that draws with wgpu can let wglm compute on the app's own device: [`Gpu::descriptor`] says how to open the
//! device, [`Gpu::from_wgpu`] takes it, and [`wgpu`] is the version of wgpu to use. [`Model::estimate`] says how much
//! GPU memory a file needs, and [`GpuOptions::memory_limit`] keeps wglm within a budget. [`Session::save_snapshot`]
//! writes a session to bytes, so that an app can continue it later.
//!
//! [The guide](guide) shows how an app with a window uses all of this.
//!
//! Options, messages and other types that an app constructs are plain structs with a `Default`. Any release may add
//! fields, and some fields exist only with a feature, so construct them as
//! `LoadOptions { context: Some(4096), ..LoadOptions::default() }`. Types that wglm returns (statistics, progress,
//! estimates, reports, errors) are `#[non_exhaustive]`: read their fields, and match them with `..`.
//!
//! No call reads environment variables unless its documentation says so: [`GpuOptions::from_env`],
//! [`catalog::Places::default`] and `download::HubOptions::default` do.
//!
//! The root of the crate has what most apps need. Each further module serves one purpose: [`tune`] finds the fastest
//! settings for the GPU at hand, [`catalog`] lists the models on this machine, [`offers`] says which models suit it,
//! `download` gets models from a hub (feature `download`), and [`text`] and [`sample`] have the parts that a reply is
//! made with.

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/embedding.md")]
pub mod guide {}

#[cfg(feature = "download")]
pub use wglm_engine::download;
pub use wglm_engine::{
    AdapterKind, AdapterReport, Arithmetic, Backend, CacheShape, CacheType, Cancel, Capabilities, Chat, ChatState,
    ChatTemplate, Check, Chooser, Config, Content, DiskCache, DiskCacheState, DraftKind, DraftStats, Error, ErrorKind,
    Estimate, Event, ExpertGroups, Experts, FunctionCall, Gating, GenerateOptions, Generation, Gguf, Gpu, GpuOptions,
    KernelFault, KernelFinding, LoadOptions, LoadProgress, LoadStage, Logprob, Matrices, Memory, Message,
    MetadataArray, MetadataType, MetadataValue, Model, Overflow, OwnedReply, Pause, Pool, PreparedChat, PromptLogprobs,
    PromptOptions, Reply, Result, Reuse, RopeScaling, Routing, Sampler, SamplerParams, ScheduledReply, Scheduler,
    SchedulerCounts, SchedulerOptions, SchedulerState, Session, SharedChat, SlotState, Speculation, Stats, Stop,
    Tenant, TokenLogprobs, Tokenizer, ToolCall, Verdict, Yarn, adapters, catalog, offers, sample, serde_json, text,
    tune,
};
#[cfg(feature = "schema")]
pub use wglm_engine::{AskError, Asking};
#[cfg(feature = "constrain")]
pub use wglm_engine::{Calls, Constraint, SchemaOptions};
#[cfg(feature = "stream")]
pub use wglm_engine::{ReplyStream, Stream};

/// The version of schemars whose `JsonSchema` [`Chat::ask`] takes types of (feature `schema`).
#[cfg(feature = "schema")]
pub use wglm_engine::schemars;
/// The version of wgpu that [`Gpu::from_wgpu`] takes devices of, for apps that open a device themselves.
pub use wglm_engine::wgpu;

/// The demonstration model: a GGUF file of 6 MB with the architecture of GLM-4.7-Flash, trained to tell fables and to
/// add small numbers.
#[cfg(feature = "demo-model")]
pub static DEMO_MODEL: &[u8] = include_bytes!("../models/fable-10m-q4_0.gguf");
