//! Tests the Metal path on machines without Metal. Every shader is translated to Metal's language as by wgpu, tested
//! against Metal's rules, stored as a snapshot, and compiled with clang and run on the CPU: with lanes in random
//! orders, with functions that err as far as fast math allows, and with injected faults, each of which must be
//! detected.

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
