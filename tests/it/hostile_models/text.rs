//! Tests vocabularies and chat templates that cannot be used.

use super::refused::{Broken, all_refused, load, read_texts};
use super::small::Small;
use crate::common::gguf_writer::Meta;
use crate::common::gpu::gpu;
use wglm::text::Vocab;
use wglm::{Chat, Error, Gguf, LoadOptions, Model, SamplerParams, Session};
use wglm_engine::instruments::recommended_sampling;

const TEMPLATE: &str = "tokenizer.chat_template";

fn ggml(name: &str) -> String {
    format!("tokenizer.ggml.{name}")
}

/// The characters that stand for single bytes, in the order of GPT-2's vocabulary, a merged pair, and two control
/// tokens.
fn tokens() -> Vec<Meta> {
    let plain = |b: &u32| matches!(b, 33..=126 | 161..=172 | 174..=255);
    let letters = (0..256).filter(plain).chain(256..256 + 68).filter_map(char::from_u32);
    letters
        .map(String::from)
        .chain(["he".into(), "<|user|>".into(), "<|end|>".into()])
        .map(|t| t.as_str().into())
        .collect()
}

fn types() -> Vec<Meta> {
    (0..259).map(|id| Meta::from(if id < 257 { 1i32 } else { 3 })).collect()
}

fn strings(values: Vec<Meta>) -> Meta {
    Meta::Array(8, values)
}

/// Adds a byte-level vocabulary and a template.
fn with_texts(small: &mut Small) {
    small.set(&ggml("model"), "gpt2");
    small.set(&ggml("pre"), "glm4");
    small.set(&ggml("tokens"), strings(tokens()));
    small.set(&ggml("token_type"), Meta::Array(5, types()));
    small.set(&ggml("merges"), strings(vec!["h e".into()]));
    small.set(&ggml("eos_token_id"), 258u32);
    small.set(TEMPLATE, "{% for m in messages %}{{ m.content }}{% endfor %}");
}

fn broken(what: &str, edit: impl FnOnce(&mut Small), variant: &'static str, says: &[&str]) -> Broken {
    let both = |s: &mut Small| {
        with_texts(s);
        edit(s);
    };
    Broken::new(what, both, variant, says)
}

fn value(name: &str, value: impl Into<Meta>, variant: &'static str, says: &[&str]) -> Broken {
    broken(name, |s| s.set(&ggml(name), value), variant, says)
}

/// Vocabularies with an error, whose variant is `defect` if the error is not about a single key.
fn vocabularies(defect: &'static str, outside_of_tokens: &'static str) -> Vec<Broken> {
    let without =
        |name: &str| broken(&format!("no {name}"), |s| s.unset(&ggml(name)), "Metadata", &[&ggml(name), "nothing"]);
    let outside = |s: &mut Small| {
        s.set(&ggml("add_bos_token"), true);
        s.set(&ggml("bos_token_id"), 259u32);
    };
    vec![
        without("tokens"),
        without("merges"),
        value("model", "llama", "Unsupported", &["tokenizer.ggml.model", "`llama`", "gpt2"]),
        value("model", "", "Unsupported", &["tokenizer.ggml.model", "gpt2"]),
        value("model", 2u32, "Metadata", &["tokenizer.ggml.model", "string"]),
        value("pre", "a family nobody knows", defect, &["tokenizer.ggml.pre", "a family nobody knows", "glm4"]),
        value("tokens", 3u32, "Metadata", &["tokenizer.ggml.tokens", "array of strings"]),
        value("tokens", Meta::Array(8, vec![]), defect, &["token"]),
        value("tokens", Meta::Array(8, vec![Meta::String(vec![0xff])]), "Metadata", &["tokens", "UTF-8"]),
        value("token_type", Meta::Array(5, types()[1..].to_vec()), defect, &["259 tokens", "258 token types"]),
        value("token_type", ["normal"], "Metadata", &["token_type", "integers"]),
        value("merges", ["he"], defect, &["merge 0", "`he`"]),
        value("merges", ["h e", " y"], defect, &["merge 1", "` y`"]),
        value("merges", [7u32], "Metadata", &["merges", "strings"]),
        value("add_bos_token", true, defect, &["add_bos_token", "bos_token_id"]),
        value("eos_token_id", "<|end|>", "Metadata", &["eos_token_id", "integer"]),
        broken("bos outside", outside, outside_of_tokens, &["259"]),
    ]
}

