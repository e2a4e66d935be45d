//! The tokens of a prompt for the text in a gap.

use super::special::SpecialTokens;

/// The tokens that mark the parts of a prompt for the text in a gap: `prefix` and the text before the gap, `suffix` and
/// the text after it, then `middle`, after which the model writes what belongs in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InfillTokens {
    /// Begins the text before the gap.
    pub prefix: u32,
    /// Begins the text after the gap.
    pub suffix: u32,
    /// Begins the text in the gap.
    pub middle: u32,
}

/// The names of these tokens in the vocabularies of several makers. A file's metadata often does not have them.
pub(super) const NAMES: [[&str; 3]; 6] = [
    ["<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"],
    ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
    ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"],
    ["<fim-prefix>", "<fim-suffix>", "<fim-middle>"],
    ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"],
    ["<PRE>", "<SUF>", "<MID>"],
];

impl InfillTokens {
    /// Those whose ids are in the metadata, or those that are known by name; `None` unless there are all three.
    pub(super) fn of(ids: [Option<u32>; 3], specials: &SpecialTokens) -> Option<Self> {
        let named = || NAMES.iter().find_map(|names| all(names.map(|name| specials.id(name))));
        let [prefix, suffix, middle] = all(ids).or_else(named)?;
        Some(Self { prefix, suffix, middle })
    }
}

fn all([a, b, c]: [Option<u32>; 3]) -> Option<[u32; 3]> {
    Some([a?, b?, c?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_known_by_id_or_by_name() {
        let of = |names: &[&'static str], ids| {
            let specials = SpecialTokens::new(names.iter().zip(0..).map(|(name, id)| (*name, id, true)));
            InfillTokens::of(ids, &specials).map(|InfillTokens { prefix, suffix, middle }| [prefix, suffix, middle])
        };
        let none = [None; 3];
        let glm = ["<|user|>", "<|code_prefix|>", "<|code_middle|>", "<|code_suffix|>"];
        assert_eq!(of(&glm, none), Some([1, 3, 2]));
        assert_eq!(of(&["<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>"], none), Some([1, 0, 2]));
        assert_eq!(of(&glm[..3], none), None);
        assert_eq!(of(&glm, [Some(7), Some(8), Some(9)]), Some([7, 8, 9]));
        assert_eq!(of(&glm, [Some(7), None, Some(9)]), Some([1, 3, 2]), "not all are known by id");
    }
}
