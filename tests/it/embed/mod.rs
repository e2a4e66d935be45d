//! Tests what an app with wglm inside relies on: its own device, its memory, its threads, and that every failure is
//! returned as an error.

mod device;
mod estimates;
mod files;
mod frames;
mod loss;
mod numbers;
mod owner;
mod pausing;
mod rounds;
mod snapshots;

use crate::common::models::fable_file;
use std::sync::OnceLock;
use wglm::{Gguf, Gpu, LoadOptions, Model, Result, Session};

fn file() -> Gguf {
    Gguf::open(fable_file("q4_0")).unwrap()
}

fn load_on(gpu: &Gpu) -> Result<Model> {
    Model::load(&file(), gpu, &LoadOptions { context: Some(512), ..LoadOptions::default() })
}

/// The demonstration model on a device that wglm opened, loaded once.
fn model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| load_on(crate::common::gpu::gpu()).unwrap())
}

const PROMPT: &[u32] = &[1, 300, 17, 42, 256, 99];

/// The tokens after the prompt.
fn generate(session: &mut Session, count: usize) -> Result<Vec<u32>> {
    session.sync(PROMPT, &mut |_| std::ops::ControlFlow::Continue(()))?;
    (0..count).map(|_| session.next_token()).collect()
}

/// The reply of the demonstration model on a device that wglm opened.
fn expected(count: usize) -> Vec<u32> {
    generate(&mut Session::new(model()).unwrap(), count).unwrap()
}
