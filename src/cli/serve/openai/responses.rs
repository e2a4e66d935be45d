//! `/v1/responses`, as Codex calls it: nothing is kept between requests, so each carries its whole conversation.

use super::chat::thinks;
use super::responses_input::{Item, conversation};
use super::responses_words::ResponseWords;
use crate::cli::serve::body::JsonBody;
use crate::cli::serve::compiling::Demand;
use crate::cli::serve::constraints::{Format, FormatField, choice};
use crate::cli::serve::failure::Failure;
use crate::cli::serve::fields::{
    Fields, few_enough, few_tools, few_variables, held, kept, max_tokens, or_default, read, thinking,
};
use crate::cli::serve::figures::decimal;
use crate::cli::serve::job::{Job, Work};
use crate::cli::serve::memory::Size;
use crate::cli::serve::router::counted_json;
use crate::cli::serve::server::{Engine, Server};
use crate::cli::serve::{events, pieces};
use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use wglm::text::Message;
use wglm::{Calls, ChatState, Constraint, Overflow};

/// What a client puts into `include` to have the model's thinking handed back and forth.
const KEEP_THINKING: &str = "reasoning.encrypted_content";

/// The most keys of metadata and the most characters of each, as in OpenAI's interface.
const METADATA_KEYS: usize = 16;
const METADATA_KEY: usize = 64;

/// The most characters of a text that the answer repeats and the prompt does not have. For values of metadata this is
/// what OpenAI's interface has.
const SHORT: usize = 512;

/// How many copies there are at most of the fields that an answer repeats: each event that has the whole response makes
/// them first as values and then as text.
const ECHO_COPIES: usize = 4;

#[derive(Debug, Deserialize)]
struct ResponseBody {
    input: Option<Input>,
    instructions: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    stream: bool,
    #[serde(default, deserialize_with = "or_default")]
    tools: Vec<Value>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    max_output_tokens: Option<i64>,
    reasoning: Option<Reasoning>,
    #[serde(default, deserialize_with = "or_default")]
    text: Map<String, Value>,
    truncation: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    include: Vec<String>,
    previous_response_id: Option<String>,
    conversation: Option<Value>,
    prompt: Option<Value>,
    #[serde(default, deserialize_with = "or_default")]
    background: bool,
    #[serde(default, deserialize_with = "or_default")]
    metadata: Map<String, Value>,
    #[serde(default, deserialize_with = "or_default")]
    chat_template_kwargs: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Items(Vec<Item>),
}

#[derive(Debug, Deserialize)]
struct Reasoning {
    effort: Option<String>,
    summary: Option<Value>,
}

/// What a body asks for.
struct Asked {
    /// Bytes that its functions, its form and what it repeats take while the reply runs.
    held: usize,
    stream: bool,
    one_call: bool,
    keep_thinking: bool,
    /// The fields of the answer that repeat what was asked for: what the prompt or the constraint of the reply has as well,
    /// and what is short.
    echo: Map<String, Value>,
}

/// Functions in the form that templates know: here their fields stand beside `type`.
fn functions(tools: &[Value]) -> Vec<Value> {
    let function = |tool: &Value| {
        let named = tool.get("type").and_then(Value::as_str) == Some("function") && tool.get("name").is_some();
        let field = |name: &str| Some((name.to_owned(), tool.get(name).filter(|value| !value.is_null())?.clone()));
        let fields: Map<String, Value> = ["name", "description", "parameters"].into_iter().filter_map(field).collect();
        named.then(|| json!({"type": "function", "function": fields}))
    };
    tools.iter().filter_map(function).collect()
}

/// A text if it is short.
fn short(text: Option<&str>) -> Option<&str> {
    text.filter(|text| text.chars().count() <= SHORT)
}

/// Refuses metadata that OpenAI's interface would refuse.
fn check_metadata(metadata: &Map<String, Value>) -> Result<(), Failure> {
    let keys = metadata.len();
    if keys > METADATA_KEYS {
        return Err(Failure::invalid(format!("metadata: {keys} keys, at most {METADATA_KEYS} may be")));
    }
    for (key, value) in metadata {
        if key.chars().count() > METADATA_KEY {
            return Err(Failure::invalid(format!("metadata: a key of more than {METADATA_KEY} characters")));
        }
        if short(value.as_str()).is_none() {
            let expected = format!("expected a string of at most {SHORT} characters");
            return Err(Failure::invalid(format!("metadata.{key}: {expected}")));
        }
    }
    Ok(())
}

