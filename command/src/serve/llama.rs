//! The endpoints of llama.cpp's server that OpenAI's API does not have, for programs that use them.

use super::body::JsonBody;
use super::conversation::{check_messages, check_tools, template_input, variables};
use super::failure::Failure;
use super::fields::{at_most, read};
use super::figures::decimal;
use super::memory::Share;
use super::openai::messages::{functions, messages};
use super::router::{counted_json, json};
use super::server::Server;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use wglm_engine::{ChatState, Message, Tokenizer};

/// The most tokens of a request to `/detokenize`.
const TOKENS: usize = 1 << 20;

/// How many copies of the template there are while `/props` is answered.
const PROPS_COPIES: usize = 4;

/// Whether the model is loaded.
pub async fn health(State(server): State<Arc<Server>>) -> Result<Response, Failure> {
    server.loaded().map(|_| json(&json!({"status": "ok"})))
}

/// What the server runs, and with which options.
pub async fn props(State(server): State<Arc<Server>>) -> Result<Response, Failure> {
    let loaded = server.loaded()?;
    let (model, sampling) = (&loaded.model, &loaded.defaults.sampling);
    let source = model.file().opt_string("tokenizer.chat_template")?.unwrap_or_default();
    let memory = server.memory.requests.try_take(source.len() * PROPS_COPIES)?; // the file may have a long template
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
        "n_predict": loaded.defaults.max_tokens.map_or(-1, |tokens| i64::try_from(tokens).unwrap_or(i64::MAX)),
        "stop": loaded.defaults.stop,
    });
    let props = json!({
        "default_generation_settings": {"n_ctx": loaded.scheduler.context(), "params": params},
        "total_slots": loaded.scheduler.state().slots.len(),
        "model_alias": server.name,
        "model_path": server.file_name,
        "modalities": {"vision": false, "audio": false},
        "chat_template": source,
        "chat_template_caps": caps,
        "build_info": concat!("wglm ", env!("CARGO_PKG_VERSION")),
    });
    Ok(counted_json(props.to_string(), memory))
}

/// What each slot is doing, without its text.
pub async fn slots(State(server): State<Arc<Server>>) -> Result<Response, Failure> {
    let loaded = server.loaded()?;
    let state = loaded.scheduler.state();
    let slot = |(id, slot): (usize, &wglm_engine::SlotState)| {
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
    /// Whether the tokens that precede every text of the model are included.
    add_special: Option<bool>,
    #[serde(default = "yes")]
    parse_special: bool,
    with_pieces: Option<bool>,
}

fn yes() -> bool {
    true
}

/// The answer of `/tokenize`, serialised one by one: a tree of values would take a hundred times as much memory.
struct Tokens<'a> {
    tokens: &'a [u32],
    tokenizer: &'a Tokenizer,
    with_pieces: bool,
}

/// A token and its text, or its bytes if they are not UTF-8.
#[derive(Serialize)]
struct TokenPiece<'a> {
    id: u32,
    piece: PieceText<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum PieceText<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
}

impl<'a> TokenPiece<'a> {
    fn of(id: u32, tokenizer: &'a Tokenizer) -> Self {
        let bytes = tokenizer.token_bytes(id).unwrap_or_default();
        Self { id, piece: std::str::from_utf8(bytes).map_or(PieceText::Bytes(bytes), PieceText::Text) }
    }
}

impl Serialize for Tokens<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.with_pieces {
            true => serializer.collect_seq(self.tokens.iter().map(|id| TokenPiece::of(*id, self.tokenizer))),
            false => self.tokens.serialize(serializer),
        }
    }
}

/// The most bytes of a token in the answer, twice because the buffer doubles: `{"id":123456,"piece":""},` and
/// `123456,`. The text of a piece is counted separately.
const PIECE: usize = 2 * 32;
const ID: usize = 2 * 8;

/// The most bytes in the answer for a byte of text: an escape of six, twice for the same reason.
const ESCAPED: usize = 2 * 6;

