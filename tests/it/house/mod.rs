//! Tests the sources against the rules of the house, and plans against their shaders, without a GPU.

mod batches;
mod choices;
mod code;
mod metal;
pub mod plans;
mod rules;
mod surface;
