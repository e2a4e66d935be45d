//! The grammar of arguments in GLM's form: keys and values between tags of their own. String values are verbatim, and
//! all others JSON. The parser reads a text as JSON if that is of a type that the schema allows besides strings, so the
//! grammar excludes strings that would be read as such.

use super::call_grammar::{Rules, json_of, quoted};
use super::check;
use super::schema::{refers_elsewhere, with_definitions};
use crate::text::{Tag, alternatives, is_of_type, other_argument, types};
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// The maximum length of the rules for functions, in bytes. Further arguments accept any text.
const MAX_TEXT: usize = 4 << 20;

impl Rules<'_> {
    /// Keys and values in GLM's form, in the order of the schema. Others may follow, unless the schema rules them out.
    pub(super) fn keyed(&mut self, schema: &Value) -> String {
        let required: Vec<&str> = list(schema, "required").iter().filter_map(Value::as_str).collect();
        let named = schema.get("properties").and_then(Value::as_object);
        let mut arguments = Vec::new();
        for (name, part) in named.into_iter().flatten() {
            let is_json = !may_be_text(part, schema);
            self.arguments.entry(name.clone()).and_modify(|known| *known &= is_json).or_insert(is_json);
            let of_value = self.argument(part, schema);
            let argument = self.key_and_value(&quoted(name), &of_value);
            let count = if required.contains(&name.as_str()) { "" } else { "?" };
            arguments.push(format!("{argument}{count}"));
        }
        if may_have_others(schema) {
            let is_named = |name: &str| named.is_some_and(|named| named.contains_key(name));
            let mut only_required = HashSet::new();
            for name in required.into_iter().filter(|name| !is_named(name)) {
                if only_required.insert(name) {
                    let of_value = self.of_others(schema);
                    arguments.push(self.key_and_value(&quoted(name), &of_value));
                }
            }
            let known = named.into_iter().flatten().map(|(name, _)| name.as_str()).chain(only_required);
            let name = self.other_name(known);
            let of_value = self.of_others(schema);
            let other = self.key_and_value(&name, &of_value);
            arguments.push(format!("({other})*"));
        }
        if arguments.is_empty() { String::new() } else { self.rule(&arguments.join(" ")) }
    }

    /// The rule of one argument.
    fn key_and_value(&mut self, name: &str, of_value: &str) -> String {
        let [key, key_end, value, value_end] =
            [Tag::Key, Tag::KeyEnd, Tag::Value, Tag::ValueEnd].map(|tag| self.tag(tag));
        self.rule(&format!("{key} {name} {key_end} NL? {value} {of_value} {value_end} NL?"))
    }

    /// The name of an argument that is not among the known ones.
    fn other_name<'n>(&mut self, known: impl Iterator<Item = &'n str>) -> String {
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        // No other known name matches the expression, and in these names only the dot needs an escape.
        let known: Vec<String> =
            known.filter(|name| name.bytes().all(is_inner)).map(|name| name.replace('.', "[.]")).collect();
        let any = "/[A-Za-z_][A-Za-z0-9_.-]{0,63}/";
        match known.is_empty() {
            true => self.terminal(any),
            false => self.terminal(&format!("{any} & ~/({})/", known.join("|"))),
        }
    }

    /// The value of an argument whose schema is that of all other properties.
    fn of_others(&mut self, schema: &Value) -> String {
        match other_argument(schema) {
            Some(part) => self.argument(part, schema),
            None => self.anything(),
        }
    }

    /// A value in GLM's form, for a part of a function's schema.
    fn argument(&mut self, part: &Value, whole: &Value) -> String {
        let reference = part.get("$ref").and_then(Value::as_str);
        if let Some(known) = reference.and_then(|reference| self.references.get(reference)) {
            return known.clone();
        }
        if self.is_full || self.text.len() > MAX_TEXT {
            return self.anything();
        }
        // JSON of these types is read as JSON, not as text.
        let kinds = types(part, whole);
        let others: Vec<&str> = kinds.iter().copied().filter(|name| *name != "string").collect();
        // Without a type any JSON is read as JSON, even if the search had too many steps.
        let all = if kinds.is_empty() { Vec::new() } else { alternatives(part, whole) };
        let (mut options, mut written) = (Vec::new(), 0);
        for one in all {
            let made = self.alternative(one, whole, &others);
            written += made.iter().map(String::len).sum::<usize>();
            options.extend(made);
            // Each alternative has its own copy of its definitions.
            if self.text.len() + written > MAX_TEXT {
                self.is_full = true; // retrying with other arguments would not help
                options.clear();
                break;
            }
        }
        let rule = if options.is_empty() { self.anything() } else { self.rule(&options.join(" | ")) };
        if let Some(reference) = reference {
            self.references.insert(reference.to_owned(), rule.clone());
        }
        rule
    }

    /// The ways to write a value of a schema without references.
    fn alternative(&mut self, one: &Value, whole: &Value, others: &[&str]) -> Vec<String> {
        let Some(schema) = one.as_object() else { return vec![self.anything()] };
        let list = schema.get("enum").and_then(Value::as_array).filter(|list| !list.is_empty());
        let values = list.map(Vec::as_slice).or_else(|| schema.get("const").map(std::slice::from_ref));
        if let Some(values) = values {
            let is_read = |text: &str| {
                let value = serde_json::from_str::<Value>(text);
                value.is_ok_and(|value| others.iter().any(|kind| is_of_type(&value, kind)))
            };
            let written = |value: &Value| match value {
                Value::String(text) if is_read(text) => None,
                Value::String(text) => Some(quoted(text)),
                other => Some(quoted(&other.to_string())),
            };
            let written: Vec<String> = values.iter().filter_map(written).collect();
            return if written.is_empty() { Vec::new() } else { vec![self.rule(&written.join(" | "))] };
        }
        let mut kinds = types(one, whole);
        if kinds.is_empty() {
            return vec![self.anything()];
        }
        let before = kinds.len();
        kinds.retain(|kind| *kind != "string");
        let is_text = kinds.len() < before;
        let mut options = Vec::new();
        if is_text {
            options.push(if schema.contains_key("allOf") { self.anything() } else { self.string(schema, others) });
        }
        if !kinds.is_empty() {
            let mut part = with_definitions(one, whole);
            if refers_elsewhere(&part) {
                part = json!({"type": kinds}); // it has a dangling reference
            } else if let (true, Value::Object(part)) = (is_text, &mut part) {
                part.insert("type".to_owned(), kinds.into());
            }
            options.push(json_of(part));
        }
        options
    }

    /// A verbatim string, unless it is JSON of one of these types.
    fn string(&mut self, schema: &Map<String, Value>, others: &[&str]) -> String {
        let length = |key: &str| schema.get(key).and_then(Value::as_u64).map(|length| length.min(100_000));
        let mut parts = vec![self.text_of(length("minLength"), length("maxLength"))];
        if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
            // A pattern may match anywhere in the string.
            let (start, rest) = pattern.strip_prefix('^').map_or(("(?s:.)*", pattern), |rest| ("", rest));
            let (middle, end) = match rest.strip_suffix('$').filter(|middle| !middle.ends_with('\\')) {
                Some(middle) => (middle, ""),
                None => (rest, "(?s:.)*"),
            };
            if check::regex(&format!("{start}({middle}){end}")).is_ok() {
                parts.push(format!("/{start}({}){end}/", llguidance::regex_to_lark(middle, "dw")));
            }
        }
        let read: Vec<&str> = others.iter().filter_map(|kind| json_pattern(kind)).collect();
        if !read.is_empty() {
            parts.push(format!("~/[ \\t\\r\\n]*({})[ \\t\\r\\n]*/", read.join("|")));
        }
        match &parts[..] {
            [only] => only.clone(),
            all => self.terminal(&all.join(" & ")),
        }
    }

    /// Any text without a tag that would end it.
    fn anything(&mut self) -> String {
        if let Some(known) = &self.any {
            return known.clone();
        }
        let made = self.text_of(None, None);
        self.any.insert(made).clone()
    }

    fn text_of(&mut self, least: Option<u64>, most: Option<u64>) -> String {
        let count = match (least.unwrap_or(0), most) {
            (0, None) => "*".to_owned(),
            (least, most) => format!("{{{least},{}}}", most.map_or(String::new(), |most| most.to_string())),
        };
        let end = self.of.family.text(Tag::ValueEnd);
        if end.is_empty() || self.of.tokenizer.special(end).is_some() {
            return self.terminal(&format!("/(?s:.){count}/"));
        }
        // If tags are spelled, text may not contain the character that they begin with.
        self.terminal(&format!("/[^<]{count}/"))
    }
}

