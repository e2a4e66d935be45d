//! Turns WGSL files into pipelines: a variant is composed of whole files, parsed by naga to find its bindings, and
//! compiled once.

mod pipeline;
mod reflect;

pub use crate::gpu::{Access, BindingInfo};
pub use crate::wgsl::{Constant, SourcePart, Variant};
pub use pipeline::Pipelines;
pub(crate) use pipeline::Refusal;
pub use reflect::{Field, Reflected, reflect};
