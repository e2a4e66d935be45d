//! GLM-4.7-Flash from a GGUF file on any GPU, in pure Rust, through wgpu.
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
//! A [`Model`] is loaded once and shared; a [`Session`] is one sequence of tokens with its cache; a
//! [`Chat`] is a conversation in a session. Everything that can fail returns a [`Result`]; nothing here
//! panics, prints, or starts a thread that outlives its call. Work happens on the caller's thread: an app
//! with a window calls from a worker, or, with the feature `stream`, has [`Chat`] make an asynchronous stream of a
//! reply, which owns the thread that generates it.
//!
//! What goes wrong is an [`Error`]: no room on the GPU, a damaged file, a device that was lost. It releases what it had
//! taken, and the next load works; after a loss every call says [`Error::DeviceLost`] until the model is loaded on a
//! new device.
//!
//! An app that draws with wgpu has wglm compute on its own device: [`Gpu::descriptor`] tells how to open it,
//! [`Gpu::from_wgpu`] takes it, and [`wgpu`] is the version that fits. [`Model::estimate`] tells what a file takes of
//! its memory, [`GpuOptions::memory_limit`] keeps wglm within a budget. [`Session::save_snapshot`] keeps a session, to
//! go on with it another day.
//!
//! [The guide](guide) goes through all of this for an app with a window.
//!
//! Options are plain structs with a `Default`; fields may be added in any release, so make them as
//! `LoadOptions { context: Some(4096), ..LoadOptions::default() }`.
//!
//! What an app needs stands at the root of the crate, in [`text`] and in [`sample`]. The other modules are the engine:
//! public only for the crate's own command, tests and benches, hidden from this documentation, and free to change in any
//! release.

#[doc(hidden)]
pub mod chat;
#[doc(hidden)]
pub mod error;
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
pub mod plan;
#[doc(hidden)]
pub mod quant;
pub mod sample;
#[doc(hidden)]
pub mod session;
#[doc(hidden)]
pub mod shader;
#[cfg(feature = "stream")]
#[doc(hidden)]
pub mod stream;
pub mod text;
mod threads;
#[doc(hidden)]
pub mod wgsl;

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/embedding.md")]
pub mod guide {}

pub use chat::{Chat, Reply, SavedChat};
pub use error::{Error, Result};
pub use generate::{Cancel, Chooser, Event, GenerateOptions, Generation, Stats, Stop, TokenLogprobs};
pub use gguf::Gguf;
pub use gpu::{AdapterReport, Gpu, GpuOptions, Memory, adapters};
pub use kernels::CacheType;
pub use model::{
    CacheShape, Check, Config, Estimate, Fit, LoadOptions, Model, Progress, PromptOptions, Stage, Verdict, Without,
};
pub use quant::Arithmetic;
pub use sample::{Logprob, Sampler, SamplerParams};
pub use serde_json;
pub use session::{Reuse, Session};
#[cfg(feature = "stream")]
pub use stream::{ReplyStream, SharedChat, Stream};
pub use text::{ChatTemplate, Content, FunctionCall, Message, Tokenizer, ToolCall};
/// The wgpu of [`Gpu::from_wgpu`], for apps that hand over a device of their own.
pub use wgpu;

/// The demonstration model: GLM-4.7-Flash in miniature, 6 MB, which tells fables and does small sums.
#[cfg(feature = "demo-model")]
pub static DEMO_MODEL: &[u8] = include_bytes!("../models/fable-10m-q4_0.gguf");
