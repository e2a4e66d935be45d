//! Tests stop strings, for text in any pieces.

use super::cuts::{cut, letters, places};
use proptest::prelude::*;
use wglm::text::StopStrings;

/// The text before a stop string, and whether one was found.
fn ended<S: AsRef<str>>(stops: &[&str], chunks: &[S]) -> (String, bool) {
    let mut all = StopStrings::new(stops.iter().map(|stop| (*stop).to_owned()));
    let mut text: String = chunks.iter().map(|chunk| all.push(chunk.as_ref())).collect();
    let found = all.found();
    text += &all.flush();
    (text, found)
}

#[test]
fn text_ends_before_the_first_one() {
    for (stops, text, want) in [
        (&["END"][..], "a END b END", ("a ", true)),
        (&["END"], "a EN", ("a EN", false)),
        (&["END"], "a ENEND", ("a EN", true)),
        (&["\n\n", "."], "one.\n\ntwo", ("one", true)),
        (&["abcd", "bc"], "xabcd", ("xa", true)),
        (&["abc", "bc"], "xabc", ("x", true)),
        (&["aab"], "aaab", ("a", true)),
        (&["é!"], "caféé!", ("café", true)),
        (&[""], "all", ("all", false)),
        (&[], "all", ("all", false)),
    ] {
        let want = (want.0.to_owned(), want.1);
        assert_eq!(ended(stops, &[text]), want, "{stops:?} in {text:?}");
        assert_eq!(ended(stops, &letters(text)), want, "{stops:?} in {text:?}, letter by letter");
    }
}

#[test]
fn the_one_that_was_found_is_known() {
    let found = |stops: &[&str], text: &str| {
        let mut all = StopStrings::new(stops.iter().map(|stop| (*stop).to_owned()));
        all.push(text);
        all.found_index()
    };
    assert_eq!(found(&["", "END", "\n"], "a\nEND"), Some(2), "the first in the text");
    assert_eq!(found(&["", "bc", "abc"], "xabc"), Some(2), "the longest");
    assert_eq!(found(&["END"], "EN"), None);
}

#[test]
fn text_that_is_certain_is_reported_at_once() {
    let mut stops = StopStrings::new(["</end>".to_owned()]);
    assert_eq!(stops.push("a <"), "a ");
    assert_eq!(stops.push("/e"), "");
    assert_eq!(stops.push("lse"), "</else");
    assert_eq!(stops.push("</end> more"), "");
    assert!(stops.found());
    assert_eq!(stops.push("more") + &stops.flush(), "");
}

proptest! {
    /// The result is the text before the stop string that ends first, whatever the pieces.
    #[test]
    fn cuts_do_not_matter(
        text in "[abé]{0,24}", stops in prop::collection::vec("[abé]{1,4}", 0..4), places in places(),
    ) {
        let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
        let ends = (0..=text.len()).filter(|end| text.is_char_boundary(*end));
        let first = ends.clone().find(|end| stops.iter().any(|stop| text[..*end].ends_with(stop)));
        let longest = first.map(|end| {
            let found = stops.iter().filter(|stop| text[..end].ends_with(**stop)).map(|stop| stop.len()).max();
            (text[..end - found.unwrap()].to_owned(), true)
        });
        let chunks = cut(&text, &places);
        prop_assert_eq!(ended(&stops, &chunks), longest.unwrap_or((text.clone(), false)));
    }
}
