//! What a request asks for but does not get. A field that would change the reply is refused by name. Other fields that
//! the server does not know, and tools that it does not have, are left out and named in the `warnings` of the answer.

use super::failure::{Failure, shown};
use crate::output;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::fmt;

/// The maximum number of warnings about a request, besides the one that counts the others.
const WARNINGS: usize = 16;

/// Fields that can be ignored in silence: they concern a provider's accounts, storage and caches, the loading of the
/// model, or a sampler that is off because the field that turns it on is refused.
const HARMLESS: &[&str] = &[
    "betas",
    "cache_control",
    "cache_prompt",
    "client_metadata",
    "context_management",
    "dry_allowed_length",
    "dry_base",
    "dry_penalty_last_n",
    "dry_sequence_breakers",
    "dynatemp_exponent",
    "id_slot",
    "include",
    "inference_geo",
    "keep_alive",
    "low_vram",
    "main_gpu",
    "metadata",
    "mirostat_eta",
    "mirostat_tau",
    "model",
    "num_batch",
    "num_gpu",
    "num_keep",
    "num_thread",
    "numa",
    "parallel_tool_calls",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "stream_options",
    "use_mlock",
    "use_mmap",
    "user",
    "xtc_threshold",
];

/// Fields that are true by default, so that false is a request.
const TRUE_BY_DEFAULT: &[&str] =
    &["add_special_tokens", "detokenize", "skip_special_tokens", "spaces_between_special_tokens"];

/// A field that would change the reply if it were supported.
#[derive(Debug)]
struct Unsupported {
    name: &'static str,
    /// Whether a value has no effect. Values that ask for nothing are not passed to it.
    is_neutral: fn(&Value) -> bool,
    remedy: &'static str,
}

const BIAS: &str = "use logit_bias";
const FORMAT: &str = "use a JSON schema: response_format in /v1/chat/completions, text.format in /v1/responses, \
                      output_config.format in /v1/messages, format in /api/chat";
const LEAVE_OUT: &str = "leave it out";
const ONE: &str = "leave it out, or set it to 1";
const TEXT: &str = "this model writes text only";
const ZERO: &str = "leave it out, or set it to 0";

const UNSUPPORTED: &[Unsupported] = &[
    Unsupported { name: "allowed_token_ids", is_neutral: is_never, remedy: BIAS },
    Unsupported { name: "audio", is_neutral: is_never, remedy: TEXT },
    Unsupported { name: "bad_words", is_neutral: is_never, remedy: BIAS },
    Unsupported { name: "ebnf", is_neutral: is_never, remedy: FORMAT },
    Unsupported { name: "format", is_neutral: is_never, remedy: FORMAT },
    Unsupported { name: "function_call", is_neutral: forces_no_call, remedy: "use tool_choice" },
    Unsupported { name: "functions", is_neutral: is_never, remedy: "use tools" },
    Unsupported { name: "grammar", is_neutral: is_never, remedy: FORMAT },
    Unsupported { name: "guided_choice", is_neutral: is_never, remedy: FORMAT },
    Unsupported { name: "guided_grammar", is_neutral: is_never, remedy: FORMAT },
    Unsupported { name: "guided_json", is_neutral: is_never, remedy: FORMAT },
    Unsupported { name: "guided_regex", is_neutral: is_never, remedy: FORMAT },
    Unsupported { name: "json_schema", is_neutral: is_never, remedy: FORMAT },
    Unsupported { name: "length_penalty", is_neutral: is_one, remedy: ONE },
    Unsupported { name: "logits_processors", is_neutral: is_never, remedy: LEAVE_OUT },
    Unsupported { name: "lora", is_neutral: is_never, remedy: LEAVE_OUT },
    Unsupported { name: "min_tokens", is_neutral: is_zero, remedy: ZERO },
    Unsupported { name: "modalities", is_neutral: is_text, remedy: TEXT },
    Unsupported { name: "n_indent", is_neutral: is_at_most_zero, remedy: ZERO },
    Unsupported { name: "output_format", is_neutral: is_never, remedy: FORMAT },
    Unsupported { name: "regex", is_neutral: is_never, remedy: FORMAT },
    Unsupported { name: "response_format", is_neutral: is_text_format, remedy: FORMAT },
    Unsupported { name: "stop_token_ids", is_neutral: is_never, remedy: "use stop" },
    Unsupported { name: "structural_tag", is_neutral: is_never, remedy: FORMAT },
    Unsupported { name: "structured_outputs", is_neutral: is_empty, remedy: FORMAT },
    Unsupported { name: "t_max_predict_ms", is_neutral: is_at_most_zero, remedy: ZERO },
    Unsupported { name: "use_beam_search", is_neutral: is_never, remedy: LEAVE_OUT },
];

