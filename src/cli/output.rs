//! Where text goes: answers to stdout, all else to stderr, colour only for people.

use super::terminal;
use anyhow::Context;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

const UNWRITABLE: &str = "cannot write to stdout";

/// Whether only errors go to stderr.
static QUIET: AtomicBool = AtomicBool::new(false);

/// From now on only errors go to stderr.
pub fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Whether progress is to be drawn: for people, on a terminal that can draw it.
pub fn draws_progress() -> bool {
    !QUIET.load(Ordering::Relaxed) && terminal::redraws()
}

/// Writes a line to stderr that is worth knowing. That nobody reads it is no reason to stop.
pub fn note(line: fmt::Arguments<'_>) {
    if !QUIET.load(Ordering::Relaxed) {
        complain(line);
    }
}

/// Writes a line to stderr that must be known.
pub fn complain(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Writes the beginning of a line to stderr, for whoever types the rest.
pub fn prompt(text: &str) {
    let mut err = io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

/// Writes text to stdout at once.
pub fn say(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context(UNWRITABLE)
}

/// Writes lines to stdout.
pub fn lines(lines: impl IntoIterator<Item = impl fmt::Display>) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let written = lines.into_iter().try_for_each(|line| writeln!(out, "{line}"));
    written.and_then(|()| out.flush()).context(UNWRITABLE)
}

/// Whether stderr is a terminal that wants colour.
pub fn colour() -> bool {
    let unset = |name| std::env::var_os(name).is_none_or(|value| value.is_empty());
    io::stderr().is_terminal() && unset("NO_COLOR") && !terminal::is_dumb()
}

/// Writes faint text to stderr: thinking, figures.
pub struct Aside {
    colour: bool,
}

impl Aside {
    /// Faint where [`colour`] says so.
    pub fn new() -> Self {
        Self { colour: colour() }
    }

    /// Writes a line that takes the place of colour, where there is none.
    pub fn mark(&self, text: &str) {
        if !self.colour {
            self.line(format_args!("{text}"));
        }
    }

    /// Writes text over the line, where that can be drawn; the next of its kind replaces it.
    pub fn passing(&self, text: fmt::Arguments<'_>) {
        if draws_progress() {
            self.write(&format!("\r{text}\x1b[K"));
        }
    }

    /// Writes text as it is.
    pub fn write(&self, text: &str) {
        let (faint, plain) = if self.colour { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
        let mut err = io::stderr().lock();
        let _ = write!(err, "{faint}{text}{plain}").and_then(|()| err.flush());
    }

    /// Writes a line.
    pub fn line(&self, text: fmt::Arguments<'_>) {
        self.write(&format!("{text}\n"));
    }
}

/// So many of a thing.
pub fn count(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// Bytes as people read them.
pub fn bytes(count: u64) -> String {
    indicatif::BinaryBytes(count).to_string()
}
