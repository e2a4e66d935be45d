//! Checks JSON one character at a time, so that an error is detected where it occurs and not only at the end: every
//! text that was accepted is the beginning of JSON that `serde_json` reads, unless a number in it is out of range.

/// The deepest nesting that `serde_json` reads.
const DEPTH: usize = 127;

/// The JSON that was read so far.
#[derive(Debug, Clone, Default)]
pub(super) struct JsonSyntax {
    /// The characters that close what is open.
    open: Vec<char>,
    expected: Expected,
    /// Whether the string that was read last is a key.
    is_key: bool,
}

/// What may come next, after what was read last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Expected {
    /// What comes before a value.
    #[default]
    BeforeValue,
    /// The beginning of an array.
    Array,
    /// The beginning of an object.
    Object,
    /// A comma in an object.
    BeforeKey,
    Key,
    Value,
    String(InString),
    Number(InNumber),
    /// A word such as `true`, of which this part is still to come.
    Word(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InString {
    Text,
    /// The first half of a pair of surrogates, whose other half has to follow.
    Half,
    /// A backslash, after such a half or not.
    Escape {
        half: bool,
    },
    /// Some of the four digits that an escape has.
    Digits {
        half: bool,
        count: u8,
        value: u32,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InNumber {
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    E,
    Sign,
    Exponent,
}

impl JsonSyntax {
    /// Reads a character. Returns whether the text may still become JSON. Once it cannot, nothing more is to be
    /// read.
    pub(super) fn read(&mut self, char: char) -> bool {
        let next = match self.expected {
            Expected::String(place) => self.in_string(place, char),
            Expected::Word(rest) => match rest.strip_prefix(char) {
                Some("") => Some(Expected::Value),
                rest => rest.map(Expected::Word),
            },
            Expected::Number(place) => place.next(char).map(Expected::Number),
            _ if matches!(char, ' ' | '\t' | '\n' | '\r') => return true,
            expected => self.between(expected, char),
        };
        match (next, self.expected) {
            (Some(next), _) => self.expected = next,
            (None, Expected::Number(number)) if number.may_end() => {
                self.expected = Expected::Value;
                return self.read(char);
            }
            _ => return false,
        }
        true
    }

    fn between(&mut self, expected: Expected, char: char) -> Option<Expected> {
        let is_value = matches!(expected, Expected::BeforeValue | Expected::Array);
        match char {
            '{' | '[' if is_value && self.open.len() < DEPTH => {
                let (close, next) = if char == '{' { ('}', Expected::Object) } else { (']', Expected::Array) };
                self.open.push(close);
                Some(next)
            }
            '}' | ']' if matches!(expected, Expected::Array | Expected::Object | Expected::Value) => {
                self.open.pop_if(|close| *close == char).map(|_| Expected::Value)
            }
            '"' if is_value || matches!(expected, Expected::Object | Expected::BeforeKey) => {
                self.is_key = !is_value;
                Some(Expected::String(InString::Text))
            }
            ':' if expected == Expected::Key => Some(Expected::BeforeValue),
            ',' if expected == Expected::Value => match self.open.last()? {
                '}' => Some(Expected::BeforeKey),
                _ => Some(Expected::BeforeValue),
            },
            _ if !is_value => None,
            't' => Some(Expected::Word("rue")),
            'f' => Some(Expected::Word("alse")),
            'n' => Some(Expected::Word("ull")),
            '-' => Some(Expected::Number(InNumber::Minus)),
            '0' => Some(Expected::Number(InNumber::Zero)),
            '1'..='9' => Some(Expected::Number(InNumber::Integer)),
            _ => None,
        }
    }

    fn in_string(&self, place: InString, char: char) -> Option<Expected> {
        match (place, char) {
            (InString::Text, '"') if self.is_key => Some(Expected::Key),
            (InString::Text, '"') => Some(Expected::Value),
            _ => place.next(char).map(Expected::String),
        }
    }
}

impl InString {
    fn next(self, char: char) -> Option<Self> {
        match (self, char) {
            (Self::Text | Self::Half, '\\') => Some(Self::Escape { half: self == Self::Half }),
            (Self::Text, ' '..) => Some(Self::Text),
            (Self::Escape { half }, 'u') => Some(Self::Digits { half, count: 0, value: 0 }),
            (Self::Escape { half: false }, '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => Some(Self::Text),
            (Self::Digits { half, count, value }, _) => {
                let (count, value) = (count + 1, value << 4 | char.to_digit(16)?);
                match count {
                    1 if half && value != 0xd => None,
                    2 if half != (0xdc..=0xdf).contains(&value) => None,
                    4 if (0xd800..0xdc00).contains(&value) => Some(Self::Half),
                    4 => Some(Self::Text),
                    _ => Some(Self::Digits { half, count, value }),
                }
            }
            _ => None,
        }
    }
}

impl InNumber {
    fn next(self, char: char) -> Option<Self> {
        match (self, char) {
            (Self::Minus, '0') => Some(Self::Zero),
            (Self::Minus | Self::Integer, '0'..='9') => Some(Self::Integer),
            (Self::Zero | Self::Integer, '.') => Some(Self::Point),
            (Self::Point | Self::Fraction, '0'..='9') => Some(Self::Fraction),
            (Self::Zero | Self::Integer | Self::Fraction, 'e' | 'E') => Some(Self::E),
            (Self::E, '+' | '-') => Some(Self::Sign),
            (Self::E | Self::Sign | Self::Exponent, '0'..='9') => Some(Self::Exponent),
            _ => None,
        }
    }

    fn may_end(self) -> bool {
        matches!(self, Self::Zero | Self::Integer | Self::Fraction | Self::Exponent)
    }
}

#[cfg(test)]
mod tests {
    use super::{DEPTH, JsonSyntax};
    use proptest::prelude::*;
    use serde_json::Value;

    fn accepts(text: &str) -> bool {
        let mut syntax = JsonSyntax::default();
        text.chars().all(|char| syntax.read(char))
    }

    #[test]
    fn what_no_json_begins_with() {
        for text in [
            "{'",
            "{1",
            "{\"a\" 1",
            "{\"a\":}",
            "{\"a\":1 2",
            "{\"a\":tru}",
            "{\"a\":T",
            "{,",
            "{\"a\":1,}",
            "[1,]",
            "{]",
            "[1}",
            "{}}",
            "{}x",
            "01",
            "1.}",
            "-,",
            "1e,",
            "\"\n",
            "\"\\x",
            "\"\\ud83d\"",
            "\"\\ud83d\\n",
            "\"\\ud83d\\u0",
            "\"\\udc",
            "\"\\u12g",
        ] {
            let (last, _) = text.char_indices().next_back().unwrap_or_default();
            assert!(accepts(&text[..last]) && !accepts(text), "{text}");
        }
        assert!(accepts(&"[".repeat(DEPTH)) && !accepts(&"[".repeat(DEPTH + 1)));
        let deep = |depth: usize| serde_json::from_str::<Value>(&("[".repeat(depth) + &"]".repeat(depth)));
        assert!(deep(DEPTH).is_ok() && deep(DEPTH + 1).is_err());
    }

    proptest! {
        /// What is accepted is JSON or its beginning, and JSON is accepted.
        #[test]
        fn agrees_with_serde(parts in prop::collection::vec(prop::sample::select(vec![
            "{", "}", "[", "]", ":", ",", "\"", "\"a\"", "\"a\":", "\\", "\\u", "d83d", "\\ude00", "n", "0", "12", "-", ".", "e",
            "true", "fal", "se", "null", " ", "\n", "é"]), 0..12))
        {
            let text = format!("{{\"a\":{}", parts.concat());
            match serde_json::from_str::<Value>(&text) {
                Ok(_) => prop_assert!(accepts(&text), "{}", text),
                Err(error) if accepts(&text) => prop_assert!(error.is_eof() || error.to_string().contains("range"), "{}: {}", text, error),
                Err(_) => {}
            }
        }
    }
}