/// Whether a function takes arguments that are not among its `properties`. One with an empty list of these, and without
/// other keywords of properties, takes none.
fn may_have_others(schema: &Value) -> bool {
    let is_there = |keys: &[&str]| keys.iter().any(|key| schema.get(key).is_some());
    match schema.get("additionalProperties") {
        Some(Value::Bool(false)) => {
            schema.get("patternProperties").and_then(Value::as_object).is_some_and(|patterns| !patterns.is_empty())
        }
        Some(_) => true,
        None => {
            let takes_none = schema.get("properties").and_then(Value::as_object).is_some_and(Map::is_empty);
            let names_others = is_there(&["patternProperties", "allOf", "anyOf", "oneOf", "$ref"]);
            !takes_none || names_others || !list(schema, "required").is_empty()
        }
    }
}

/// The schemas or names that a keyword lists.
fn list<'v>(schema: &'v Value, key: &str) -> &'v [Value] {
    schema.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Whether an argument in GLM's form may be text that is not JSON.
fn may_be_text(part: &Value, whole: &Value) -> bool {
    let may_be = |one: &&Value| {
        let kinds = types(one, whole);
        kinds.is_empty() || kinds.contains(&"string")
    };
    // A schema with too many steps names no types.
    types(part, whole).is_empty() || alternatives(part, whole).iter().any(may_be)
}

