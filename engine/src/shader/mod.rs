//! Turns WGSL files into pipelines: a variant is composed of whole files, parsed by naga to find its bindings, and
//! compiled once.

#[cfg(feature = "metal-text")]
mod metal_text;
mod pipeline;
mod reflect;

pub use crate::gpu::{Access, BindingInfo};
pub use crate::wgsl::{Constant, SourcePart, Variant};
#[cfg(feature = "metal-text")]
pub use metal_text::metal_text;
pub use pipeline::Pipelines;
pub(crate) use pipeline::Refusal;
pub use reflect::{Field, Reflected, reflect};
