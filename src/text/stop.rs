//! Stop strings: texts that end an answer and are not part of it.
//!
//! No stop string is ever returned, nor any part of one that was completed. Text that was held back because a stop
//! string might have begun is returned as soon as it is certain that none did. The result does not depend on how the
//! text was cut into pieces on its way here. If there are several stop strings in a text, the one that ends first
//! counts; of several that end there, the longest.

/// Cuts text off where a stop string begins.
#[derive(Debug, Clone, Default)]
pub struct StopStrings {
    stops: Vec<String>,
    /// Text at the end that may be the beginning of a stop string.
    held: String,
    found: bool,
}

impl StopStrings {
    /// Searches for these stop strings. Empty ones are ignored.
    pub fn new(stops: impl IntoIterator<Item = String>) -> Self {
        let stops = stops.into_iter().filter(|stop| !stop.is_empty()).collect();
        Self { stops, ..Self::default() }
    }

    /// Whether a stop string was found.
    pub fn found(&self) -> bool {
        self.found
    }

    /// Adds text, and returns the text that is certain to stand before any stop string; nothing once one was found.
    pub fn push(&mut self, text: &str) -> String {
        if self.found {
            return String::new();
        }
        self.held.push_str(text);
        let place = |stop: &String| self.held.find(stop).map(|start| (start + stop.len(), start));
        if let Some((_, start)) = self.stops.iter().filter_map(place).min() {
            self.found = true;
            self.held.truncate(start);
            return std::mem::take(&mut self.held);
        }
        let open = self.stops.iter().map(|stop| begun(&self.held, stop)).max().unwrap_or(0);
        self.held.drain(..self.held.len() - open).collect()
    }

    /// Returns the text that was held back. Call this at the end, and before anything that a stop string does not span.
    pub fn flush(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// The number of bytes at the end of `text` that may be the beginning of `stop`.
fn begun(text: &str, stop: &str) -> usize {
    let longest = text.len().min(stop.len() - 1);
    (1..=longest).rev().find(|&len| text.as_bytes().ends_with(&stop.as_bytes()[..len])).unwrap_or(0)
}
