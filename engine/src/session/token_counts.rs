//! How often each token occurs among the last ones of a sequence. Penalties need that for every step, and counting all
//! tokens of a long text each time would delay the step.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

/// How often each token occurs in a range of a sequence.
#[derive(Debug, Default)]
pub struct TokenCounts {
    counted: Range<usize>,
    counts: BTreeMap<u32, u32>,
}

impl TokenCounts {
    /// Counts another range instead. `at` returns the token at an index of the old range or the new one. Only tokens
    /// that are in one of the two are looked at, unless the ranges have nothing in common.
    pub fn move_to(&mut self, range: Range<usize>, at: impl Fn(usize) -> u32) {
        if range.start >= self.counted.end || range.end <= self.counted.start {
            *self = Self { counted: range.start..range.start, counts: BTreeMap::new() };
        }
        let before = std::mem::replace(&mut self.counted, range.clone());
        (range.start..before.start).chain(before.end..range.end).for_each(|index| self.add(at(index)));
        (before.start..range.start).chain(range.end..before.end).for_each(|index| self.remove(at(index)));
    }

    /// Forgets all tokens but the first `length` of a sequence.
    pub fn truncate(&mut self, tokens: &[u32], length: usize) {
        let Range { start, end } = self.counted;
        self.move_to(start.min(length)..end.min(length), |index| tokens[index]);
    }

    /// The tokens in ascending order, and how often each occurs.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.counts.iter().map(|(token, count)| (*token, *count))
    }

    fn add(&mut self, token: u32) {
        *self.counts.entry(token).or_default() += 1;
    }

    fn remove(&mut self, token: u32) {
        if let Entry::Occupied(mut count) = self.counts.entry(token) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TokenCounts;

    /// The counts are those of the range, whichever range was counted before.
    #[test]
    fn counts_follow_the_range() {
        let tokens: Vec<u32> = (0..40).map(|index| index * index % 7).collect();
        let mut counts = TokenCounts::default();
        let check = |counts: &TokenCounts, range: &[u32]| {
            let count = |token: &u32| range.iter().filter(|other| *other == token).count() as u32;
            let wanted: Vec<(u32, u32)> = (0..7).map(|token| (token, count(&token))).filter(|it| it.1 > 0).collect();
            assert_eq!(counts.iter().collect::<Vec<_>>(), wanted);
        };
        let ranges = [0..10, 0..11, 1..12, 3..20, 0..18, 25..30, 27..27, 22..40, 4..6, 0..40, 36..40];
        for range in ranges {
            counts.move_to(range.clone(), |index| tokens[index]);
            check(&counts, &tokens[range]);
        }
        counts.truncate(&tokens, 38);
        check(&counts, &tokens[36..38]);
        counts.truncate(&tokens, 20);
        check(&counts, &[]);
    }
}
