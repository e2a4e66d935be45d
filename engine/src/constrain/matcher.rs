//! The state of a grammar after the tokens of a reply.

use super::numbers::{Digits, Numbers};
use super::vocabulary::Grammar;
use super::{check, exact};
use crate::error::{Error, Result};
use llguidance::api::{GrammarInit, StopReason};
use llguidance::{ParserFactory, TokenParser, panic_utils};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// The maximum memory of a compiled grammar, in bytes as estimated by llguidance, which is up to twice the actual use.
/// An expression with repetition counts takes about 700 bytes for each character of a text.
const MAX_MEMORY: usize = 32 << 20;

/// The maximum number of items of a grammar's rules that are processed for a reply, of 8 bytes each. If all are stored,
/// that is 64 MB. A reply of 3000 tokens for a schema of 60 properties takes 55,000.
const MAX_ITEMS: usize = 8_000_000;

/// The memory of the rules of an object's property, in bytes, measured on an object of 1000.
const MEMORY_OF_RULES: usize = 4 << 10;

/// Follows the tokens of a text, and determines which may come next.
pub struct Matcher {
    inner: TokenParser,
    /// Why it cannot continue.
    failed: Option<String>,
    kind: &'static str,
    /// The number of u32 words of a mask.
    words: usize,
    /// The mask of the next token, once computed.
    mask: Option<Vec<u32>>,
    /// The numbers in the text, to keep tokens from making them too long.
    numbers: Option<(Numbers, Arc<Digits>)>,
}

impl Matcher {
    pub(super) fn new(
        factory: &ParserFactory,
        grammar: &Grammar,
        words: usize,
        digits: Option<&Arc<Digits>>,
    ) -> Result<Self> {
        let mut inner = parser(factory, grammar).map_err(|error| failed(grammar.kind, "", error))?;
        if inner.is_fresh() {
            inner.start_without_prompt();
        }
        let numbers = grammar.numbers.clone().zip(digits.cloned());
        Ok(Self { inner, failed: None, kind: grammar.kind, words, mask: None, numbers })
    }

    /// The result of a step of llguidance. After a step that failed or took too much memory, all others fail.
    fn settle<T>(&mut self, step: std::result::Result<T, impl Display>) -> Result<T> {
        let step = step.map_err(|error| check::in_our_words(failed(self.kind, "", format!("{error:#}"))));
        let too_much =
            |what: String| Err(failed(self.kind, "", format!("too complex: a reply takes more than {what}")));
        // Only after a step that succeeded: if it panicked, so does whatever needs the parser's lock.
        let step = step.and_then(|step| match (self.memory(), self.inner.parser.stats().all_items) {
            (0..=MAX_MEMORY, 0..=MAX_ITEMS) => Ok(step),
            (0..=MAX_MEMORY, _) => too_much(format!("{MAX_ITEMS} items of rules")),
            _ => too_much(format!("{} MiB", MAX_MEMORY >> 20)),
        });
        if let Err(Error::Constraint { message, .. }) = &step {
            self.failed = Some(message.clone());
        }
        step
    }

    /// Whether an earlier step failed.
    fn check(&self) -> Result<()> {
        self.failed.as_ref().map_or(Ok(()), |message| Err(failed(self.kind, "", message)))
    }

    /// The memory compiled so far, in bytes as estimated by llguidance.
    fn memory(&self) -> usize {
        self.inner.parser.lexer_stats().num_bytes
    }

    /// The approximate memory of everything, in bytes. The rules of the grammar contain the expressions too.
    pub(super) fn size(&self) -> usize {
        let stats = self.inner.parser.lexer_stats();
        stats.num_bytes + stats.num_regexps * MEMORY_OF_RULES
    }

    /// An independent copy of this state: what either compiles later is not shared.
    pub fn copy(&self) -> Self {
        let (inner, mask, numbers) = (self.inner.deep_clone(), self.mask.clone(), self.numbers.clone());
        Self { inner, failed: self.failed.clone(), kind: self.kind, words: self.words, mask, numbers }
    }

