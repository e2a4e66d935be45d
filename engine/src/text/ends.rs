//! The tokens at which a reply ends.

use super::pretokenizer::VocabFamily;
use super::{TokenType, Vocab};
use std::collections::HashSet;

/// The names of tokens that end a reply in the vocabularies of several makers, which llama.cpp lists as well. A file's
/// metadata often names only one of them, or none.
const NAMES: [&str; 20] = [
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    END,
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "</s>",
    "<eos>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "[e~[",
    "<｜end▁of▁sentence｜>",
];

/// The end of a message. It does not end a reply in vocabularies whose other tokens show that a reply has several
/// messages.
const END: &str = "<|end|>";

/// The tokens that end a reply, lowest first: those whose ids are in the metadata, and those that are known by name.
pub(super) fn of_reply(vocab: &Vocab, family: &VocabFamily) -> Vec<u32> {
    let named = |(text, id, kind): (&str, u32, TokenType)| {
        // In some vocabularies a token's name includes the whitespace after it.
        let name = text.trim_end();
        let known = NAMES.iter().chain(family.end).any(|end| *end == name);
        (known && is_marker(name, kind)).then_some((name.to_owned(), id))
    };
    let named: Vec<(String, u32)> = vocab.typed().filter_map(named).collect();
    let has = |name: &str| named.iter().any(|(known, _)| known == name);
    let in_parts = (has("<|call|>") || has("<|calls|>")) && (has("<|return|>") || has("<|flush|>"));
    let parts = named.iter().filter(|(name, _)| in_parts && name == END).map(|(_, id)| *id);
    let parts: HashSet<u32> = parts.collect();
    let ids = named.iter().map(|(_, id)| *id).chain(vocab.end.iter().copied());
    let mut end: Vec<u32> = ids.filter(|id| !parts.contains(id)).collect();
    end.sort_unstable();
    end.dedup();
    end
}

/// Whether a token of this name marks something. A text token can have such a name by mistake, or because texts contain
/// it, as HTML contains `</s>`; no text contains the bars.
fn is_marker(name: &str, kind: TokenType) -> bool {
    kind.is_literal() || name.starts_with("<|")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::text::pretokenizer::family;

    fn ends(pre: &str, tokens: &[(&str, TokenType)]) -> Vec<u32> {
        let (tokens, types) = tokens.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).unzip();
        of_reply(&Vocab { tokens, types, ..Vocab::default() }, family(pre).unwrap())
    }

    #[test]
    fn they_are_known_by_name() {
        use TokenType::{Control, Normal, UserDefined};
        for pre in ["glm4", "qwen2", "gigachat", "kimi-k2"] {
            let tokens = [("</s>", Control), ("[EOS]", UserDefined), ("<|im_end|>", Normal), ("<pad>", Control)];
            assert_eq!(ends(pre, &tokens), [0, 1, 2], "{pre}");
            // Text in HTML.
            assert_eq!(ends(pre, &[("</s>", Normal)]), [0u32; 0]);
        }
        // The published spelling of GigaChat's.
        let giga = [("<|message_sep|>\n\n", Control), ("<|role_sep|>\n", Control), ("<|message_sep|>", UserDefined)];
        assert_eq!(ends("gigachat", &giga), [0, 2]);
        assert_eq!(ends("gpt-2", &giga), [0u32; 0]);
    }

    #[test]
    fn a_message_need_not_be_the_last() {
        let control = |names: &[&'static str]| names.iter().map(|name| (*name, TokenType::Control)).collect::<Vec<_>>();
        assert_eq!(ends("gpt-4o", &control(&["<|end|>", "<|call|>"])), [0, 1]);
        assert_eq!(ends("gpt-4o", &control(&["<|end|>", "<|call|>", "<|return|>"])), [1, 2]);
        assert_eq!(ends("gpt-4o", &control(&["<|flush|>", "<|calls|>", "<|end|>"])), [0, 1]);
    }
}