/// The form of the answer as it was read, with the short fields that were given beside a schema.
fn repeated_format(format: &Format, given: &Value) -> Value {
    let text = |name: &str| short(given.get(name).and_then(Value::as_str));
    match format {
        Format::Text => json!({"type": "text"}),
        Format::Object => json!({"type": "json_object"}),
        Format::Schema(_) => json!({
            "type": "json_schema",
            "name": text("name").unwrap_or_default(),
            "description": text("description"),
            "schema": given.get("schema").map(Constraint::repeated),
            "strict": given.get("strict").and_then(Value::as_bool),
        }),
    }
}

/// `tool_choice` as it was read. `functions` are those that may be called.
fn repeated_choice(given: Option<&Value>, calls: &Calls, functions: &[Value]) -> Value {
    let mode = match calls {
        Calls::Auto => "auto",
        Calls::Required => "required",
        Calls::None => return json!("none"),
        Calls::Function(name) => return json!({"type": "function", "name": name}),
    };
    let kind = given.and_then(|given| given.get("type")).and_then(Value::as_str);
    if kind != Some("allowed_tools") {
        return json!(mode);
    }
    let tool = |function: &Value| json!({"type": "function", "name": function["function"]["name"]});
    let tools: Vec<Value> = functions.iter().map(tool).collect();
    json!({"type": "allowed_tools", "mode": mode, "tools": tools})
}

/// The functions that the model hears of, in the form in which they came. Clients expect `strict`, which means nothing
/// here.
fn repeated_tools(functions: &[Value]) -> Vec<Value> {
    let tool = |function: &Value| {
        let field = |name: &str| function["function"].get(name);
        json!({
            "type": "function",
            "name": field("name"),
            "description": field("description"),
            "parameters": field("parameters"),
            "strict": null,
        })
    };
    functions.iter().map(tool).collect()
}

/// Reads a body: the conversation, what its reply has to be, and the rest.
fn asked(body: &Bytes, server: &Server, engine: &Engine) -> Result<(ChatState, Demand, Asked), Failure> {
    let fields: Fields = read(body)?;
    let body: ResponseBody = read(body)?;
    if body.previous_response_id.is_some_and(|id| !id.is_empty()) {
        return Err(Failure::unsupported("previous_response_id: responses are not kept; send the whole conversation"));
    }
    if body.conversation.is_some() {
        return Err(Failure::unsupported("conversation: conversations are not kept; send the whole one as input"));
    }
    if body.prompt.is_some_and(|prompt| prompt.is_object()) {
        return Err(Failure::unsupported("prompt: prompts are not kept; send the text of this one"));
    }
    if body.background {
        return Err(Failure::unsupported("background: responses are not kept; leave this out"));
    }
    check_metadata(&body.metadata)?;
    few_tools(&body.tools)?;
    few_variables(&body.chat_template_kwargs)?;
    let mut messages = match body.input {
        None => return Err(Failure::invalid("there is no input")),
        Some(Input::Text(text)) => vec![Message::user(text)],
        Some(Input::Items(items)) => {
            few_enough(items.len(), server)?;
            conversation(items)?
        }
    };
    let instructions = body.instructions.filter(|text| !text.is_empty());
    if let Some(instructions) = &instructions {
        messages.insert(0, Message::system(instructions.as_str()));
    }
    let overflow = fields.overflow(match body.truncation.as_deref() {
        None => server.overflow,
        Some("auto") => Overflow::DROP_OLDEST,
        Some("disabled") => Overflow::Refuse,
        Some(_) => return Err(Failure::invalid("truncation: expected auto or disabled")),
    });
    let whitespace = fields.json_whitespace();
    let mut options = fields.options(engine)?;
    options.max_tokens = max_tokens(body.max_output_tokens)?.or(options.max_tokens);
    let mut template_kwargs = body.chat_template_kwargs;
    let reasoning = body.reasoning.as_ref();
    let effort = reasoning.and_then(|reasoning| reasoning.effort.as_deref());
    let summary = reasoning.and_then(|reasoning| reasoning.summary.as_ref()).and_then(Value::as_str);
    let thinking = thinking(&mut template_kwargs)?.or(effort.map(thinks));
    let given = body.text.get("format").unwrap_or(&Value::Null);
    let format: Option<FormatField> = serde_json::from_value(given.clone())
        .map_err(|error| Failure::invalid(format!("text.format is not what it should be: {error}")))?;
    let format = format.unwrap_or_default().read(whitespace)?;
    let verbosity = short(body.text.get("verbosity").and_then(Value::as_str));
    let truncation = if overflow == Overflow::Refuse { "disabled" } else { "auto" };
    let mut chat = ChatState {
        messages,
        reasoning: Some(thinking.unwrap_or(server.reasoning)),
        tools: functions(&body.tools),
        template_kwargs,
        options,
        overflow,
        ..ChatState::default()
    };
    let calls = choice(body.tool_choice.as_ref(), &mut chat.tools)?;
    let mut echo = Map::new();
    let sampling = &chat.options.sampling;
    for (name, value) in [
        ("instructions", json!(instructions)),
        ("max_output_tokens", json!(body.max_output_tokens)),
        ("metadata", Value::Object(body.metadata)),
        ("parallel_tool_calls", json!(body.parallel_tool_calls.unwrap_or(true))),
        ("previous_response_id", Value::Null),
        ("reasoning", json!({"effort": short(effort), "summary": short(summary)})),
        ("store", json!(false)),
        ("temperature", decimal(sampling.temperature)),
        ("top_p", decimal(sampling.top_p)),
        ("text", json!({"format": repeated_format(&format, given), "verbosity": verbosity})),
        ("tool_choice", repeated_choice(body.tool_choice.as_ref(), &calls, &chat.tools)),
        ("tools", Value::Array(repeated_tools(&chat.tools))),
        ("truncation", json!(truncation)),
    ] {
        echo.insert(name.to_owned(), value);
    }
    let held = held(&chat.tools, &format) + ECHO_COPIES * Size::of_map(&echo).bytes();
    let demand = server.compiling.demand(&mut chat, format, calls)?;
    let one_call = body.parallel_tool_calls == Some(false);
    let keep_thinking = body.include.iter().any(|what| what == KEEP_THINKING);
    Ok((chat, demand, Asked { held, stream: body.stream, one_call, keep_thinking, echo }))
}

