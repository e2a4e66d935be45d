//! Generates a reply with the demonstration model, or with the GGUF file given as the first argument.
//!
//! `cargo run --release --example generate [FILE]`

use std::io::Write;
use wglm::{Chat, Event, Gguf, Gpu, GpuOptions, LoadOptions, Model};

fn main() -> anyhow::Result<()> {
    let file = match std::env::args().nth(1) {
        Some(path) => Gguf::open(path)?,
        None => Gguf::from_static(wglm::DEMO_MODEL)?,
    };
    let gpu = Gpu::open(&GpuOptions::from_env()?)?;
    let model = Model::load(&file, &gpu, &LoadOptions::default())?;

    let mut chat = Chat::new(&model)?;
    chat.options.sampling = wglm::SamplerParams::greedy();
    let mut out = std::io::stdout();
    for event in chat.send("Tell me a story about an owl.")? {
        match event? {
            Event::Text(text) => write!(out, "{text}")?,
            Event::Done(stats) => writeln!(out, "\n[{:.1} tokens per second]", stats.speed())?,
            _ => {}
        }
        out.flush()?;
    }
    Ok(())
}
