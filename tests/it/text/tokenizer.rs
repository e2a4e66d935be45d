//! Compares the tokenizer with llama.cpp's tokens of the demonstration model (`tests/fixtures/tokenizer.json`), and
//! tests its guarantees on any text and vocabulary.

use super::fable_vocab::fable_vocab;
use proptest::prelude::*;
use std::sync::LazyLock;
use wglm::Error;
use wglm::text::{ChatInput, ChatTemplate, Detokenizer, TokenType, Tokenizer, Vocab};

static FABLE: LazyLock<Tokenizer> = LazyLock::new(|| Tokenizer::new(fable_vocab()).unwrap());

/// A vocabulary of the 256 bytes in order of their characters, then `more`.
pub fn tiny(more: &[(&str, TokenType)], merges: &[&str]) -> Vocab {
    let bytes = (0x21..=0x7e).chain(0xa1..=0xac).chain(0xae..=0xff).chain(0x100..=0x143);
    let mut tokens: Vec<_> = bytes.map(|code| char::from_u32(code).unwrap().to_string()).collect();
    let mut types = vec![TokenType::Normal; tokens.len()];
    for (text, kind) in more {
        tokens.push(text.to_string());
        types.push(*kind);
    }
    Vocab {
        tokens,
        types,
        merges: merges.iter().map(|merge| merge.to_string()).collect(),
        pre: "glm4".into(),
        ..Vocab::default()
    }
}

fn refusal(vocab: Vocab) -> String {
    let error = Tokenizer::new(vocab).unwrap_err();
    assert!(matches!(error, Error::Tokenizer { .. }), "{error}");
    error.to_string()
}

