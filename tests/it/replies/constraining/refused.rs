//! Tests constraints that are refused, before anything is generated.

use super::super::chat;
use wglm::serde_json::{Map, Value, json};
use wglm::{Calls, Constraint, Error};

fn refused(schema: Value) -> (String, String) {
    match Constraint::json_schema(schema.clone()).map(drop) {
        Err(Error::Constraint { place, message, .. }) => (place, message),
        other => panic!("{schema}: {other:?}"),
    }
}

#[test]
fn schemas_without_values() {
    let with = |property: Value| {
        json!({"type": "object", "properties": {"a": {"type": "object", "properties": {
        "b": property}, "required": ["b"]}, "other": {"type": "string"}}, "required": ["a"]})
    };
    for property in [
        json!({"type": "integer", "minimum": 5, "maximum": 4}),
        json!({"type": "string", "minLength": 5, "maxLength": 4}),
        json!({"type": "number", "exclusiveMinimum": 1, "maximum": 1}),
        json!({"enum": [1, 2], "type": "string"}),
        json!(false),
        json!({"allOf": [{"type": "string"}, {"type": "integer"}]}),
    ] {
        let (place, message) = refused(with(property.clone()));
        assert_eq!(place, "#/properties/a/properties/b", "{property}: {message}");
        assert!(!message.is_empty());
    }
    assert_eq!(refused(json!({"type": "array", "items": false, "minItems": 1})).0, "#");
    assert_eq!(refused(json!(false)).0, "#");
}

#[test]
fn schemas_that_are_not_supported() {
    for (schema, place) in [
        (json!({"type": "object", "properties": {"a": {"uniqueItems": true, "type": "array"}}}), "#/properties/a"),
        (json!({"type": "array", "items": {"type": "string", "pattern": "(?=a)b"}}), "#/items"),
        (json!({"type": "object", "properties": {"x/y": {"type": "nosuch"}}}), "#/properties/x~1y"),
        (json!({"$ref": "#/$defs/nosuch"}), "#"),
        (json!("string"), "#"),
    ] {
        let (found, message) = refused(schema.clone());
        assert_eq!(found, place, "{schema}: {message}");
    }
}

#[test]
fn expressions_and_grammars_that_are_malformed() {
    for expression in ["(", "a{3,1}", "[b-a]", "(?=a)b", "[^\\s\\S]"] {
        let error = Constraint::regex(expression).unwrap_err().to_string();
        assert!(error.starts_with("regular expression, "), "{expression}: {error}");
    }
    for (grammar, words) in
        [("", "start"), ("start: nosuch", "nosuch"), ("start: \"a\"\nstart /", "lexer error"), ("x: \"a\"", "start")]
    {
        let error = Constraint::lark(grammar).unwrap_err().to_string();
        assert!(error.starts_with("grammar: ") && error.contains(words), "{grammar:?}: {error}");
    }
}

/// What would take forever is soon an error.
#[test]
fn bombs() {
    let since = std::time::Instant::now();
    let nested = (0..6).fold(
        json!({"type": "string", "maxLength": 9}),
        |inner, _| json!({"type": "array", "items": inner, "minItems": 90, "maxItems": 99}),
    );
    let many: Vec<String> = (0..20_000).map(|n| format!("value number {n} {}", n * 7919)).collect();
    for large in [nested, json!({"enum": many})] {
        // Both are compiled in parts, when the parts are needed.
        Constraint::json_schema(large).unwrap();
    }
    Constraint::regex("((((a{1,1000}){1,1000}){1,1000}){1,1000})b{1,1000}c").unwrap();
    let deep = (0..150).fold(json!({"type": "null"}), |inner, _| json!({"type": "array", "items": inner}));
    Constraint::json_schema(deep.clone()).unwrap();
    let (_, message) = refused((0..60).fold(deep, |inner, _| json!({"type": "array", "items": inner})));
    assert!(message.contains("levels"), "{message}");
    let brackets = format!("start: {}\"a\"{}", "(".repeat(50_000), ")".repeat(50_000));
    assert!(Constraint::lark(&brackets).unwrap_err().to_string().contains("levels"));
    assert!(since.elapsed().as_secs() < 60, "{:?}", since.elapsed());
}

/// Chains of references that are too long are refused before anything follows them.
#[test]
fn extended_chains() {
    let name = |number: usize| format!("#/$defs/a{number}");
    let definitions = |links: usize, of: &dyn Fn(String) -> Value| -> Value {
        let linked = (0..links).map(|number| (format!("a{number}"), of(name(number + 1))));
        Value::Object(linked.chain([(format!("a{links}"), json!({"type": "null"}))]).collect())
    };
    let plain = |to: String| json!({"$ref": to});
    let of_objects = |to: String| json!({"type": "object", "properties": {"x": {"$ref": to}}});
    let of_arrays = |to: String| json!({"type": "array", "items": {"anyOf": [{"$ref": to}, {"type": "null"}]}});
    let kinds: [&dyn Fn(String) -> Value; 3] = [&plain, &of_objects, &of_arrays];
    for of in kinds {
        let schema = |links| json!({"$ref": name(0), "$defs": definitions(links, of)});
        Constraint::json_schema(schema(30)).unwrap();
        let (place, message) = refused(schema(5000));
        assert!(place == "#" && message.contains("levels"), "{message}");
        // The same from the end, in pieces that are short by themselves, and then from the beginning.
        let pieces: Map<String, Value> =
            (1..100).map(|piece| (format!("p{piece}"), json!({"$ref": name(5000 - 50 * piece)}))).collect();
        let (_, message) = refused(json!({"type": ["object", "array"], "properties": pieces,
            "items": {"type": "object", "$ref": name(0)}, "$defs": definitions(5000, of)}));
        assert!(message.contains("levels"), "{message}");
    }
    // Not a chain: many properties refer to the same schema.
    let many: Map<String, Value> = (0..500).map(|number| (format!("p{number}"), json!({"$ref": name(0)}))).collect();
    let wide = json!({"type": "object", "properties": many, "$defs": definitions(10, &of_objects)});
    Constraint::json_schema(wide).unwrap();
    // A schema that refers to itself.
    let tree = json!({"type": "object", "properties": {"inner": {"type": "array", "items": {"$ref": "#"}}}});
    Constraint::json_schema(tree).unwrap();

    let rules = |links: usize| {
        let linked: String = (0..links).map(|number| format!("r{number}: r{}\n", number + 1)).collect();
        format!("start: r0\n{linked}r{links}: \"a\"\n")
    };
    Constraint::lark(&rules(100)).unwrap();
    assert!(Constraint::lark(&rules(5000)).unwrap_err().to_string().contains("levels"));
    let many: String = (0..500).map(|number| format!("r{number}: \"{number}\"\n")).collect();
    let names: Vec<String> = (0..500).map(|number| format!("r{number}")).collect();
    Constraint::lark(&format!("start: {}\n{many}", names.join(" | "))).unwrap();
    let nested = format!("start: %json {}", json!({"$ref": name(0), "$defs": definitions(5000, &plain)}));
    assert!(Constraint::lark(&nested).unwrap_err().to_string().contains("levels"));
}

/// Required calls need functions, and a required function must exist.
#[test]
fn calls_without_functions() {
    for (calls, words) in [(Calls::Required, "functions to call"), (Calls::Function("weather".into()), "weather")] {
        let mut chat = chat();
        chat.options.calls = calls;
        let error = chat.send("Does it rain?").unwrap_err().to_string();
        assert!(error.starts_with("calls: ") && error.contains(words), "{error}");
        assert!(chat.messages().is_empty(), "{:?}", chat.messages());
    }
}
