//! Turns WGSL files into pipelines: a variant is composed of whole files, parsed by naga to find its bindings, and
//! compiled once.

mod compose;
mod pipeline;
mod reflect;

pub use compose::{Constant, SourcePart, Variant};
pub use pipeline::{Compiled, Pipelines};
pub use reflect::{Access, BindingInfo, Field, Reflected, reflect};