/// The same for samplers. They are off at the values at which llama.cpp turns them off.
const SAMPLERS: &[Unsupported] = &[
    Unsupported { name: "dry_multiplier", is_neutral: is_zero, remedy: ZERO },
    Unsupported { name: "dynatemp_range", is_neutral: is_at_most_zero, remedy: ZERO },
    Unsupported { name: "mirostat", is_neutral: is_at_most_zero, remedy: ZERO },
    Unsupported { name: "tfs_z", is_neutral: is_at_least_one, remedy: ONE },
    Unsupported { name: "top_n_sigma", is_neutral: is_at_most_zero, remedy: ZERO },
    Unsupported { name: "typ_p", is_neutral: is_at_least_one, remedy: ONE },
    Unsupported { name: "typical_p", is_neutral: is_at_least_one, remedy: ONE },
    Unsupported { name: "xtc_probability", is_neutral: is_at_most_zero, remedy: ZERO },
];

/// Whether the value of a field asks for nothing.
fn is_nothing(field: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(is_on) => !is_on && !TRUE_BY_DEFAULT.contains(&field),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Number(_) | Value::Object(_) => false,
    }
}

fn is_never(_: &Value) -> bool {
    false
}

fn is_zero(value: &Value) -> bool {
    value.as_f64() == Some(0.0)
}

fn is_one(value: &Value) -> bool {
    value.as_f64() == Some(1.0)
}

fn is_at_most_zero(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number <= 0.0)
}

fn is_at_least_one(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number >= 1.0)
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty)
}

fn forces_no_call(value: &Value) -> bool {
    value == "none" || value == "auto"
}

fn is_text(value: &Value) -> bool {
    value.as_array().is_some_and(|kinds| kinds.iter().all(|kind| kind == "text"))
}

fn is_text_format(value: &Value) -> bool {
    is_empty(value) || value["type"] == "text"
}

/// Warnings about a request. The first [`WARNINGS`] differ, and one more counts the others, whatever a client sends.
#[derive(Debug, Default)]
pub struct Warnings {
    texts: Vec<String>,
    /// The number of those that are not in the list, repetitions included.
    more: usize,
}

impl Warnings {
    fn push(&mut self, text: String) {
        match self.texts.contains(&text) {
            true => {}
            false if self.texts.len() < WARNINGS => self.texts.push(text),
            false => self.more += 1,
        }
    }

    pub fn add(&mut self, what: &str, why: &str) {
        self.push(format!("{}: {why}", shown(what)));
    }

    /// Adds those about the fields of the field `place`.
    fn add_within(&mut self, place: &str, warnings: Self) {
        self.more += warnings.more;
        warnings.texts.into_iter().for_each(|text| self.push(format!("{place}.{text}")));
    }

    /// A field has no effect.
    pub fn ignored(&mut self, field: &str) {
        self.add(field, "not supported; ignored");
    }

    /// The fields of an object that nothing reads have no effect. `place` says where the object is.
    pub fn ignored_in<'a>(&mut self, place: &str, fields: impl IntoIterator<Item = (&'a String, &'a Value)>) {
        for (name, value) in fields {
            if !HARMLESS.contains(&name.as_str()) && !is_nothing(name, value) {
                self.ignored(&format!("{place}.{name}"));
            }
        }
    }

    /// A field has no effect, unless its value asks for nothing.
    pub fn ignored_value(&mut self, field: &str, value: &Value) {
        if !is_nothing(field, value) {
            self.ignored(field);
        }
    }

    /// Tools that the model does not get. `place` says where they are, if they are not in `tools` itself.
    pub fn tools(&mut self, place: &str, tools: &[Value], is_function: impl Fn(&Value) -> bool) {
        for tool in tools.iter().filter(|tool| !is_function(tool)) {
            let kind = tool.get("type").and_then(Value::as_str).unwrap_or("unknown");
            let why = "ignored; only function tools with a name are supported";
            self.push(format!("tool of type {}{place}: {why}", shown(kind)));
        }
    }

    pub fn texts(mut self) -> Vec<String> {
        if self.more > 0 {
            self.texts.push(format!("{} not listed", output::count(self.more, "more warning")));
        }
        self.texts
    }
}

/// The fields of a body that its interface does not have. Bodies flatten it after all their other fields. Of values it
/// keeps nothing.
#[derive(Debug, Default)]
pub struct OtherFields {
    /// What would change the reply, each once.
    refused: Vec<&'static Unsupported>,
    warnings: Warnings,
}

