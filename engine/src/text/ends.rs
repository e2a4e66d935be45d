//! The tokens at which a reply ends, and other tokens that are known by name.
//!
//! Some files have the type of a normal token for them, or no types. They would then be text: a template that writes
//! `<|im_end|>` would get its letters. As in llama.cpp, such a token becomes a control token.

use super::pretokenizer::VocabFamily;
use super::{TokenType, Vocab, infill};
use std::collections::HashSet;

/// The names of tokens that end a reply in the vocabularies of several makers, which llama.cpp lists as well. A file's
/// metadata often names only one of them, or none.
const NAMES: [&str; 31] = [
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
    // What follows a text in a gap: padding, another repository, another file.
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
];

/// The end of a message. It does not end a reply in vocabularies whose other tokens show that a reply has several
/// messages.
const END: &str = "<|end|>";

/// The tokens that end a reply, lowest first: those whose ids are in the metadata, and those that are known by name.
/// Those that are known by name, and the tokens around a gap, become control tokens in `vocab`. The end of a message
/// that is a part of a reply becomes markup, if it has the type of text.
pub(super) fn of_reply(vocab: &mut Vocab, family: &VocabFamily) -> Vec<u32> {
    let named = known_tokens(vocab, |name| NAMES.iter().chain(family.end).any(|end| *end == name));
    let has = |name: &str| named.iter().any(|(known, _)| known == name);
    let in_parts = (has("<|call|>") || has("<|calls|>")) && (has("<|return|>") || has("<|flush|>"));
    let parts = named.iter().filter(|(name, _)| in_parts && name == END).map(|(_, id)| *id);
    let parts: HashSet<u32> = parts.collect();
    let ids = named.iter().map(|(_, id)| *id).chain(vocab.end.iter().copied());
    let mut end: Vec<u32> = ids.filter(|id| !parts.contains(id)).collect();
    end.sort_unstable();
    end.dedup();
    let around_gaps = known_tokens(vocab, |name| infill::NAMES.as_flattened().contains(&name));
    for (_, id) in named.iter().chain(&around_gaps) {
        let kind = &mut vocab.types[*id as usize];
        *kind = match (parts.contains(id), kind.is_literal()) {
            (false, _) => TokenType::Control,
            (true, false) => TokenType::UserDefined,
            (true, true) => *kind,
        };
    }
    end
}

/// The names and ids of the tokens whose names `is_known`. A token of a type that is not literal counts only if it
/// marks something. If merges make it, it is text: texts contain some of the names, as HTML contains `</s>`. No text
/// contains the bars.
fn known_tokens(vocab: &Vocab, is_known: impl Fn(&str) -> bool) -> Vec<(String, u32)> {
    let made = made(&vocab.merges, &is_known);
    let is_marker = |name: &str| name.starts_with("<|") || name.starts_with("<｜") || !made.contains(name);
    // In some vocabularies a token's name includes the whitespace after it.
    let known = vocab.typed().map(|(text, id, kind)| (text.trim_end(), id, kind)).filter(|(name, ..)| is_known(name));
    let markers = known.filter(|(name, _, kind)| kind.is_literal() || is_marker(name));
    markers.map(|(name, id, _)| (name.to_owned(), id)).collect()
}

/// The known names that merges make.
fn made(merges: &[String], is_known: impl Fn(&str) -> bool) -> HashSet<String> {
    let mut joined = String::new();
    let mut made = HashSet::new();
    for (left, right) in merges.iter().filter_map(|merge| merge.split_once(' ')) {
        joined.clear();
        joined.extend([left, right]);
        if is_known(&joined) {
            made.insert(joined.clone());
        }
    }
    made
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::text::pretokenizer::family;

    /// A vocabulary in which merges make `</s>`.
    fn vocab(tokens: &[(&str, TokenType)]) -> Vocab {
        let (tokens, types) = tokens.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).unzip();
        Vocab { tokens, types, merges: vec!["< /".into(), "s >".into(), "</ s>".into()], ..Vocab::default() }
    }

    fn ends(pre: &str, tokens: &[(&str, TokenType)]) -> Vec<u32> {
        of_reply(&mut vocab(tokens), family(pre).unwrap())
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
        let gaps = [("<|fim_pad|>", Control), ("<|file_sep|>", Control), ("<|fim_middle|>", Control)];
        assert_eq!(ends("qwen2", &gaps), [0, 1]);
    }

    #[test]
    fn they_are_control_tokens() {
        use TokenType::{Control, Normal, UserDefined};
        let names = ["<|im_end|>", "<｜end▁of▁sentence｜>", "[EOT]", "<|fim_prefix|>", "</s>", "<think>", "_<EOT>"];
        let mut vocab = vocab(&names.map(|name| (name, if name == "_<EOT>" { UserDefined } else { Normal })));
        assert_eq!(of_reply(&mut vocab, family("qwen2").unwrap()), [0, 1, 2, 6]);
        assert_eq!(vocab.types, [Control, Control, Control, Control, Normal, Normal, Control]);
    }

    #[test]
    fn a_message_need_not_be_the_last() {
        let control = |names: &[&'static str]| names.iter().map(|name| (*name, TokenType::Control)).collect::<Vec<_>>();
        assert_eq!(ends("gpt-4o", &control(&["<|end|>", "<|call|>"])), [0, 1]);
        assert_eq!(ends("gpt-4o", &control(&["<|end|>", "<|call|>", "<|return|>"])), [1, 2]);
        assert_eq!(ends("gpt-4o", &control(&["<|flush|>", "<|calls|>", "<|end|>"])), [0, 1]);
        let normal = ["<|end|>", "<|call|>", "<|return|>"].map(|name| (name, TokenType::Normal));
        let mut vocab = vocab(&normal);
        assert_eq!(of_reply(&mut vocab, family("gpt-4o").unwrap()), [1, 2]);
        assert_eq!(vocab.types[0], TokenType::UserDefined);
    }
}
