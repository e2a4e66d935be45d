//! The command `chat`: a conversation on the terminal, or with messages from stdin.

mod clipboard;
mod commands;
mod editor;
mod entry;
mod history;
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
use wglm_engine::Chat;

enum MessageSource {
    Editor(Box<Editor>),
    /// A pipe, a file, or a terminal that cannot edit lines.
    Lines(StdinLines),
}

/// The next item from the source.
enum Typed {
    Text(String),
    /// A text that cannot be sent, and the reason.
    Refused(anyhow::Error),
    End,
    /// The end of the conversation by Ctrl-C.
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
    let (model, options, reloader) = run::load(talk, true)?;
    let mut chat = Chat::new(&model)?;
    run::prepare(&mut chat, talk, options);
    output::note(format_args!(
        "{}, {} tokens of context; /help for help",
        model::name(&talk.model.file),
        chat.session().context()
    ));
    let source = match edits {
        true => MessageSource::Editor(Box::new(Editor::new(!args.no_history)?)),
        false => MessageSource::Lines(StdinLines::new()),
    };
    #[cfg(feature = "download")]
    let hint = super::hint::real_model(&model, &talk.model.file);
    #[cfg(not(feature = "download"))]
    let hint = Vec::new();
    converse(
        Talk::new(chat, View { wraps: true, ..View::of(talk.show) }, talk.constraint.form(), hint, reloader),
        source,
    )
}

/// Answers every message and carries out every command.
fn converse(mut talk: Talk, mut source: MessageSource) -> anyhow::Result<ExitCode> {
    // With a terminal the user has seen any failure, so the exit status does not report it.
    let typed = matches!(source, MessageSource::Editor(_)) || terminal::is_typed();
    loop {
        let text = match source.next()? {
            Typed::Text(text) => text,
            Typed::Refused(error) => {
                talk.fail(&error);
                continue;
            }
            Typed::Interrupt => return Ok(INTERRUPTED.into()),
            Typed::End => break,
        };
        if talk.take(entry::Entry::of(&text))?.is_break() {
            break;
        }
        if !typed && interrupts::asked() {
            return Ok(INTERRUPTED.into()); // otherwise each press would only stop one reply of many
        }
    }
    Ok(if typed { ExitCode::SUCCESS } else { talk.code() })
}

impl MessageSource {
    /// The next text that is not blank.
    fn next(&mut self) -> anyhow::Result<Typed> {
        loop {
            let typed = match self {
                // The editor receives Ctrl-C as a key. A press that was meant for the previous reply, but came too
                // late, has no effect here.
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