impl OtherFields {
    /// Warnings about the fields that have no effect, or a failure for the first that would change the reply.
    pub fn read(self) -> Result<Warnings, Failure> {
        self.check("")?;
        Ok(self.warnings)
    }

    /// The same, except that the fields `names` only cause warnings, even if they would change the reply.
    pub fn read_ignoring(mut self, names: &[&str]) -> Result<Warnings, Failure> {
        self.ignore(|field| names.contains(&field.name));
        self.read()
    }

    /// Turns refusals into warnings.
    fn ignore(&mut self, is_ignored: impl Fn(&Unsupported) -> bool) {
        for field in self.refused.extract_if(.., |field| is_ignored(field)) {
            self.warnings.ignored(field.name);
        }
    }

    /// The same for Ollama's `options`, with the warnings about the body. Ollama itself ignores most samplers there.
    pub fn read_options(mut self, warnings: &mut Warnings) -> Result<(), Failure> {
        self.ignore(|field| SAMPLERS.iter().any(|sampler| field.name == sampler.name));
        self.check("options.")?;
        warnings.add_within("options", self.warnings);
        Ok(())
    }

    fn check(&self, place: &str) -> Result<(), Failure> {
        let Some(Unsupported { name, remedy, .. }) = self.refused.first() else { return Ok(()) };
        let failure = Failure::of_field(&format!("{place}{name}"), format_args!("not supported; {remedy}"));
        Err(failure.with_code("unsupported"))
    }
}

impl<'de> Deserialize<'de> for OtherFields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Names)
    }
}

struct Names;