/// The expression of JSON of a type.
fn json_pattern(kind: &str) -> Option<&'static str> {
    match kind {
        "null" => Some("null"),
        "boolean" => Some("true|false"),
        "integer" => Some("-?(0|[1-9][0-9]*)"),
        "number" => Some(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?"),
        "array" => Some(r"\[(?s:.)*\]"),
        "object" => Some(r"\{(?s:.)*\}"),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::call_grammar::{CallGrammar, Calls};
    use super::super::{check, matcher::Matcher};
    use crate::text::{Tokenizer, Vocab};
    use serde_json::{Value, json};

    /// Whether a call of a function with these parameters and arguments may be written. Tags are spelled.
    fn may_be(parameters: &Value, arguments: &[(&str, &str)]) -> bool {
        // The letters that stand for single bytes.
        let plain = |code: &u32| matches!(code, 33..=126 | 161..=172 | 174..=255);
        let letters = (0..256).filter(plain).chain(256..256 + 68).filter_map(char::from_u32);
        let tokens = letters.map(String::from).collect();
        let vocab = Vocab { tokens, pre: "glm4".to_owned(), ..Vocab::default() };
        let tools = [json!({"name": "f", "parameters": parameters})];
        let tokenizer = Tokenizer::new(vocab).unwrap();
        let calls = CallGrammar { family: Default::default(), tools: &tools, tokenizer: &tokenizer };
        let grammar = calls.answer(None, &Calls::Function("f".to_owned())).unwrap().unwrap();
        let mut matcher = Matcher::new(check::bytes().unwrap(), &grammar, 16, None).unwrap();
        let written: String = arguments
            .iter()
            .map(|(key, value)| format!("<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n"))
            .collect();
        for byte in format!("<tool_call>f\n{written}</tool_call>").bytes() {
            if matcher.is_over() || !matcher.allows(byte.into()).unwrap() {
                return false;
            }
            matcher.accept(byte.into()).unwrap();
        }
        matcher.may_end()
    }

    #[test]
    fn arguments_that_the_properties_do_not_name() {
        let count = || json!({"count": {"type": "integer", "minimum": 0}});
        let given = |more: Value| {
            let mut schema = json!({"type": "object", "properties": count()});
            schema.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
            schema
        };
        let other = [("count", "1"), ("x-y.z", "2")];
        // Without other keywords a function has the properties that its schema names.
        assert!(may_be(&given(json!({})), &other[..1]) && !may_be(&given(json!({})), &other));
        assert!(!may_be(&given(json!({"additionalProperties": false})), &other));
        let integers = given(json!({"additionalProperties": {"type": "integer"}}));
        assert!(may_be(&integers, &other) && !may_be(&integers, &[("x", "two")]));
        assert!(!may_be(&integers, &[("count", "1"), ("count", "-1")]), "a property as another argument");
        for open in [
            json!({"additionalProperties": true}),
            json!({"patternProperties": {"^x": {}}, "additionalProperties": false}),
            json!({"anyOf": [{"properties": {"x-y.z": {"type": "integer"}}}, {}]}),
            json!({"allOf": [{"$ref": "#/$defs/x"}], "$defs": {"x": {"properties": {"x-y.z": {}}}}}),
        ] {
            let mut empty = open.clone();
            empty["properties"] = json!({});
            assert!(may_be(&given(open.clone()), &other) && may_be(&empty, &other[1..]), "{open}");
        }
        let required = given(json!({"required": ["ünlike", "count"]}));
        assert!(may_be(&required, &[("count", "1"), ("ünlike", "2")]) && !may_be(&required, &other[..1]));
        assert!(!may_be(&json!({"type": "object", "properties": {}}), &other[1..]), "a function without parameters");
        assert!(may_be(&json!({"type": "object"}), &other));
    }
}
