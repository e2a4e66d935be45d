//! Cuts text into pieces, in all ways in which it can arrive.

use proptest::prelude::*;
use proptest::sample::Index;

/// One character at a time.
pub fn letters(text: &str) -> Vec<String> {
    text.chars().map(String::from).collect()
}

/// As a whole, in two pieces at every position, and one character at a time.
pub fn every_way(text: &str) -> impl Iterator<Item = Vec<String>> {
    let in_two =
        text.char_indices().map(|(at, _)| text.split_at(at)).map(|(left, right)| vec![left.into(), right.into()]);
    std::iter::once(vec![text.to_owned()]).chain(in_two).chain([letters(text)])
}

/// Random positions at which any text can be cut.
pub fn places() -> impl Strategy<Value = Vec<Index>> {
    prop::collection::vec(any::<Index>(), 0..8)
}

/// The pieces between such positions, without positions inside characters.
pub fn cut<'a>(text: &'a str, places: &[Index]) -> Vec<&'a str> {
    let places = places.iter().map(|place| place.index(text.len() + 1));
    let mut ends: Vec<_> = places.filter(|end| text.is_char_boundary(*end)).chain([text.len()]).collect();
    ends.sort_unstable();
    let mut start = 0;
    ends.into_iter().map(|end| &text[std::mem::replace(&mut start, end)..end]).collect()
}
