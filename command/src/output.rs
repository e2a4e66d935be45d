//! Writes answers to stdout and everything else to stderr, with colour only on a terminal.
//!
//! Nothing else in the command writes to them (a house test checks that), because this module makes control characters
//! visible on a terminal: texts of files, hubs and models are untrusted. A pipe or a file gets every text unchanged.

use super::terminal;
use anyhow::Context;
use std::borrow::Cow;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use wglm_engine::instruments::{is_obeyed, visible};

/// The maximum width of help in columns, as in the help of the arguments.
const HELP_WIDTH: usize = 100;

const UNWRITABLE: &str = "cannot write to stdout";

/// The columns that a terminal of unknown width is assumed to have.
const USUAL_COLUMNS: usize = 80;

/// Whether only errors are written to stderr.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Whether anything was written to stdout, successfully or not.
static WROTE_STDOUT: AtomicBool = AtomicBool::new(false);

pub fn has_printed() -> bool {
    WROTE_STDOUT.load(Ordering::Relaxed)
}

/// Makes stderr receive only errors from now on.
pub fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Whether progress is drawn, which needs a terminal that can redraw a line.
pub fn draws_progress() -> bool {
    !QUIET.load(Ordering::Relaxed) && terminal::redraws()
}

/// The name by which the user ran the command, which may be a script's.
pub fn command() -> String {
    std::env::var("WGLM_COMMAND").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "wglm".into())
}

/// Writes a line of information to stderr, unless quiet. A failure to write it is ignored.
pub fn note(line: fmt::Arguments<'_>) {
    if !QUIET.load(Ordering::Relaxed) {
        complain(line);
    }
}

/// Writes a line as [`note`] does, but below an incomplete line of text. Nothing is written to stdout.
pub fn interject(line: fmt::Arguments<'_>) {
    note(format_args!("\n{line}"));
}

/// Writes a line to stderr even if quiet.
pub fn complain(line: fmt::Arguments<'_>) {
    let (mut err, line) = (io::stderr().lock(), line.to_string());
    let _ = writeln!(err, "{}", shown(&line, &err));
}

/// The columns of help on stderr: those of the terminal, limited to a readable width.
pub fn width() -> usize {
    terminal::columns_for_asides().unwrap_or(HELP_WIDTH).min(HELP_WIDTH)
}

/// Writes a prompt to stderr, after which the user types.
pub fn prompt(text: &str) {
    let mut err = io::stderr().lock();
    let text = shown(text, &err);
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

/// Writes text to stdout and flushes it.
pub fn say(text: &str) -> anyhow::Result<()> {
    WROTE_STDOUT.store(true, Ordering::Relaxed);
    let mut out = io::stdout().lock();
    let text = shown(text, &out);
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context(UNWRITABLE)
}

/// Writes a line to stdout as the last one, unless something else was written. No other thread can write after it.
pub fn last_line(line: impl fmt::Display) {
    let mut out = io::stdout().lock();
    if WROTE_STDOUT.swap(true, Ordering::Relaxed) {
        return;
    }
    let line = line.to_string();
    let _ = writeln!(out, "{}", shown(&line, &out)).and_then(|()| out.flush());
    // If the main thread now begins to write a result, it waits for the lock until the process ends.
    std::mem::forget(out);
}

/// Writes lines to stdout.
pub fn lines(lines: impl IntoIterator<Item = impl fmt::Display>) -> anyhow::Result<()> {
    WROTE_STDOUT.store(true, Ordering::Relaxed);
    let mut out = io::stdout().lock();
    let written = lines.into_iter().try_for_each(|line| {
        let line = line.to_string();
        writeln!(out, "{}", shown(&line, &out))
    });
    written.and_then(|()| out.flush()).context(UNWRITABLE)
}

/// The form of a text to write: on a terminal, with control characters made visible.
fn shown<'a>(text: &'a str, to: &impl IsTerminal) -> Cow<'a, str> {
    if to.is_terminal() { visible(text) } else { Cow::Borrowed(text) }
}

