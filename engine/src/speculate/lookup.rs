//! Drafts from the text itself, known as prompt look-up: if the last tokens occurred before, what followed them then
//! may follow again.
//!
//! Every position of the text is indexed by the few tokens that end there. Positions with the same tokens form a chain,
//! newest first, so candidates are found without a search of the text. Of the newest ones, the candidate that shares
//! the most tokens with the end of the text makes the prediction.

use std::collections::HashMap;

/// The number of tokens by which a position is indexed.
const KEY: usize = 2;
/// The maximum number of candidates that are compared.
const CANDIDATES: usize = 32;
/// The maximum number of tokens that are compared; more would add no information.
const LONGEST: usize = 32;

/// The positions of a text, by the tokens that end there.
#[derive(Default)]
pub struct Lookup {
    /// The newest position for each key: the number of tokens up to and including it.
    newest: HashMap<[u32; KEY], u32>,
    /// For each position the previous one with the same key; 0 for none.
    before: Vec<u32>,
}

/// The tokens that the text predicts.
#[derive(Debug, PartialEq, Eq)]
pub struct Continuation {
    /// The tokens that followed, as many as were requested. At the end of the text they continue with themselves, like
    /// a text that repeats.
    pub tokens: Vec<u32>,
    /// How many tokens before them match the end of the text.
    pub matched: usize,
}

impl Lookup {
    /// Indexes the tokens that were added to the text.
    fn extend(&mut self, text: &[u32]) {
        for place in self.before.len()..text.len() {
            let before = key_at(text, place + 1).and_then(|key| self.newest.insert(key, place as u32 + 1));
            self.before.push(before.unwrap_or_default());
        }
    }

    /// Forgets all positions of `text` after the first `length` tokens.
    pub fn truncate(&mut self, text: &[u32], length: usize) {
        while self.before.len() > length {
            let place = self.before.len();
            let before = self.before.pop().unwrap_or_default();
            let Some(key) = key_at(text, place) else { continue };
            match before {
                0 => self.newest.remove(&key),
                before => self.newest.insert(key, before),
            };
        }
    }

    /// The `count` tokens that followed the previous occurrence of the last tokens of `text`.
    pub fn predict(&mut self, text: &[u32], count: usize) -> Option<Continuation> {
        self.extend(text);
        let end = text.len();
        let mut place = *self.before.last()? as usize;
        let mut best: Option<(usize, usize)> = None;
        for _ in 0..CANDIDATES {
            if place == 0 {
                break;
            }
            let same = |back: &usize| *back < place && text[place - 1 - back] == text[end - 1 - back];
            let matched = (0..LONGEST.min(end)).take_while(same).count();
            if best.is_none_or(|(longest, _)| matched > longest) {
                best = Some((matched, place));
            }
            if matched == LONGEST {
                break;
            }
            place = self.before[place - 1] as usize;
        }
        let (matched, place) = best?;
        let tokens = text[place..].iter().copied().cycle().take(count).collect();
        Some(Continuation { tokens, matched })
    }
}

/// The tokens that end at a position.
fn key_at(text: &[u32], place: usize) -> Option<[u32; KEY]> {
    text.get(place.checked_sub(KEY)?..place)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::{Continuation, KEY, LONGEST, Lookup};

    fn predicted(lookup: &mut Lookup, text: &[u32], count: usize) -> Option<(Vec<u32>, usize)> {
        lookup.predict(text, count).map(|Continuation { tokens, matched }| (tokens, matched))
    }

    #[test]
    fn what_followed_is_predicted() {
        let mut lookup = Lookup::default();
        assert_eq!(predicted(&mut lookup, &[1, 2, 3, 4, 5, 1], 3), None);
        assert_eq!(predicted(&mut lookup, &[1, 2, 3, 4, 5, 1, 2], 3), Some((vec![3, 4, 5], KEY)));
        assert_eq!(predicted(&mut lookup, &[1, 2, 3, 4, 5, 1, 2, 3], 7), Some((vec![4, 5, 1, 2, 3, 4, 5], 3)));
    }

    /// Of two positions the one with more matching tokens wins, and among equals the newer one.
    #[test]
    fn the_longest_match_predicts() {
        let text = [7, 1, 2, 30, 8, 1, 2, 31, 7, 1, 2];
        assert_eq!(predicted(&mut Lookup::default(), &text, 1), Some((vec![30], 3)));
        let text = [7, 1, 2, 30, 7, 1, 2, 31, 7, 1, 2];
        assert_eq!(predicted(&mut Lookup::default(), &text, 1), Some((vec![31], 3)));
    }

    #[test]
    fn a_place_may_overlap_the_end() {
        let text = [5; 4];
        assert_eq!(predicted(&mut Lookup::default(), &text, 4), Some((vec![5; 4], 3)));
        let text = [5; 3 * LONGEST];
        assert_eq!(predicted(&mut Lookup::default(), &text, 1), Some((vec![5], LONGEST)));
    }

    /// A text of 60 lines, of which one in six is changed, after the original: what a model writes when it edits code.
    /// Each step verifies up to seven drafts. docs/performance.md has the measurements.
    #[test]
    fn an_edit_takes_few_steps() {
        let line = |number: u32, edited: bool| {
            let name = if edited && number % 6 == 3 { 900 + number } else { 100 + number };
            // As `let total_7 = sum(items_7, weights[2]);` by tokens.
            [1, 2, name, 3, 4, 5, 200 + number, 6, 7, 8, 300 + number % 7, 9, 10]
        };
        let [original, edited] = [false, true].map(|edited| (0..60).flat_map(|number| line(number, edited)).collect());
        let (mut text, edited): (Vec<u32>, Vec<u32>) = (original, edited);
        let (mut lookup, mut made, mut steps) = (Lookup::default(), 0, 0);
        while made < edited.len() {
            let drafts = lookup.predict(&text, 7).map_or_else(Vec::new, |found| found.tokens);
            let right = drafts.iter().zip(&edited[made..]).take_while(|(draft, token)| draft == token).count();
            let fed = &edited[made..edited.len().min(made + right + 1)];
            text.extend_from_slice(fed);
            (made, steps) = (made + fed.len(), steps + 1);
        }
        assert_eq!((edited.len(), steps), (780, 170));
    }

    /// After a rewind predictions are those of a text that never was longer.
    #[test]
    fn what_was_rewound_is_forgotten() {
        let text: Vec<u32> = (0..300u32).map(|i| i * i % 7).collect();
        let mut lookup = Lookup::default();
        for (length, back) in [(300, 40), (120, 119), (90, 0), (200, 3)] {
            lookup.predict(&text[..length], 1);
            lookup.truncate(&text[..length], back);
            for end in back..(back + 50).min(300) {
                let fresh = predicted(&mut Lookup::default(), &text[..end], 5);
                assert_eq!(predicted(&mut lookup, &text[..end], 5), fresh, "{end} after {length} and {back}");
            }
            lookup.truncate(&text[..(back + 49).min(299)], 0);
            assert!(lookup.newest.is_empty());
        }
    }
}
