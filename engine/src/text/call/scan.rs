//! Reads the JSON of a call as it is written: finds its end, the function's name and the arguments.
//!
//! Models write JSON with small faults that leave no doubt about what is meant, so what is read is written again:
//! without blanks between its parts, and with the control characters in strings escaped. (A backslash before a line end
//! becomes `\n` with it.) Nothing is reported from the first character on that cannot continue any JSON. Strings and
//! braces still count after it, to find the end.

use super::arguments::json;
use super::syntax::JsonSyntax;
use serde_json::{Map, Value};

/// The JSON of a call: the arguments, or an object in which they are a member beside the name.
#[derive(Debug, Clone, Default)]
pub(super) struct CallScan {
    /// Whether it is nothing but the arguments.
    is_bare: bool,
    /// The JSON so far.
    text: String,
    /// How many braces and how many brackets are open.
    depth: usize,
    brackets: usize,
    pub in_string: bool,
    /// Whether the previous character was a backslash that escapes the next one.
    escaped: bool,
    syntax: JsonSyntax,
    /// Whether something was read that cannot continue any JSON.
    pub broken: bool,
    pub complete: bool,
    /// Whether it does not begin with a brace.
    pub wrong: bool,
    place: Place,
    /// The key or the name that is being read, as JSON.
    word: String,
    name: Option<String>,
    /// The key of the arguments, once it is read.
    key: Option<&'static str>,
    /// The arguments so far, if they are an object, without the brace that ends them.
    arguments: String,
    /// What was not reported of that text.
    pub piece: String,
}

/// The place in the object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    /// In a key, or before it.
    #[default]
    Key,
    Name,
    /// In the arguments, or before them.
    Arguments,
    /// In something else.
    Other,
}

impl CallScan {
    /// For nothing but arguments if `is_bare`, and otherwise for an object that has a name too.
    pub fn new(is_bare: bool) -> Self {
        let place = if is_bare { Place::Arguments } else { Place::Key };
        Self { is_bare, place, piece: "{".into(), ..Self::default() }
    }

    /// The name, once it is read.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Reads text up to the end of the object. Returns how many bytes belong to it.
    pub fn read(&mut self, text: &str) -> usize {
        for (at, char) in text.char_indices() {
            self.read_char(char);
            if self.wrong {
                break;
            }
            if self.complete {
                return at + char.len_utf8();
            }
        }
        text.len()
    }

    fn read_char(&mut self, char: char) {
        let (at, was_in_string) = (self.text.len(), self.in_string);
        if self.in_string {
            self.read_in_string(char);
        } else if char.is_whitespace() {
            self.broken |= !self.syntax.read(' ');
            return;
        } else {
            self.read_part(char);
        }
        self.broken |= !self.text[at..].chars().all(|char| self.syntax.read(char));
        if !self.wrong {
            self.follow(char, at, was_in_string);
        }
    }

    fn read_in_string(&mut self, char: char) {
        let escaped = std::mem::take(&mut self.escaped);
        match char {
            '\0'..' ' => {
                let written = json(char.encode_utf8(&mut [0; 4]));
                self.text += &written[1 + usize::from(escaped)..written.len() - 1];
                return;
            }
            _ if escaped => {}
            '\\' => self.escaped = true,
            '"' => self.in_string = false,
            _ => {}
        }
        self.text.push(char);
    }

    fn read_part(&mut self, char: char) {
        match char {
            '{' => self.depth += 1,
            _ if self.depth == 0 => {
                self.wrong = true;
                return;
            }
            '}' => self.depth -= 1,
            '[' => self.brackets += 1,
            ']' => self.brackets = self.brackets.saturating_sub(1),
            '"' => self.in_string = true,
            _ => {}
        }
        self.text.push(char);
        self.complete = self.depth == 0;
    }

    /// Notes which member a character belongs to, for which the text from `at` on was written.
    fn follow(&mut self, char: char, at: usize, was_in_string: bool) {
        let top = usize::from(!self.is_bare);
        match self.place {
            Place::Arguments if self.arguments.is_empty() => match char {
                '{' => self.arguments.push('{'), // the first piece begins with it
                _ => self.place = Place::Other,
            },
            Place::Arguments if self.depth == top => self.place = Place::Other,
            Place::Arguments if self.broken => {}
            Place::Arguments => {
                self.arguments += &self.text[at..];
                self.piece += &self.text[at..];
            }
            _ if self.depth > top || self.brackets > 0 => {}
            Place::Key | Place::Name if was_in_string || self.in_string => {
                self.word += &self.text[at..];
                if self.place == Place::Name && !self.in_string {
                    self.name = serde_json::from_str(&self.word).ok();
                    self.place = Place::Other;
                }
            }
            Place::Key if char == ':' => {
                let key = std::mem::take(&mut self.word);
                self.place = self.value_of(&key);
            }
            _ if char == ',' => {
                self.place = Place::Key;
                self.word.clear();
            }
            _ => {}
        }
    }

    /// What the value of a key is. Names and arguments after the first ones do not count.
    fn value_of(&mut self, key: &str) -> Place {
        let known = ["arguments", "parameters"].into_iter().find(|known| key.trim_matches('"') == *known);
        match known {
            None if key == "\"name\"" && self.name.is_none() => Place::Name,
            Some(known) if self.key.is_none() => {
                self.key = Some(known);
                Place::Arguments
            }
            _ => Place::Other,
        }
    }

    /// The arguments, if the JSON is that of a call.
    pub fn arguments(&self) -> Option<Map<String, Value>> {
        if self.broken {
            return None;
        }
        let Ok(Value::Object(mut object)) = serde_json::from_str(&self.text) else { return None };
        if self.is_bare {
            return Some(object);
        }
        if !self.arguments.is_empty() {
            return serde_json::from_str(&format!("{}}}", self.arguments)).ok();
        }
        match self.key.and_then(|key| object.remove(key)) {
            None | Some(Value::Null) => Some(Map::new()),
            // Some models write JSON within JSON.
            Some(Value::String(text)) => serde_json::from_str(&text).ok(),
            Some(_) => None,
        }
    }

    /// Ends the piece with the rest of the arguments.
    pub fn close(&mut self, arguments: Map<String, Value>) {
        match self.arguments.is_empty() {
            true => self.piece += &Value::Object(arguments).to_string()[1..],
            false => self.piece.push('}'),
        }
    }
}
