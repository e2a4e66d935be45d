//! The integration tests, in one program: wgpu is linked once, and tests share opened devices and loaded models. Two
//! more programs need a process of their own: `rounds`, which measures its memory, and `metal`.
//!
//! The parts that a maintainer of the engine meets most:
//!
//! - `kernels`: every kernel, in every format, with either kind of team and either arithmetic, against its CPU
//!   reference in f64, on noise of odd sizes. A byte that changes where no output is expected fails, in guard bands
//!   too. The same cases run step by step against the steps' references. `checks` loads models with kernels that are
//!   wrong, refused or endless, and with each one replaced.
//! - `quant`: decoding against GGML's own Python package, bit for bit; the GPU layout against a second reader.
//! - `shapes`: random models, one for each corner of the format, against a reference program (tests/reference).
//! - `goldens`: logits of the demonstration model from transformers and llama.cpp, with every fusion and without.
//!   `arithmetic`: how little products of bytes move them. `chunks`: prompts in chunks of any size.
//! - `losing` in `session`, `replies`, `cli` and `serving`: a GPU that drops its work from the nth submission on
//!   (`Gpu::drop_work`; in the command, in debug builds only, `WGLM_DROP_WORK`).
//! - `gguf`, `hostile_models`: broken files and invalid models. `cli/mutated` gives randomly changed files to the
//!   command; `WGLM_FILES` sets how many.
//! - `house`: imports, unused shaders, and plans against their shaders, without a GPU.
//!
//! `./test` runs a covering set of kernels and formats (`common/covering`) and leaves out tests whose names begin with
//! `extended_` or `long_`. `./test --all` sets `WGLM_TESTS=all`, which leaves out only the latter, and runs every
//! kernel in every format. `./test --product` sets `WGLM_TESTS=product`, which runs all tests, and every case of every
//! kernel. A test is called `long_…` if it takes many seconds and covers what shorter tests cover in part.

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
