//! A model's vocabulary as llguidance reads it.

use super::matcher::{Matcher, failed};
use super::numbers::{Digits, Numbers};
use crate::error::{Error, Result};
use crate::text::{TokenType, Tokenizer};
use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{INVALID_TOKEN, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use llguidance::{ParserFactory, panic_utils};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

/// What messages call it.
const VOCABULARY: &str = "the model's vocabulary";

/// A grammar that was not compiled yet, and what it is called in messages.
#[derive(Debug, Clone)]
pub struct Grammar {
    pub(super) source: TopLevelGrammar,
    pub(super) kind: &'static str,
    /// Where it has numbers, if it has JSON.
    pub(super) numbers: Option<Numbers>,
}

/// The vocabulary of a model as a tree of bytes, which all replies share.
pub struct Vocabulary {
    factory: ParserFactory,
    /// The words of a mask: the tokenizer may have fewer tokens than the model has logits, or more.
    words: usize,
    digits: Arc<Digits>,
    /// What was compiled last, by the text of the grammar; the latest at the end. The functions of a conversation, or of all
    /// conversations of an app, are the same for each reply.
    compiled: Mutex<Vec<(String, Matcher)>>,
}

/// How many compiled grammars are kept, and how long they may be, in bytes.
const KEPT: usize = 8;
const LONGEST_KEPT: usize = 256 * 1024;

/// The most states of what cuts a text into the parts of a grammar, of one or two KiB each. An expression that counts adds
/// some with each token.
const MOST_STATES: usize = 50_000;

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
        Ok(Self { factory, words, digits, compiled: Mutex::default() })
    }

    /// Compiles a grammar, or copies what was compiled of it before.
    ///
    /// # Errors
    /// [`Error::Constraint`] for a grammar that is malformed or too large.
    pub fn matcher(&self, grammar: &Grammar) -> Result<Matcher> {
        self.matcher_or(grammar, Err)
    }

    /// Compiles a grammar or, if that fails, the one that `otherwise` makes for the error. Either is kept as what is compiled
    /// of the first one.
    ///
    /// # Errors
    /// That of `otherwise`; [`Error::Constraint`] for its grammar if that is malformed or too large.
    pub fn matcher_or(&self, grammar: &Grammar, otherwise: impl FnOnce(Error) -> Result<Grammar>) -> Result<Matcher> {
        let Ok(text) = serde_json::to_string(&grammar.source) else { return self.compile(grammar) };
        let compiled = || self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = compiled();
        if let Some(place) = known.iter().position(|(of, _)| *of == text) {
            let found = known.remove(place);
            let copy = found.1.copy();
            known.push(found);
            return Ok(copy);
        }
        drop(known); // others go on while this is compiled
        let made = match self.compile(grammar) {
            Ok(made) => made,
            Err(error) => self.compile(&otherwise(error)?)?,
        };
        if text.len() > LONGEST_KEPT {
            return Ok(made);
        }
        let copy = made.copy();
        let mut known = compiled();
        known.retain(|(of, _)| *of != text);
        known.push((text, made));
        if known.len() > KEPT {
            known.remove(0);
        }
        Ok(copy)
    }

    fn compile(&self, grammar: &Grammar) -> Result<Matcher> {
        let mut matcher = Matcher::new(&self.factory, grammar, self.words, Some(&self.digits))?;
        matcher.mask()?; // an error if nothing matches
        Ok(matcher)
    }
}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vocabulary").finish_non_exhaustive()
    }
}

/// What compiles grammars for a vocabulary. It bounds the size of a grammar and the work for a token.
pub(super) fn factory_of(env: &TokEnv, slices: &[String]) -> Result<ParserFactory> {
    let abilities = InferenceCapabilities { ff_tokens: true, ..InferenceCapabilities::default() };
    let factory = panic_utils::catch_unwind(AssertUnwindSafe(|| ParserFactory::new(env, abilities, slices)));
    let mut factory = factory.map_err(|error| failed(VOCABULARY, "", error))?;
    let limits = ParserLimits { verbose_errors: false, max_lexer_states: MOST_STATES, ..ParserLimits::default() };
    *factory.quiet().limits_mut() = limits;
    Ok(factory)
}

/// The tokens of a vocabulary, and the tokenizer that makes them of text.
struct Env {
    trie: TokTrie,
    tokenizer: Arc<Tokenizer>,
    /// How many tokens every text begins with.
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

/// The bytes of a token in the tree: none if no grammar may ask for it, and behind a byte that no text has if it does not
/// stand for text, so that a grammar has to name it.
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

/// The longest token that grammars know, in bytes.
const LONGEST: usize = 250;
