//! The engine of [wglm](https://docs.rs/wglm), free to change in any release: apps use that crate, which has the public
//! names of this one.
//!
//! Apps see the root, and [`catalog`], [`download`], [`offers`], [`sample`], [`text`] and [`tune`]. [`instruments`]
//! also has what the command needs to inspect and measure. The other modules are public only for wglm's tests and
//! benches.

#[cfg(feature = "schema")]
mod asking;
mod cancel;
pub mod catalog;
mod chat;
#[cfg(feature = "constrain")]
mod constrain;
mod disk;
#[cfg(feature = "download")]
pub mod download;
mod error;
mod files;
mod generate;
pub mod gguf;
pub mod gpu;
pub mod instruments;
pub mod kernels;
mod memory;
pub mod model;
pub mod offers;
mod owned;
pub mod plan;
pub mod quant;
pub mod reference;
pub mod sample;
mod scheduler;
mod session;
pub mod shader;
mod speculate;
#[cfg(feature = "stream")]
mod stream;
pub mod text;
mod threads;
pub mod tune;
mod visible;
pub mod wgsl;

#[cfg(feature = "schema")]
pub use asking::Asking;
pub use cancel::Cancel;
#[cfg(feature = "schema")]
pub use chat::AskError;
pub use chat::{Chat, ChatState, Overflow, Reply};
#[cfg(feature = "constrain")]
pub use constrain::{Calls, Constraint, SchemaOptions};
pub use disk::{DiskCache, DiskCacheState};
pub use error::{Error, ErrorKind, KernelFault, KernelFinding, Result, Verdict};
pub use generate::{Chooser, Event, GenerateOptions, Generation, PromptLogprobs, Stats, Stop, TokenLogprobs};
pub use gguf::{Array as MetadataArray, Gguf, Value as MetadataValue, ValueType as MetadataType};
pub use gpu::{AdapterKind, AdapterReport, Backend, Capabilities, Gpu, GpuOptions, Matrices, Memory, Pause, adapters};
pub use kernels::{CacheType, ExpertGroups, Gating, Routing};
pub use model::{
    CacheShape, Check, Config, Estimate, Experts, LoadOptions, LoadProgress, LoadStage, Model, PromptOptions,
    RopeScaling, Yarn,
};
pub use owned::{OwnedReply, SharedChat};
pub use quant::Arithmetic;
pub use sample::{Logprob, Sampler, SamplerParams};
pub use scheduler::{
    PreparedChat, ScheduledReply, Scheduler, SchedulerCounts, SchedulerOptions, SchedulerState, SlotState, Tenant,
};
#[cfg(feature = "schema")]
pub use schemars;
pub use serde_json;
pub use session::{Pool, Reuse, Session};
pub use speculate::{DraftKind, DraftStats, Speculation};
#[cfg(feature = "stream")]
pub use stream::{ReplyStream, Stream};
pub use text::{ChatTemplate, Content, FunctionCall, Message, Tokenizer, ToolCall};
pub use wgpu;
