//! Finding the tokens that are recognised as a whole before the rest is cut into words.

/// The literal tokens of a vocabulary, ready to be found in text: leftmost first, then longest, then
/// lowest id.
#[derive(Debug)]
pub(super) struct SpecialTokens {
    /// By first byte: vocabularies have a few dozen, nearly all starting with `<` or `[`.
    by_first: [Vec<SpecialToken>; 256],
}

/// Which literal tokens are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpecialFilter {
    All,
    Reserved,
    /// Those that are not reserved.
    Free,
}

#[derive(Debug)]
struct SpecialToken {
    text: String,
    id: u32,
    /// Made by a template's own text alone.
    reserved: bool,
}

impl SpecialTokens {
    /// From (text, id, is reserved). Empty texts are left out: they are everywhere.
    pub(super) fn new<'a>(tokens: impl IntoIterator<Item = (&'a str, u32, bool)>) -> Self {
        let mut by_first = [const { Vec::new() }; 256];
        for (text, id, reserved) in tokens {
            if let Some(&first) = text.as_bytes().first() {
                by_first[first as usize].push(SpecialToken { text: text.to_owned(), id, reserved });
            }
        }
        for list in &mut by_first {
            list.sort_by_key(|special| (usize::MAX - special.text.len(), special.id));
        }
        Self { by_first }
    }

    /// The id of the literal token `text`.
    pub(super) fn id(&self, text: &str) -> Option<u32> {
        let first = *text.as_bytes().first()?;
        self.by_first[first as usize].iter().find(|special| special.text == text).map(|special| special.id)
    }

    /// The first token in `text`: where it starts, where it ends, its id.
    pub(super) fn find(&self, text: &str, which: SpecialFilter) -> Option<(usize, usize, u32)> {
        text.bytes().enumerate().find_map(|(start, first)| {
            // The list is empty for bytes inside a character, so `start` is a boundary where it is used.
            let hit = self.by_first[first as usize].iter().find(|special| {
                (which == SpecialFilter::All || (which == SpecialFilter::Reserved) == special.reserved)
                    && text.as_bytes()[start..].starts_with(special.text.as_bytes())
            })?;
            Some((start, start + hit.text.len(), hit.id))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftmost_then_longest_then_lowest() {
        let specials = SpecialTokens::new([
            ("<a>", 7, true),
            ("<a><b>", 8, true),
            ("<a>", 3, true),
            ("é<", 9, false),
            ("", 1, true),
        ]);
        assert_eq!(specials.find("x<a><c>", SpecialFilter::All), Some((1, 4, 3)));
        assert_eq!(specials.find("x<a><b>", SpecialFilter::Reserved), Some((1, 7, 8)));
        assert_eq!(specials.find("x<a><b>é<", SpecialFilter::Free), Some((7, 10, 9)));
        assert_eq!(specials.find("è< <a", SpecialFilter::All), None);
        assert_eq!((specials.id("<a>"), specials.id("<b>"), specials.id("")), (Some(3), None, None));
    }
}