/// Stderr for the log, whose lines may be coloured.
pub struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (mut err, text) = (io::stderr().lock(), String::from_utf8_lossy(bytes));
        let text = if err.is_terminal() { Cow::Owned(visible_in_colour(&text)) } else { text };
        err.write_all(text.as_bytes()).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Text with colours, in which all other control characters are visible. What is logged has no colours of its own:
/// `tracing-subscriber` escapes them.
fn visible_in_colour(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let mut shown = visible(parts.next().unwrap_or_default()).into_owned();
    for part in parts {
        let rest = part.strip_prefix('[').map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';'));
        match rest.and_then(|rest| rest.strip_prefix('m')) {
            Some(rest) => {
                shown.push('\x1b');
                shown.push_str(&part[..part.len() - rest.len()]);
                shown.push_str(&visible(rest));
            }
            None => {
                shown.push_str(&visible("\x1b"));
                shown.push_str(&visible(part));
            }
        }
    }
    shown
}

/// Ends the process with the error in its arguments, or with the requested help.
pub fn usage(error: &clap::Error) -> ! {
    let is_obeyed = |argument: std::ffi::OsString| argument.to_string_lossy().contains(is_obeyed);
    if !std::env::args_os().any(is_obeyed) {
        error.exit();
    }
    // The message repeats the arguments. It is rendered without colours, so that `clap` removes those in the arguments
    // too.
    complain(format_args!("{}", error.render().to_string().trim_end()));
    std::process::exit(error.exit_code())
}

/// The columns of the terminal on stdout; `None` if stdout is not a terminal.
pub fn columns() -> Option<usize> {
    terminal::columns_for_answers().or_else(|| io::stdout().is_terminal().then_some(USUAL_COLUMNS))
}

/// Whether stderr is a terminal with colour.
pub fn colour() -> bool {
    let unset = |name| std::env::var_os(name).is_none_or(|value| value.is_empty());
    io::stderr().is_terminal() && unset("NO_COLOR") && !terminal::is_dumb()
}

/// Writes thinking and statistics to stderr, in faint text if there is colour.
pub struct FaintText {
    colour: bool,
}

impl FaintText {
    /// Uses faint text if [`colour`] allows it.
    pub fn new() -> Self {
        Self { colour: colour() }
    }

    /// Writes a line that separates sections, if there is no colour to do so.
    pub fn mark(&self, text: &str) {
        if !self.colour {
            self.line(format_args!("{text}"));
        }
    }

    /// Writes text over the current line, if the terminal can do that. The next such text replaces it.
    pub fn passing(&self, text: fmt::Arguments<'_>) {
        if draws_progress() {
            self.put("\r", &text.to_string(), "\x1b[K");
        }
    }

    pub fn write(&self, text: &str) {
        self.put("", text, "");
    }

    fn put(&self, before: &str, text: &str, after: &str) {
        let (faint, plain) = if self.colour { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
        let mut err = io::stderr().lock();
        let text = shown(text, &err);
        let _ = write!(err, "{faint}{before}{text}{after}{plain}").and_then(|()| err.flush());
    }

    pub fn line(&self, text: fmt::Arguments<'_>) {
        self.write(&format!("{text}\n"));
    }
}

/// A text, cut off after `most` characters.
pub fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

/// A number and a noun, in the plural unless the number is 1.
pub fn count(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// A number of bytes in readable units, as in the library's messages.
pub fn bytes(count: u64) -> String {
    wglm_engine::instruments::Size(count).to_string()
}

#[cfg(test)]
mod tests {
    use super::visible_in_colour;

    #[test]
    fn colours_alone_are_obeyed_in_the_log() {
        for (text, shown) in [
            ("\x1b[2mfaint\x1b[0m \x1b[1;31mred", "\x1b[2mfaint\x1b[0m \x1b[1;31mred"),
            ("\x1b[2J\x1b]0;x\x07\x1b", "␛[2J␛]0;x␇␛"),
            ("\x1b[m\u{9b}1m\u{202e}", "\x1b[m\\u{9b}1m\\u{202e}"),
            ("\x1b[31", "␛[31"),
        ] {
            assert_eq!(visible_in_colour(text), shown);
        }
    }
}
