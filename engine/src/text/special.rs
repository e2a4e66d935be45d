//! Finds the tokens that are recognized as a whole, before the rest of a text is cut into words.

use super::prefixes::Prefixes;

/// The literal tokens of a vocabulary: those whose text is searched for verbatim. Reserved and free ones are searched
/// for separately. The leftmost match wins, then the longest, then the one with the lowest id.
#[derive(Debug)]
pub(super) struct SpecialTokens {
    /// The tokens that only a template's own text may become, by their texts.
    reserved: Prefixes<u32>,
    /// The others.
    free: Prefixes<u32>,
}

/// Which literal tokens to search for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpecialFilter {
    /// The tokens that are reserved.
    Reserved,
    /// The tokens that are not reserved.
    Free,
}

impl SpecialTokens {
    /// Creates the table from (text, id, is reserved). Empty texts are left out, since they would match everywhere.
    pub(super) fn new<'a>(tokens: impl IntoIterator<Item = (&'a str, u32, bool)>) -> Self {
        let (reserved, free): (Vec<_>, Vec<_>) = tokens.into_iter().partition(|(_, _, reserved)| *reserved);
        let table = |tokens: Vec<(&str, u32, bool)>| {
            Prefixes::new(tokens.into_iter().map(|(text, id, _)| (text.to_owned(), id)))
        };
        Self { reserved: table(reserved), free: table(free) }
    }

    /// The id of the literal token `text`.
    pub(super) fn id(&self, text: &str) -> Option<u32> {
        [&self.reserved, &self.free].iter().filter_map(|table| table.get(text)).min()
    }

    /// The first match in `text`: its start, its end and its id.
    pub(super) fn find(&self, text: &str, which: SpecialFilter) -> Option<(usize, usize, u32)> {
        let table = match which {
            SpecialFilter::Reserved => &self.reserved,
            SpecialFilter::Free => &self.free,
        };
        // No token begins with a byte inside a character, so each match starts at a boundary.
        (0..text.len()).find_map(|start| {
            let (hit, id) = table.longest(&text.as_bytes()[start..])?;
            Some((start, start + hit.len(), id))
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
        assert_eq!(specials.find("x<a><c>", SpecialFilter::Reserved), Some((1, 4, 3)));
        assert_eq!(specials.find("x<a><b>", SpecialFilter::Reserved), Some((1, 7, 8)));
        assert_eq!(specials.find("x<a><b>é<", SpecialFilter::Free), Some((7, 10, 9)));
        assert_eq!(specials.find("è< <a", SpecialFilter::Free), None);
        assert_eq!((specials.id("<a>"), specials.id("<b>"), specials.id("")), (Some(3), None, None));
    }
}
