//! The rules that cut text into words before byte-pair encoding. A file names its rule.
//!
//! A rule is one regular expression or several. The first one cuts the text into what it matches and what lies between;
//! each further one cuts the pieces that the one before it left. The joined words equal the text.
//!
//! The rules cut as llama.cpp does (`llama-vocab.cpp`, `unicode.cpp`), even where that differs from the vocabulary's
//! own tokenizer. llama.cpp makes longer words where the vocabulary's own expressions cut between capital and small
//! letters, because it does not distinguish case beyond ASCII. With the rules of GPT-4o and Kimi it makes shorter ones:
//! a combining mark belongs to a word in the vocabularies' own expressions (`\p{M}`), and cuts it in llama.cpp's.

use crate::error::{Error, Result};
use tokenizers::SplitDelimiterBehavior::Isolated;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};

/// The properties of all vocabularies that use one rule, which the key `tokenizer.ggml.pre` names.
pub(super) struct VocabFamily {
    /// The names of the rule. The first is the one that llama.cpp uses.
    names: &'static [&'static str],
    /// The expressions, the first one first.
    regexes: &'static [&'static str],
    /// Whether a word that is itself a token is encoded to that token, regardless of merges.
    pub(super) ignore_merges: bool,
    /// Whether texts begin with the beginning-of-text token if the file does not say.
    pub(super) add_bos: bool,
    /// Tokens that end a reply, besides those of [every vocabulary](super::ends).
    pub(super) end: &'static [&'static str],
}

/// The regular expression of Llama 3, which GLM-4 uses as well.
const UP_TO_THREE_DIGITS: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The regular expression of Qwen 2. It differs from Llama 3's in that every digit is a word.
const SINGLE_DIGITS: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The regular expression of GPT-2. llama.cpp's lacks the last alternative, which matches single spaces that llama.cpp
/// leaves over as words.
const ANY_DIGITS: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// The regular expressions of llama.cpp's default, for a vocabulary that does not name its rule: punctuation, GPT-2's
/// words, numbers, then groups of three digits.
const PUNCTUATION_FIRST: [&str; 4] = [r"[\p{P}\$\+<=>\^~\|]+", ANY_DIGITS, r"\p{N}+", "[0-9][0-9][0-9]"];
/// The regular expression of GPT-4o. Letters beyond ASCII are both upper and lower case.
const WORDS_BY_CASE: &str = r"[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]*[\p{L}&&[^A-Z]]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]+[\p{L}&&[^A-Z]]*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The regular expressions of Youtu-LLM: Korean, punctuation, Bopomofo, Chinese and Japanese, then all other text.
const EAST_ASIAN_FIRST: [&str; 2] = [
    r"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
    r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];
/// The regular expressions of DeepSeek's first models: line ends, words of cased letters, punctuation, spaces at the
/// end, East Asian text, numbers. Spaces beyond ASCII match only as spaces, although ranges of the expressions contain
/// some.
const CASED_LETTERS: [&str; 6] = [
    "[\r\n]",
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
    r"\s?[!-/:-~！-／：-～‘-‟、-。]+",
    r"\s+$",
    r"[[一-龥ࠀ-一가-\x{D7FF}]--\s]+",
    r"\p{N}+",
];
/// The regular expressions of DeepSeek-Coder.
const WORDS_OF_CODE: [&str; 5] = ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[[一-龥ࠀ-一가-\x{D7FF}]--\s]+", r"\p{N}"];
/// The regular expressions of DeepSeek-V3: numbers, Chinese and Japanese, then all other text.
const NUMBERS_FIRST: [&str; 3] = [
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];
/// The rule of Kimi: runs of Han characters, then words of other letters.
const HAN_FIRST: &str = r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2EBEF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}]+|[^\r\n\p{L}\p{N}]?[\p{L}--[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2EBEF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}]]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The most spaces in one word where the regular expression gives up; see [`Words::cut`].
const MAX_BLANKS: usize = 1 << 19;

/// The name that a file may have in place of a rule's. One without any name means the same.
pub(super) const UNNAMED: &str = "default";

/// Tokens after which it is another's turn in GLM's vocabularies.
const GLM_TURNS: &[&str] = &["<|user|>", "<|observation|>"];

