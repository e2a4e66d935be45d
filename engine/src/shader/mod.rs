//! Turns WGSL files into pipelines: a variant is composed of whole files, parsed by naga to find its bindings, and
//! compiled once.
//!
//! An app's debug build and the tests of kernels compile shaders with every index checked, and everything else without
//! checks: indices come from shapes that are checked when a plan is built, and from ids that are bounded before use.

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
