//! Stop strings: texts that end an answer and are not part of it.
//!
//! No stop string is ever returned, nor any part of one that was completed. Text that was held back because a stop
//! string might have begun is returned as soon as none can have. The result does not depend on how the text was cut
//! into pieces. If a text contains several stop strings, the one that ends first counts; of several that end there, the
//! longest. Each byte is read once for each stop string, whatever their contents (Knuth, Morris and Pratt).

/// Cuts text off where a stop string begins.
#[derive(Debug, Clone, Default)]
pub struct StopStrings {
    stops: Vec<Stop>,
    /// Text at the end that may be the beginning of a stop string.
    held: String,
    /// The index of the stop string that was found.
    found: Option<usize>,
}

/// A stop string, and how much of it the text ends with.
#[derive(Debug, Clone)]
struct Stop {
    /// Its index among the strings that the caller gave.
    index: usize,
    text: Vec<u8>,
    /// For each beginning of `text`, the length of the longest shorter one that it ends with.
    borders: Vec<usize>,
    /// The bytes at the end of what was read that `text` begins with.
    matched: usize,
}

impl StopStrings {
    /// Searches for these stop strings. Empty ones are ignored.
    pub fn new(stops: impl IntoIterator<Item = String>) -> Self {
        let stops = stops.into_iter().enumerate().filter(|(_, stop)| !stop.is_empty());
        let stops = stops.map(|(index, stop)| Stop::new(index, stop)).collect();
        Self { stops, ..Self::default() }
    }

    /// Whether a stop string was found.
    pub fn found(&self) -> bool {
        self.found.is_some()
    }

    /// The stop string that was found, as an index into those that [`new`](Self::new) got.
    pub fn found_index(&self) -> Option<usize> {
        self.found
    }

    /// Adds text, and returns the text that certainly precedes any stop string; nothing once one was found.
    pub fn push(&mut self, text: &str) -> String {
        if self.found() {
            return String::new();
        }
        for (at, byte) in text.bytes().enumerate() {
            let ended =
                self.stops.iter_mut().filter_map(|stop| stop.read(byte).then_some((stop.text.len(), stop.index)));
            if let Some((len, index)) = ended.max() {
                self.found = Some(index);
                self.held.push_str(&text[..=at]);
                self.held.truncate(self.held.len() - len);
                return std::mem::take(&mut self.held);
            }
        }
        self.held.push_str(text);
        let open = self.stops.iter().map(|stop| stop.matched).max().unwrap_or(0);
        self.held.drain(..self.held.len() - open).collect()
    }

    /// Returns the text that was held back. Call this at the end, and before anything that a stop string cannot span.
    pub fn flush(&mut self) -> String {
        self.stops.iter_mut().for_each(|stop| stop.matched = 0);
        std::mem::take(&mut self.held)
    }
}

impl Stop {
    fn new(index: usize, text: String) -> Self {
        let mut stop = Self { index, text: text.into_bytes(), borders: vec![0], matched: 0 };
        for at in 1..stop.text.len() {
            stop.read(stop.text[at]);
            stop.borders.push(stop.matched);
        }
        stop.matched = 0;
        stop
    }

    /// Reads a byte. Returns whether the stop string ends there, after which no byte may be read.
    fn read(&mut self, byte: u8) -> bool {
        while self.matched > 0 && self.text[self.matched] != byte {
            self.matched = self.borders[self.matched - 1];
        }
        self.matched += usize::from(self.text[self.matched] == byte);
        self.matched == self.text.len()
    }
}
