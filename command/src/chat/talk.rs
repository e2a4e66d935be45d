//! The conversation itself: answers messages and carries out commands.

use super::clipboard;
use super::commands::{self, SlashCommand};
use super::entry::Entry;
use crate::interrupts::{self, OnInterrupt};
use crate::output;
use crate::recovery::Reloader;
use crate::reply::{CollectedReply, Form, View};
use crate::{failure, input, is_broken_pipe};
use anyhow::{Context, ensure};
use directories::BaseDirs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use wglm_engine::instruments::{Readers, replace};
use wglm_engine::text::Message;
use wglm_engine::{Chat, Overflow, Reply, Stop};

pub struct Talk {
    chat: Chat,
    view: View,
    form: Form,
    /// Whether the last user message was typed here, rather than loaded from a file.
    typed: bool,
    /// Reloads the model after a loss of the GPU.
    reloader: Reloader,
    /// The lines to print after the first answer.
    hint: Vec<String>,
    failed: bool,
    /// The exit status of the last reply whose answer is missing or cut off.
    without_answer: Option<ExitCode>,
}

impl Talk {
    /// A conversation that prints `hint` after the first answer, unless statistics are hidden.
    pub fn new(mut chat: Chat, view: View, form: Form, hint: Vec<String>, reloader: Reloader) -> Self {
        chat.overflow = Overflow::DROP_OLDEST;
        Self { chat, view, form, typed: false, reloader, hint, failed: false, without_answer: None }
    }

    /// The exit status for a conversation without a terminal.
    pub fn code(&self) -> ExitCode {
        match self.failed {
            true => ExitCode::FAILURE,
            false => self.without_answer.unwrap_or(ExitCode::SUCCESS),
        }
    }

    /// Answers a message or carries out a command; a break ends the conversation. Failures are reported, and the
    /// conversation continues.
    ///
    /// # Errors
    /// Answers can no longer be written, because the reader closed the pipe.
    pub fn take(&mut self, entry: Entry) -> anyhow::Result<ControlFlow<()>> {
        let done = match entry {
            Entry::Message("") => Ok(ControlFlow::Continue(())),
            Entry::Message(text) => self.send(text).map(|()| ControlFlow::Continue(())),
            Entry::Command(text) => SlashCommand::read(text).and_then(|command| self.obey(command)),
        };
        done.or_else(|error| {
            if is_broken_pipe(&error) {
                return Err(error);
            }
            self.fail(&error);
            Ok(ControlFlow::Continue(()))
        })
    }

    pub fn fail(&mut self, error: &anyhow::Error) {
        self.failed = true;
        failure::tell(error);
    }

    fn send(&mut self, text: &str) -> anyhow::Result<()> {
        self.take_back();
        self.chat.push(Message::user(text));
        self.typed = true;
        self.answer()
    }

    /// Drops a typed message that got no answer, because the user now sends another one and the model should not see
    /// both. A message from a file stays.
    fn take_back(&mut self) {
        let messages = self.chat.messages();
        if self.typed && messages.last().is_some_and(|message| message.role == "user") {
            self.chat.truncate(messages.len() - 1);
            output::note(format_args!("note: the previous message got no answer and was dropped"));
        }
    }

    fn answer(&mut self) -> anyhow::Result<()> {
        let cancel = interrupts::begin(OnInterrupt::CancelWork);
        let mut reply = CollectedReply::new(self.form);
        reply.constrain(self.chat.options.constraint.as_ref());
        let model = self.chat.session().model().clone();
        let events = self.reloader.keep_going(self.chat.reply()?.with_cancel(&cancel), model, Reply::move_to);
        reply.show(events, self.view)?;
        if reply.stop() == Some(Stop::Context) {
            let session = self.chat.session();
            let is_longest = session.context() >= session.model().config().context;
            let larger = if is_longest { "" } else { ", -c N sets a larger context" };
            output::complain(format_args!(
                "the context is full: the oldest messages will be dropped; /clear starts over{larger}"
            ));
        }
        if reply.without_answer().or(reply.cut()).is_some() {
            self.without_answer = Some(reply.code());
        } else if self.view.figures && reply.stop() != Some(Stop::Cancelled) {
            std::mem::take(&mut self.hint).iter().for_each(|line| output::note(format_args!("{line}")));
        }
        Ok(())
    }

