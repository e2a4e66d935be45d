//! A model's vocabulary as llguidance reads it.

use super::check;
use super::matcher::{Matcher, failed};
use super::numbers::{Digits, Numbers};
use super::stack::with_stack;
use super::together::MAX_PROPERTIES;
use crate::error::{Error, Result, unpoisoned};
use crate::text::{TokenType, Tokenizer};
use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{INVALID_TOKEN, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use llguidance::{ParserFactory, panic_utils};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex};

/// Its name in messages.
const VOCABULARY: &str = "the model's vocabulary";

/// An uncompiled grammar, and its name in messages.
#[derive(Debug, Clone)]
pub struct Grammar {
    pub(super) source: TopLevelGrammar,
    pub(super) kind: &'static str,
    /// The numbers in its JSON, if it has any.
    pub(super) numbers: Option<Numbers>,
}

/// The vocabulary of a model as a tree of bytes, which all replies share.
pub struct Vocabulary {
    factory: ParserFactory,
    /// The number of u32 words of a mask: the tokenizer may have fewer tokens than the model has logits, or more.
    words: usize,
    digits: Arc<Digits>,
    compiled: Mutex<Compiled>,
    /// Wakes threads that wait for a grammar that another thread compiles.
    made: Condvar,
}

/// The most recently compiled grammars. The functions of a conversation, or of all conversations of an app, are the
/// same for each reply.
#[derive(Default)]
struct Compiled {
    /// By the text of the grammar, with its memory in bytes; the most recently used at the end.
    known: Vec<(Arc<str>, Arc<Matcher>, usize)>,
    /// The grammars that are being compiled.
    begun: Vec<Arc<str>>,
}

/// How many compiled grammars are cached, and the maximum memory that they take together, in bytes.
const KEPT: usize = 32;
const KEPT_BYTES: usize = 64 << 20;

/// How many grammars are compiled at once. Each takes up to 100 MB temporarily.
const AT_A_TIME: usize = 2;

/// The maximum number of states of a grammar's lexer. An expression with repetition counts adds some with each token.
/// Their memory is bounded too: see [`Matcher::memory`].
const MAX_STATES: usize = 50_000;

/// The maximum number of symbols of a grammar, of up to 300 bytes each, before equal ones are merged.
const MAX_SYMBOLS: usize = 200_000;

/// The maximum number of ways in which the rules of a grammar can continue a text at any time: four for each property
/// of an object.
const MAX_ITEMS: usize = 4 * MAX_PROPERTIES as usize + 100;

impl Vocabulary {
    /// The vocabulary of a tokenizer, for a model with `logits` logits.
    ///
    /// # Errors
    /// [`Error::Constraint`] for a vocabulary that is too large.
    pub fn new(tokenizer: &Arc<Tokenizer>, logits: usize) -> Result<Self> {
        let (tokenizer, digits) = (tokenizer.clone(), Arc::new(Digits::new(tokenizer.clone())));
        let env = move || Ok(Arc::new(Env::new(tokenizer)) as TokEnv);
        let env = panic_utils::catch_unwind(AssertUnwindSafe(env)).map_err(|error| failed(VOCABULARY, "", error))?;
        let factory = factory_of(&env, &SlicedBiasComputer::general_slices())?;
        let words = logits.div_ceil(u32::BITS as usize);
        Ok(Self { factory, words, digits, compiled: Mutex::default(), made: Condvar::new() })
    }

    /// Compiles a grammar, or returns it from the cache.
    ///
    /// # Errors
    /// [`Error::Constraint`] for a grammar that is malformed or too large.
    pub fn matcher(&self, grammar: &Grammar) -> Result<Arc<Matcher>> {
        self.matcher_or(grammar, Err)
    }

    /// Compiles a grammar or, if that fails, the one that `otherwise` makes for the error. Either is cached as the
    /// result for the first one. Threads that want the same grammar wait for the first of them, and at most two
    /// grammars are compiled at once.
    ///
    /// # Errors
    /// The error of `otherwise`; [`Error::Constraint`] for its grammar if that is malformed or too large.
    pub fn matcher_or(
        &self,
        grammar: &Grammar,
        otherwise: impl FnOnce(Error) -> Result<Grammar>,
    ) -> Result<Arc<Matcher>> {
        let Ok(text) = serde_json::to_string(&grammar.source) else { return self.compile(grammar) };
        let text: Arc<str> = text.into();
        let mut compiled = unpoisoned(self.compiled.lock());
        loop {
            if let Some(place) = compiled.known.iter().position(|(of, ..)| *of == text) {
                let found = compiled.known.remove(place);
                let matcher = found.1.clone();
                compiled.known.push(found);
                return Ok(matcher);
            }
            if !compiled.begun.contains(&text) && compiled.begun.len() < AT_A_TIME {
                break;
            }
            compiled = unpoisoned(self.made.wait(compiled));
        }
        compiled.begun.push(text.clone());
        drop(compiled);
        let begun = Begun { of: self, text };
        let made = match self.compile(grammar) {
            Ok(made) => made,
            Err(error) => self.compile(&otherwise(error)?)?,
        };
        begun.keep(&made);
        Ok(made)
    }

