//! Tests numbers in answers, which the grammar of JSON alone would let continue forever.

use super::{chat_by, model, text, told};
use wglm::serde_json::{Value, from_str, json};
use wglm::{Constraint, Message, Stop};

/// Numbers without bounds end, and programs can read them.
#[test]
fn extended_numbers_without_bounds() {
    let named = |of: Value| {
        json!({"type": "object", "properties": {"n": of}, "required": ["n"],
        "additionalProperties": false})
    };
    let digits = tokens_of("0123456789eE.+-");
    let mut chat = chat_by(Constraint::json_object());
    chat.options.max_tokens = Some(200);
    for of in [
        json!({"type": "integer"}),
        json!({"type": "integer", "minimum": 3}),
        json!({"type": "integer", "format": "int64"}),
        json!({"type": "number"}),
        json!({"type": "number", "minimum": 0.5, "maximum": 2}),
        json!({}),
    ] {
        for favoured in tokens_of("90") {
            // The model would write digits forever.
            chat.clear();
            chat.options.constraint = Some(Constraint::json_schema(named(of.clone())).unwrap());
            let favour = |token: &u32| (*token, if *token == favoured { 120.0 } else { 100.0 });
            chat.options.sampling.logit_bias = digits.iter().map(favour).collect();
            let (events, stats) = told(chat.send("How many?").unwrap());
            let answer = text(&events);
            let value: Value = from_str(&answer).unwrap_or_else(|error| panic!("{of}: {answer}: {error}"));
            assert_eq!(stats.stop, Stop::End, "{of}: {answer}");
            let number = value["n"].as_f64().unwrap_or_else(|| panic!("{of}: {answer}"));
            assert!(number.is_finite(), "{answer}");
            if of["type"] == "integer" {
                let most = if of.get("format").is_some() { i64::MAX } else { (1 << 53) - 1 };
                assert!(value["n"].as_i64().is_some_and(|number| (-most..=most).contains(&number)), "{answer}");
            }
        }
    }
    // Any object may have more entries and other values: its end is favoured less than digits, and more than all else.
    chat.options.constraint = Some(Constraint::json_object());
    let end = tokens_of("}").into_iter().map(|token| (token, 50.0));
    chat.options.sampling.logit_bias = digits.iter().map(|token| (*token, 100.0)).chain(end).collect();
    chat.options.sampling.temperature = 1.5;
    for seed in 0..4 {
        chat.clear();
        chat.options.sampling.seed = Some(seed);
        chat.push(Message::user("How many?"));
        let (_, stats) = told(chat.prefill("{\"n\":").unwrap());
        let answer = chat.messages()[1].text().into_owned();
        assert_eq!(stats.stop, Stop::End, "{seed}: {answer}");
        let value: Value = from_str(&answer).unwrap_or_else(|error| panic!("{seed}: {answer}: {error}"));
        assert!(value["n"].as_f64().is_some_and(f64::is_finite), "{seed}: {answer}");
    }
}

/// The tokens of these single letters.
fn tokens_of(letters: &str) -> Vec<u32> {
    let tokenizer = model().tokenizer().unwrap();
    let token = |letter: char| match tokenizer.encode(&letter.to_string(), false).unwrap()[..] {
        [token] => token,
        ref tokens => panic!("{letter} is {tokens:?}"),
    };
    letters.chars().map(token).collect()
}