    fn obey(&mut self, command: SlashCommand) -> anyhow::Result<ControlFlow<()>> {
        match command {
            SlashCommand::Clear => self.chat.truncate(self.system()),
            SlashCommand::Regen => self.answer_anew()?,
            SlashCommand::System(text) => self.instruct(text),
            SlashCommand::Reasoning(on) => self.chat.reasoning = Some(on),
            SlashCommand::Save(file) => self.save(&path(file))?,
            SlashCommand::Load(file) => self.load(&path(file))?,
            SlashCommand::Copy => self.copy()?,
            SlashCommand::Help => output::complain(format_args!("{}", commands::help(output::width()))),
            SlashCommand::Exit => return Ok(ControlFlow::Break(())),
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The number of system messages at the beginning, which is 0 or 1.
    fn system(&self) -> usize {
        self.chat.messages().first().is_some_and(|message| message.role == "system").into()
    }

    fn instruct(&mut self, text: &str) {
        let message = (!text.is_empty()).then(|| Message::system(text));
        let rest = self.chat.messages()[self.system()..].to_vec();
        self.chat.set_messages(message.into_iter().chain(rest).collect());
    }

    /// Generates another answer to the last user message. The previous answer stays if no new one is generated.
    fn answer_anew(&mut self) -> anyhow::Result<()> {
        let asked = self.chat.messages().iter().rposition(|message| message.role == "user");
        let asked = asked.context("there is no message yet to answer")? + 1;
        let before = self.chat.messages()[asked..].to_vec();
        self.chat.truncate(asked);
        let sampling = &mut self.chat.options.sampling;
        sampling.seed = sampling.seed.map(|seed| seed.wrapping_add(1)); // the same seed would give the same answer
        let answered = self.answer();
        if !self.chat.unanswered().is_empty() {
            before.into_iter().for_each(|message| self.chat.push(message));
        }
        answered
    }

    /// Writes the messages to a file. An existing file is only overwritten if it holds a saved conversation.
    fn save(&self, file: &Path) -> anyhow::Result<()> {
        let messages = self.chat.messages();
        ensure!(!messages.is_empty(), "there is nothing to save yet");
        if file.exists() {
            read(file)
                .with_context(|| format!("not overwriting {}: it is not a saved conversation", file.display()))?;
        }
        let text = serde_json::to_string_pretty(messages)? + "\n";
        replace(file, text.as_bytes(), Readers::Usual).with_context(|| format!("cannot write {}", file.display()))?;
        let count = output::count(messages.len(), "message");
        output::note(format_args!("{count} saved to {}", file.display()));
        Ok(())
    }

    /// Continues with the messages of a file, if the model's chat template accepts them.
    fn load(&mut self, file: &Path) -> anyhow::Result<()> {
        let messages = read(file)?;
        let before = self.chat.messages().to_vec();
        self.chat.set_messages(messages);
        match self.chat.prompt() {
            Ok(prompt) => {
                self.typed = false;
                let messages = output::count(self.chat.messages().len(), "message");
                let (tokens, context) = (prompt.len(), self.chat.session().context());
                output::note(format_args!("{messages}: {tokens} of {context} tokens of context"));
                Ok(())
            }
            Err(error) => {
                self.chat.set_messages(before);
                Err(error).with_context(|| file.display().to_string())
            }
        }
    }

    fn copy(&self) -> anyhow::Result<()> {
        let answer = self.chat.messages().iter().rev().find(|message| message.role == "assistant");
        let text = answer.map(Message::text).filter(|text| !text.is_empty()).context("there is no answer yet")?;
        let done = clipboard::copy(&text)?;
        output::note(format_args!("{} {done}", output::count(text.chars().count(), "character")));
        Ok(())
    }
}

/// A typed path, in which `~` stands for the user's home folder.
fn path(typed: &str) -> PathBuf {
    let rest = if typed == "~" { Some("") } else { typed.strip_prefix("~/") };
    let home = rest.and_then(|rest| Some(BaseDirs::new()?.home_dir().join(rest)));
    home.unwrap_or_else(|| typed.into())
}

fn read(file: &Path) -> anyhow::Result<Vec<Message>> {
    let text = input::text(file)?;
    let expected = "a JSON array of messages with `role` and `content`";
    serde_json::from_str(&text).with_context(|| format!("{}: expected {expected}", file.display()))
}