/// Templates that do not parse, for which `variant` is the error, and values that are none.
fn templates(variant: &'static str) -> Vec<Broken> {
    let template = |source: &str, says: &str| broken(source, |s| s.set(TEMPLATE, source), variant, &["line 1", says]);
    vec![
        template("{% if %}", "unexpected"),
        template("{% for m in messages %}", "end"),
        template("{{ 'open", "string"),
        template("{% translate %}{% endtranslate %}", "translate"),
        broken("a number", |s| s.set(TEMPLATE, 5u32), "Metadata", &[TEMPLATE, "string"]),
        broken("not UTF-8", |s| s.set(TEMPLATE, Meta::String(vec![0xc3])), "Metadata", &[TEMPLATE, "UTF-8"]),
    ]
}

#[test]
fn every_broken_text_is_refused() {
    let defects = vocabularies("Tokenizer", "TokenOutOfRange");
    all_refused(&[defects, templates("Template")].concat(), read_texts);
    // A model is loaded even so, and its calls return the error.
    let load = |file: &Gguf| {
        let model = Model::load(file, gpu(), &LoadOptions::default()).expect("weights that can be used");
        model.tokenizer().and(model.template()).map(drop)
    };
    all_refused(&[vocabularies("Metadata", "Metadata"), templates("Metadata")].concat(), load);
}

/// What llama.cpp accepts too: no name of a rule, more types than tokens, and merges of texts that are no tokens.
#[test]
fn vocabularies_that_lack_something() {
    let unnamed: fn(&mut Small) = |s| s.unset(&ggml("pre"));
    let merges: fn(&mut Small) = |s| s.set(&ggml("merges"), strings(vec!["h e".into(), "x y".into()]));
    let bytes: fn(&mut Small) = |s| s.set(&ggml("tokens"), strings([&tokens()[1..], &["none".into()]].concat()));
    let kimi: fn(&mut Small) = |s| {
        s.set(&ggml("pre"), "kimi-k2");
        s.unset(&ggml("merges"));
    };
    for (edit, says) in
        [(unnamed, "tokenizer.ggml.pre"), (merges, "merge 1, `x y`"), (bytes, "0x21"), (kimi, "no merges")]
    {
        let model = loaded(|s| {
            with_texts(s);
            edit(s);
        });
        let notices = &model.config().notices;
        assert!(notices.iter().any(|notice| notice.contains(says)), "{says}: {notices:?}");
        let tokenizer = model.tokenizer().unwrap();
        let text = "xyz hey";
        assert_eq!(tokenizer.decode(&tokenizer.encode(text, false).unwrap(), false).unwrap(), text, "{says}");
    }
    let model = loaded(|s| {
        with_texts(s);
        s.set(&ggml("token_type"), Meta::Array(5, [types(), types()].concat()));
    });
    assert!(model.tokenizer().is_ok());
}

/// Ids of tokens that end a reply are ignored if there are no such tokens, as in llama.cpp.
#[test]
fn ends_outside_the_vocabulary() {
    let model = loaded(|s| {
        with_texts(s);
        ["eos", "eot", "eom"].iter().zip(259u32..).for_each(|(name, id)| s.set(&ggml(&format!("{name}_token_id")), id));
    });
    assert_eq!(model.tokenizer().unwrap().end_tokens(), [257, 258], "those that are known by name");
    let notices = &model.config().notices;
    assert!(notices.iter().any(|notice| notice.ends_with("ignored: 259, 260, 261")), "{notices:?}");
}

/// A model whose template cannot be used is loaded, and calls that need the template return the template's error.
#[test]
fn a_template_that_does_not_parse() {
    let model = loaded(|s| {
        with_texts(s);
        s.set(TEMPLATE, "{% if %}");
    });
    let error = Chat::new(&model).map(drop).unwrap_err().to_string();
    assert!(error.contains("line 1"), "{error}");
    let notices = &model.config().notices;
    assert!(notices.iter().any(|notice| notice.contains("cannot chat") && notice.contains("line 1")), "{notices:?}");
    assert!(model.tokenizer().is_ok());
}

/// A model whose vocabulary or template cannot be used computes tokens, and a notice says what is wrong.
#[test]
fn a_model_without_usable_text_computes() {
    let no_rule: fn(&mut Small) = |s| s.set(&ggml("pre"), "a family nobody knows");
    let other: fn(&mut Small) = |s| s.set(&ggml("model"), "llama");
    let no_template: fn(&mut Small) = |s| s.set(TEMPLATE, Meta::String(vec![0xc3]));
    for (edit, says) in [(no_rule, "a family nobody knows"), (other, "`llama`"), (no_template, TEMPLATE)] {
        let model = loaded(|s| {
            with_texts(s);
            edit(s);
        });
        let error = Chat::new(&model).map(drop).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        let notices = &model.config().notices;
        assert!(notices.iter().any(|notice| notice.contains(says)), "{says}: {notices:?}");
        let mut session = Session::new(&model).unwrap();
        session.feed(&[1, 2, 3]).unwrap();
    }
}