    /// The tokens that may come next: a bit each, the lowest bit of a word first. If the text may end, they include the
    /// tokens that end a reply.
    ///
    /// # Errors
    /// [`Error::Constraint`] if no token may come next, which includes a complete text, or if the grammar is too
    /// complex.
    pub fn mask(&mut self) -> Result<&[u32]> {
        let mask = match self.mask.take() {
            Some(mask) => mask,
            None => {
                self.check()?;
                let inner = &mut self.inner;
                let allowed = panic_utils::catch_unwind(AssertUnwindSafe(|| inner.compute_mask()));
                let allowed = self.settle(allowed)?;
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
    /// The errors of [`Matcher::mask`].
    pub fn allows(&mut self, token: u32) -> Result<bool> {
        let word = self.mask()?.get(token as usize / 32).copied().unwrap_or_default();
        Ok(word >> (token % 32) & 1 == 1)
    }

    /// The tokens that must come next, if there is only one way to continue.
    pub fn forced(&mut self) -> Vec<u32> {
        if self.failed.is_some() {
            return Vec::new();
        }
        let inner = &mut self.inner;
        let forced = panic_utils::catch_unwind(AssertUnwindSafe(|| Ok(inner.compute_ff_tokens())));
        self.settle(forced).unwrap_or_default()
    }

    /// How many of these tokens may come next, in order.
    ///
    /// # Errors
    /// [`Error::Constraint`] if the grammar is too complex.
    pub fn valid(&mut self, tokens: &[u32]) -> Result<usize> {
        self.check()?;
        let inner = &mut self.inner;
        let valid = panic_utils::catch_unwind(AssertUnwindSafe(|| inner.validate_tokens_raw(tokens)));
        self.settle(valid)
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
        self.check()?;
        let inner = &mut self.inner;
        let taken = panic_utils::catch_unwind(AssertUnwindSafe(|| {
            inner.consume_token(token)?;
            inner.check_stop()
        }));
        self.settle(taken).map(drop)
    }

    /// Whether the text is complete, even if it can continue.
    pub(super) fn may_end(&mut self) -> bool {
        self.inner.is_accepting()
    }

    /// Whether the text is complete and cannot continue. False after an error, which the next mask returns again.
    pub fn is_over(&self) -> bool {
        self.failed.is_none() && self.inner.stop_reason() != StopReason::NotStopped
    }
}

impl std::fmt::Debug for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Matcher").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// An error with its causes.
fn text(error: impl Display) -> String {
    format!("{error:#}")
}

/// Compiles a grammar, with exact numbers.
fn parser(factory: &ParserFactory, grammar: &Grammar) -> std::result::Result<TokenParser, String> {
    let mut exact = BTreeSet::new();
    for one in &grammar.source.grammars {
        let definitions = one.json_schema.as_ref().and_then(|schema| schema.get("$defs")?.as_object());
        exact.extend(definitions.into_iter().flat_map(|all| all.keys()).flat_map(|name| exact::expressions(name)));
        exact.extend(one.lark_grammar.iter().flat_map(|text| exact::expressions(text)));
    }
    if exact.is_empty() {
        return factory.create_parser(grammar.source.clone()).map_err(text);
    }
    let init = GrammarInit::Serialized(grammar.source.clone());
    let (rules, lexer) = init.to_internal(Some(factory.tok_env().clone()), factory.limits().clone()).map_err(text)?;
    let (rules, lexer) = exact::hold(rules, lexer, &exact)?;
    factory.create_parser_from_init_default(GrammarInit::Internal(rules, lexer)).map_err(text)
}

/// The maximum number of characters of llguidance's messages that are shown.
const SHOWN: usize = 400;

/// The error of a constraint, with llguidance's message except for its dump of internal state.
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

/// Joins a message of several lines, without those that show and mark a line of the source.
fn sentence(message: &str) -> String {
    let numbered = |line: &str| line.split_once('|').is_some_and(|(number, _)| number.trim().parse::<usize>().is_ok());
    let shows = |line: &&str| line.is_empty() || line.chars().all(|mark| mark == '^') || numbered(line);
    message.lines().map(str::trim).filter(|line| !shows(line)).collect::<Vec<_>>().join(" ")
}
