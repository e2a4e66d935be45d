//! The fields that the bodies of Ollama's API share.

use crate::serve::constraints::{Format, FormatField};
use crate::serve::conversation::Conversation;
use crate::serve::failure::{Failure, shown};
use crate::serve::fields::{Fields, max_tokens};
use crate::serve::interface::Stream;
use crate::serve::parse::located;
use crate::serve::server::{LoadedModel, Server};
use crate::serve::unmet::{OtherFields, Warnings};
use jiff::SignedDuration;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_path_to_error::{Deserializer as Tracked, Track};
use std::time::Duration;
use wglm_engine::{Calls, GenerateOptions, Message, Overflow, SchemaOptions};

/// The field that has the fields which all interfaces share.
const OPTIONS: &str = "options";

#[derive(Debug, Deserialize)]
#[serde(remote = "Self")] // so that the function below can say which field is wrong
pub struct Common {
    stream: Option<bool>,
    format: Option<Value>,
    think: Option<Value>,
    truncate: Option<bool>,
    options: Option<Options>,
    keep_alive: Option<Value>,
    #[serde(flatten)]
    others: OtherFields,
}

impl<'de> Deserialize<'de> for Common {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut track = Track::new();
        Common::deserialize(Tracked::new(from, &mut track)).map_err(|error| located(&error, track))
    }
}

/// How tokens are sampled, with the field names that all interfaces share, and where a reply ends.
#[derive(Debug, Default, Deserialize)]
struct Options {
    num_predict: Option<i64>,
    num_ctx: Option<u64>,
    #[serde(flatten)]
    fields: Fields,
    #[serde(flatten)]
    others: OtherFields,
}

impl Options {
    /// The maximum number of tokens. Any negative number means no limit.
    fn max_tokens(&self) -> Result<Option<usize>, Failure> {
        max_tokens([("options.num_predict", self.num_predict.map(|most| most.max(-1)))])
    }
}

impl Common {
    /// How long the model stays loaded without requests, if the request says so: a number of seconds, or a string such
    /// as `10m`; for ever if it is negative.
    pub fn keep_alive(&self) -> Result<Option<Option<Duration>>, Failure> {
        let read = |given: &Value| match given {
            Value::Number(seconds) => {
                seconds.as_f64().and_then(|seconds| SignedDuration::try_from_secs_f64(seconds).ok())
            }
            // Zero needs no unit.
            Value::String(text) if matches!(text.as_str(), "0" | "+0" | "-0") => Some(SignedDuration::ZERO),
            Value::String(text) => text.parse::<SignedDuration>().ok(),
            _ => None,
        };
        let Some(given) = self.keep_alive.as_ref().filter(|given| !given.is_null()) else { return Ok(None) };
        let wrong = || {
            let shown = shown(&given.to_string()).into_owned();
            Failure::of_field("keep_alive", format_args!("{shown}: expected seconds, or a duration such as \"10m\""))
        };
        Ok(Some(Duration::try_from(read(given).ok_or_else(wrong)?).ok())) // a negative time means no limit
    }

    /// Whether a text that is longer than the context is cut at its end, which is the default.
    pub fn truncates(&self) -> bool {
        self.truncate != Some(false)
    }

    /// A request without `stream` asks for a stream.
    pub fn stream(&self) -> Stream {
        let stream =
            self.options.as_ref().map_or_else(|| Fields::default().stream(), |options| options.fields.stream());
        Stream { is_on: self.stream != Some(false), ..stream }
    }

    /// Warnings about fields and options that have no effect, or a failure for one that would change the reply. With
    /// `raw`, fields for the template and for thinking have no effect. A smaller context than the server's needs no
    /// warning: all that the client sends fits.
    pub fn warnings(&mut self, context: usize, is_raw: bool) -> Result<Warnings, Failure> {
        let options = self.options.get_or_insert_default();
        let mut warnings = std::mem::take(&mut self.others).read()?;
        std::mem::take(&mut options.others).read_options(&mut warnings)?;
        if let Some(asked) = options.num_ctx.filter(|asked| *asked > context as u64) {
            let why = format!("{asked} has no effect; the server has a context of {context} tokens (-c)");
            warnings.add("options.num_ctx", &why);
        }
        if is_raw {
            let own = [("think", self.think.is_some()), ("truncate", self.truncate.is_some())];
            own.iter().filter(|(_, is_given)| *is_given).for_each(|(field, _)| warnings.ignored(field));
            options.fields.of_conversations().for_each(|field| warnings.ignored(&format!("options.{field}")));
        }
        Ok(warnings)
    }

    /// A conversation with these messages and functions. As in Ollama, one that is too long loses its oldest messages,
    /// unless `truncate` is false.
    pub fn conversation(
        self,
        messages: Vec<Message>,
        tools: Vec<Value>,
        server: &Server,
    ) -> Result<Conversation, Failure> {
        let truncates = self.truncates();
        let mut options = self.options.unwrap_or_default();
        options.fields.also_thinks(thinks(self.think)?);
        Ok(Conversation {
            messages,
            tools,
            calls: Calls::Auto,
            format: format(self.format, server.schema_options(options.fields.json_whitespace))?,
            max_tokens: options.max_tokens()?,
            thinking: server.reasoning,
            overflow: if truncates { Overflow::DROP_OLDEST } else { Overflow::Refuse },
            fields: options.fields,
            fields_in: OPTIONS,
        })
    }