#[test]
fn the_tokens_that_llama_cpp_makes() {
    let goldens: serde_json::Value = serde_json::from_str(include_str!("../../fixtures/tokenizer.json")).unwrap();
    let cases = goldens["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 54);
    for case in cases {
        let text = case["text"].as_str().unwrap();
        let ids: Vec<u32> = serde_json::from_value(case["ids"].clone()).unwrap();
        assert_eq!(FABLE.encode(text, true).unwrap(), ids, "{text:?}");
        assert_eq!(FABLE.decode(&ids, true).unwrap(), text);
    }
}

#[test]
fn control_tokens_and_tags_arise_only_on_request() {
    let user = FABLE.special("<|user|>").unwrap();
    let text = "[gMASK]<sop><|user|>Hello<|assistant|><think>";
    let special = FABLE.encode(text, true).unwrap();
    let plain = FABLE.encode(text, false).unwrap();
    assert!(special.contains(&user) && special.len() < plain.len());
    for &token in &plain {
        assert_ne!(FABLE.token_type(token).unwrap(), TokenType::Control);
    }
    // llama.cpp recognises `<think>` here as well, as it does every user-defined token, so that any text which contains
    // the tag opens a block of thinking.
    assert!(
        !plain.contains(&FABLE.special("<think>").unwrap()) && special.ends_with(&[FABLE.special("<think>").unwrap()])
    );
    assert_eq!(FABLE.decode(&plain, false).unwrap(), text);
    assert_eq!(FABLE.decode(&special, true).unwrap(), text);
    assert_eq!(FABLE.decode(&special, false).unwrap(), "Hello<think>");
}

#[test]
fn a_control_token_that_is_one_word_is_still_not_text() {
    // `ignore_merges` looks up whole words, and a merge gives the same token.
    let vocab = tiny(&[("ab", TokenType::Control), ("abc", TokenType::Normal)], &["a b", "ab c"]);
    let tokenizer = Tokenizer::new(vocab).unwrap();
    let plain = tokenizer.encode("ab", false).unwrap();
    assert_eq!((plain.len(), tokenizer.decode(&plain, false).unwrap().as_str()), (2, "ab"));
    assert_eq!(tokenizer.encode("ab", true).unwrap(), [256]);
    assert_eq!(tokenizer.encode("abc", false).unwrap(), [257]);
}

/// A user-defined token in brackets is not recognised either; any other one is.
#[test]
fn user_defined_markup_is_not_text() {
    let defined = ["<!>", "[!]", "<!!>\n\n", "->", "!!"].map(|text| (text, TokenType::UserDefined));
    let tokenizer = Tokenizer::new(tiny(&defined, &["! !"])).unwrap();
    for (index, (text, _)) in defined.iter().enumerate() {
        let token = 256 + index as u32;
        assert_eq!(tokenizer.encode(text, true).unwrap(), [token], "{text}");
        assert_eq!(tokenizer.encode(text, false).unwrap() == [token], index > 2, "{text}");
    }
}

/// Files have the type of a normal token for tokens that end a reply. As in llama.cpp, they are control tokens.
#[test]
fn ends_of_a_normal_type() {
    let tokenizer = Tokenizer::new(tiny(&[("<|im_end|>", TokenType::Normal)], &[])).unwrap();
    assert_eq!(tokenizer.encode("a<|im_end|>", true).unwrap()[1..], [256]);
    assert!(!tokenizer.encode("a<|im_end|>", false).unwrap().contains(&256));
    assert_eq!((tokenizer.special("<|im_end|>"), tokenizer.is_end(256)), (Some(256), true));
    assert_eq!(tokenizer.decode(&[256], false).unwrap(), "");
    let untyped = Vocab { types: Vec::new(), ..tiny(&[("<eos>", TokenType::Normal)], &[]) };
    assert_eq!(Tokenizer::new(untyped).unwrap().encode("<eos>", true).unwrap(), [256]);
}

/// A reserved token is found before one that is free, also where the free one begins further left, as in prompts.
#[test]
fn reserved_tokens_are_found_first() {
    let names = [("--<", TokenType::UserDefined), ("<|x|>", TokenType::Control)];
    let tokenizer = Tokenizer::new(tiny(&names, &[])).unwrap();
    let template = ChatTemplate::new("--<|x|>--<").unwrap();
    let prompt = template.prompt(&ChatInput::new(&[]), &tokenizer).unwrap();
    let tokens = tokenizer.encode("--<|x|>--<", true).unwrap();
    assert_eq!((&tokens, tokens[2..].to_vec()), (&prompt.tokens, vec![257, 256]));
    assert_eq!(tokenizer.encode("--<|x|>", false).unwrap()[0], 256);
}

/// User-defined tokens are stored as they are: `é` is a character there, and not the byte 0xe9.
#[test]
fn literal_tokens_are_not_mistaken_for_the_byte_level_alphabet() {
    let vocab = tiny(&[("é", TokenType::UserDefined), ("<0x41>", TokenType::Byte)], &["Ã ©"]);
    let mut turned = vocab.clone();
    turned.tokens.reverse();
    turned.types.reverse();
    for vocab in [vocab, turned] {
        let tokenizer = Tokenizer::new(vocab).unwrap();
        for text in ["é", "\u{9}é", "\u{7a69}", "A<0x41>", "ééA"] {
            assert_eq!(tokenizer.decode(&tokenizer.encode(text, false).unwrap(), true).unwrap(), text);
        }
        assert_eq!(tokenizer.encode("ééA", false).unwrap().len(), 3);
    }
}

#[test]
fn the_ends_of_a_reply() {
    for name in ["<|endoftext|>", "<|user|>", "<|observation|>"] {
        assert!(FABLE.is_end(FABLE.special(name).unwrap()), "{name}");
    }
    assert!(!FABLE.is_end(FABLE.special("<|assistant|>").unwrap()));
    let forgetful = Tokenizer::new(Vocab { end: Vec::new(), ..fable_vocab() }).unwrap();
    assert_eq!(forgetful.end_tokens(), FABLE.end_tokens(), "control tokens known by name");
}

#[test]
fn every_token_stands_for_bytes() {
    let mut seen = [false; 256];
    for token in 0..FABLE.vocab_size() as u32 {
        let bytes = FABLE.token_bytes(token).unwrap();
        assert!(!bytes.is_empty());
        if let [byte] = bytes {
            seen[*byte as usize] = true;
        }
    }
    assert!(seen.iter().all(|&seen| seen));
    let beyond = FABLE.vocab_size() as u32;
    for token in [beyond, u32::MAX] {
        assert!(matches!(FABLE.token_bytes(token), Err(Error::TokenOutOfRange { .. })));
        assert!(FABLE.decode(&[token], true).is_err() && FABLE.token_type(token).is_err() && !FABLE.is_end(token));
    }
    let raw = Tokenizer::new(tiny(&[("<0x0A>", TokenType::Byte), ("Ġé", TokenType::UserDefined)], &[])).unwrap();
    assert_eq!((raw.token_bytes(256).unwrap(), raw.token_bytes(257).unwrap()), (&b"\n"[..], "Ġé".as_bytes()));
}

#[test]
fn a_beginning_of_text_token_comes_first_where_the_file_says_so() {
    let with = |add_bos| Vocab { bos: Some(256), add_bos, ..tiny(&[("<s>", TokenType::Control)], &[]) };
    assert_eq!(Tokenizer::new(with(true)).unwrap().encode("!", false).unwrap(), [256, 0]);
    assert_eq!(Tokenizer::new(with(true)).unwrap().encode("", false).unwrap(), [256]);
    assert_eq!(Tokenizer::new(with(false)).unwrap().encode("!", false).unwrap(), [0]);
    assert!(refusal(Vocab { bos: None, ..with(true) }).contains("tokenizer.ggml.bos_token_id"));
}

#[test]
fn the_first_of_two_equal_tokens_is_the_one_encoded_to() {
    let twice = [
        ("ab", TokenType::Normal),
        ("ab", TokenType::Normal),
        ("<x>", TokenType::Control),
        ("<x>", TokenType::Control),
    ];
    let tokenizer = Tokenizer::new(tiny(&twice, &["a b"])).unwrap();
    assert_eq!(tokenizer.encode("ab<x>", true).unwrap(), [256, 258]);
    assert_eq!(tokenizer.decode(&[256, 257, 258, 259], true).unwrap(), "abab<x><x>");
}

#[test]
fn defects_are_refused_by_name() {
    let refused = |merge: &str| refusal(tiny(&[("ab", TokenType::Normal)], &["a b", merge]));
    assert!(refused("ab").contains("merge 1 is `ab`"));
    assert!(refused("a ").contains("merge 1 is `a `"));
    let vocab = tiny(&[], &[]);
    assert!(
        refusal(Vocab { types: vec![TokenType::Normal; 3], ..vocab.clone() }).contains("256 tokens, but 3 token types")
    );
    assert!(refusal(Vocab { pre: "tekken".into(), ..vocab.clone() }).contains("`tokenizer.ggml.pre` is `tekken`"));
    assert!(refusal(Vocab { pre: "glm4".into(), ..Vocab::default() }).contains("at least one token"));
    let begun = Vocab { bos: Some(999), add_bos: true, ..vocab.clone() };
    assert!(matches!(Tokenizer::new(begun), Err(Error::TokenOutOfRange { token: 999, .. })));
    let ended = Vocab { end: vec![256, 7], ..vocab.clone() };
    assert_eq!(Tokenizer::new(ended).unwrap().end_tokens(), [7], "ids outside of the vocabulary count as absent");
    assert!(Tokenizer::new(Vocab { types: Vec::new(), ..vocab.clone() }).is_ok(), "types are optional");
    assert!(
        Tokenizer::new(Vocab { types: vec![TokenType::Normal; 300], ..vocab }).is_ok(),
        "further types are ignored"
    );
}

/// llama.cpp drops bytes without a token. The model would then read another text than it was given.
#[test]
fn a_byte_without_a_token_is_refused_in_texts() {
    let one = Vocab { tokens: vec!["a".into()], types: Vec::new(), ..tiny(&[], &[]) };
    let tokenizer = Tokenizer::new(one).unwrap();
    assert_eq!(tokenizer.encode("aa", false).unwrap(), [0, 0]);
    let error = tokenizer.encode("ab", false).unwrap_err();
    assert!(matches!(&error, Error::NoToken { byte: 0x62, word } if word == "ab"), "{error}");
}

/// The result of a merge need not be a token: it is encoded byte by byte, or merged further.
#[test]
fn merges_without_tokens() {
    let tokenizer = Tokenizer::new(tiny(&[("abc", TokenType::Normal)], &["a b", "ab c", "Ġ x"])).unwrap();
    assert_eq!(tokenizer.encode("abc", false).unwrap(), [256]);
    for text in ["ab", "abd", "a x", "ab xyz x"] {
        assert_eq!(tokenizer.decode(&tokenizer.encode(text, false).unwrap(), false).unwrap(), text);
    }
}

/// DeepSeek's first vocabularies have normal tokens for the bytes of UTF-8 only. The characters that would stand for
/// the other 13 are user-defined tokens there, which mean those letters.
#[test]
fn bytes_that_text_never_has_need_no_tokens() {
    let letters = ["À", "Á", "õ", "ö", "÷", "ø", "ù", "ú", "û", "ü", "ý", "þ", "ÿ"];
    let full = tiny(&[], &[]);
    let kept = full.tokens.into_iter().filter(|token| !letters.contains(&token.as_str()));
    let tokens: Vec<String> = kept.chain(letters.map(str::to_owned)).collect();
    let types = (0..256).map(|id| if id < 243 { TokenType::Normal } else { TokenType::UserDefined }).collect();
    let vocab = Vocab { tokens, types, pre: "deepseek-llm".into(), ..Vocab::default() };
    let tokenizer = Tokenizer::new(vocab.clone()).unwrap();
    assert_eq!(tokenizer.encode("ø", false).unwrap(), [248]);
    let text = "smørrebrød für Ýmir ÀÁ \u{10FFFF}\u{80000}é";
    assert_eq!(tokenizer.decode(&tokenizer.encode(text, true).unwrap(), true).unwrap(), text);
    let without = |letter: &str| Vocab {
        tokens: vocab
            .tokens
            .iter()
            .map(|token| if token == letter { "none".to_owned() } else { token.clone() })
            .collect(),
        ..vocab.clone()
    };
    assert!(Tokenizer::new(without("ÿ")).unwrap().encode("\u{10FFFF}ÿ", false).is_ok());
    let error = Tokenizer::new(without("ô")).unwrap().encode("\u{10FFFF}", false).unwrap_err().to_string();
    assert!(error.contains("0xf4"), "the last of those that begin a character: {error}");
}

#[test]
fn families_by_name() {
    for (pre, tokens) in [("glm4", 2), ("chatglm-bpe", 2), ("llama-bpe", 2), ("qwen2", 4), ("gpt-2", 1)] {
        // With whole words as tokens the words of a text can be counted.
        let digits = ["123", "4", "1234"].map(|text| (text, TokenType::Normal));
        let vocab = Vocab { pre: pre.into(), ..tiny(&digits, &["1 2", "12 3", "123 4"]) };
        let mut vocab = Vocab { tokens: vocab.tokens, ..vocab };
        vocab.tokens.push("12".into());
        vocab.types.push(TokenType::Normal);
        assert_eq!(Tokenizer::new(vocab).unwrap().encode("1234", false).unwrap().len(), tokens, "{pre}");
    }
}

#[test]
fn a_tokenizer_can_be_shared() {
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&*FABLE);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(FABLE.encode("Once upon a time", false).unwrap().len(), 4));
        }
    });
}