pub async fn tokenize(State(server): State<Arc<Server>>, body: JsonBody) -> Result<Response, Failure> {
    body.check_text()?;
    let loaded = server.loaded()?;
    let needed = body.text();
    let work = move |memory: &Share| {
        let TokenizeBody { content, add_special, parse_special, with_pieces } = read(&body.bytes)?;
        let tokenizer = loaded.model.tokenizer()?;
        let tokens = tokenizer.encode(&content, parse_special)?;
        let (with_pieces, add_special) = (with_pieces == Some(true), add_special == Some(true));
        let start = if add_special { 0 } else { tokenizer.encode("", false)?.len() };
        let (each, text) = if with_pieces { (PIECE, content.len() * ESCAPED) } else { (ID, 0) };
        drop((content, body));
        memory.resize(tokens.len() * (2 * size_of::<u32>() + each) + text)?;
        let tokens = tokens.get(start..).unwrap_or_default();
        written("tokens", &Tokens { tokens, tokenizer, with_pieces })
    };
    answer(server.work(&server.pools.tools, needed, work).await?)
}

/// An object with one field as JSON.
fn written(name: &str, value: &impl Serialize) -> Result<String, Failure> {
    let failed = |error: serde_json::Error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
    serde_json::to_string(&BTreeMap::from([(name, value)])).map_err(failed)
}

/// The answer with a text that was made on a thread. Nothing else is left in its memory.
fn answer((text, memory): (String, Share)) -> Result<Response, Failure> {
    memory.resize(text.capacity())?;
    Ok(counted_json(text, memory))
}

#[derive(Debug, Deserialize)]
struct DetokenizeBody {
    tokens: Vec<u32>,
}

pub async fn detokenize(State(server): State<Arc<Server>>, body: JsonBody) -> Result<Response, Failure> {
    let loaded = server.loaded()?;
    let needed = body.tokens();
    let work = move |memory: &Share| {
        let DetokenizeBody { tokens } = read(&body.bytes)?;
        drop(body);
        at_most("tokens", tokens.len(), TOKENS, "tokens")?;
        let tokenizer = loaded.model.tokenizer()?;
        let lengths = tokens.iter().map(|token| tokenizer.visible_bytes(*token, true).map(<[u8]>::len));
        let bytes = lengths.sum::<wglm_engine::Result<usize>>()?;
        // The bytes, in a buffer that doubles; the text, in which an invalid byte becomes three; and its JSON.
        memory.resize(tokens.len() * 2 * size_of::<u32>() + bytes * (2 + 3 + ESCAPED))?;
        written("content", &tokenizer.decode(&tokens, true)?)
    };
    answer(server.work(&server.pools.tools, needed, work).await?)
}

#[derive(Debug, Deserialize)]
struct TemplateBody {
    messages: Vec<Message>,
    tools: Option<Vec<Value>>,
    chat_template_kwargs: Option<Value>,
}

/// The prompt for a conversation, as text.
pub async fn apply_template(State(server): State<Arc<Server>>, body: JsonBody) -> Result<Response, Failure> {
    body.check_text()?;
    let loaded = server.loaded()?;
    let (of, needed) = (server.clone(), body.conversation());
    let work = move |_: &Share| {
        let TemplateBody { messages: given, tools, chat_template_kwargs } = read(&body.bytes)?;
        check_messages(given.len(), &of)?;
        let tools = tools.unwrap_or_default();
        check_tools(&tools)?;
        let (thinking, template_kwargs) = variables(chat_template_kwargs)?;
        let (messages, tools, reasoning) = (messages(given)?, functions(tools), thinking.or(Some(of.reasoning)));
        let chat = ChatState { messages, tools, reasoning, template_kwargs, ..ChatState::default() };
        written("prompt", &loaded.model.template()?.render(&template_input(&chat))?)
    };
    answer(server.work(&server.pools.tools, needed, work).await?)
}
