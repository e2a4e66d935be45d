//! Tests which texts a schema accepts as answers, byte for byte and without a model.

#![allow(clippy::unwrap_used, clippy::panic)]

use super::{Constraint, SchemaOptions, check::accepts};
use crate::error::Error;
use serde_json::{Value, json};

fn of_text(schema: &str) -> Constraint {
    Constraint::json_schema_text(schema, SchemaOptions::default()).unwrap_or_else(|error| panic!("{schema}: {error}"))
}

/// Asserts which of these texts are accepted and refused.
fn judged(constraint: &Constraint, accepted: &[&str], refused: &[&str]) {
    for (texts, wanted) in [(accepted, true), (refused, false)] {
        for text in texts {
            assert_eq!(accepts(constraint, text).unwrap(), wanted, "{constraint:?}: {text}");
        }
    }
}

/// Bounds beyond the precision of doubles and 64 bits are exact to the last digit.
#[test]
fn integers_of_any_length() {
    for (schema, accepted, refused) in [
        (
            r#"{"type": "integer", "minimum": 9007199254740993, "maximum": 9007199254740999}"#,
            &["9007199254740993", "9007199254740995", "9007199254740999"][..],
            &["9007199254740992", "9007199254741000", "90071992547409950", "9", "-9007199254740995"][..],
        ),
        (
            r#"{"const": 123456789012345678901234567890}"#,
            &["123456789012345678901234567890"],
            &["123456789012345678901234567891", "123456789012345680000000000000", "1"],
        ),
        (
            r#"{"type": "integer", "minimum": 9223372036854775807}"#,
            &["9223372036854775807", "9223372036854775807"],
            &["9223372036854775806", "9223372036854774784"],
        ),
        (
            r#"{"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807}"#,
            &["-9223372036854775808", "9223372036854775807", "0", "-1", "17"],
            &["-9223372036854775809", "9223372036854775808", "-0", "01", "1.0"],
        ),
        (
            r#"{"type": "integer", "exclusiveMinimum": 1000000000000000000000, "exclusiveMaximum": 1000000000000000000003}"#,
            &["1000000000000000000001", "1000000000000000000002"],
            &["1000000000000000000000", "1000000000000000000003"],
        ),
        (
            r#"{"type": "integer", "minimum": 100000000000000000000, "maximum": 100000000000000000100, "multipleOf": 7}"#,
            &["100000000000000000005", "100000000000000000012"],
            &["100000000000000000000", "100000000000000000006", "99999999999999999998"],
        ),
        (
            r#"{"type": "integer", "minimum": 1, "maximum": 1000000000000000000000, "multipleOf": 50000000000000}"#,
            &["50000000000000", "100000000000000", "950000000000000"],
            &["5000000000000", "50000000000001", "0", "75000000000000"],
        ),
        (
            r#"{"enum": [1, 18446744073709551617, "a", [99999999999999999999]]}"#,
            &["1", "18446744073709551617", "\"a\"", "[99999999999999999999]"],
            &["18446744073709551616", "[99999999999999999998]", "2", "[]"],
        ),
        (
            r#"{"allOf": [{"type": "integer", "format": "int64"}, {"minimum": 9007199254740993}]}"#,
            &["9007199254740993", "9223372036854775807"],
            &["9007199254740992", "9223372036854775808"],
        ),
        (
            r##"{"$ref": "#/$defs/id", "maximum": 18446744073709551615, "$defs": {"id": {"type": "integer", "minimum": 18446744073709551610}}}"##,
            &["18446744073709551610", "18446744073709551615"],
            &["18446744073709551609", "18446744073709551616"],
        ),
        (
            r#"{"type": ["integer", "null", "string"], "minimum": 18446744073709551615, "maxLength": 1}"#,
            &["18446744073709551615", "null", "\"a\""],
            &["18446744073709551614", "\"ab\"", "true"],
        ),
        (r#"{"type": "integer", "not": {"const": 0}}"#, &["1", "-1"], &["0", "-0"]),
        (r#"{"type": "integer", "format": "uint8"}"#, &["0", "255"], &["256", "-1"]),
        (
            r#"{"type": "integer", "format": "uint128"}"#,
            &["0", "340282366920938463463374607431768211455"],
            &["340282366920938463463374607431768211456", "-1"],
        ),
        (
            r#"{"type": "integer", "format": "int128"}"#,
            &["-170141183460469231731687303715884105728", "170141183460469231731687303715884105727", "0", "-7"],
            &["-170141183460469231731687303715884105729", "170141183460469231731687303715884105728", "-0"],
        ),
        (
            r#"{"enum": [12345678901234567890, 123456789012345678901]}"#,
            &["12345678901234567890", "123456789012345678901"],
            &["123456789012345678900", "1234567890123456789"],
        ),
        (
            r#"{"type": "integer", "minimum": 0, "maximum": 1e29}"#,
            &["0", "99999999999999999999999999999", "100000000000000000000000000000"],
            &["100000000000000000000000000001", "-1"],
        ),
        (
            r#"{"type": "integer", "minimum": 1, "multipleOf": 10000000000000000}"#,
            &["10000000000000000", "9220000000000000000"],
            &["10000000000000001", "0", "1"],
        ),
        (r#"{"type": "string", "enum": ["a", [99999999999999999999]]}"#, &["\"a\""], &["[99999999999999999999]"]),
        (
            r#"{"const": 99999999999999999999, "enum": [1, 99999999999999999999, 99999999999999999998]}"#,
            &["99999999999999999999"],
            &["1", "99999999999999999998"],
        ),
        (r#"{"type": "integer", "format": "uint64"}"#, &["18446744073709551615"], &["18446744073709551616"]),
        (r#"{"type": "integer"}"#, &["-5", "0", "9007199254740991"], &["-0", "9007199254740992", "1e3"]),
    ] {
        judged(&of_text(schema), accepted, refused);
    }
}

#[test]
fn decimals_of_any_length() {
    for (schema, accepted, refused) in [
        (
            r#"{"type": "number", "minimum": 1e20}"#,
            &["100000000000000000000", "100000000000000000000.5", "2000000000000000000000"][..],
            &["99999999999999999999.9", "5", "-100000000000000000000"][..],
        ),
        (
            r#"{"type": "number", "minimum": 0.12345678901234567890, "maximum": 0.12345678901234567892}"#,
            &["0.12345678901234567890", "0.1234567890123456789", "0.12345678901234567891", "0.12345678901234567892"],
            &["0.12345678901234567889", "0.12345678901234567893", "0.13", "1"],
        ),
        (
            r#"{"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.07}"#,
            &["0", "0.07", "0.91", "0.14"],
            &["0.1", "1", "0.98765"],
        ),
        (
            r#"{"type": "number", "exclusiveMinimum": 0, "maximum": 2.5}"#,
            &["0.1", "2.5", "1"],
            &["0", "2.51", "-1", "3"],
        ),
        (r#"{"const": 1e300}"#, &["1e+300"], &["1e+301", "1"]),
    ] {
        judged(&of_text(schema), accepted, refused);
    }
}

/// Numbers are exact everywhere, also several of them and the same one twice.
#[test]
fn exact_numbers_within_objects() {
    let number = r#"{"type": "integer", "minimum": 9007199254740993, "maximum": 9007199254740999}"#;
    let schema = format!(
        r#"{{"type": "object", "properties": {{"a": {number}, "b": {{"type": "array", "items": {number}}},
            "c": {{"anyOf": [{{"const": 99999999999999999999}}, {{"type": "string", "maxLength": 1}}]}}}},
            "required": ["a", "b", "c"], "additionalProperties": false}}"#
    );
    judged(
        &of_text(&schema),
        &[
            r#"{"a":9007199254740993,"b":[9007199254740999,9007199254740994],"c":99999999999999999999}"#,
            r#"{"a":9007199254740993,"b":[],"c":"x"}"#,
        ],
        &[
            r#"{"a":9007199254740992,"b":[],"c":"x"}"#,
            r#"{"a":9007199254740993,"b":[9007199254741000],"c":"x"}"#,
            r#"{"a":9007199254740993,"b":[],"c":99999999999999999998}"#,
            r#"{"a":"9007199254740993","b":[],"c":"x"}"#,
        ],
    );
}

/// JSON is compact, unless whitespace is requested.
#[test]
fn blanks() {
    let schema = || {
        json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "null"}}}, "required": ["a"],
        "additionalProperties": false})
    };
    let compact = Constraint::json_schema(schema()).unwrap();
    judged(
        &compact,
        &[r#"{"a":[null,null]}"#],
        &[r#"{"a": [null]}"#, "{\"a\":[null,\nnull]}", r#" {"a":[]}"#, r#"{"a":[] }"#],
    );
    let free = Constraint::json_schema_with(schema(), SchemaOptions::default().with_whitespace(true)).unwrap();
    judged(&free, &[r#"{"a":[null,null]}"#, "{ \"a\": [\n  null, null ] }"], &["{  \"a\":[]}"]);
    judged(&Constraint::json_object(), &[r#"{"a":[1,{}]}"#], &[r#"{"a": 1}"#]);
    // Serialization keeps the option.
    let again: Constraint = serde_json::from_value(serde_json::to_value(&free).unwrap()).unwrap();
    assert_eq!(again, free);
}

#[test]
fn formats() {
    let string = |text: &str| format!("\"{text}\"");
    for (format, accepted, refused) in [
        (
            "date-time",
            &["2026-11-24T15:37:08Z", "2024-02-29T00:00:00.123456789+01:00", "1999-12-31T23:59:59-23:59"][..],
            &[
                "2026-11-24T15:37:08",
                "2026-11-24 15:37:08Z",
                "2026-02-29T00:00:00Z",
                "2026-04-31T00:00:00Z",
                "2026-11-24T24:00:00Z",
                "2026-11-24T15:60:00Z",
                "2026-11-24T15:37:60Z",
                "2026-11-24T15:37:08.1234567890Z",
                "2026-11-24T15:37:08.Z",
                "2026-13-01T00:00:00Z",
                "2026-00-01T00:00:00Z",
                "2026-01-00T00:00:00Z",
                "2026-11-24T15:37:08+24:00",
                "0000-01-01T00:00:00Z",
            ][..],
        ),
        (
            "date",
            &["2026-11-24", "2000-02-29", "2024-02-29", "1600-02-29"],
            &["1900-02-29", "2100-02-29", "2023-02-29", "2026-06-31", "26-11-24", "2026-1-1"],
        ),
        ("time", &["15:37:08Z", "00:00:00.5+01:30"], &["15:37Z", "15:37:08", "25:00:00Z", "15:37:08.1234567890Z"]),
        ("duration", &["P1Y2M3DT4H5M6S", "PT36H", "P2W", "P1M"], &["P", "PT", "P1Y2W", "1Y", "P1.5D", "P12345678901D"]),
        (
            "email",
            &["a@example.org", "first.last+tag@mail.example.co.uk"],
            &["a", "@example.org", "a@", "a..b@example.org", ".a@example.org", "a@-example.org", "a b@example.org"],
        ),
        ("hostname", &["example.org", "localhost", "a-b.c"], &["-a", "a-", "a..b", "a_b", "a.", "xn--a"]),
        ("ipv4", &["127.0.0.1", "255.255.255.255"], &["256.0.0.1", "1.2.3", "01.2.3.4", "1.2.3.4.5"]),
        (
            "ipv6",
            &["::1", "::", "2001:db8::8:800:200c:417a", "1:2:3:4:5:6:7:8", "1::8"],
            &[":::", "1:2:3", "12345::", "1::2::3", "1:2:3:4:5:6:7:8:9", "g::"],
        ),
        (
            "uuid",
            &["123e4567-e89b-12d3-a456-426614174000"],
            &["123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400g"],
        ),
        (
            "uri",
            &[
                "https://example.org/a?b=c#d",
                "mailto:a@example.org",
                "urn:isbn:123",
                "http://[::1]:8080/",
                "http://localhost:11434",
                "https://user:p%20w@example.org:65535/a",
                "file:///etc/hosts",
            ],
            &[
                "example.org",
                "http://",
                "https://a b",
                "/a/b",
                "http://a:65536/",
                "http://a:0/",
                "http://a/%zz",
                "ftp://a@",
            ],
        ),
        // Annotations are neither enforced nor refused.
        ("binary", &["anything"], &[]),
        ("password", &["a b"], &[]),
        ("path", &["/etc"], &[]),
        ("uri-reference", &["../a"], &[]),
        ("regex", &["("], &[]),
        ("json-pointer", &["a"], &[]),
        ("unknown", &["a"], &[]),
        ("nosuch", &["a"], &[]),
    ] {
        let constraint = Constraint::json_schema(json!({"type": "string", "format": format})).unwrap();
        for (texts, wanted) in [(accepted, true), (refused, false)] {
            for text in texts {
                assert_eq!(accepts(&constraint, &string(text)).unwrap(), wanted, "{format}: {text}");
            }
        }
    }
    // A pattern and a format are both enforced; with listed values the format is ignored.
    let both = Constraint::json_schema(json!({"type": "string", "format": "date", "pattern": "^2026"})).unwrap();
    judged(&both, &["\"2026-01-31\""], &["\"2025-01-31\"", "\"2026-02-31\""]);
    let fixed = Constraint::json_schema(json!({"enum": ["2020-01-01t00:00:00z"], "format": "date-time"})).unwrap();
    judged(&fixed, &["\"2020-01-01t00:00:00z\""], &["\"2020-01-01T00:00:00Z\""]);
}

/// A format is an annotation, so it does not take effect where it contradicts an assertion.
#[test]
fn formats_that_contradict_other_keywords() {
    for (schema, accepted, refused) in [
        (json!({"format": "time", "pattern": "^\\d{2}:\\d{2}$"}), "12:30", "12:30:00Z"),
        (json!({"format": "uuid", "pattern": "^[0-9a-f]{32}$"}), "123e4567e89b12d3a456426614174000", "123e4567"),
        (json!({"format": "date", "maxLength": 7}), "2026-11", "2026-11-24"),
        (json!({"format": "ipv4", "minLength": 20}), "00000000000000000000", "127.0.0.1"),
        // They agree on some strings.
        (json!({"format": "date", "maxLength": 10}), "2026-11-24", "2026-11"),
        (json!({"format": "time", "pattern": "^\\d{2}:\\d{2}"}), "12:30:00Z", "12:30"),
    ] {
        let mut schema = schema;
        schema["type"] = "string".into();
        let [accepted, refused] = [accepted, refused].map(|text| format!("\"{text}\""));
        judged(&Constraint::json_schema(schema.clone()).unwrap(), &[&accepted], &[&refused]);
        let optional = json!({"type": "object", "properties": {"a": schema}, "additionalProperties": false});
        let [accepted, refused] = [accepted, refused].map(|text| format!("{{\"a\":{text}}}"));
        judged(&Constraint::json_schema(optional).unwrap(), &[&accepted, "{}"], &[&refused]);
    }
}

#[test]
fn keywords_in_other_words() {
    for (schema, accepted, refused) in [
        (
            json!({"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "null"}}),
            &[r#"{"x":null}"#][..],
            &[r#"{"x":1}"#][..],
        ),
        (
            json!({"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": {"type": "null"}}),
            &[r#"{"a":null}"#, "{}"],
            &[r#"{"c":null}"#],
        ),
        (
            json!({"type": "object", "propertyNames": {"pattern": "^x"}, "additionalProperties": {"type": "null"}}),
            &[r#"{"xy":null}"#],
            &[r#"{"y":null}"#],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "null"}}, "unevaluatedProperties": false}),
            &[r#"{"a":null}"#],
            &[r#"{"b":1}"#],
        ),
        (
            json!({"type": "array", "uniqueItems": true, "maxItems": 1, "items": {"type": "null"}}),
            &["[null]"],
            &["[null,null]"],
        ),
        (
            json!({"type": "null", "if": {"type": "null"}, "dependentRequired": {}, "not": false, "uniqueItems": false}),
            &["null"],
            &[],
        ),
        (
            json!({"type": "array", "items": {"type": "null"}, "minItems": 1.0, "maxItems": 2.0}),
            &["[null]"],
            &["[]", "[null,null,null]"],
        ),
        (json!({"type": "array", "items": {"type": "null"}, "maxItems": 1e30}), &["[]"], &[]),
        (
            json!({"type": "array", "items": [{"type": "null"}], "unevaluatedItems": false}),
            &["[]", "[null]"],
            &["[null,1]", "[1]"],
        ),
        (json!({"type": "number", "minimum": 3, "exclusiveMinimum": true}), &["3.5"], &["3"]),
        (json!({"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"type": "null"}}}), &["null"], &["1"]),
    ] {
        let constraint = Constraint::json_schema(schema.clone()).unwrap_or_else(|error| panic!("{schema}: {error}"));
        judged(&constraint, accepted, refused);
    }
}

/// A pattern that begins by excluding texts of only certain characters is enforced, such as pydantic's for `Decimal`;
/// any other look-ahead is refused.
#[test]
fn decimals_of_pydantic() {
    let of = |pattern: &str| Constraint::json_schema(json!({"type": "string", "pattern": pattern}));
    let decimal = of("^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$").unwrap();
    judged(
        &decimal,
        &["\"0\"", "\"-12.50\"", "\"+.5\"", "\"7.\"", "\"0012\""],
        &["\"\"", "\"-\"", "\"+.\"", "\".\"", "\"1e5\"", "\"1.2.3\"", "1"],
    );
    let places = of("^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d{0,2}0*$").unwrap();
    judged(&places, &["\"1.25\"", "\"1.2500\"", "\"9\""], &["\"1.257\"", "\"-\""]);
    judged(&of("^(?![a-c]+$)[a-d]*$").unwrap(), &["\"\"", "\"ad\"", "\"d\""], &["\"a\"", "\"abc\"", "\"e\""]);
    judged(&of("^(?![^x]*$).*$").unwrap(), &["\"x\"", "\"axa\""], &["\"\"", "\"aa\""]);
    let nullable = json!({"type": ["string", "null"], "pattern": "^(?!^[-+.]*$)[+-]?\\d*$", "maxLength": 3});
    judged(&Constraint::json_schema(nullable).unwrap(), &["null", "\"-12\""], &["\"-\"", "\"1234\""]);
    for pattern in
        ["^(?![-+.]*$)a|b", "^(?!ab)c", "^(?!^[-+.]*)c$", "^a(?![b]*$)", "^(?![\\]a]*$)b", "^(?!^[-+.]*$)(?=\\d)\\d*$"]
    {
        let error = of(pattern).unwrap_err().to_string();
        assert!(error.contains("`pattern`") && error.contains("look"), "{pattern}: {error}");
    }
}

/// What zod writes for an address.
fn zod_email() -> Value {
    json!({"type": "string", "format": "email", "pattern":
        "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"})
}

/// The patterns that zod writes next to formats look around, and texts match them and the format.
#[test]
fn formats_of_zod() {
    judged(
        &Constraint::json_schema(zod_email()).unwrap(),
        &["\"a@example.org\"", "\"o'hara.b-c+d@mail.example.co.uk\"", "\"a.b.c@x-y.org\"", "\"_@a.bc\""],
        &[
            "\".a@example.org\"",
            "\"a..b@example.org\"",
            "\"a.@example.org\"",
            "\"a'@example.org\"",
            "\"a!b@example.org\"",
            "\"a@example\"",
            "\"a@-b.org\"",
            "\"a@b..org\"",
        ],
    );
    let duration = json!({"type": "string", "format": "duration", "pattern":
        "^P(?:(\\d+W)|(?!.*W)(?=\\d|T\\d)(\\d+Y)?(\\d+M)?(\\d+D)?(T(?=\\d)(\\d+H)?(\\d+M)?(\\d+([.,]\\d+)?S)?)?)$"});
    judged(
        &Constraint::json_schema(duration).unwrap(),
        &["\"P1Y2M3DT4H5M6S\"", "\"PT36H\"", "\"P2W\""],
        &["\"P\"", "\"PT\"", "\"P1YT\"", "\"P1Y2W\"", "\"1Y\""],
    );
    // The pattern alone cannot be enforced, nor for listed values.
    let (mut alone, mut listed) = (zod_email(), zod_email());
    alone.as_object_mut().unwrap().shift_remove("format");
    listed["enum"] = json!(["a@example.org"]);
    for schema in [alone, listed] {
        assert!(Constraint::json_schema(schema).unwrap_err().to_string().contains("look"));
    }
    let mut short = zod_email();
    short["maxLength"] = 4.into();
    assert!(Constraint::json_schema(short).unwrap_err().to_string().contains("no value is valid"));
}

/// The schemas that pydantic, zod and schemars write are enforced, or refused by name.
#[test]
fn schemas_of_libraries() {
    for schema in [
        // pydantic: bytes, SecretStr, Path, Decimal, dict[int, str], Literal, Optional, date, UUID, tuple, a generic's
        // reference.
        json!({"type": "object", "properties": {
            "bytes": {"format": "binary", "title": "Bytes", "type": "string"},
            "secret": {"format": "password", "title": "Secret", "type": "string", "writeOnly": true},
            "path": {"format": "path", "title": "Path", "type": "string"},
            "decimal": {"anyOf": [{"type": "number"}, {"pattern": "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$", "type": "string"}]},
            "url": {"format": "uri", "maxLength": 2083, "minLength": 1, "title": "Url", "type": "string"},
            "either": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": null},
            "pair": {"maxItems": 2, "minItems": 2, "prefixItems": [{"type": "integer"}, {"type": "string"}], "type": "array"},
            "of": {"$ref": "#/$defs/Box_int_"},
        }, "required": ["bytes"], "$defs": {"Box_int_": {"properties": {"value": {"type": "integer"}}, "required": ["value"],
            "title": "Box[int]", "type": "object"}}}),
        // zod: a record, a literal, a nullable, an integer with the bounds of a double.
        json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": {
            "record": {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "number"}},
            "count": {"type": "integer", "minimum": -9007199254740991i64, "maximum": 9007199254740991i64},
            "email": zod_email(),
        }, "required": ["record", "count", "email"], "additionalProperties": false}),
    ] {
        Constraint::json_schema(schema.clone()).unwrap_or_else(|error| panic!("{schema}: {error}"));
    }
    let set = || json!({"items": {"type": "integer"}, "title": "Set", "type": "array", "uniqueItems": true});
    assert!(Constraint::json_schema(set()).unwrap_err().to_string().contains("`uniqueItems`"));
    let lenient = Constraint::json_schema_with(set(), SchemaOptions::default().with_lenient(true)).unwrap();
    judged(&lenient, &["[1,1]", "[]"], &["[\"a\"]"]);
}

/// Annotations and unknown keywords have no effect, also in a schema that refers to itself.
#[test]
fn annotations_of_schemas_that_refer_to_themselves() {
    // pydantic: a union of Add and Num, told apart by their field `kind`, within Add.
    let kind = |name: &str| json!({"const": name, "title": "Kind", "type": "string"});
    let union = json!({"discriminator": {"mapping": {"add": "#/$defs/Add", "num": "#/$defs/Num"}, "propertyName": "kind"},
        "oneOf": [{"$ref": "#/$defs/Add"}, {"$ref": "#/$defs/Num"}]});
    let pydantic = json!({"$ref": "#/$defs/Add", "$defs": {
        "Add": {"properties": {"kind": kind("add"), "args": {"items": union, "title": "Args", "type": "array"}},
            "required": ["kind", "args"], "title": "Add", "type": "object"},
        "Num": {"properties": {"kind": kind("num"), "value": {"title": "Value", "type": "integer"}},
            "required": ["kind", "value"], "title": "Num", "type": "object"},
    }});
    let num = r#"{"kind":"num","value":1}"#;
    let nested = format!(r#"{{"kind":"add","args":[{num},{{"kind":"add","args":[]}}]}}"#);
    judged(
        &Constraint::json_schema(pydantic.clone()).unwrap(),
        &[&nested, r#"{"kind":"add","args":[]}"#],
        &[num, r#"{"kind":"add","args":[1]}"#, r#"{"kind":"add","args":[{"kind":"num"}]}"#],
    );
    judged(&closed(pydantic), &[&nested], &[r#"{"kind":"add","args":[],"x":1}"#]);
    for (keyword, value) in [
        ("deprecated", json!(true)),
        ("nullable", json!(false)),
        ("example", json!({})),
        ("x-order", json!(1)),
        ("errorMessage", json!("no")),
        ("contentSchema", json!({"type": "integer"})),
        ("$dynamicAnchor", json!("node")),
        ("$recursiveAnchor", json!(true)),
    ] {
        let mut tree = json!({"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": false});
        tree["properties"]["next"][keyword] = value.clone();
        tree[keyword] = value;
        judged(
            &Constraint::json_schema(tree).unwrap_or_else(|error| panic!("{keyword}: {error}")),
            &[r#"{"next":{"next":{}}}"#],
            &[r#"{"next":1}"#, r#"{"x":1}"#],
        );
        // A property name and a key within a value, neither of which is a keyword.
        let named = json!({"type": "object", "properties": {keyword: {"enum": [{keyword: 1}]}}, "required": [keyword]});
        judged(&closed(named), &[&format!(r#"{{"{keyword}":{{"{keyword}":1}}}}"#)], &["{}"]);
    }
}

/// The schemas of an OpenAPI document, under keywords that JSON Schema does not know.
#[test]
fn schemas_of_an_openapi_document() {
    let document = |name: Value| {
        json!({"$ref": "#/components/schemas/Owl", "components": {"schemas": {
            "Owl": {"type": "object", "properties": {
                "name": {"$ref": "#/components/schemas/Name"}, "mate": {"$ref": "#/components/schemas/Owl"}},
                "required": ["name"]},
            "Name": name,
        }}})
    };
    judged(
        &closed(document(json!({"type": "string", "maxLength": 3}))),
        &[r#"{"name":"Ada","mate":{"name":"Bo"}}"#, r#"{"name":""}"#],
        &[r#"{"name":"Adam"}"#, r#"{"mate":{"name":"Bo"}}"#, r#"{"name":"Ada","mate":1}"#],
    );
    let set = json!({"type": "array", "uniqueItems": true});
    assert!(Constraint::json_schema(document(set)).unwrap_err().to_string().contains("`uniqueItems`"));
}

/// Every error names the part of the schema, in terms of JSON Schema, and fits on a screen.
#[test]
fn errors_in_words_of_json_schema() {
    let long = "x".repeat(30_000);
    let of = |schema: Value| (schema, "#");
    let within = |keyword: &str, value: Value| {
        let mut part = json!({"type": "object"});
        part[keyword] = value;
        (json!({"properties": {"a": part}, "type": "object", "required": ["a"]}), "#/properties/a")
    };
    let cases = [
        within("minimum", json!("3")),
        within("maxLength", json!(-1)),
        within("minItems", json!(1.5)),
        within("pattern", json!(3)),
        within("pattern", json!("(")),
        within("pattern", json!("a(?!b)")),
        within("pattern", json!("\\bword\\b")),
        within("required", json!("a")),
        within("enum", json!("a")),
        within("type", json!("nosuch")),
        within("type", json!([])),
        within("properties", json!([])),
        within("anyOf", json!([])),
        within("allOf", json!({})),
        within("items", json!("string")),
        within("multipleOf", json!(0)),
        within("uniqueItems", json!(true)),
        within("contains", json!({"type": "null"})),
        within("not", json!({"type": "null"})),
        within("dependentRequired", json!({"a": ["b"]})),
        within("propertyNames", json!({"minLength": 3})),
        (json!({"allOf": [{}], "unevaluatedProperties": false}), "#"),
        within("$dynamicRef", json!("#a")),
        within("$ref", json!("#/$defs/nosuch")),
        within("$ref", json!("https://example.org/schema.json")),
        within("minProperties", json!("1")),
        of(json!({"enum": []})),
        of(json!({"not": {}})),
        of(json!(false)),
        of(json!({"type": "integer", "minimum": 5, "maximum": 4})),
        of(json!({"oneOf": [{"type": "integer"}, {"type": "number"}]})),
        of(json!({"type": "object", "properties": {"a": {}, "b": {}}, "minProperties": 1})),
        of(json!({"type": "object", "patternProperties": {"a": {}, "b": {}}})),
        of(json!({"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]})),
        of(json!({"const": 1, "type": "string"})),
        of(json!({"type": "string", "pattern": "^a$", "const": "b"})),
        of(json!({"x-guidance": {"nosuch": 1}})),
        of(json!({"x-guidance": 3})),
        of(json!({"enum": [long.clone()], "type": "integer"})),
        (json!({"properties": {long.clone(): {"minimum": "3"}}}), ""),
        of(json!({"$ref": format!("#/$defs/{}", &long[..2000])})),
        of(json!({"type": "integer", "multipleOf": 4294967297u64, "minimum": 1})),
        of(json!({"type": "string", "const": "\u{10fffd}x"})),
    ];
    let theirs = [
        "llguidance",
        "coerce",
        "referencing",
        "NoExtension",
        "Unimplemented",
        "f64",
        "RegexAst",
        "lexer",
        "Unsatisfiable",
        "derivre",
        "toktrie",
        "usize",
    ];
    for (schema, place) in cases {
        let shown: String = schema.to_string().chars().take(200).collect();
        let Err(Error::Constraint { place: found, message, .. }) = Constraint::json_schema(schema.clone()) else {
            panic!("{shown} is accepted")
        };
        assert!(place.is_empty() || found == place, "{shown}: {found}: {message}");
        let text = Constraint::json_schema(schema).unwrap_err().to_string();
        assert!(text.chars().count() <= 600, "{shown}: {} characters: {text}", text.len());
        assert!(!theirs.iter().any(|word| text.contains(word)), "{shown}: {text}");
        assert!(!message.contains("it cannot be enforced"), "{shown}: {text}");
    }
}

/// Numbers keep their digits if a schema is part of a larger text, and nothing else changes.
#[test]
fn numbers_of_a_text() {
    let body = r#"{"seed": 123456789012345678901, "text": {"format": {"schema": {"const": 123456789012345678901, "pattern": "1e99 \" 99999999999999999999", "minimum": 1e20, "maximum": 0.1}}}}"#;
    let kept = Constraint::keep_digits(body, &["text"]).unwrap();
    let value: Value = serde_json::from_str(&kept).unwrap();
    let schema = &value["text"]["format"]["schema"];
    assert_eq!(schema["const"].as_str().unwrap().trim_start_matches('\u{10fffd}'), "123456789012345678901");
    assert_eq!(schema["pattern"], "1e99 \" 99999999999999999999");
    assert!(schema["minimum"].is_number() && schema["maximum"] == 0.1 && value["seed"].is_number());
    assert_eq!(Constraint::keep_digits(r#"{"a": 123456789012345678901, "b": 1.5}"#, &["b"]), None);
    // What is not JSON does not become JSON.
    for wrong in ["{\"a\": \"", "{\"a\\", "\"\\", "[1e", "-", "{]", "{\"a\": 1-2}", "01", "[1.e5]", "1e", ".5", "--1"] {
        let kept = Constraint::keep_digits(wrong, &[]);
        let text = kept.as_deref().unwrap_or(wrong);
        assert!(serde_json::from_str::<Value>(text).is_err(), "{wrong}: {text}");
    }
    // Original numbers, for an answer that repeats them.
    let given: Value =
        serde_json::from_str(&Constraint::keep_digits("[1e400, 1e20, 123456789012345678901]", &[]).unwrap()).unwrap();
    // Whatever double serde reads for it.
    let long: Value = serde_json::from_str("123456789012345678901").unwrap();
    assert_eq!(Constraint::repeated(&given), json!(["1e400", 1e20, long]));
}

/// Exponents that are too large to compute with are errors of the schema, wherever the number is.
#[test]
fn extreme_exponents() {
    for number in
        ["1e9999", "-1e9999", "1e-9999", "1.5e-9223372036854775808", "10e9223372036854775807", "1e99999999999999999999"]
    {
        for schema in [format!(r#"{{"type": "number", "maximum": {number}}}"#), format!(r#"{{"enum": [[{number}]]}}"#)]
        {
            let error = Constraint::json_schema_text(&schema, SchemaOptions::default()).unwrap_err().to_string();
            assert!(error.contains("exponent beyond") && error.contains(number), "{schema}: {error}");
        }
    }
}

/// The mark of exact numbers never occurs in answers, and grammars and names of functions must not contain it.
#[test]
fn the_mark_of_exact_numbers() {
    let beside = r#"{"type": "object", "allOf": [{}], "const": {"n": 123456789012345678901}}"#;
    let error = Constraint::json_schema_text(beside, SchemaOptions::default()).unwrap_err().to_string();
    assert!(error.contains("many digits"), "{error}");
    let lenient = Constraint::json_schema_text(beside, SchemaOptions::default().with_lenient(true)).unwrap();
    judged(&lenient, &[r#"{"a":1}"#], &["[]"]);
    let number = "\"\u{10fffd}*1,0,4294967295\u{10fffd}\"";
    for refused in [Constraint::lark(&format!("start: {}", json!(number))), Constraint::regex(number)] {
        assert!(refused.unwrap_err().to_string().contains("U+10FFFD"));
    }
    let quoted = super::call_grammar::quoted(number);
    assert_eq!(
        (quoted.contains('\u{10fffd}'), serde_json::from_str::<String>(&quoted).unwrap().as_str()),
        (false, number)
    );
}

fn closed(schema: Value) -> Constraint {
    let options = SchemaOptions::default().with_closed(true);
    Constraint::json_schema_with(schema.clone(), options).unwrap_or_else(|error| panic!("{schema}: {error}"))
}

/// An object with one required property, a boolean.
fn with(name: &str) -> Value {
    json!({"type": "object", "properties": {name: {"type": "boolean"}}, "required": [name]})
}

#[test]
fn closed_objects_have_the_properties_that_are_named() {
    let nested =
        json!({"properties": {"in": {"$ref": "#/$defs/in"}, "list": {"items": with("b")}}, "$defs": {"in": with("a")}});
    judged(
        &closed(nested.clone()),
        &[r#"{"in":{"a":true}}"#, r#"{"list":[{"b":true}]}"#, "{}"],
        &[r#"{"x":1}"#, r#"{"in":{"a":true,"x":1}}"#, r#"{"list":[{"b":true,"x":1}]}"#],
    );
    let open = Constraint::json_schema(nested).unwrap();
    judged(&open, &[r#"{"in":{"a":true,"x":1}}"#, r#"{"x":1}"#], &[]);
    judged(&closed(json!({"type": "object", "properties": {}})), &["{}"], &[r#"{"a":1}"#]);
    // What is required is named as well, and a schema that names nothing describes any object.
    judged(
        &closed(json!({"properties": {"a": {}}, "required": ["b"], "type": "object"})),
        &[r#"{"a":1,"b":2}"#],
        &[r#"{"b":2,"c":3}"#],
    );
    judged(&closed(json!({"type": "object"})), &[r#"{"x":1}"#], &[]);
}

#[test]
fn closed_objects_may_allow_others() {
    for keyword in ["additionalProperties", "unevaluatedProperties"] {
        for (value, accepted) in [(json!(true), true), (json!({"type": "null"}), true), (json!(false), false)] {
            let mut schema = with("a");
            schema[keyword] = value.clone();
            let others = accepts(&closed(schema), r#"{"a":true,"x":null}"#).unwrap();
            assert_eq!(others, accepted, "{keyword}: {value}");
        }
    }
    let mut patterns = with("a");
    patterns["patternProperties"] = json!({"^x": {"type": "null"}});
    judged(&closed(patterns), &[r#"{"a":true,"x1":null}"#], &[r#"{"a":true,"y":null}"#]);
    let part = json!({"allOf": [with("a"), {"unevaluatedProperties": true}]});
    judged(&closed(part), &[r#"{"a":true,"x":1}"#], &[]);
}

/// Schemas that apply to the same object are closed together.
#[test]
fn closed_objects_of_several_schemas() {
    let both = json!({"allOf": [with("a"), {"$ref": "#/$defs/b"}], "$defs": {"b": with("b")}});
    judged(&closed(both.clone()), &[r#"{"a":true,"b":true}"#], &[r#"{"a":true,"b":true,"c":1}"#, r#"{"a":true}"#]);
    // The same definition, with others and alone.
    let mut twice = both;
    twice["allOf"][0]["properties"]["one"] = json!({"$ref": "#/$defs/b"});
    judged(
        &closed(twice),
        &[r#"{"a":true,"one":{"b":true},"b":true}"#],
        &[r#"{"a":true,"one":{"a":true,"b":true},"b":true}"#],
    );
    let beside = json!({"$ref": "#/$defs/a", "properties": {"b": {"type": "null"}}, "$defs": {"a": with("a")}});
    judged(&closed(beside), &[r#"{"a":true,"b":null}"#, r#"{"a":true}"#], &[r#"{"a":true,"c":1}"#]);
    let single = json!({"allOf": [{"$ref": "#/$defs/a"}], "description": "", "$defs": {"a": with("a")}});
    judged(&closed(single), &[r#"{"a":true}"#], &[r#"{"a":true,"c":1}"#]);
    let patterns = json!({"allOf": [with("a"), {"patternProperties": {"^x": {"type": "null"}}}]});
    judged(&closed(patterns), &[r#"{"a":true,"x1":null}"#], &[r#"{"a":true,"y":null}"#]);
}

/// Each alternative allows its own properties and those that apply to all.
#[test]
fn closed_objects_of_alternatives() {
    let any = json!({"anyOf": [{"$ref": "#/$defs/a"}, with("b"), {"type": "null"}], "$defs": {"a": with("a")}});
    judged(
        &closed(any.clone()),
        &[r#"{"a":true}"#, r#"{"b":true}"#, "null"],
        &[r#"{"a":true,"b":true}"#, r#"{"b":true,"c":1}"#],
    );
    let mut beside = any.clone();
    beside["properties"] = json!({"n": {"type": "null"}});
    judged(
        &closed(beside),
        &[r#"{"a":true,"n":null}"#, r#"{"b":true,"n":null}"#],
        &[r#"{"a":true,"b":true,"n":null}"#, r#"{"b":true,"n":null,"c":1}"#],
    );
    let all = json!({"allOf": [{"properties": {"n": {"type": "null"}}}, any], "$defs": {"a": with("a")}});
    judged(
        &closed(all),
        &[r#"{"n":null,"a":true}"#, r#"{"n":null,"b":true}"#],
        &[r#"{"n":null,"a":true,"b":true}"#, r#"{"n":null,"b":true,"c":1}"#],
    );
    let each = json!([{"required": ["a"]}, {"required": ["b"]}]);
    let required = json!({"properties": {"a": {}, "b": {}}, "anyOf": each, "type": "object"});
    judged(&closed(required), &[r#"{"a":1}"#, r#"{"a":1,"b":2}"#, r#"{"b":2}"#], &["{}", r#"{"a":1,"c":1}"#]);
}

/// A schema that contains itself, and one that is too large once it is closed.
#[test]
fn closed_objects_without_end() {
    let tree =
        json!({"type": "object", "properties": {"next": {"$ref": "#"}, "value": {"type": "integer", "minimum": 0}}});
    judged(
        &closed(tree),
        &[r#"{"next":{"next":{"value":1}}}"#, r#"{"next":{},"value":2}"#],
        &[r#"{"next":{"x":1}}"#, r#"{"next":{"value":1,"x":1}}"#],
    );
    let names = |of: &str, count: usize| -> Value { (0..count).map(|at| (format!("{of}{at}"), json!({}))).collect() };
    let any: Vec<Value> = (0..1000).map(|at| json!({"properties": names(&format!("p{at}_"), 1)})).collect();
    let wide = json!({"properties": names("q", 900), "anyOf": any});
    let error = Constraint::json_schema_with(wide, SchemaOptions::default().with_closed(true)).unwrap_err();
    assert!(error.to_string().contains("too large: closing its objects"), "{error}");
    // The place of an error is that in an open schema.
    let many: Vec<Value> = (0..25_000).map(|at| json!({"properties": names(&format!("p{at}_"), 1)})).collect();
    let error = Constraint::json_schema_with(json!({"allOf": many}), SchemaOptions::default().with_closed(true));
    assert!(error.unwrap_err().to_string().contains("too large: closing its objects"));
    let wrong = Constraint::json_schema(json!({"x-guidance": {"closed": "yes"}})).unwrap_err();
    assert!(wrong.to_string().contains("`closed` is \"yes\", expected true or false"), "{wrong}");
    let inner = json!({"properties": {"a": {}}, "required": ["a"], "minProperties": 2, "type": "object"});
    let unmet = json!({"properties": {"in": inner}, "required": ["in"], "type": "object"});
    let error = Constraint::json_schema_with(unmet, SchemaOptions::default().with_closed(true)).unwrap_err();
    assert!(error.to_string().contains("#/properties/in"), "{error}");
}
