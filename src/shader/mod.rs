//! From WGSL files to a pipeline: a variant is composed of whole files, read back by naga for its
//! bindings, and compiled once.

mod compose;
mod pipeline;
mod reflect;

pub use compose::{Constant, SourcePart, Variant};
pub use pipeline::{Compiled, Pipelines};
pub use reflect::{Access, BindingInfo, Field, Reflected, reflect};
