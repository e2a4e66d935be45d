//! Tests answers with random schemas: each answer has to be JSON that is valid against its schema.
//!
//! `WGLM_SCHEMAS` sets the number of schemas for each model.

use super::super::{CONTEXT, model, text, told};
use crate::common::gpu::gpu;
use crate::common::models::fable_file;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use wglm::serde_json::{Map, Value, from_str, json};
use wglm::{Chat, Constraint, Gguf, LoadOptions, Model, Stop};

/// Patterns, and functions that test for them.
type Matches = fn(&str) -> bool;
const PATTERNS: [(&str, Matches); 4] = [
    ("^[a-f]{2,5}$", |text| (2..=5).contains(&text.len()) && text.bytes().all(|byte| (b'a'..=b'f').contains(&byte))),
    ("^(x|yy)+z?$", |text| {
        let rest = text.strip_suffix('z').unwrap_or(text).replace("yy", "x");
        !rest.is_empty() && rest.bytes().all(|byte| byte == b'x')
    }),
    (r"^\d{3}-\d$", |text| {
        let parts: Vec<&str> = text.split('-').collect();
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        parts.len() == 2 && parts[0].len() == 3 && parts[1].len() == 1 && parts.iter().all(|part| digits(part))
    }),
    ("^[A-Z][a-z]{0,6}$", |text| {
        text.len() <= 7
            && text.starts_with(|c: char| c.is_ascii_uppercase())
            && text[1..].bytes().all(|b| b.is_ascii_lowercase())
    }),
];

/// Schemas of values of bounded size, because random weights never end what may continue.
fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        (0u64..4, 0u64..8)
            .prop_map(|(least, more)| json!({"type": "string", "minLength": least, "maxLength": least + more})),
        (0..PATTERNS.len()).prop_map(|number| json!({"type": "string", "pattern": PATTERNS[number].0})),
        prop::collection::vec("[a-z\"\\\\é🦉 ]{0,6}", 1..4).prop_map(|texts| json!({"enum": texts})),
        (-1000i64..1000, 0i64..5000)
            .prop_map(|(least, more)| json!({"type": "integer", "minimum": least, "maximum": least + more})),
        (-50i64..50, 1i64..50)
            .prop_map(|(least, more)| json!({"type": "integer", "minimum": least, "exclusiveMaximum": least + more})),
        (-9i64..9, 1i64..9)
            .prop_map(|(least, more)| json!({"type": "number", "minimum": least, "maximum": least + more})),
        Just(json!({"type": "integer"})),
        Just(json!({"type": "integer", "minimum": -3})),
        Just(json!({"type": "number"})),
        Just(json!({"type": "boolean"})),
        Just(json!({"type": "null"})),
        Just(json!({"const": {"kind": [1, "two", null]}})),
        Just(json!({"type": ["integer", "null"], "minimum": 0, "maximum": 9})),
        Just(json!({"$ref": "#/$defs/first"})),
        Just(json!({"$ref": "#/$defs/second"})),
    ];
    let inner = leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            (inner.clone(), 0u64..2, 0u64..3).prop_map(
                |(of, least, more)| json!({"type": "array", "items": of, "minItems": least, "maxItems": least + more})
            ),
            prop::collection::vec(inner.clone(), 2..4).prop_map(|options| json!({"anyOf": options})),
            object(inner),
        ]
    });
    object(inner).prop_map(|mut whole| {
        whole["$defs"] = json!({
            "first": {"type": "string", "maxLength": 3},
            "second": {"type": "object", "properties": {"next": {"$ref": "#/$defs/first"}, "n": {"type": "boolean"}},
                "required": ["next"], "additionalProperties": false},
        });
        whole
    })
}

/// Objects, some of whose properties are optional.
fn object(of: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop::collection::vec(("[a-zA-Z_]{1,6}", of, any::<bool>()), 1..5).prop_map(|entries| {
        let required: Vec<&String> = entries.iter().filter(|entry| entry.2).map(|entry| &entry.0).collect();
        let properties: Map<String, Value> = entries.iter().map(|entry| (entry.0.clone(), entry.1.clone())).collect();
        let mut required: Vec<String> = required.into_iter().cloned().collect();
        required.sort();
        required.dedup();
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
    })
}

