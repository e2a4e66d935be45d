//! `/tokenize`, `/detokenize` and `/tokenizer_info`, for two kinds of clients: those of llama.cpp's server name a text
//! `content`, those of vLLM's name it `prompt`.

use crate::serve::body::JsonBody;
use crate::serve::failure::Failure;
use crate::serve::fields::at_most;
use crate::serve::memory::Share;
use crate::serve::parse::read;
use crate::serve::prompts::start_tokens;
use crate::serve::router::counted_json;
use crate::serve::server::Server;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};
use std::sync::Arc;
use wglm_engine::Tokenizer;

/// The maximum number of tokens in a request to `/detokenize`.
const TOKENS: usize = 1 << 20;

/// How many copies of the template there are while `/tokenizer_info` is answered.
const TEMPLATE_COPIES: usize = 4;

#[derive(Debug, Deserialize)]
struct TokenizeBody {
    content: Option<String>,
    prompt: Option<String>,
    /// Whether the tokens that precede every text of the model are included: llama.cpp's name, and vLLM's.
    add_special: Option<bool>,
    add_special_tokens: Option<bool>,
    #[serde(default = "yes")]
    parse_special: bool,
    with_pieces: Option<bool>,
}

fn yes() -> bool {
    true
}

/// A text to be tokenized.
struct Text {
    text: String,
    add_special: bool,
    /// Whether the answer is in vLLM's form.
    counted: bool,
}

impl TokenizeBody {
    fn text(&mut self) -> Result<Text, Failure> {
        match (self.content.take(), self.prompt.take()) {
            (Some(text), None) => Ok(Text { text, add_special: self.add_special == Some(true), counted: false }),
            (None, Some(text)) => {
                Ok(Text { text, add_special: self.add_special_tokens.unwrap_or(true), counted: true })
            }
            _ => Err(Failure::invalid("expected a string in either content or prompt")),
        }
    }
}

/// The answer of `/tokenize`.
#[derive(Serialize)]
struct Tokenized<'a> {
    tokens: Tokens<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_model_len: Option<usize>,
}

/// Tokens, serialised one by one: a tree of values would take a hundred times as much memory.
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

/// The maximum bytes of a token in the answer, times two because the buffer doubles: `{"id":123456,"piece":""},` and
/// `123456,`. The text of a piece is counted separately.
const PIECE: usize = 2 * 32;
const ID: usize = 2 * 8;

/// The maximum bytes in the answer for a byte of text: an escape of six bytes, times two for the same reason.
const ESCAPED: usize = 2 * 6;

pub async fn tokenize(State(server): State<Arc<Server>>, body: JsonBody) -> Result<Response, Failure> {
    body.check_text()?;
    let loaded = server.named(&body).await?;
    let needed = body.text();
    let work = move |memory: &Share| {
        let mut given: TokenizeBody = read(&body.bytes)?;
        let Text { text, add_special, counted } = given.text()?;
        let tokenizer = loaded.model.tokenizer()?;
        let tokens = tokenizer.encode(&text, given.parse_special)?;
        let with_pieces = given.with_pieces == Some(true);
        let start = if add_special { 0 } else { start_tokens(tokenizer)? };
        let (each, pieces) = if with_pieces { (PIECE, text.len() * ESCAPED) } else { (ID, 0) };
        drop((text, body));
        memory.resize(tokens.len() * (2 * size_of::<u32>() + each) + pieces)?;
        let tokens = tokens.get(start..).unwrap_or_default();
        let [count, max_model_len] = [tokens.len(), loaded.scheduler.context()].map(|count| counted.then_some(count));
        written(&Tokenized { tokens: Tokens { tokens, tokenizer, with_pieces }, count, max_model_len })
    };
    answer(server.work(&server.pools.tools, needed, work).await?)
}

/// An answer as JSON.
pub fn written(answer: &impl Serialize) -> Result<String, Failure> {
    let failed = |error: serde_json::Error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
    serde_json::to_string(answer).map_err(failed)
}

/// The answer with a text that was made on a thread. Reduces the share to that text, since nothing else is left in
/// memory.
pub fn answer((text, memory): (String, Share)) -> Result<Response, Failure> {
    memory.resize(text.capacity())?;
    Ok(counted_json(text, memory))
}

#[derive(Debug, Deserialize)]
struct DetokenizeBody {
    tokens: Vec<u32>,
}

/// The answer of `/detokenize`: the text under both names, since the requests are the same.
#[derive(Serialize)]
struct Detokenized<'a> {
    content: &'a str,
    prompt: &'a str,
}

pub async fn detokenize(State(server): State<Arc<Server>>, body: JsonBody) -> Result<Response, Failure> {
    let loaded = server.named(&body).await?;
    let needed = body.tokens();
    let work = move |memory: &Share| {
        let DetokenizeBody { tokens } = read(&body.bytes)?;
        drop(body);
        at_most("tokens", tokens.len(), TOKENS, "tokens")?;
        let tokenizer = loaded.model.tokenizer()?;
        let lengths = tokens.iter().map(|token| tokenizer.visible_bytes(*token, true).map(<[u8]>::len));
        let bytes = lengths.sum::<wglm_engine::Result<usize>>()?;
        // The bytes, in a buffer that doubles; the text, in which an invalid byte becomes three; and its JSON, twice.
        memory.resize(tokens.len() * 2 * size_of::<u32>() + bytes * (2 + 3 + 2 * ESCAPED))?;
        let text = tokenizer.decode(&tokens, true)?;
        written(&Detokenized { content: &text, prompt: &text })
    };
    answer(server.work(&server.pools.tools, needed, work).await?)
}

/// What clients of vLLM's server need to use the tokenizer: the names of its tokens and the chat template.
pub async fn tokenizer_info(State(server): State<Arc<Server>>) -> Result<Response, Failure> {
    let loaded = server.loaded()?;
    let (file, tokenizer) = (loaded.model.file(), loaded.model.tokenizer()?);
    let source = file.opt_string("tokenizer.chat_template").ok().flatten().unwrap_or_default();
    let memory = server.memory.requests.try_take(source.len() * TEMPLATE_COPIES)?;
    let name =
        |token: Option<u32>| token.and_then(|token| tokenizer.token_bytes(token).ok()).map(String::from_utf8_lossy);
    let named = |key: &str| -> Result<Value, Failure> {
        Ok(json!(name(file.opt_u32(&format!("tokenizer.ggml.{key}_token_id"))?)))
    };
    let end = named("eos")?;
    let info = json!({
        "eos_token": if end.is_null() { json!(name(tokenizer.end_tokens().first().copied())) } else { end },
        "bos_token": named("bos")?,
        "pad_token": named("padding")?,
        "unk_token": named("unknown")?,
        "add_bos_token": start_tokens(tokenizer)? > 0,
        "vocab_size": tokenizer.vocab_size(),
        "model_max_length": loaded.scheduler.context(),
        "chat_template": source,
    });
    Ok(counted_json(info.to_string(), memory))
}