static FAMILIES: &[VocabFamily] = &[
    VocabFamily {
        names: &["glm4", "glm5", "chatglm4", "glm-4", "glm4.5", "glm-4.5", "glm4.6", "glm-4.6", "glm4.7", "glm-4.7"],
        ignore_merges: true,
        end: GLM_TURNS,
        ..VocabFamily::cutting(&[UP_TO_THREE_DIGITS])
    },
    VocabFamily { names: &["chatglm-bpe"], end: GLM_TURNS, ..VocabFamily::cutting(&[UP_TO_THREE_DIGITS]) },
    VocabFamily {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        ignore_merges: true,
        add_bos: true,
        ..VocabFamily::cutting(&[UP_TO_THREE_DIGITS])
    },
    VocabFamily { names: &["smaug-bpe", "dbrx"], ..VocabFamily::cutting(&[UP_TO_THREE_DIGITS]) },
    VocabFamily {
        names: &[
            "qwen2",
            "deepseek-r1-qwen",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "megrez",
            "kormo",
            "f2llmv2",
            "grok-2",
        ],
        ..VocabFamily::cutting(&[SINGLE_DIGITS])
    },
    VocabFamily {
        names: &[
            "gpt-2",
            "gpt2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
            "a.x-4.0",
            "mellum",
            "modern-bert",
        ],
        ..VocabFamily::cutting(&[ANY_DIGITS])
    },
    VocabFamily { names: &["gigachat"], end: &["<|message_sep|>"], ..VocabFamily::cutting(&[ANY_DIGITS]) },
    VocabFamily { names: &["youtu"], ignore_merges: true, ..VocabFamily::cutting(&EAST_ASIAN_FIRST) },
    VocabFamily { names: &["deepseek-llm"], ..VocabFamily::cutting(&CASED_LETTERS) },
    VocabFamily { names: &["deepseek-coder"], ..VocabFamily::cutting(&WORDS_OF_CODE) },
    VocabFamily {
        names: &["deepseek-v3", "joyai-llm", "hunyuan-dense", "hy_v4"],
        ..VocabFamily::cutting(&NUMBERS_FIRST)
    },
    VocabFamily {
        names: &["kanana2", "gpt-4o", "llama4", "talkie", "minimax-m2"],
        ..VocabFamily::cutting(&[WORDS_BY_CASE])
    },
    VocabFamily { names: &["kimi-k2"], ..VocabFamily::cutting(&[HAN_FIRST]) },
    VocabFamily { names: &[UNNAMED, ""], ..VocabFamily::cutting(&PUNCTUATION_FIRST) },
];

/// Whether a file that has this name, or an empty one, leaves its rule unnamed.
pub(super) fn is_unnamed(pre: &str) -> bool {
    pre.is_empty() || pre == UNNAMED
}

/// The family whose rule is called `pre`.
pub(super) fn family(pre: &str) -> Result<&'static VocabFamily> {
    FAMILIES.iter().find(|family| family.names.contains(&pre)).ok_or_else(|| {
        let names = FAMILIES.iter().flat_map(|family| family.names).copied();
        let known: Vec<_> = names.filter(|name| !name.is_empty()).collect();
        Error::Tokenizer { message: format!("`tokenizer.ggml.pre` is `{pre}`; known: {}", known.join(", ")) }
    })
}

impl VocabFamily {
    /// The usual properties, for a rule of these expressions.
    const fn cutting(regexes: &'static [&'static str]) -> Self {
        Self { names: &[], regexes, ignore_merges: false, add_bos: false, end: &[] }
    }

    /// Compiles the rule of the family.
    pub(super) fn compile(&self) -> Result<Words> {
        let compile = |regex: &&str| {
            Split::new(SplitPattern::Regex((*regex).into()), Isolated, false).map_err(|error| Error::Tokenizer {
                message: format!("the regular expression of `{}`: {error}", self.names[0]),
            })
        };
        Ok(Words { splits: self.regexes.iter().map(compile).collect::<Result<_>>()? })
    }
}

/// A compiled rule.
pub(super) struct Words {
    splits: Vec<Split>,
}

impl Words {
    /// Calls `word` with every word of `text`, in order.
    ///
    /// The regular expression engine gives up on more than a million spaces in a row. Such a run is cut into words of
    /// at most `MAX_BLANKS`.
    pub(super) fn cut<'t>(&self, text: &'t str, word: &mut dyn FnMut(&'t str) -> Result<()>) -> Result<()> {
        cut(&self.splits, text, word)
    }
}

