//! Reads messages from a pipe, a file, or a terminal without an editor, one per line. A message that is not UTF-8 is
//! refused, like such a prompt of `run`, and the conversation continues with the next one.

use super::{Typed, entry};
use crate::{input, output, terminal};
use anyhow::{Context, anyhow};
use std::io::{BufRead, stdin};

pub struct StdinLines {
    /// The number of lines that were read.
    count: usize,
    prompts: bool,
    /// The error in the message that is being read.
    wrong: Option<anyhow::Error>,
}

impl StdinLines {
    pub fn new() -> Self {
        Self { count: 0, prompts: terminal::is_typed(), wrong: None }
    }

    pub fn next(&mut self) -> anyhow::Result<Typed> {
        let text = entry::whole(|goes_on| self.line(goes_on))?;
        Ok(match (self.wrong.take(), text) {
            (Some(error), _) => Typed::Refused(error),
            (None, Some(text)) => Typed::Text(text),
            (None, None) => Typed::End,
        })
    }

    fn line(&mut self, goes_on: bool) -> anyhow::Result<Option<String>> {
        if self.prompts {
            output::prompt(if goes_on { ". " } else { "> " });
        }
        let mut bytes = Vec::new();
        if stdin().lock().read_until(b'\n', &mut bytes).context("cannot read stdin")? == 0 {
            return Ok(None);
        }
        self.count += 1;
        if let Err(error) = std::str::from_utf8(&bytes) {
            let reason = input::not_text(&bytes, error.valid_up_to());
            let wrong = anyhow!("stdin, line {}: {reason}; the message is not sent", self.count);
            self.wrong.get_or_insert(wrong);
        }
        Ok(Some(input::line(&bytes, self.count == 1)))
    }
}
