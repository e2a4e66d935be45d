//! The state of a grammar behind the tokens of a reply.

use super::numbers::{Digits, Numbers};
use super::vocabulary::Grammar;
use crate::error::{Error, Result};
use llguidance::ParserFactory;
use std::fmt::Display;
use std::sync::Arc;

/// Follows the tokens of a text, and tells which may come next.
pub struct Matcher {
    inner: llguidance::Matcher,
    kind: &'static str,
    /// The words of a mask.
    words: usize,
    /// The mask of the next token, once it was asked for.
    mask: Option<Vec<u32>>,
    /// The numbers in the text, where tokens make them too long.
    numbers: Option<(Numbers, Arc<Digits>)>,
}

impl Matcher {
    pub(super) fn new(
        factory: &ParserFactory,
        grammar: &Grammar,
        words: usize,
        digits: Option<&Arc<Digits>>,
    ) -> Result<Self> {
        let parser = factory.create_parser(grammar.source.clone());
        let parser = parser.map_err(|error| failed(grammar.kind, "", error))?;
        let numbers = grammar.numbers.clone().zip(digits.cloned());
        Ok(Self { inner: llguidance::Matcher::new(Ok(parser)), kind: grammar.kind, words, mask: None, numbers })
    }

    /// The same state, apart from this one: what either finds out of its grammar is not shared.
    pub fn copy(&self) -> Self {
        let (inner, mask, numbers) = (self.inner.deep_clone(), self.mask.clone(), self.numbers.clone());
        Self { inner, kind: self.kind, words: self.words, mask, numbers }
    }

    /// Which tokens may come next: a bit each, the lowest bit of a word first. Where the text may end, these are also the
    /// tokens that end a reply.
    ///
    /// # Errors
    /// [`Error::Constraint`] if no token may, which includes that the text is complete, or if the grammar is too complex.
    pub fn mask(&mut self) -> Result<&[u32]> {
        let mask = match self.mask.take() {
            Some(mask) => mask,
            None => {
                let allowed = self.inner.compute_mask().map_err(|error| failed(self.kind, "", error))?;
                let mut mask = vec![0; self.words];
                mask.iter_mut().zip(allowed.as_slice()).for_each(|(word, allowed)| *word = *allowed);
                if let Some((numbers, digits)) = &self.numbers {
                    numbers.restrict(&mut mask, digits);
                }
                mask
            }
        };
        Ok(self.mask.insert(mask))
    }

    /// Whether a token may come next.
    ///
    /// # Errors
    /// Those of [`Matcher::mask`].
    pub fn allows(&mut self, token: u32) -> Result<bool> {
        let word = self.mask()?.get(token as usize / 32).copied().unwrap_or_default();
        Ok(word >> (token % 32) & 1 == 1)
    }

    /// The tokens that have to come next, if there is only one way to go on.
    pub fn forced(&mut self) -> Vec<u32> {
        self.inner.compute_ff_tokens()
    }

    /// How many of these tokens may come next, one after the other.
    ///
    /// # Errors
    /// [`Error::Constraint`] if the grammar is too complex.
    pub fn valid(&mut self, tokens: &[u32]) -> Result<usize> {
        self.inner.validate_tokens(tokens).map_err(|error| failed(self.kind, "", error))
    }

    /// Takes the next token.
    ///
    /// # Errors
    /// [`Error::Constraint`] if it may not come next, or the grammar is too complex.
    pub fn accept(&mut self, token: u32) -> Result<()> {
        self.mask = None;
        if let Some((numbers, digits)) = &mut self.numbers {
            numbers.accept(token, digits);
        }
        self.inner.consume_token(token).map_err(|error| failed(self.kind, "", error))
    }

    /// Whether the text is complete and cannot go on. After an error it is not: that comes again with the next mask.
    pub fn is_over(&self) -> bool {
        self.inner.is_stopped() && !self.inner.is_error()
    }
}

impl std::fmt::Debug for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Matcher").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// The most characters of llguidance's messages that are shown.
const SHOWN: usize = 400;

/// The error of a constraint, with llguidance's message without what it says of its own state.
pub(super) fn failed(kind: &'static str, place: &str, message: impl Display) -> Error {
    let message = format!("{message:#}");
    let end = ["<backtrace>", "<non-verbose/>", "<state>"].iter().filter_map(|mark| message.find(mark)).min();
    let message = sentence(&message[..end.unwrap_or(message.len())]);
    let message = match message.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message,
    };
    Error::Constraint { kind, place: place.to_owned(), message }
}

/// A message of several lines as one, without those that show and mark a line of what is wrong.
fn sentence(message: &str) -> String {
    let numbered = |line: &str| line.split_once('|').is_some_and(|(number, _)| number.trim().parse::<usize>().is_ok());
    let shows = |line: &&str| line.is_empty() || line.chars().all(|mark| mark == '^') || numbered(line);
    message.lines().map(str::trim).filter(|line| !shows(line)).collect::<Vec<_>>().join(" ")
}
