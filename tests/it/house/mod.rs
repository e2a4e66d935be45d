//! The house rules, held against the sources, and the plan of a token, held against its shaders. No GPU.

mod batches;
mod choices;
mod code;
mod metal;
pub mod plans;
mod rules;
mod surface;
