//! Numbers that other programs can read. llguidance lets a number have digits without end, in its fraction and its exponent
//! too, which a model may go on writing for ever, and which no program reads: `1e999` is JSON, and no number of any type.
//!
//! Integers get bounds in the schema (`range`). Of all other numbers the digits are counted while they are written.

use crate::text::Tokenizer;
use std::collections::HashSet;
use std::sync::Arc;

/// The most digits of a number before its exponent, and those of its exponent. With them every number is finite, and an
/// integer of 64 bits is among them.
const MOST_DIGITS: u16 = 20;
const MOST_OF_EXPONENT: u16 = 2;

/// The most digits where a schema has longer numbers itself: with the exponent they are finite, too.
const MOST_OF_EXACT: usize = 200;

/// Tokens that a number may be made of.
pub(super) struct Digits {
    tokenizer: Arc<Tokenizer>,
    /// Those with digits, and the point.
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

/// What a tag means for what stands behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// JSON begins.
    Json,
    /// The name of an argument begins, or ends.
    Key,
    KeyEnd,
    /// An argument begins, or ends, which is JSON if no function takes a string under that name.
    Value,
    ValueEnd,
}

/// Counts the digits of numbers in a text that is JSON, or has JSON in it.
#[derive(Debug, Clone, Default)]
pub(super) struct Numbers {
    /// The tags by which it is found, if it does not begin at once.
    marks: Vec<(Mark, &'static str)>,
    /// The names of the arguments that are JSON.
    keys: Arc<HashSet<String>>,
    /// The end of the text so far, as long as the longest tag.
    tail: Vec<u8>,
    /// The name of an argument, while it is read and until the next one.
    key: Vec<u8>,
    in_key: bool,
    /// How far the JSON is, if the text is in JSON.
    json: Option<Json>,
    /// How many digits more a number may have than [`MOST_DIGITS`].
    more: u16,
}

impl Numbers {
    /// Those of a text that is JSON, by a schema whose longest number has this many digits.
    pub fn of_json(longest: usize) -> Self {
        Self { json: Some(Json::default()), ..Self::default() }.with_longest(longest)
    }

    /// The same, by a schema whose longest number has this many digits. If they are more than other numbers may have, the
    /// grammar bounds the numbers that have them, and a fraction may follow them.
    pub fn with_longest(self, longest: usize) -> Self {
        let usual = usize::from(MOST_DIGITS);
        let more = if longest > usual { longest.min(MOST_OF_EXACT - usual) } else { 0 };
        Self { more: more as u16, ..self }
    }

    /// Those of a text in which tags say where JSON stands. It may also begin as JSON.
    pub fn between(marks: Vec<(Mark, &'static str)>, keys: HashSet<String>, begins: bool) -> Self {
        Self { marks, keys: Arc::new(keys), json: begins.then(Json::default), ..Self::default() }
    }

    /// Reads what a token stands for.
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
        self.json.is_none_or(|json| json.in_string || json.allows(bytes, MOST_DIGITS + self.more))
    }

    /// Takes tokens away from a mask that would make a number too long, unless that left none.
    pub fn restrict(&self, mask: &mut [u32], digits: &Digits) {
        let Some(json) = self.json.filter(|json| !json.in_string) else { return };
        let before = mask.to_vec();
        for token in &digits.tokens {
            let (word, bit) = (*token as usize / 32, 1u32 << (token % 32));
            if let Some(word) = mask.get_mut(word).filter(|word| **word & bit != 0)
                && !json.allows(digits.bytes(*token), MOST_DIGITS + self.more)
            {
                *word &= !bit;
            }
        }
        if mask.iter().all(|word| *word == 0) {
            mask.copy_from_slice(&before);
        }
    }
}

/// How far a text in JSON is, as far as its numbers go.
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

    /// Whether no number has too many digits after these bytes, nor has to get them: digits have to follow a point.
    fn allows(mut self, bytes: &[u8], most: u16) -> bool {
        bytes.iter().all(|byte| {
            let is_in_text = self.in_string;
            self.read(*byte);
            let point = *byte == b'.' && self.exponent.is_none() && self.digits >= most;
            is_in_text || self.digits <= most && self.exponent.unwrap_or(0) <= MOST_OF_EXPONENT && !point
        })
    }
}