/// Text that is difficult for a tokenizer, mixed with any text.
fn texts() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        any::<String>(),
        "[ \\t\\n\\r]{0,6}",
        "[a-zA-Z']{0,8}",
        "[0-9]{0,7}",
        Just("<|user|>".to_string()),
        Just("<think>".to_string()),
        Just("</thi".to_string()),
        Just("\u{301}é🦉\u{200d}\0\u{a0}".to_string()),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_text_round_trips(text in texts(), parse_special: bool) {
        let tokens = FABLE.encode(&text, parse_special).unwrap();
        prop_assert_eq!(FABLE.decode(&tokens, true).unwrap(), text);
    }

    #[test]
    fn plain_text_never_holds_a_control_token_or_a_tag(text in texts()) {
        for token in FABLE.encode(&text, false).unwrap() {
            prop_assert_eq!(FABLE.token_type(token).unwrap(), TokenType::Normal);
        }
    }

    #[test]
    fn any_tokens_one_by_one_are_the_tokens_at_once(
        tokens in prop::collection::vec(0..2048u32, 0..40), show_special: bool,
    ) {
        let mut detokenizer = Detokenizer::new(show_special);
        let mut text = String::new();
        for &token in &tokens {
            text += detokenizer.push(&FABLE, token).unwrap();
        }
        text += detokenizer.finish();
        prop_assert_eq!(text, FABLE.decode(&tokens, show_special).unwrap());
    }

    #[test]
    fn any_bytes_in_any_cut_are_the_bytes_at_once(
        chunks in prop::collection::vec(
            prop::collection::vec(
                prop_oneof![any::<u8>(), Just(0xe2), Just(0x82), 0xf0..=0xf4u8, 0x80..=0x90u8],
                0..6,
            ),
            0..8,
        ),
    ) {
        let mut detokenizer = Detokenizer::default();
        let mut text = String::new();
        for chunk in &chunks {
            text += detokenizer.push_bytes(chunk);
        }
        text += detokenizer.finish();
        prop_assert_eq!(text, String::from_utf8_lossy(&chunks.concat()).into_owned());
    }

    #[test]
    fn no_vocabulary_panics(
        more in prop::collection::vec(("[ab<>Ġéú]{0,4}", 0..8i32), 0..8),
        merges in prop::collection::vec("[abĠé ]{0,5}", 0..4),
        types in prop::option::of(0..300usize), text in texts(),
    ) {
        let more: Vec<_> = more.iter().map(|(text, kind)| (text.as_str(), TokenType::from_gguf(*kind))).collect();
        let merges: Vec<_> = merges.iter().map(String::as_str).collect();
        let mut vocab = tiny(&more, &merges);
        if let Some(types) = types {
            vocab.types.resize(types, TokenType::Normal);
        }
        if let Ok(tokenizer) = Tokenizer::new(vocab) {
            let tokens = tokenizer.encode(&text, true).unwrap();
            prop_assert_eq!(tokenizer.decode(&tokens, true).unwrap(), text);
        }
    }
}