/// Cuts a text by the first of the expressions, and the pieces by the others.
fn cut<'t>(splits: &[Split], text: &'t str, word: &mut dyn FnMut(&'t str) -> Result<()>) -> Result<()> {
    let Some((split, others)) = splits.split_first() else { return if text.is_empty() { Ok(()) } else { word(text) } };
    let mut rest = text;
    loop {
        let mut done = 0;
        for (start, end) in split.regex.find_iter(rest) {
            cut(others, &rest[done..start], word)?;
            cut(others, &rest[start..end], word)?;
            done = end;
        }
        rest = &rest[done..];
        // The rest follows the last match, unless the engine gave up on spaces.
        let blanks = rest.chars().take(MAX_BLANKS).take_while(|char| char.is_whitespace());
        let (count, blanks) = blanks.fold((0, 0), |(count, bytes), char| (count + 1, bytes + char.len_utf8()));
        if count < MAX_BLANKS {
            return cut(others, rest, word);
        }
        cut(others, &rest[..blanks], word)?;
        rest = &rest[blanks..];
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn cut<'t>(pre: &str, text: &'t str) -> Vec<&'t str> {
        let mut out = Vec::new();
        let mut add = |word| {
            out.push(word);
            Ok(())
        };
        family(pre).unwrap().compile().unwrap().cut(text, &mut add).unwrap();
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

    /// What llama.cpp, and for two of the rules another program, makes of texts: see `tests/reference/README.md`.
    #[test]
    fn words_are_those_of_llama_cpp() {
        #[derive(serde::Deserialize)]
        struct Case {
            text: String,
            words: std::collections::BTreeMap<String, Vec<String>>,
        }
        let cases = include_str!("words.json");
        let cases: Vec<Case> = serde_json::from_str(cases).unwrap();
        let mut faults = Vec::new();
        for Case { text, words } in &cases {
            for (pre, want) in words {
                let got = cut(pre, text);
                if got != *want {
                    faults.push(format!("{pre}: {text:?}\n  {got:?}\n  {want:?}"));
                }
            }
        }
        assert!(cases.len() > 100 && faults.is_empty(), "{} of {}\n{}", faults.len(), cases.len(), faults.join("\n"));
    }

    #[test]
    fn names_of_one_rule() {
        let text = "It'S 12345 東京の Köln \n\n  x!?\n";
        for (one, other) in [
            ("joyai-llm", "deepseek-v3"),
            ("hy_v4", "deepseek-v3"),
            ("llama4", "kanana2"),
            ("talkie", "kanana2"),
            ("deepseek-r1-qwen", "qwen2"),
            ("megrez", "qwen2"),
            ("olmo", "gpt-2"),
            ("glm5", "glm4"),
            ("chatglm-bpe", "glm4"),
            ("falcon3", "llama-bpe"),
            ("dbrx", "llama-bpe"),
            ("", UNNAMED),
        ] {
            assert_eq!(cut(one, text), cut(other, text), "{one}");
        }
    }

    /// The flags that llama.cpp sets beside a rule.
    #[test]
    fn names_of_one_rule_differ_in_their_flags() {
        for (pre, ignore_merges, add_bos) in [
            ("glm5", true, false),
            ("chatglm-bpe", false, false),
            ("lfm2", true, true),
            ("smaug-bpe", false, false),
            ("stablelm2", false, false),
            ("default", false, false),
        ] {
            let family = family(pre).unwrap();
            assert_eq!((family.ignore_merges, family.add_bos), (ignore_merges, add_bos), "{pre}");
        }
    }

    #[test]
    fn no_name_is_there_twice() {
        let mut names: Vec<_> = FAMILIES.iter().flat_map(|family| family.names).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    /// The rule of vocabularies that name none.
    #[test]
    fn punctuation_and_groups_of_digits() {
        assert_eq!(cut(UNNAMED, "It's 12345!"), ["It", "'", "s", " ", "123", "45", "!"]);
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let message = family("tekken").err().unwrap().to_string();
        assert!(message.contains("tokenizer.ggml.pre") && message.contains("`tekken`") && message.contains("glm4, "));
    }

    /// Long runs of one character make a backtracking engine give up.
    #[test]
    fn long_runs_of_one_kind() {
        for unit in [" ", "\n", " \n", "a", "1", "!", "\t ", "é", "' "] {
            let text = unit.repeat(1_500_000);
            for pre in ["glm4", "qwen2", "gpt2", "youtu", "deepseek-llm", "kanana2", "kimi-k2", "default"] {
                assert_eq!(cut(pre, &text).concat(), text, "{pre}: {unit:?}");
            }
            let text = format!("{text}x");
            assert_eq!(cut("glm4", &text).concat(), text, "{unit:?}");
        }
    }
}
