//! `chat`: a conversation on the terminal, or of what stdin holds.

mod clipboard;
mod commands;
mod editor;
mod entry;
mod lines;
mod talk;

use super::args::ChatArgs;
use super::interrupts::{self, INTERRUPTED, OnInterrupt};
use super::output;
use super::reply::View;
use super::{model, run, terminal};
use editor::Editor;
use lines::StdinLines;
use std::process::ExitCode;
use talk::Talk;
use wglm::Chat;

/// Where messages come from.
enum MessageSource {
    /// A terminal, with a line to edit.
    Editor(Box<Editor>),
    /// A pipe, a file, or a terminal that can do no more.
    Lines(StdinLines),
}

/// What comes from there.
enum Typed {
    Text(String),
    End,
    /// The end, by Ctrl-C.
    Interrupt,
}

pub fn chat(args: ChatArgs) -> anyhow::Result<ExitCode> {
    let edits = terminal::edits();
    interrupts::begin(OnInterrupt::ExitAfterGrace);
    if edits {
        terminal::remember();
    }
    interrupts::listen(edits)?;
    let talk = &args.talk;
    let file = model::open(talk.model.file.model.as_deref())?;
    let options = run::options(&file, &talk.sampling, true)?;
    let model = model::load(&file, &talk.model)?;
    let mut chat = Chat::new(&model)?;
    run::prepare(&mut chat, &talk.reply, options);
    output::note(format_args!(
        "{}, {} tokens of context; /help for help",
        model::name(&talk.model.file),
        chat.session().context()
    ));
    let source = match edits {
        true => MessageSource::Editor(Box::new(Editor::new(!args.history.no_history)?)),
        false => MessageSource::Lines(StdinLines::new()),
    };
    converse(Talk::new(chat, View::of(talk.show)), source)
}

/// Has everything that is typed answered or obeyed.
fn converse(mut talk: Talk, mut source: MessageSource) -> anyhow::Result<ExitCode> {
    // At a terminal whoever types has seen what failed.
    let typed = matches!(source, MessageSource::Editor(_)) || terminal::is_typed();
    loop {
        let text = match source.next()? {
            Typed::Text(text) => text,
            Typed::Interrupt => return Ok(INTERRUPTED.into()),
            Typed::End => break,
        };
        if talk.take(entry::Entry::of(&text))?.is_break() {
            break;
        }
    }
    Ok(if typed { ExitCode::SUCCESS } else { talk.code() })
}

impl MessageSource {
    /// The next text that is not blank.
    fn next(&mut self) -> anyhow::Result<Typed> {
        loop {
            let typed = match self {
                // The editor hears a press of Ctrl-C as a key; one that comes late for a reply ends nothing.
                Self::Editor(editor) => {
                    interrupts::begin(OnInterrupt::CancelWork);
                    editor.next()?
                }
                Self::Lines(lines) => {
                    interrupts::begin(OnInterrupt::ExitNow);
                    lines.next()?
                }
            };
            match typed {
                Typed::Text(text) if text.trim().is_empty() => {}
                typed => return Ok(typed),
            }
        }
    }
}