/// Why a value is not valid against a schema, if it is not. Only the keywords of these schemas are supported.
fn invalid(value: &Value, schema: &Value, whole: &Value) -> Option<String> {
    let wrong = |why: &str| Some(format!("{value} {why} {schema}"));
    let known = [
        "type",
        "minLength",
        "maxLength",
        "pattern",
        "enum",
        "minimum",
        "maximum",
        "exclusiveMaximum",
        "const",
        "$ref",
        "items",
        "minItems",
        "maxItems",
        "anyOf",
        "properties",
        "required",
        "additionalProperties",
        "$defs",
    ];
    assert!(schema.as_object().unwrap().keys().all(|key| known.contains(&key.as_str())), "{schema}");
    if let Some(name) = schema["$ref"].as_str() {
        return invalid(value, whole.pointer(&name[1..]).unwrap(), whole);
    }
    if let Some(options) = schema["anyOf"].as_array() {
        let all: Vec<String> = options.iter().filter_map(|option| invalid(value, option, whole)).collect();
        return (all.len() == options.len()).then(|| all.join("; "));
    }
    let is = |kind: &Value| match kind.as_str().unwrap() {
        "string" => value.is_string(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        _ => value.is_object(),
    };
    let kinds = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().any(is),
        Value::Null => true,
        kind => is(kind),
    };
    let among = schema["enum"].as_array().is_none_or(|values| values.contains(value));
    if !kinds || !among || schema.get("const").is_some_and(|only| only != value) {
        return wrong("is not of");
    }
    let limit = |key: &str| schema[key].as_f64();
    let within = |size: f64, [least, most]: [&str; 2]| {
        limit(least).is_none_or(|least| size >= least) && limit(most).is_none_or(|most| size <= most)
    };
    match value {
        Value::String(text) => {
            let pattern =
                schema["pattern"].as_str().map(|known| PATTERNS.iter().find(|(name, _)| *name == known).unwrap());
            let fits = pattern.is_none_or(|(_, matches)| matches(text));
            if fits && within(text.chars().count() as f64, ["minLength", "maxLength"]) {
                None
            } else {
                wrong("does not fit")
            }
        }
        Value::Number(number) => {
            let number = number.as_f64().unwrap();
            let below = limit("exclusiveMaximum").is_none_or(|most| number < most);
            if below && within(number, ["minimum", "maximum"]) { None } else { wrong("is not within") }
        }
        Value::Array(items) if schema.get("items").is_some() => {
            if !within(items.len() as f64, ["minItems", "maxItems"]) {
                return wrong("has not the items of");
            }
            items.iter().find_map(|item| invalid(item, &schema["items"], whole))
        }
        Value::Object(entries) if schema.get("properties").is_some() => {
            let required = schema["required"].as_array().unwrap();
            if let Some(missing) = required.iter().find(|name| !entries.contains_key(name.as_str().unwrap())) {
                return wrong(&format!("lacks {missing} of"));
            }
            let of = |(name, part): (&String, &Value)| match schema["properties"].get(name) {
                Some(schema) => invalid(part, schema, whole),
                None => wrong(&format!("has {name}, unlike")),
            };
            entries.iter().find_map(of)
        }
        _ => None,
    }
}

fn runner(seed: u8) -> TestRunner {
    TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]))
}

/// Makes a model answer with random schemas.
fn answers(model: &Model, usual: usize, seed: u8) {
    let count = std::env::var("WGLM_SCHEMAS").map_or(usual, |count| count.parse().unwrap());
    let (mut runner, mut failures, mut tokens) = (runner(seed), Vec::new(), 0);
    let mut chat = Chat::new(model).unwrap();
    chat.reasoning = Some(false);
    chat.options.max_tokens = None;
    for number in 0..count {
        let schema = schemas().new_tree(&mut runner).unwrap().current();
        let sampling = &mut chat.options.sampling;
        (sampling.temperature, sampling.top_p, sampling.min_p, sampling.seed) = (1.5, 1.0, 0.0, Some(number as u64));
        chat.options.constraint =
            Some(Constraint::json_schema(schema.clone()).unwrap_or_else(|e| panic!("{schema}: {e}")));
        chat.clear();
        let (events, stats) = told(chat.send("Who is the owl?").unwrap());
        let answer = text(&events);
        tokens += stats.generated;
        let why = match from_str(&answer) {
            Ok(value) => invalid(&value, &schema, &schema),
            Err(error) => Some(error.to_string()),
        };
        if why.is_some() || stats.stop != Stop::End {
            failures.push(format!("{number}: {schema}\n  {answer}\n  {why:?} {:?}", stats.stop));
        }
    }
    println!("{count} schemas, {tokens} tokens");
    assert!(failures.is_empty(), "{} of {count}:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn extended_answers_of_the_demonstration_model() {
    answers(model(), 4, 1);
}

/// The demonstration model with every quant replaced by noise.
#[test]
fn extended_answers_of_random_weights() {
    let path = fable_file("q4_0");
    let (file, mut bytes) = (Gguf::open(&path).unwrap(), std::fs::read(&path).unwrap());
    let mut state = 1u64;
    for tensor in file.tensors().filter(|tensor| tensor.ty.name == "Q4_0") {
        let blocks = bytes[tensor.offset..tensor.offset + tensor.bytes].chunks_exact_mut(18);
        blocks.flat_map(|block| &mut block[2..]).for_each(|byte| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            *byte = (state >> 56) as u8;
        });
    }
    let options = LoadOptions { context: Some(CONTEXT), ..LoadOptions::default() };
    answers(&Model::load(&Gguf::from_vec(bytes).unwrap(), gpu(), &options).unwrap(), 4, 2);
}

/// The validation of these tests detects invalid values.
#[test]
fn the_validation_detects_errors() {
    let schema = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/first"}, "b": {"anyOf": [
        {"type": "array", "items": {"type": "integer", "minimum": 3}, "minItems": 1}, {"enum": ["x"]}]}},
        "required": ["a"], "additionalProperties": false, "$defs": {"first": {"type": "string", "maxLength": 2}}});
    let is_valid = |value: Value| invalid(&value, &schema, &schema).is_none();
    assert!(
        is_valid(json!({"a": "ab", "b": [3]})) && is_valid(json!({"a": "", "b": "x"})) && is_valid(json!({"a": "é🦉"}))
    );
    for value in [
        json!({}),
        json!({"a": "abc"}),
        json!({"a": 1}),
        json!({"a": "", "b": [2]}),
        json!({"a": "", "b": []}),
        json!({"a": "", "b": "y"}),
        json!({"a": "", "c": 1}),
        json!([]),
    ] {
        assert!(!is_valid(value.clone()), "{value}");
    }
    let fits = |number: usize, text: &str| PATTERNS[number].1(text);
    assert!(fits(0, "abc") && !fits(0, "abg") && !fits(0, "a") && fits(1, "xyyz") && !fits(1, "xyz") && !fits(1, "z"));
    assert!(fits(2, "123-4") && !fits(2, "123-45") && fits(3, "Owl") && !fits(3, "owl") && !fits(3, ""));
}
