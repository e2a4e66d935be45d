//! A conversation on the terminal, with the demonstration model or the GGUF file given as the first argument.
//!
//! `cargo run --release --example chat [FILE]`: one line for each turn; an empty line or the end of the input ends it.
#![allow(clippy::print_stdout)]

use std::io::{BufRead, Write};
use wglm::{Chat, Event, Gguf, Gpu, GpuOptions, LoadOptions, Model};

fn main() -> anyhow::Result<()> {
    let file = match std::env::args().nth(1) {
        Some(path) => Gguf::open(path)?,
        None => Gguf::from_static(wglm::DEMO_MODEL)?,
    };
    let gpu = Gpu::open(&GpuOptions::from_env()?)?;
    let mut chat = Chat::new(&Model::load(&file, &gpu, &LoadOptions::default())?)?;
    prompt()?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if line.trim().is_empty() {
            break;
        }
        reply(&mut chat, &line)?;
        prompt()?;
    }
    Ok(())
}

fn prompt() -> std::io::Result<()> {
    print!("> ");
    std::io::stdout().flush()
}

/// Shows a reply while it is generated: thinking in grey, then the answer, and how much of the prompt was in the cache.
fn reply(chat: &mut Chat, line: &str) -> anyhow::Result<()> {
    let mut thinking = false;
    for event in chat.send(line)? {
        let event = event?;
        if let Event::Thinking(text) = &event {
            thinking = true;
            print!("\x1b[90m{text}\x1b[0m");
        } else if std::mem::take(&mut thinking) {
            println!("\n");
        }
        match event {
            Event::Text(text) => print!("{text}"),
            Event::Done(stats) => println!(
                "\n[{} tokens from the cache, {} read, {} written, {:.0} a second]",
                stats.prompt.cached,
                stats.prompt.new,
                stats.generated,
                stats.speed()
            ),
            _ => {}
        }
        std::io::stdout().flush()?;
    }
    Ok(())
}
