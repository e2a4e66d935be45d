//! Finds the longest of many texts with which another text begins, in a number of comparisons that hardly grows with
//! the number of texts: a vocabulary from an untrusted file may have millions of them.
//!
//! The texts are sorted. If a text begins with one of them, then so does everything between both in this order. So the
//! last one that does not come after the text begins with all those with which the text begins. They form a path: the
//! parent of one is the longest other one with which it begins. On such a path, jumps to further ancestors find the
//! longest one in logarithmic time (Myers, "An applicative random-access stack", 1983).

/// Texts, each with a value.
#[derive(Debug)]
pub(super) struct Prefixes<T> {
    /// The nodes in the order of their texts, after the root, whose text is empty.
    nodes: Vec<Node<T>>,
    /// The number of nodes before those whose texts begin with a byte, for each byte and after the last one.
    starts: [usize; 257],
}

#[derive(Debug)]
struct Node<T> {
    text: String,
    value: T,
    parent: usize,
    /// An ancestor, which may be further up.
    ancestor: usize,
    /// The number of nodes above.
    depth: usize,
}

impl<T: Copy + Default + Ord> Prefixes<T> {
    /// Of several values of a text, the lowest counts. Empty texts are left out.
    pub(super) fn new(entries: impl IntoIterator<Item = (String, T)>) -> Self {
        let mut entries: Vec<_> = entries.into_iter().filter(|(text, _)| !text.is_empty()).collect();
        entries.sort_unstable();
        entries.dedup_by(|next, first| next.0 == first.0);
        let mut starts = [1; 257];
        for (text, _) in &entries {
            starts[usize::from(text.as_bytes()[0]) + 1] += 1;
        }
        for byte in 1..starts.len() {
            starts[byte] += starts[byte - 1] - 1;
        }
        let root = Node { text: String::new(), value: T::default(), parent: 0, ancestor: 0, depth: 0 };
        let mut prefixes = Self { nodes: vec![root], starts };
        entries.into_iter().for_each(|(text, value)| prefixes.push(text, value));
        prefixes
    }

    /// Adds a node after all others.
    fn push(&mut self, text: String, value: T) {
        let nodes = &self.nodes;
        let mut parent = nodes.len() - 1;
        while !text.starts_with(&nodes[parent].text) {
            parent = nodes[parent].parent;
        }
        // Two jumps of the same length are joined to one.
        let near = &nodes[parent];
        let far = &nodes[near.ancestor];
        let joins = near.depth - far.depth == far.depth - nodes[far.ancestor].depth;
        let (ancestor, depth) = (if joins { far.ancestor } else { parent }, near.depth + 1);
        self.nodes.push(Node { text, value, parent, ancestor, depth });
    }

    /// The longest text with which these bytes begin, and its value.
    pub(super) fn longest(&self, bytes: &[u8]) -> Option<(&str, T)> {
        self.search(bytes, &mut 0)
    }

    /// The same, which counts the comparisons.
    fn search(&self, bytes: &[u8], comparisons: &mut usize) -> Option<(&str, T)> {
        let mut compare = |is: bool| {
            *comparisons += 1;
            is
        };
        let first = usize::from(*bytes.first()?);
        let nodes = &self.nodes[self.starts[first]..self.starts[first + 1]];
        let before = nodes.partition_point(|node| compare(node.text.as_bytes() <= bytes));
        let mut node = &nodes[before.checked_sub(1)?];
        let mut misses = |node: &Node<T>| compare(!bytes.starts_with(node.text.as_bytes()));
        while misses(node) {
            let ancestor = &self.nodes[node.ancestor];
            node = if misses(ancestor) { ancestor } else { &self.nodes[node.parent] };
        }
        (node.depth > 0).then_some((&node.text, node.value))
    }

    /// The value of a text.
    pub(super) fn get(&self, text: &str) -> Option<T> {
        let found = self.nodes.binary_search_by(|node| node.text.as_str().cmp(text)).ok()?;
        (found > 0).then(|| self.nodes[found].value)
    }

    /// Whether one of the texts begins with this one, which is not empty.
    pub(super) fn any_begins_with(&self, text: &str) -> bool {
        let from = self.nodes.partition_point(|node| node.text.as_str() < text);
        self.nodes.get(from).is_some_and(|node| node.text.starts_with(text))
    }
}

#[cfg(test)]
mod tests {
    use super::Prefixes;
    use proptest::prelude::*;

    fn prefixes(texts: impl IntoIterator<Item = String>) -> Prefixes<u32> {
        Prefixes::new(texts.into_iter().zip(0..))
    }

    proptest! {
        /// The result is that of looking at every text.
        #[test]
        fn finds_what_a_search_of_all_finds(
            texts in prop::collection::vec("[abé]{0,6}", 0..40),
            text in "[abcé]{0,9}",
        ) {
            let sorted = prefixes(texts.clone());
            let longest = texts.iter().filter(|it| !it.is_empty() && text.starts_with(*it)).max_by_key(|it| it.len());
            let id = |text: &String| texts.iter().zip(0..).find(|(it, _)| *it == text).map(|(_, id)| id);
            prop_assert_eq!(
                sorted.longest(text.as_bytes()),
                longest.and_then(|it| Some((it.as_str(), id(it)?))),
            );
            if !text.is_empty() {
                prop_assert_eq!(sorted.get(&text), id(&text));
                prop_assert_eq!(sorted.any_begins_with(&text), texts.iter().any(|it| it.starts_with(&text)));
            }
        }
    }

    /// Many texts with the same beginning, and a long path of texts that each begin with the one before.
    #[test]
    fn many_texts_take_few_comparisons() {
        let many = prefixes((0..1 << 17).map(|number| format!("<{number:06}>")));
        let nested = prefixes((1..2000).map(|length| "b".repeat(length)));
        let ends = prefixes((0..2000).map(|length| "b".repeat(length) + "a"));
        for (texts, text, length) in [
            (&many, "<000000>".to_owned(), 8),
            (&many, "<131071> and".to_owned(), 8),
            (&many, "<999999>".to_owned(), 0),
            (&many, "<00000".to_owned(), 0),
            (&nested, "b".repeat(5000), 1999),
            (&nested, "b".repeat(1500) + "c", 1500),
            (&nested, "bc".to_owned(), 1),
            (&ends, "b".repeat(1990), 0),
        ] {
            let mut comparisons = 0;
            let found = texts.search(text.as_bytes(), &mut comparisons).map_or(0, |(found, _)| found.len());
            assert_eq!(found, length, "{text}");
            assert!(comparisons < 100, "{comparisons} comparisons for {text}");
        }
    }
}