/// Answers a request.
pub async fn respond(State(server): State<Arc<Server>>, body: JsonBody) -> Result<Response, Failure> {
    let engine = server.engine()?;
    let (of, with, needed) = (server.clone(), engine.clone(), body.conversation());
    let read = move || asked(&body.bytes, &of, &with);
    let (chat, asked, memory) = server.conversation(&engine, needed, read).await?;
    let Asked { held, stream, one_call, keep_thinking, echo } = asked;
    let memory = kept(&engine, &chat, 1, held).reserve(memory)?;
    let works = Work::chats(&chat, 1);
    drop(chat);
    let job = Job::start(&server, engine.clone(), works, memory.clone()).await?;
    let mut words = ResponseWords::new(&server.name, echo, keep_thinking);
    if stream {
        return Ok(events::stream(job, engine, 1, one_call, words));
    }
    let mut whole = pieces::collect(job, &engine, 1, one_call).await?;
    Ok(counted_json(words.whole(whole.pop().unwrap_or_default()).to_string(), memory))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::super::fields::read;
    use super::{Format, repeated_format};
    use axum::body::Bytes;
    use serde_json::Value;

    /// A schema is repeated with its numbers as numbers.
    #[test]
    fn a_schema_with_long_numbers_is_repeated() {
        let body = r#"{"text": {"format": {"schema": {"enum": [123456789012345678901, "a"]}}}}"#;
        let read: Value = read(&Bytes::from_static(body.as_bytes())).unwrap();
        let given = &read["text"]["format"];
        assert!(given["schema"]["enum"][0].is_string(), "{given}");
        let repeated = repeated_format(&Format::Schema(Value::Null), given);
        let number = &repeated["schema"]["enum"][0];
        assert!(number.as_f64().is_some_and(|number| (number - 1.2345678901234568e20).abs() < 1e6), "{repeated}");
    }

    /// Below the keys of schemas, too, and without a panic.
    #[test]
    fn numbers_that_are_not_json() {
        for wrong in [r#"{"text": {"x": 1-2}}"#, r#"{"text": {"x": -}}"#, r#"{"x": 1e9999}"#] {
            assert_eq!(read::<Value>(&Bytes::from_static(wrong.as_bytes())).unwrap_err().status, 400, "{wrong}");
        }
        let extreme = r#"{"text": {"x": [1.5e-9223372036854775808, 10e9223372036854775807]}}"#;
        assert!(read::<Value>(&Bytes::from_static(extreme.as_bytes())).is_ok());
    }
}
