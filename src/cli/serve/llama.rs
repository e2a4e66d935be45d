//! What llama.cpp's server has beside OpenAI's interfaces, as programs written for it look for.

use super::body::JsonBody;
use super::failure::Failure;
use super::fields::{few_enough, or_default, read, thinking};
use super::figures::decimal;
use super::openai::conversation::{functions, messages};
use super::router::json;
use super::server::Server;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use wglm::Message;
use wglm::text::ChatInput;

/// The most tokens that are turned into text at once.
const TOKENS: usize = 1 << 20;

/// Whether requests are answered.
pub async fn health(State(server): State<Arc<Server>>) -> Result<Response, Failure> {
    server.engine().map(|_| json(&json!({"status": "ok"})))
}

/// What the server runs, and with which options.
pub async fn props(State(server): State<Arc<Server>>) -> Result<Response, Failure> {
    let engine = server.engine()?;
    let (model, sampling) = (&engine.model, &engine.defaults.sampling);
    let source = model.file().opt_string("tokenizer.chat_template")?.unwrap_or_default().to_owned();
    let (tools, reasoning) = (source.contains("tools"), source.contains("reasoning_content"));
    let caps = json!({
        "supports_tools": tools,
        "supports_tool_calls": source.contains("tool_calls"),
        "supports_parallel_tool_calls": tools,
        "supports_system_role": source.contains("system"),
        "supports_preserve_reasoning": reasoning,
        "supports_object_arguments": true,
        "supports_string_content": true,
        "supports_typed_content": true,
    });
    let params = json!({
        "temperature": decimal(sampling.temperature),
        "top_k": sampling.top_k,
        "top_p": decimal(sampling.top_p),
        "min_p": decimal(sampling.min_p),
        "repeat_penalty": decimal(sampling.repeat_penalty),
        "presence_penalty": decimal(sampling.presence_penalty),
        "frequency_penalty": decimal(sampling.frequency_penalty),
        "n_predict": engine.defaults.max_tokens.map_or(-1, |tokens| i64::try_from(tokens).unwrap_or(i64::MAX)),
        "stop": engine.defaults.stop,
    });
    Ok(json(&json!({
        "default_generation_settings": {"n_ctx": engine.scheduler.context(), "params": params},
        "total_slots": engine.scheduler.state().slots.len(),
        "model_alias": server.name,
        "model_path": server.file_name,
        "modalities": {"vision": false, "audio": false},
        "chat_template": source,
        "chat_template_caps": caps,
        "build_info": concat!("wglm ", env!("CARGO_PKG_VERSION")),
    })))
}

/// What each slot does. What is said in them is nobody's business.
pub async fn slots(State(server): State<Arc<Server>>) -> Result<Response, Failure> {
    let engine = server.engine()?;
    let state = engine.scheduler.state();
    let slot = |(id, slot): (usize, &wglm::SlotState)| {
        json!({
            "id": id,
            "n_ctx": slot.context,
            "is_processing": slot.busy,
            "n_tokens": slot.tokens,
            "n_prompt_tokens": slot.prompt_total,
            "n_prompt_tokens_processed": slot.prompt_done,
            "n_decoded": slot.generated,
        })
    };
    Ok(json(&state.slots.iter().enumerate().map(slot).collect()))
}

#[derive(Debug, Deserialize)]
struct TokenizeBody {
    content: String,
    /// Whether the tokens begin as every text of the model does.
    #[serde(default, deserialize_with = "or_default")]
    add_special: bool,
    #[serde(default = "yes")]
    parse_special: bool,
    #[serde(default, deserialize_with = "or_default")]
    with_pieces: bool,
}

fn yes() -> bool {
    true
}

/// Text into tokens.
pub async fn tokenize(State(server): State<Arc<Server>>, JsonBody(body): JsonBody) -> Result<Response, Failure> {
    let engine = server.engine()?;
    let work = move || {
        let body: TokenizeBody = read(&body)?;
        let tokenizer = engine.model.tokenizer()?;
        let tokens = tokenizer.encode(&body.content, body.parse_special)?;
        let start = if body.add_special { 0 } else { tokenizer.encode("", false)?.len() };
        let tokens = tokens.get(start..).unwrap_or_default();
        let piece = |token: &u32| {
            let bytes = tokenizer.token_bytes(*token).unwrap_or_default();
            let piece = std::str::from_utf8(bytes).map_or_else(|_| json!(bytes), |text| json!(text));
            json!({"id": token, "piece": piece})
        };
        let tokens = if body.with_pieces { tokens.iter().map(piece).collect() } else { json!(tokens) };
        Ok(json!({"tokens": tokens}))
    };
    server.work(work).await.map(|value| json(&value))
}

#[derive(Debug, Deserialize)]
struct DetokenizeBody {
    tokens: Vec<u32>,
}

/// Tokens into text.
pub async fn detokenize(State(server): State<Arc<Server>>, JsonBody(body): JsonBody) -> Result<Response, Failure> {
    let engine = server.engine()?;
    let work = move || {
        let DetokenizeBody { tokens } = read(&body)?;
        if tokens.len() > TOKENS {
            return Err(Failure::invalid(format!("{} tokens, at most {TOKENS} may be", tokens.len())));
        }
        Ok(json!({"content": engine.model.tokenizer()?.decode(&tokens, true)?}))
    };
    server.work(work).await.map(|value| json(&value))
}

#[derive(Debug, Deserialize)]
struct TemplateBody {
    messages: Vec<Message>,
    #[serde(default, deserialize_with = "or_default")]
    tools: Vec<Value>,
    #[serde(default, deserialize_with = "or_default")]
    chat_template_kwargs: Map<String, Value>,
}

/// The prompt for a conversation, as text.
pub async fn apply_template(State(server): State<Arc<Server>>, JsonBody(body): JsonBody) -> Result<Response, Failure> {
    let engine = server.engine()?;
    let of = server.clone();
    let work = move || {
        let TemplateBody { messages: given, tools, mut chat_template_kwargs } = read(&body)?;
        few_enough(given.len(), &of)?;
        let (given, tools) = (messages(given)?, functions(tools));
        let mut input = ChatInput::new(&given);
        input.tools = Some(tools.as_slice()).filter(|tools| !tools.is_empty());
        input.enable_thinking = Some(thinking(&mut chat_template_kwargs)?.unwrap_or(of.reasoning));
        input.extra = chat_template_kwargs;
        Ok(json!({"prompt": engine.model.template()?.render(&input)?}))
    };
    server.work(work).await.map(|value| json(&value))
}