    fn compile(&self, grammar: &Grammar) -> Result<Arc<Matcher>> {
        with_stack(grammar.kind, || {
            let matcher = Matcher::new(&self.factory, grammar, self.words, Some(&self.digits));
            let mut matcher = matcher.map_err(check::in_our_words)?;
            matcher.mask()?; // an error if nothing matches
            Ok(Arc::new(matcher))
        })
    }
}

/// A grammar that is being compiled, until this is dropped.
struct Begun<'a> {
    of: &'a Vocabulary,
    text: Arc<str>,
}

impl Begun<'_> {
    /// Caches the result, and drops the least recently used grammars.
    fn keep(&self, made: &Arc<Matcher>) {
        let mut compiled = unpoisoned(self.of.compiled.lock());
        compiled.known.push((self.text.clone(), made.clone(), made.size() + self.text.len()));
        let mut bytes: usize = compiled.known.iter().map(|(.., bytes)| bytes).sum();
        while bytes > KEPT_BYTES || compiled.known.len() > KEPT {
            bytes -= compiled.known.remove(0).2;
        }
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let mut compiled = unpoisoned(self.of.compiled.lock());
        compiled.begun.retain(|begun| *begun != self.text);
        self.of.made.notify_all();
    }
}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vocabulary").finish_non_exhaustive()
    }
}

/// The compiler of grammars for a vocabulary, with bounds on the size of a grammar and the work for a token.
pub(super) fn factory_of(env: &TokEnv, slices: &[String]) -> Result<ParserFactory> {
    let abilities = InferenceCapabilities { ff_tokens: true, ..InferenceCapabilities::default() };
    let factory = panic_utils::catch_unwind(AssertUnwindSafe(|| ParserFactory::new(env, abilities, slices)));
    let mut factory = factory.map_err(|error| failed(VOCABULARY, "", error))?;
    *factory.quiet().limits_mut() = ParserLimits {
        verbose_errors: false,
        max_lexer_states: MAX_STATES,
        max_grammar_size: MAX_SYMBOLS,
        max_items_in_row: MAX_ITEMS,
        ..ParserLimits::default()
    };
    Ok(factory)
}

/// The tokens of a vocabulary, and the tokenizer.
struct Env {
    trie: TokTrie,
    tokenizer: Arc<Tokenizer>,
    /// The number of tokens that the tokenizer adds at the beginning of every text.
    start: usize,
}

impl Env {
    fn new(tokenizer: Arc<Tokenizer>) -> Self {
        let size = tokenizer.vocab_size();
        let words: Vec<Vec<u8>> = (0..size as u32).map(|token| word(&tokenizer, token)).collect();
        let ends = tokenizer.end_tokens();
        let tok_eos = ends.first().copied().unwrap_or(INVALID_TOKEN);
        let [tok_bos, tok_pad, tok_unk, tok_end_of_turn] = [None; 4];
        let info = TokRxInfo { vocab_size: size as u32, tok_eos, tok_bos, tok_pad, tok_unk, tok_end_of_turn };
        let mut trie = TokTrie::from(&info, &words);
        if !ends.is_empty() {
            trie = trie.with_eos_tokens(ends);
        }
        let start = tokenizer.encode("", false).map_or(0, |tokens| tokens.len());
        Self { trie, tokenizer, start }
    }
}

impl TokenizerEnv for Env {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| match self.tokenizer.encode(text, false) {
            Ok(tokens) => tokens[self.start.min(tokens.len())..].to_vec(),
            Err(_) => self.trie.greedy_tokenize(text.as_bytes()),
        })
    }
}

/// The bytes of a token in the tree: none if no grammar may use it, and with a prefix byte that no text contains if the
/// token is not text, so that a grammar must name it.
fn word(tokenizer: &Tokenizer, token: u32) -> Vec<u8> {
    let (Ok(bytes), Ok(kind)) = (tokenizer.token_bytes(token), tokenizer.token_type(token)) else { return Vec::new() };
    if bytes.is_empty() || kind == TokenType::Unused || bytes.len() > LONGEST {
        Vec::new()
    } else if tokenizer.is_reserved(token) || tokenizer.is_end(token) {
        [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat()
    } else {
        bytes.to_vec()
    }
}

/// The maximum length in bytes of a token that grammars know.
const LONGEST: usize = 250;