    /// The options of generation for a prompt without a template, which cannot have a format.
    pub fn raw(self, loaded: &LoadedModel) -> Result<GenerateOptions, Failure> {
        if format(self.format, SchemaOptions::default())? != Format::Text {
            let wrong = "not supported together with raw or suffix; leave these out or use /api/chat";
            return Err(Failure::of_field("format", wrong).with_code("unsupported"));
        }
        let given = self.options.unwrap_or_default();
        let most = given.max_tokens()?;
        let mut options = given.fields.options(loaded).map_err(|failure| failure.of_fields_in(OPTIONS))?;
        options.max_tokens = most.or(options.max_tokens);
        Ok(options)
    }
}

/// Reads `format`: nothing, `json`, or a schema.
fn format(given: Option<Value>, options: SchemaOptions) -> Result<Format, Failure> {
    let field = match given {
        None | Some(Value::Null) => FormatField::default(),
        Some(Value::String(word)) if word.is_empty() => FormatField::default(),
        Some(Value::String(word)) if word == "json" => FormatField::object(),
        Some(schema @ Value::Object(_)) => FormatField::schema(schema),
        Some(other) => {
            let wrong = format!("{}: expected \"json\" or a JSON schema", shown(&other.to_string()));
            return Err(Failure::of_field("format", wrong));
        }
    };
    field.read("format", options)
}

/// Reads `think`: whether the model thinks, if the field says so. The model has only one level of effort.
fn thinks(given: Option<Value>) -> Result<Option<bool>, Failure> {
    match given {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(thinks)) => Ok(Some(thinks)),
        Some(Value::String(effort)) if ["low", "medium", "high", "max"].contains(&effort.as_str()) => Ok(Some(true)),
        Some(other) => {
            let wrong = format!("{}: expected true, false, low, medium, high or max", shown(&other.to_string()));
            Err(Failure::of_field("think", wrong))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Common, format, thinks};
    use crate::serve::constraints::Format;
    use serde_json::{Value, json};
    use std::time::Duration;
    use wglm_engine::SchemaOptions;

    fn read(body: Value) -> Common {
        serde_json::from_value(body).unwrap()
    }

    #[test]
    fn a_stream_is_the_default() {
        assert!(read(json!({})).stream().is_on && read(json!({"stream": null})).stream().is_on);
        assert!(read(json!({"options": {"stream": false}})).stream().is_on, "which is no option");
        assert!(!read(json!({"stream": false})).stream().is_on);
    }

    #[test]
    fn a_model_stays_loaded_for_a_time() {
        let keep = |time: Value| read(json!({"keep_alive": time})).keep_alive();
        let seconds = |count: u64| Some(Some(Duration::from_secs(count)));
        for zero in [json!(0), json!("0"), json!("+0"), json!("-0"), json!("0s")] {
            assert_eq!(keep(zero.clone()).unwrap(), seconds(0), "{zero}");
        }
        assert_eq!([json!(7), json!("2m")].map(|time| keep(time).unwrap()), [7, 120].map(seconds));
        assert_eq!([json!(-1), json!("-5m")].map(|time| keep(time).unwrap()), [Some(None); 2]);
        assert_eq!(keep(Value::Null).unwrap(), None);
        for wrong in [json!("5"), json!("+-0"), json!("soon"), json!([])] {
            assert_eq!(keep(wrong.clone()).unwrap_err().status, 400, "{wrong}");
        }
    }

    #[test]
    fn only_a_context_that_is_too_large_is_a_warning() {
        let warnings = |tokens: Value| read(json!({"options": {"num_ctx": tokens}})).warnings(1024, false);
        let count = |tokens: Value| warnings(tokens).unwrap().texts().len();
        assert_eq!([json!(null), json!(1024), json!(1025)].map(count), [0, 0, 1]);
    }

    /// Without a template there is no thinking, and no message can be dropped.
    #[test]
    fn fields_for_templates_are_ignored_with_raw() {
        let body = json!({"think": false, "truncate": true, "top_a": 1,
            "options": {"enable_thinking": true, "top_a": 1, "mirostat": 1}});
        let warnings = |is_raw: bool| read(body.clone()).warnings(1024, is_raw).unwrap().texts();
        let named = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| format!("{name}: not supported; ignored")).collect()
        };
        let always = ["top_a", "options.top_a", "options.mirostat"];
        assert_eq!(warnings(false), named(&always));
        let raw = [&always[..], &["think", "truncate", "options.enable_thinking"]].concat();
        assert_eq!(warnings(true), named(&raw));
    }

    #[test]
    fn a_negative_number_of_tokens_is_no_limit() {
        let options = |tokens: i64| read(json!({"options": {"num_predict": tokens}})).options.unwrap();
        let most = |tokens: i64| options(tokens).max_tokens().unwrap();
        assert_eq!([-2, -1, 0, 7].map(most), [None, None, Some(0), Some(7)]);
    }

    #[test]
    fn a_format_is_a_word_or_a_schema() {
        let read = |given: Value| format(Some(given), SchemaOptions::default()).unwrap();
        assert_eq!([read(json!(null)), read(json!(""))], [Format::Text, Format::Text]);
        assert_eq!(read(json!("json")), Format::Object);
        assert!(matches!(read(json!({"type": "integer"})), Format::Schema(_)));
        for wrong in [json!("xml"), json!(3), json!([])] {
            assert_eq!(format(Some(wrong.clone()), SchemaOptions::default()).unwrap_err().status, 400, "{wrong}");
        }
    }

    #[test]
    fn thinking_is_a_flag_or_an_effort() {
        let read = |given: Value| thinks(Some(given)).unwrap();
        let given = [json!(true), json!("low"), json!(false), json!(null)];
        assert_eq!(given.map(read), [Some(true), Some(true), Some(false), None]);
        assert_eq!(thinks(Some(json!("none"))).unwrap_err().param.as_deref(), Some("think"));
    }
}