impl<'de> Visitor<'de> for Names {
    type Value = OtherFields;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<OtherFields, A::Error> {
        let mut others = OtherFields::default();
        while let Some(name) = fields.next_key::<String>()? {
            if HARMLESS.contains(&name.as_str()) {
                fields.next_value::<IgnoredAny>()?;
                continue;
            }
            let value: Value = fields.next_value()?;
            match UNSUPPORTED.iter().chain(SAMPLERS).find(|field| field.name == name) {
                _ if is_nothing(&name, &value) => {}
                Some(known) if (known.is_neutral)(&value) => {}
                Some(known) if others.refused.iter().any(|field| field.name == known.name) => {}
                Some(known) => others.refused.push(known),
                None => others.warnings.ignored(&name),
            }
        }
        Ok(others)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{OtherFields, SAMPLERS, UNSUPPORTED, WARNINGS, Warnings};
    use crate::serve::fields::Fields;
    use serde::Deserialize;
    use serde_json::{Value, json};

    #[derive(Deserialize)]
    struct Body {
        #[allow(dead_code)]
        prompt: Option<String>,
        #[serde(flatten)]
        #[allow(dead_code)]
        fields: Fields,
        #[serde(flatten)]
        others: OtherFields,
    }

    fn others(body: Value) -> OtherFields {
        serde_json::from_str::<Body>(&body.to_string()).unwrap().others
    }

    #[test]
    fn only_fields_that_nothing_reads_cause_a_warning() {
        let body = json!({"prompt": "x", "temperature": 0.5, "seed": null, "user": "me", "verbosity": "low", "x": null,
            "image_data": [], "logprobs": false, "a": "", "prediction": {"type": "content", "content": "y"}});
        let warned = others(body).read().unwrap().texts();
        let on = others(json!({"skip_special_tokens": false})).read().unwrap().texts();
        assert_eq!(on, ["skip_special_tokens: not supported; ignored"], "which is true by default");
        assert_eq!(warned, ["verbosity: not supported; ignored", "prediction: not supported; ignored"]);
    }

    #[test]
    fn warnings_are_bounded_in_number_and_length() {
        let many: Value = (0..5000).map(|index| (format!("{index}{}", "x".repeat(500)), json!([[1]]))).collect();
        let warned = others(many).read().unwrap().texts();
        assert_eq!((warned.len(), warned[WARNINGS].as_str()), (WARNINGS + 1, "4984 more warnings not listed"));
        assert!(warned.iter().all(|warning| warning.len() < 200), "{warned:?}");
        let twice = serde_json::from_str::<OtherFields>(r#"{"a": 1, "a": 2}"#).unwrap();
        assert_eq!(twice.read().unwrap().texts().len(), 1);
        let one_more: Value = (0..=WARNINGS).map(|index| (format!("f{index}"), json!(1))).collect();
        assert_eq!(others(one_more).read().unwrap().texts()[WARNINGS], "1 more warning not listed");
    }

    #[test]
    fn what_would_change_the_reply_is_refused_unless_it_is_neutral() {
        for (field, neutral, other) in [
            ("min_tokens", json!(0), json!(5)),
            ("typ_p", json!(1.0), json!(0.9)),
            ("top_n_sigma", json!(-1), json!(1.5)),
            ("use_beam_search", json!(false), json!(true)),
            ("typical_p", json!(2), json!(0.5)),
            ("xtc_probability", json!(-0.5), json!(0.1)),
            ("mirostat", json!(-1), json!(2)),
            ("dry_multiplier", json!(0), json!(-1)),
            ("response_format", json!({"type": "text"}), json!({"type": "json_object"})),
            ("response_format", json!({}), json!("json")),
            ("json_schema", json!(null), json!({})),
            ("output_format", json!(null), json!({"type": "json_schema"})),
            ("format", json!(""), json!("json")),
            ("functions", json!([]), json!([{"name": "f"}])),
            ("function_call", json!("auto"), json!({"name": "f"})),
            ("stop_token_ids", json!([]), json!([1])),
            ("structured_outputs", json!({}), json!({"regex": "a"})),
            ("modalities", json!(["text"]), json!(["text", "audio"])),
            ("guided_json", json!(null), json!({"type": "object"})),
        ] {
            assert!(others(json!({field: neutral})).read().unwrap().texts().is_empty(), "{field}");
            let failure = others(json!({field: other})).read().unwrap_err();
            assert!(failure.message.starts_with(&format!("{field}: not supported; ")), "{failure:?}");
            assert_eq!((failure.code, failure.param.as_deref()), (Some("unsupported"), Some(field)));
        }
        for field in UNSUPPORTED.iter().chain(SAMPLERS) {
            assert!(others(json!({field.name: null})).read().is_ok(), "{field:?}");
        }
    }

    /// llama.cpp's order of samplers has no effect while those in it are off.
    #[test]
    fn the_order_of_samplers_is_ignored() {
        for order in [json!(["top_k", "typ_p"]), json!("edskypmxt")] {
            let warned = others(json!({"samplers": order})).read().unwrap().texts();
            assert_eq!(warned, ["samplers: not supported; ignored"]);
        }
    }

    #[test]
    fn samplers_among_ollamas_options_are_ignored() {
        let mut warnings = others(json!({"top_a": 1})).read().unwrap();
        let options = json!({"typical_p": 0.7, "mirostat": 1, "tfs_z": 0.5, "top_a": 1, "f16_kv": true});
        others(options).read_options(&mut warnings).unwrap();
        let names =
            ["top_a", "options.top_a", "options.f16_kv", "options.typical_p", "options.mirostat", "options.tfs_z"];
        let mut texts = warnings.texts();
        texts.sort();
        let mut wanted = names.map(|name| format!("{name}: not supported; ignored"));
        wanted.sort();
        assert_eq!(texts, wanted);
        let many = |of: &str| others((0..12).map(|index| (format!("{of}{index}"), json!(1))).collect());
        let mut warnings = many("a").read().unwrap();
        many("b").read_options(&mut warnings).unwrap();
        assert_eq!(warnings.texts().len(), WARNINGS + 1, "one limit for both");
        assert!(others(json!({"mirostat": 1, "grammar": "x"})).read_options(&mut Warnings::default()).is_err());
    }

    #[test]
    fn fields_of_objects_are_named_once() {
        let fields = |value: Value| value.as_object().unwrap().clone();
        let mut warnings = Warnings::default();
        let message = fields(json!({"refusal": null, "annotations": [], "cache_control": {"type": "ephemeral"},
            "audio": {"id": "a"}, "mood": "glad"}));
        (0..3).for_each(|_| warnings.ignored_in("messages", &message));
        let names = ["messages.audio", "messages.mood"];
        assert_eq!(warnings.texts(), names.map(|name| format!("{name}: not supported; ignored")));
        let mut warnings = Warnings::default();
        let many: Value = (0..5000).map(|index| (format!("{index}{}", "x".repeat(500)), json!(1))).collect();
        warnings.ignored_in("messages", &fields(many));
        let texts = warnings.texts();
        assert_eq!((texts.len(), texts[WARNINGS].as_str()), (WARNINGS + 1, "4984 more warnings not listed"));
        assert!(texts.iter().all(|text| text.len() < 200), "{texts:?}");
    }

    #[test]
    fn tools_without_a_function_are_named_once() {
        let tools =
            [json!({"type": "web_search"}), json!({"type": "function"}), json!({"type": "web_search"}), json!(3)];
        let mut warnings = Warnings::default();
        warnings.tools("", &tools, |tool| tool["type"] == "function");
        let why = "ignored; only function tools with a name are supported";
        assert_eq!(
            warnings.texts(),
            [format!("tool of type web_search: {why}"), format!("tool of type unknown: {why}")]
        );
    }
}
