//! Metal without a Mac: what can be known of the Metal path on any machine. Every shader is written in Metal's language
//! as wgpu would, held against Metal's rules, kept as a snapshot, and compiled with clang and run on the CPU.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../../examples/synth/shape.rs"]
#[allow(dead_code)]
mod shape;

mod allocas;
mod cases;
mod clang;
mod code;
mod decode;
mod direct;
mod emit;
mod execute;
mod faults;
mod flash;
mod injected;
mod machine;
mod operations;
mod prompts;
mod quotients;
mod rules;
mod snapshots;
mod spaces;
mod translate;
mod variants;

use common::gguf_writer;
