//! The rules that cut text into words before byte-pair encoding. A file names its rule.
//!
//! Every expression matches at every position of every text, so the joined words equal the text.

use crate::error::{Error, Result};
use tokenizers::SplitDelimiterBehavior::Isolated;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};

/// The properties of all vocabularies that use one rule, which the key `tokenizer.ggml.pre` names.
pub(super) struct VocabFamily {
    /// The names of the rule. The first is the one that llama.cpp uses.
    names: &'static [&'static str],
    regex: &'static str,
    /// Whether a word that is a token as a whole is encoded to that token, whatever the merges would make of it.
    pub(super) ignore_merges: bool,
    /// Control tokens that end a reply, even if the file's metadata does not list them.
    pub(super) end: &'static [&'static str],
}

/// The regular expression of Llama 3, which GLM-4 uses as well.
const UP_TO_THREE_DIGITS: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The regular expression of Qwen 2. It differs from Llama 3's in that every digit is a word.
const SINGLE_DIGITS: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The regular expression of GPT-2.
const ANY_DIGITS: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// The most blanks that are cut off as one word where the regular expression gives up; see [`words`].
const MOST_BLANKS: usize = 1 << 19;

static FAMILIES: &[VocabFamily] = &[
    VocabFamily {
        names: &[
            "glm4",
            "chatglm-bpe",
            "chatglm4",
            "glm-4",
            "glm4.5",
            "glm-4.5",
            "glm4.6",
            "glm-4.6",
            "glm4.7",
            "glm-4.7",
        ],
        regex: UP_TO_THREE_DIGITS,
        ignore_merges: true,
        end: &["<|endoftext|>", "<|user|>", "<|observation|>"],
    },
    VocabFamily {
        names: &["llama-bpe", "llama3", "llama-v3"],
        regex: UP_TO_THREE_DIGITS,
        ignore_merges: true,
        end: &["<|end_of_text|>", "<|eot_id|>", "<|eom_id|>"],
    },
    VocabFamily {
        names: &["qwen2"],
        regex: SINGLE_DIGITS,
        ignore_merges: false,
        end: &["<|endoftext|>", "<|im_end|>"],
    },
    VocabFamily { names: &["gpt-2", "gpt2"], regex: ANY_DIGITS, ignore_merges: false, end: &["<|endoftext|>"] },
];

/// The family whose rule is called `pre`.
pub(super) fn family(pre: &str) -> Result<&'static VocabFamily> {
    FAMILIES.iter().find(|family| family.names.contains(&pre)).ok_or_else(|| {
        let known: Vec<_> = FAMILIES.iter().flat_map(|family| family.names).copied().collect();
        Error::Tokenizer { message: format!("`tokenizer.ggml.pre` is `{pre}`; known: {}", known.join(", ")) }
    })
}

impl VocabFamily {
    /// Compiles the regular expression of the family.
    pub(super) fn compile(&self) -> Result<Split> {
        Split::new(SplitPattern::Regex(self.regex.into()), Isolated, false).map_err(|error| Error::Tokenizer {
            message: format!("the regular expression of `{}`: {error}", self.names[0]),
        })
    }
}

/// Calls `word` with every word of `text`, in order.
///
/// The regular expression engine gives up on more than a million blanks in a row. Such a run is cut into words of at
/// most `MOST_BLANKS`.
pub(super) fn words<'t>(split: &Split, text: &'t str, mut word: impl FnMut(&'t str) -> Result<()>) -> Result<()> {
    let mut rest = text;
    loop {
        let mut done = 0;
        for (start, end) in split.regex.find_iter(rest) {
            debug_assert_eq!(start, done, "the expressions match everywhere");
            word(&rest[start..end])?;
            done = end;
        }
        rest = &rest[done..];
        if rest.is_empty() {
            return Ok(());
        }
        let blanks: usize =
            rest.chars().take(MOST_BLANKS).take_while(|char| char.is_whitespace()).map(char::len_utf8).sum();
        if blanks == 0 {
            let message = format!("cannot split the text into words at byte {}", text.len() - rest.len());
            return Err(Error::Tokenizer { message });
        }
        word(&rest[..blanks])?;
        rest = &rest[blanks..];
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn cut<'t>(pre: &str, text: &'t str) -> Vec<&'t str> {
        let mut out = Vec::new();
        words(&family(pre).unwrap().compile().unwrap(), text, |word| {
            out.push(word);
            Ok(())
        })
        .unwrap();
        out
    }

    #[test]
    fn families_differ_in_their_digits_and_newlines() {
        let text = "It'S 12345 \n\n  x!?\n";
        assert_eq!(cut("glm4", text), ["It", "'S", " ", "123", "45", " \n\n", " ", " x", "!?\n"]);
        assert_eq!(cut("qwen2", text), ["It", "'S", " ", "1", "2", "3", "4", "5", " \n\n", " ", " x", "!?\n"]);
        assert_eq!(cut("gpt-2", text), ["It", "'", "S", " 12345", " \n\n ", " x", "!?", "\n"]);
        assert_eq!(cut("llama-bpe", text), cut("glm4", text));
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let message = family("default").err().unwrap().to_string();
        assert!(message.contains("tokenizer.ggml.pre") && message.contains("`default`") && message.contains("glm4, "));
    }

    /// Long runs of one character are what makes a backtracking engine give up.
    #[test]
    fn long_runs_of_one_kind() {
        for unit in [" ", "\n", " \n", "a", "1", "!", "\t ", "é", "' "] {
            let text = unit.repeat(1_500_000);
            for pre in ["glm4", "qwen2", "gpt2"] {
                assert_eq!(cut(pre, &text).concat(), text, "{pre}: {unit:?}");
            }
            let text = format!("{text}x");
            assert_eq!(cut("glm4", &text).concat(), text, "{unit:?}");
        }
    }
}
