//! A line editor on the terminal, with a history and completion.
//!
//! Only answers are written to stdout, so if stdout is not a terminal, the line is drawn on the terminal itself.

use super::{Typed, commands, entry, history};
use crate::output;
use rustyline::completion::{Completer, FilenameCompleter, Pair, Quote, escape, unescape};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{
    Behavior, Cmd, ConditionalEventHandler, Config, Context, Event, EventContext, EventHandler, Helper, KeyCode,
    KeyEvent, Modifiers, RepeatCount,
};
use std::borrow::Cow;
use std::io::{ErrorKind, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wglm_engine::instruments::{is_obeyed, visible};

/// The character that escapes special characters in file names.
const ESCAPE: Option<char> = if cfg!(windows) { None } else { Some('\\') };

const PROMPT: &str = "> ";
const MORE: &str = ". ";

pub struct Editor {
    line: rustyline::Editor<Completion, FileHistory>,
    history: Option<PathBuf>,
    /// Whether the line was empty when Ctrl-C was pressed.
    blank: Arc<AtomicBool>,
}

impl Editor {
    /// Creates an editor, with the history of earlier conversations if it `keeps` one.
    pub fn new(keeps: bool) -> anyhow::Result<Self> {
        let elsewhere = !std::io::stdout().is_terminal();
        let behavior = if elsewhere { Behavior::PreferTerm } else { Behavior::Stdio };
        let config = Config::builder().behavior(behavior).history_ignore_space(true).max_history_size(history::KEPT)?;
        let mut line = rustyline::Editor::with_config(config.build())?;
        line.set_helper(Some(Completion(FilenameCompleter::new())));
        let blank = Arc::new(AtomicBool::new(true));
        line.bind_sequence(KeyEvent(KeyCode::Enter, Modifiers::ALT), Cmd::Newline);
        let interrupt = Box::new(Interrupt(blank.clone()));
        line.bind_sequence(KeyEvent::ctrl('C'), EventHandler::Conditional(interrupt));
        let history = keeps.then(history::file).flatten();
        if let Some(file) = &history {
            // The file may not exist yet. If it cannot be read, writing to it fails as well, and that is reported.
            let _ = line.load_history(file);
        }
        Ok(Self { line, history, blank })
    }

    /// Reads the next message or command. Ctrl-C drops the typed text; pressed twice on an empty line, it ends the
    /// conversation. Ctrl-D ends the conversation or, inside a message of several lines, that message.
    pub fn next(&mut self) -> anyhow::Result<Typed> {
        let mut warned = false;
        loop {
            let mut continued = false;
            let typed = entry::whole(|goes_on| {
                continued = goes_on;
                match self.line.readline(if goes_on { MORE } else { PROMPT }) {
                    Err(ReadlineError::Eof) if goes_on => Ok(None),
                    line => line.map(Some),
                }
            });
            match typed {
                Ok(Some(text)) => {
                    self.keep(&text);
                    return Ok(Typed::Text(text));
                }
                Ok(None) | Err(ReadlineError::Eof) => return Ok(Typed::End),
                Err(ReadlineError::Interrupted) => {
                    let blank = !continued && self.blank.load(Ordering::Relaxed);
                    if blank && warned {
                        return Ok(Typed::Interrupt);
                    }
                    warned = blank;
                    if blank {
                        output::complain(format_args!("(press Ctrl-C again or Ctrl-D to quit)"));
                    }
                }
                Err(ReadlineError::Io(error)) if error.kind() == ErrorKind::InvalidData => {
                    output::complain(format_args!("error: the typed text is invalid UTF-8 and is not sent"));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Adds a text to the history, for the arrow keys in this conversation and in later ones.
    fn keep(&mut self, text: &str) {
        if text.trim().is_empty() || !matches!(self.line.add_history_entry(text), Ok(true)) {
            return;
        }
        let Some(file) = &self.history else { return };
        if let Err(error) = history::keep(text, file) {
            output::note(format_args!("note: typed messages are not saved in {}: {error:#}", file.display()));
            self.history = None;
        }
    }
}

/// Records whether the line was empty, and lets the editor handle the key.
struct Interrupt(Arc<AtomicBool>);

impl ConditionalEventHandler for Interrupt {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext) -> Option<Cmd> {
        self.0.store(context.line().is_empty(), Ordering::Relaxed);
        None
    }
}

/// Completes commands, and the file names after them.
struct Completion(FilenameCompleter);

impl Completer for Completion {
    type Candidate = Pair;

    fn complete(&self, line: &str, place: usize, _: &Context) -> rustyline::Result<(usize, Vec<Pair>)> {
        let before = &line[..place];
        if commands::takes_file(before) {
            return self.file(before);
        }
        let all = commands::beginning_with(before);
        Ok((0, all.map(|text| Pair { display: text.trim_end().to_owned(), replacement: text }).collect()))
    }
}

impl Completion {
    /// Completes a file name after a command. The name extends to the end of the line, including spaces, so nothing in
    /// it is escaped as in a shell, and a quote may precede it. The completer needs escaped names, so the name is
    /// escaped for it.
    fn file(&self, before: &str) -> rustyline::Result<(usize, Vec<Pair>)> {
        let mut start = before.find(' ').map_or(before.len(), |blank| blank + 1);
        start += before[start..].starts_with(['"', '\'']) as usize;
        let special = |c: char| !c.is_alphanumeric() && !"/.~-_".contains(c);
        let name = escape(before[start..].to_owned(), ESCAPE, special, Quote::None);
        let (skipped, mut found) = self.0.complete_path(&name, name.len())?;
        let plain = |pair: &mut Pair| pair.replacement = unescape(&pair.replacement, ESCAPE).into_owned();
        found.iter_mut().for_each(plain);
        found.retain(|pair| !pair.replacement.contains(is_obeyed)); // the editor would draw it unchanged
        Ok((start + skipped, found))
    }
}

impl Hinter for Completion {
    type Hint = String;
}

impl Highlighter for Completion {
    /// Shows control characters in pasted text like everywhere else.
    fn highlight<'l>(&self, line: &'l str, _: usize) -> Cow<'l, str> {
        visible(line)
    }
}

impl Validator for Completion {}
impl Helper for Completion {}
