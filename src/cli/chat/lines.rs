//! Reads messages from a pipe, a file, or a terminal without an editor, one per line.

use super::{Typed, entry};
use crate::cli::{input, output, terminal};
use anyhow::Context;
use std::io::{BufRead, stdin};

/// Reads the lines of stdin.
pub struct StdinLines {
    first: bool,
    prompts: bool,
}

impl StdinLines {
    pub fn new() -> Self {
        Self { first: true, prompts: terminal::is_typed() }
    }

    /// Reads the next message or command.
    pub fn next(&mut self) -> anyhow::Result<Typed> {
        Ok(entry::whole(|goes_on| self.line(goes_on))?.map_or(Typed::End, Typed::Text))
    }

    fn line(&mut self, goes_on: bool) -> anyhow::Result<Option<String>> {
        if self.prompts {
            output::prompt(if goes_on { ". " } else { "> " });
        }
        let mut bytes = Vec::new();
        if stdin().lock().read_until(b'\n', &mut bytes).context("cannot read stdin")? == 0 {
            return Ok(None);
        }
        let (line, changed) = input::line(&bytes, std::mem::take(&mut self.first));
        if changed {
            output::complain(format_args!("warning: invalid UTF-8 in a message; replaced by U+FFFD"));
        }
        Ok(Some(line))
    }
}
