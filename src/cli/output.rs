//! Writes answers to stdout and everything else to stderr, with colour only on a terminal.

use super::terminal;
use anyhow::Context;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

const UNWRITABLE: &str = "cannot write to stdout";

/// Whether only errors are written to stderr.
static QUIET: AtomicBool = AtomicBool::new(false);

/// From now on writes only errors to stderr.
pub fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Whether only errors are written to stderr.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Whether progress is drawn, which needs a terminal that can redraw a line.
pub fn draws_progress() -> bool {
    !QUIET.load(Ordering::Relaxed) && terminal::redraws()
}

/// How the user called the command: a script may have done it for him.
pub fn command() -> String {
    std::env::var("WGLM_COMMAND").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "wglm".into())
}

/// Writes a line to stderr that a user may want to know, unless quiet. A failure to write it is ignored.
pub fn note(line: fmt::Arguments<'_>) {
    if !QUIET.load(Ordering::Relaxed) {
        complain(line);
    }
}

/// Writes a line as [`note`] does, but below a line of text that is not complete. Nothing is written to stdout.
pub fn interject(line: fmt::Arguments<'_>) {
    note(format_args!("\n{line}"));
}

/// Writes a line to stderr even if quiet.
pub fn complain(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Writes a prompt to stderr, after which the user types.
pub fn prompt(text: &str) {
    let mut err = io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

/// Writes text to stdout and flushes it.
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

/// Whether stderr is a terminal for which colour is not turned off.
pub fn colour() -> bool {
    let unset = |name| std::env::var_os(name).is_none_or(|value| value.is_empty());
    io::stderr().is_terminal() && unset("NO_COLOR") && !terminal::is_dumb()
}

/// Writes thinking and statistics to stderr, in faint text if there is colour.
pub struct Aside {
    colour: bool,
}

impl Aside {
    /// Uses faint text if [`colour`] allows it.
    pub fn new() -> Self {
        Self { colour: colour() }
    }

    /// Writes a line that replaces the distinction by colour, if there is no colour.
    pub fn mark(&self, text: &str) {
        if !self.colour {
            self.line(format_args!("{text}"));
        }
    }

    /// Writes text over the current line, if the terminal can do that. The next such text replaces it.
    pub fn passing(&self, text: fmt::Arguments<'_>) {
        if draws_progress() {
            self.write(&format!("\r{text}\x1b[K"));
        }
    }

    /// Writes text.
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

/// A number and a noun, in the plural unless the number is 1.
pub fn count(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// A number of bytes in units that people read.
pub fn bytes(count: u64) -> String {
    indicatif::BinaryBytes(count).to_string()
}
