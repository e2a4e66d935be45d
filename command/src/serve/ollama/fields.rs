//! The fields that the bodies of `/api/chat` and `/api/generate` share.

use crate::serve::constraints::{Format, FormatField};
use crate::serve::conversation::Conversation;
use crate::serve::failure::{Failure, shown};
use crate::serve::fields::{Fields, max_tokens};
use crate::serve::interface::Stream;
use crate::serve::server::{LoadedModel, Server};
use serde::Deserialize;
use serde_json::Value;
use wglm_engine::{Calls, GenerateOptions, Message, Overflow};

#[derive(Debug, Deserialize)]
pub struct Common {
    stream: Option<bool>,
    format: Option<Value>,
    think: Option<Value>,
    truncate: Option<bool>,
    options: Option<Options>,
}

/// How tokens are sampled, by the names that all interfaces have for it, and where a reply ends.
#[derive(Debug, Default, Deserialize)]
struct Options {
    num_predict: Option<i64>,
    num_ctx: Option<u64>,
    #[serde(flatten)]
    fields: Fields,
}

impl Options {
    /// The limit of tokens. All negative numbers are for no limit.
    fn max_tokens(&self) -> Option<i64> {
        self.num_predict.map(|most| most.max(-1))
    }
}

impl Common {
    /// A request without `stream` asks for a stream.
    pub fn stream(&self) -> Stream {
        let stream =
            self.options.as_ref().map_or_else(|| Fields::default().stream(), |options| options.fields.stream());
        Stream { is_on: self.stream != Some(false), ..stream }
    }

    /// Warnings about options that have no effect. A smaller context than the server's needs none: all that the client
    /// sends fits.
    pub fn warnings(&self, context: usize) -> Vec<String> {
        let asked = self.options.as_ref().and_then(|options| options.num_ctx);
        let large = asked.filter(|asked| *asked > context as u64);
        let warning =
            |asked| format!("num_ctx: {asked} has no effect; the server has a context of {context} tokens (-c)");
        large.map(warning).into_iter().collect()
    }

    /// A conversation with these messages and functions. As in Ollama, one that is too long loses its oldest messages,
    /// unless `truncate` is false.
    pub fn conversation(
        self,
        messages: Vec<Message>,
        tools: Vec<Value>,
        server: &Server,
    ) -> Result<Conversation, Failure> {
        let options = self.options.unwrap_or_default();
        let refuses = self.truncate == Some(false);
        Ok(Conversation {
            messages,
            tools,
            calls: Calls::Auto,
            format: format(self.format, options.fields.json_whitespace == Some(true))?,
            max_tokens: options.max_tokens(),
            thinking: thinks(self.think, server.reasoning)?,
            overflow: if refuses { Overflow::Refuse } else { Overflow::DROP_OLDEST },
            fields: options.fields,
        })
    }

    /// The options of generation for a prompt without a template, where nothing can have a format.
    pub fn raw(self, loaded: &LoadedModel) -> Result<GenerateOptions, Failure> {
        if format(self.format, false)? != Format::Text {
            return Err(Failure::unsupported(
                "format: not supported together with raw; leave out raw or use /api/chat",
            ));
        }
        let given = self.options.unwrap_or_default();
        let most = max_tokens(given.max_tokens())?;
        let mut options = given.fields.options(loaded)?;
        options.max_tokens = most.or(options.max_tokens);
        Ok(options)
    }
}

/// Reads `format`: nothing, `json`, or a schema.
fn format(given: Option<Value>, whitespace: bool) -> Result<Format, Failure> {
    let field = match given {
        None | Some(Value::Null) => FormatField::default(),
        Some(Value::String(word)) if word.is_empty() => FormatField::default(),
        Some(Value::String(word)) if word == "json" => FormatField::object(),
        Some(schema @ Value::Object(_)) => FormatField::schema(schema),
        Some(other) => {
            let message = format!("format: {}: expected \"json\" or a JSON schema", shown(&other.to_string()));
            return Err(Failure::invalid(message));
        }
    };
    field.read(whitespace)
}

/// Reads `think`: whether the model thinks. It has one effort.
fn thinks(given: Option<Value>, usual: bool) -> Result<bool, Failure> {
    match given {
        None | Some(Value::Null) => Ok(usual),
        Some(Value::Bool(thinks)) => Ok(thinks),
        Some(Value::String(effort)) if ["low", "medium", "high", "max"].contains(&effort.as_str()) => Ok(true),
        Some(other) => {
            let message =
                format!("think: {}: expected true, false, low, medium, high or max", shown(&other.to_string()));
            Err(Failure::invalid(message))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Common, format, thinks};
    use crate::serve::constraints::Format;
    use serde_json::{Value, json};

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
    fn only_a_context_that_is_too_large_is_a_warning() {
        let warnings = |tokens: Value| read(json!({"options": {"num_ctx": tokens}})).warnings(1024).len();
        assert_eq!([json!(null), json!(1024), json!(1025)].map(warnings), [0, 0, 1]);
    }

    #[test]
    fn a_negative_number_of_tokens_is_no_limit() {
        let most = |tokens: i64| read(json!({"options": {"num_predict": tokens}})).options.unwrap().max_tokens();
        assert_eq!([-2, -1, 0, 7].map(most), [-1, -1, 0, 7].map(Some));
    }

    #[test]
    fn a_format_is_a_word_or_a_schema() {
        let read = |given: Value| format(Some(given), false).unwrap();
        assert_eq!([read(json!(null)), read(json!(""))], [Format::Text, Format::Text]);
        assert_eq!(read(json!("json")), Format::Object);
        assert!(matches!(read(json!({"type": "integer"})), Format::Schema(_)));
        for wrong in [json!("xml"), json!(3), json!([])] {
            assert_eq!(format(Some(wrong.clone()), false).unwrap_err().status, 400, "{wrong}");
        }
    }

    #[test]
    fn thinking_is_a_flag_or_an_effort() {
        let read = |given: Value| thinks(Some(given), false).unwrap();
        assert_eq!([json!(true), json!("low"), json!(false), json!(null)].map(read), [true, true, false, false]);
        assert!(thinks(None, true).unwrap() && thinks(Some(json!("none")), true).is_err());
    }
}
