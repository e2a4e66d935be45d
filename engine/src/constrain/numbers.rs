//! Limits numbers to those that other programs can read. llguidance allows numbers with any number of digits, also in
//! the fraction and the exponent, which a model may write forever and no program can read: `1e999` is valid JSON, but
//! no number type can represent it.
//!
//! Integers get bounds in the schema (`range`). The digits of all other numbers are counted during generation.

use crate::text::Tokenizer;
use std::collections::HashSet;
use std::sync::Arc;

/// The maximum number of digits of a number before its exponent, and in its exponent. With these limits every number is
/// finite, and all integers of 64 bits are allowed.
const MAX_DIGITS: u16 = 20;
const MAX_OF_EXPONENT: u16 = 2;

/// The maximum number of digits if the schema itself has longer numbers: with the exponent they are finite too.
const MAX_OF_EXACT: usize = 200;

/// The tokens that can be part of a number.
pub(super) struct Digits {
    tokenizer: Arc<Tokenizer>,
    /// The tokens with digits, and the point.
    tokens: Vec<u32>,
}

impl Digits {
    pub fn new(tokenizer: Arc<Tokenizer>) -> Self {
        let counts = |token: &u32| {
            let bytes = tokenizer.token_bytes(*token).unwrap_or_default();
            bytes == b"." || bytes.iter().any(u8::is_ascii_digit)
        };
        let tokens = (0..tokenizer.vocab_size() as u32).filter(counts).collect();
        Self { tokenizer, tokens }
    }

    fn bytes(&self, token: u32) -> &[u8] {
        self.tokenizer.token_bytes(token).unwrap_or_default()
    }
}

/// What a tag means for the text after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// JSON begins.
    Json,
    /// The name of an argument begins, or ends.
    Key,
    KeyEnd,
    /// An argument begins, or ends. It is JSON if no function has a string argument of that name.
    Value,
    ValueEnd,
}

/// Counts the digits of numbers in a text that is or contains JSON.
#[derive(Debug, Clone, Default)]
pub(super) struct Numbers {
    /// The tags that mark JSON, if the text does not begin with it.
    marks: Vec<(Mark, &'static str)>,
    /// The names of the arguments that are JSON.
    keys: Arc<HashSet<String>>,
    /// The end of the text so far, as long as the longest tag.
    tail: Vec<u8>,
    /// The name of the current argument, as far as it has been read.
    key: Vec<u8>,
    in_key: bool,
    /// The state of the JSON, if the text is in JSON.
    json: Option<Json>,
    /// How many digits a number may have beyond [`MAX_DIGITS`].
    more: u16,
}

impl Numbers {
    /// The numbers of a text that is JSON, for a schema whose longest number has `longest` digits.
    pub fn of_json(longest: usize) -> Self {
        Self { json: Some(Json::default()), ..Self::default() }.with_longest(longest)
    }

    /// The same for a schema whose longest number has `longest` digits. If these exceed the limit of other numbers, the
    /// grammar bounds the long numbers, and a fraction may follow them.
    pub fn with_longest(self, longest: usize) -> Self {
        let usual = usize::from(MAX_DIGITS);
        let more = if longest > usual { longest.min(MAX_OF_EXACT - usual) } else { 0 };
        Self { more: more as u16, ..self }
    }

    /// The numbers of a text in which tags mark JSON. It may also begin as JSON.
    pub fn between(marks: Vec<(Mark, &'static str)>, keys: HashSet<String>, begins: bool) -> Self {
        Self { marks, keys: Arc::new(keys), json: begins.then(Json::default), ..Self::default() }
    }

    /// Reads the bytes of a token.
    pub fn accept(&mut self, token: u32, digits: &Digits) {
        for byte in digits.bytes(token) {
            self.read(*byte);
        }
    }

    pub(super) fn read(&mut self, byte: u8) {
        if let Some(json) = &mut self.json {
            json.read(byte);
        } else if self.in_key {
            self.key.push(byte);
        }
        if self.marks.is_empty() || self.json.is_some_and(|json| json.in_string) {
            return;
        }
        let longest = self.marks.iter().map(|(_, tag)| tag.len()).max().unwrap_or(0);
        self.tail.push(byte);
        if self.tail.len() > longest {
            self.tail.remove(0);
        }
        let tail = &self.tail;
        let found = self.marks.iter().find(|(_, tag)| !tag.is_empty() && tail.ends_with(tag.as_bytes()));
        let Some((mark, tag)) = found.copied() else { return };
        match mark {
            Mark::Json => self.json = Some(Json::default()),
            Mark::Key => {
                (self.json, self.in_key) = (None, true);
                self.key.clear();
            }
            Mark::KeyEnd => {
                self.in_key = false;
                self.key.truncate(self.key.len().saturating_sub(tag.len()));
            }
            Mark::Value => {
                let key = String::from_utf8_lossy(&self.key);
                self.json = self.keys.contains(key.trim()).then(Json::default);
            }
            Mark::ValueEnd => self.json = None,
        }
    }

    /// Whether no number is too long after these bytes.
    pub fn allows(&self, bytes: &[u8]) -> bool {
        self.json.is_none_or(|json| json.in_string || json.allows(bytes, MAX_DIGITS + self.more))
    }

    /// Removes tokens from a mask that would make a number too long, unless none would remain.
    pub fn restrict(&self, mask: &mut [u32], digits: &Digits) {
        let Some(json) = self.json.filter(|json| !json.in_string) else { return };
        let before = mask.to_vec();
        for token in &digits.tokens {
            let (word, bit) = (*token as usize / 32, 1u32 << (token % 32));
            if let Some(word) = mask.get_mut(word).filter(|word| **word & bit != 0)
                && !json.allows(digits.bytes(*token), MAX_DIGITS + self.more)
            {
                *word &= !bit;
            }
        }
        if mask.iter().all(|word| *word == 0) {
            mask.copy_from_slice(&before);
        }
    }
}

/// The state of a text in JSON with respect to numbers.
#[derive(Debug, Clone, Copy, Default)]
struct Json {
    in_string: bool,
    escaped: bool,
    /// The digits of the number that is being read, before its exponent and in it.
    digits: u16,
    exponent: Option<u16>,
}

impl Json {
    fn read(&mut self, byte: u8) {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        match (byte, &mut self.exponent) {
            (b'0'..=b'9', Some(digits)) => *digits = digits.saturating_add(1),
            (b'0'..=b'9', None) => self.digits = self.digits.saturating_add(1),
            (b'e' | b'E', None) if self.digits > 0 => self.exponent = Some(0),
            (b'.' | b'+' | b'-', _) => {}
            _ => *self = Self { in_string: byte == b'"', ..Self::default() },
        }
    }

    /// Whether no number has too many digits after these bytes, or must get too many: digits must follow a point.
    fn allows(mut self, bytes: &[u8], most: u16) -> bool {
        bytes.iter().all(|byte| {
            let is_in_text = self.in_string;
            self.read(*byte);
            let point = *byte == b'.' && self.exponent.is_none() && self.digits >= most;
            is_in_text || self.digits <= most && self.exponent.unwrap_or(0) <= MAX_OF_EXPONENT && !point
        })
    }
}
