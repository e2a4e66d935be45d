//! GLM-4.7-Flash from a GGUF file on any GPU, in pure Rust, through wgpu.

pub mod error;
pub mod gguf;
pub mod gpu;
pub mod kernels;
pub mod model;
pub mod plan;
pub mod quant;
pub mod sample;
pub mod session;
pub mod shader;
pub mod text;
mod threads;
pub mod wgsl;

pub use error::{Error, Result};
pub use gguf::Gguf;
pub use gpu::{Gpu, GpuOptions};
pub use kernels::CacheType;
pub use model::{CacheShape, Config, LoadOptions, Model, Progress};
pub use quant::Arithmetic;
pub use sample::SamplerParams;
pub use session::{Reuse, Session};
