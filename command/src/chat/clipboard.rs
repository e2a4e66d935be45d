//! Copies text to the clipboard.
//!
//! The escape sequence OSC 52 asks the terminal to copy, which works over ssh too. Apple's Terminal does not support
//! it, but every Mac has `pbcopy`. A terminal does not report whether it copied.

use crate::terminal;
use anyhow::{Context, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io::Write;
use std::process::{Command, Stdio};

/// Copies a text to the clipboard, and returns a description of what was done.
pub fn copy(text: &str) -> anyhow::Result<&'static str> {
    let afar = std::env::var_os("SSH_CONNECTION").is_some();
    if cfg!(target_os = "macos") && !afar {
        by_program(text).map(|()| "copied")
    } else {
        by_terminal(text).map(|()| "sent to the terminal for its clipboard; not every terminal supports this (OSC 52)")
    }
}

fn by_program(text: &str) -> anyhow::Result<()> {
    let mut program = Command::new("pbcopy").stdin(Stdio::piped()).spawn().context("cannot start pbcopy")?;
    if let Some(mut stdin) = program.stdin.take() {
        stdin.write_all(text.as_bytes()).context("cannot write to pbcopy")?;
    }
    ensure!(program.wait()?.success(), "pbcopy failed");
    Ok(())
}

fn by_terminal(text: &str) -> anyhow::Result<()> {
    ensure!(terminal::is_typed() && !terminal::is_dumb(), "there is no terminal with a clipboard for the answer");
    let sequence = format!("\x1b]52;c;{}\x07", STANDARD.encode(text));
    terminal::itself()
        .and_then(|mut terminal| terminal.write_all(sequence.as_bytes()))
        .context("cannot reach the terminal")
}