fn loaded(edit: impl FnOnce(&mut Small)) -> Model {
    let mut small = Small::default();
    edit(&mut small);
    load(&small, &LoadOptions::default()).unwrap()
}

#[test]
fn sound_texts_are_read() {
    let model = loaded(with_texts);
    assert_eq!(model.tokenizer().unwrap().vocab_size(), 259);
    assert!(model.template().is_ok());
}

/// Whether texts begin with a special token is decided by the file, and otherwise by the kind of vocabulary.
#[test]
fn texts_begin_as_the_vocabulary_requires() {
    let begins = |pre: &str, bos: Option<u32>, add: Option<bool>| {
        let mut small = Small::default();
        with_texts(&mut small);
        small.set(&ggml("pre"), pre);
        bos.into_iter().for_each(|bos| small.set(&ggml("bos_token_id"), bos));
        add.into_iter().for_each(|add| small.set(&ggml("add_bos_token"), add));
        Vocab::read(&small.open().unwrap()).unwrap().unwrap().add_bos
    };
    for pre in ["llama-bpe", "llama3", "llama-v3"] {
        assert!(begins(pre, Some(257), None) && begins(pre, Some(257), Some(true)));
        assert!(!begins(pre, Some(257), Some(false)) && !begins(pre, None, None));
    }
    for pre in ["glm4", "qwen2", "deepseek-v3", "nobody's"] {
        assert!(begins(pre, Some(257), Some(true)) && !begins(pre, Some(257), None), "{pre}");
    }
}

/// A model without tokenizer and template computes, and calls that need them say what is missing.
#[test]
fn extended_a_conversation_needs_tokenizer_and_template() {
    for (missing, edit) in [
        (ggml("model"), (|_| ()) as fn(&mut Small)),
        (TEMPLATE.to_owned(), |s| {
            with_texts(s);
            s.unset(TEMPLATE);
        }),
    ] {
        let error = Chat::new(&loaded(edit)).map(drop).unwrap_err();
        assert!(matches!(&error, Error::Metadata { key, .. } if *key == missing), "{missing}: {error}");
    }
}

/// A refused message leaves the conversation as it was.
#[test]
fn a_template_that_refuses_the_conversation() {
    let model = loaded(|s| {
        with_texts(s);
        s.set(TEMPLATE, "{{ raise_exception('not today') if messages | length > 0 }}");
    });
    let mut chat = Chat::new(&model).unwrap();
    for _ in 0..2 {
        let error = chat.send("hello").map(drop).unwrap_err();
        assert!(matches!(&error, Error::Refused { reason } if reason == "not today"), "{error}");
        assert!(chat.messages().is_empty());
    }
}

/// A negative number of tokens to choose from means all of them, as in llama.cpp.
#[test]
fn all_tokens_to_choose_from() {
    for (given, read) in [(-1i32, 0), (0, 0), (7, 7)] {
        let mut small = Small::default();
        small.set("general.sampling.top_k", given);
        assert_eq!(recommended_sampling(&small.open().unwrap()).unwrap().top_k, read, "{given}");
    }
}

/// The sampling parameters that the file recommends are checked like everything else in it.
#[test]
fn extended_impossible_sampling_parameters() {
    let wrong: [(&str, Meta); 4] =
        [("temp", f32::NAN.into()), ("temp", "hot".into()), ("top_k", 1.5f32.into()), ("min_p", 1u32.into())];
    for (name, value) in wrong {
        let key = format!("general.sampling.{name}");
        let mut small = Small::default();
        with_texts(&mut small);
        small.set(&key, value);
        let model = load(&small, &LoadOptions::default());
        let error = model.and_then(|model| Chat::new(&model)).map(drop).unwrap_err();
        assert!(matches!(&error, Error::Metadata { key: k, .. } if *k == key), "{key}: {error}");
    }
    for (name, value) in [("temp", -1f32), ("top_p", 1.5), ("min_p", -0.5), ("penalty_repeat", 0.0)] {
        let model = loaded(|s| {
            with_texts(s);
            s.set(&format!("general.sampling.{name}"), value);
        });
        let refused = Chat::new(&model).and_then(|mut chat| chat.send("hello").map(drop)).unwrap_err();
        assert!(refused.to_string().contains(&value.to_string()), "{name} = {value}: {refused}");
    }
}

/// If the vocabulary has more tokens than the embedding, such a token is refused and not looked up.
#[test]
fn a_vocabulary_larger_than_the_embedding() {
    let model = loaded(with_texts);
    let mut chat = Chat::new(&model).unwrap();
    chat.options.sampling = SamplerParams::greedy();
    let error = chat.send("~~~").map(drop).unwrap_err();
    assert!(matches!(error, Error::TokenOutOfRange { vocab: 40, .. }), "{error}");
    assert!(chat.messages().is_empty(), "a message without a reply stays");
}
