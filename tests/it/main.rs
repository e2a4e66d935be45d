//! The integration tests, in one program: wgpu is linked once, and what is opened and loaded is shared.
//! Two more stand apart, as they need a process of their own: `rounds`, which measures its memory, and `metal`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/hole.rs"]
mod hole;
#[path = "../../examples/synth/shape.rs"]
mod shape;
#[path = "../common/watched.rs"]
mod watched;
#[path = "../../examples/synth/write.rs"]
mod write;

use common::gguf_writer;

mod arithmetic;
#[cfg(feature = "demo-model")]
mod checks;
mod chunks;
#[cfg(all(feature = "cli", feature = "demo-model"))]
mod cli;
#[cfg(all(feature = "download", feature = "demo-model"))]
mod download;
mod embed;
#[cfg(feature = "demo-model")]
mod examples;
mod expanded;
mod gguf;
mod goldens;
mod hostile_models;
mod house;
mod kernels;
mod quant;
mod replies;
mod sample;
mod scheduling;
#[cfg(all(feature = "serve", feature = "demo-model"))]
mod serving;
mod session;
mod shapes;
mod steps;
mod synth;
mod text;
#[cfg(feature = "demo-model")]
mod tuning;
