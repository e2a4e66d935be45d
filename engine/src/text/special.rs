//! Finds the tokens that are recognized as a whole, before the rest of a text is cut into words.

/// The literal tokens of a vocabulary: those whose text is searched for verbatim. The leftmost match wins, then the
/// longest, then the one with the lowest id.
#[derive(Debug)]
pub(super) struct SpecialTokens {
    /// The tokens by their first byte. Vocabularies have a few dozen, nearly all of which begin with `<` or `[`.
    by_first: [Vec<SpecialToken>; 256],
}

/// Which literal tokens to search for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpecialFilter {
    All,
    Reserved,
    /// The tokens that are not reserved.
    Free,
}

#[derive(Debug)]
struct SpecialToken {
    text: String,
    id: u32,
    /// Whether only a template's own text may become this token.
    reserved: bool,
}

impl SpecialTokens {
    /// Creates the table from (text, id, is reserved). Empty texts are left out, since they would match everywhere.
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

    /// The first match in `text`: its start, its end and its id.
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
