//! Fields of requests that all interfaces share: how tokens are sampled, and where the reply ends.

use super::constraints::{Format, SCHEMAS};
use super::failure::Failure;
use super::memory::{Kept, Size, VALUE};
use super::server::{Engine, Server};
use axum::body::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use wglm::{Constraint, GenerateOptions, Message, Overflow, PreparedChat};

/// The most stop strings.
const STOPS: usize = 64;

/// Bytes of all of them.
const STOP_BYTES: usize = 16 << 10;

/// The most variables of a template. Those that templates have are words, numbers and flags.
const VARIABLES: Size = Size { values: 4096, text: 64 << 10 };

/// The most tools, and how large all of them may be.
const TOOLS: usize = 1024;
const TOOL_SIZE: Size = Size { values: 1 << 16, text: 2 << 20 };

/// The most parts of a message, and the most calls.
const PARTS: usize = 1024;

/// How many copies of tools and schemas there are while replies run.
const HELD_COPIES: usize = 4;

/// The most tokens with a bias.
const BIASES: usize = 4096;

/// The most likeliest tokens that log-probabilities are told of, as in OpenAI's interface.
const TOP_LOGPROBS: usize = 20;

/// A bias that OpenAI's interface takes for a ban.
const BAN: f32 = -100.0;

/// Reads a body, or a part of it: fields that `T` does not have are ignored. Numbers of schemas keep all of their digits.
pub fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Failure> {
    let marked = std::str::from_utf8(body).ok().and_then(|text| Constraint::keep_digits(text, &SCHEMAS));
    serde_json::from_slice(marked.as_ref().map_or(&**body, String::as_bytes))
        .map_err(|error| Failure::invalid(format!("the body is not what it should be: {error}")))
}

/// The fields. What is absent or null is as the server was started.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Fields {
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<i64>,
    min_p: Option<f32>,
    seed: Option<i128>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    repeat_penalty: Option<f32>,
    /// Another name of `repeat_penalty`. An alias would refuse a request that has both.
    repetition_penalty: Option<f32>,
    repeat_last_n: Option<i64>,
    logit_bias: Option<Biases>,
    stop: Option<OneOrMore>,
    /// Anthropic's name of `stop`.
    stop_sequences: Option<OneOrMore>,
    /// llama.cpp's, in a form that this server does not read.
    grammar: Option<Value>,
    stop_loops: Option<bool>,
    overflow: Option<OverflowField>,
    /// Whether blanks and line ends may stand between the parts of JSON that is asked for.
    json_whitespace: Option<bool>,
}

/// What is told of a stream.
#[derive(Debug, Deserialize)]
pub struct StreamOptions {
    /// Whether it ends with what its replies used.
    #[serde(default, deserialize_with = "or_default")]
    pub include_usage: bool,
}

/// A string or a list of them.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    fn all(self) -> Vec<String> {
        match self {
            Self::One(one) => vec![one],
            Self::More(all) => all,
        }
    }
}

/// Biases, as OpenAI's object of them or as llama.cpp's list of pairs.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Biases {
    Object(Map<String, Value>),
    Pairs(Vec<(Value, Value)>),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OverflowField {
    Refuse,
    DropOldest,
}

impl Fields {
    /// The options of generation for a request with these fields.
    pub fn options(self, engine: &Engine) -> Result<GenerateOptions, Failure> {
        if self.grammar.is_some_and(|grammar| grammar.as_str() != Some("")) {
            return Err(Failure::unsupported("grammar: not supported; response_format takes a JSON schema"));
        }
        let mut options = engine.defaults.clone();
        let sampling = &mut options.sampling;
        for (field, given) in [
            (&mut sampling.temperature, self.temperature),
            (&mut sampling.top_p, self.top_p),
            (&mut sampling.min_p, self.min_p),
            (&mut sampling.presence_penalty, self.presence_penalty),
            (&mut sampling.frequency_penalty, self.frequency_penalty),
            (&mut sampling.repeat_penalty, self.repeat_penalty.or(self.repetition_penalty)),
        ] {
            *field = given.unwrap_or(*field);
        }
        if let Some(top_k) = self.top_k {
            sampling.top_k = usize::try_from(top_k).unwrap_or(0); // -1 keeps all, as 0 does
        }
        if let Some(last) = self.repeat_last_n {
            sampling.repeat_last_n = usize::try_from(last).unwrap_or(usize::MAX);
        }
        if let Some(seed) = self.seed {
            sampling.seed = (seed != -1).then_some(seed as u64);
        }
        if let Some(biases) = self.logit_bias {
            sampling.logit_bias = biases.read(engine.model.config().vocab)?;
        }
        let stops = [self.stop, self.stop_sequences];
        if stops.iter().any(Option::is_some) {
            options.stop = stops.into_iter().flatten().flat_map(OneOrMore::all).collect();
            if options.stop.len() > STOPS {
                return Err(Failure::invalid(format!("stop: {} strings, at most {STOPS} may be", options.stop.len())));
            }
            let bytes: usize = options.stop.iter().map(String::len).sum();
            if bytes > STOP_BYTES {
                return Err(Failure::invalid(format!("stop: {bytes} bytes, at most {STOP_BYTES} may be")));
            }
        }
        options.stop_loops = self.stop_loops.unwrap_or(options.stop_loops);
        Ok(options)
    }

    /// Whether blanks may stand between the parts of JSON that is asked for.
    pub fn json_whitespace(&self) -> bool {
        self.json_whitespace.unwrap_or_default()
    }

    /// What happens to a conversation that is too long, if the request does not say so in other words.
    pub fn overflow(&self, usual: Overflow) -> Overflow {
        match self.overflow {
            None => usual,
            Some(OverflowField::Refuse) => Overflow::Refuse,
            Some(OverflowField::DropOldest) => Overflow::DROP_OLDEST,
        }
    }
}

impl Biases {
    fn read(self, vocab: usize) -> Result<Vec<(u32, f32)>, Failure> {
        let pairs = match self {
            Self::Object(object) => object.into_iter().map(|(token, bias)| (Value::String(token), bias)).collect(),
            Self::Pairs(pairs) => pairs,
        };
        if pairs.len() > BIASES {
            return Err(Failure::invalid(format!("logit_bias: {} tokens, at most {BIASES} may be", pairs.len())));
        }
        let read = |(token, bias): (Value, Value)| {
            let id = token.as_u64().or_else(|| token.as_str()?.parse().ok());
            let id = id.and_then(|id| u32::try_from(id).ok()).filter(|id| (*id as usize) < vocab);
            let amount = match &bias {
                Value::Bool(false) => Some(f32::NEG_INFINITY),
                other => other.as_f64().map(|amount| amount as f32).filter(|amount| amount.is_finite()),
            };
            let wrong = || {
                let given: String = format!("{token}: {bias}").chars().take(80).collect();
                Failure::invalid(format!("logit_bias: {given}: expected a token's id and a number"))
            };
            let (id, amount) = id.zip(amount).ok_or_else(wrong)?;
            Ok((id, if amount <= BAN { f32::NEG_INFINITY } else { amount }))
        };
        pairs.into_iter().map(read).collect()
    }
}

/// Whether the model is to think, if the variables of the template say so; it is taken out of them.
pub fn thinking(kwargs: &mut Map<String, Value>) -> Result<Option<bool>, Failure> {
    match kwargs.shift_remove("enable_thinking") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(thinking)) => Ok(Some(thinking)),
        Some(other) => {
            let other: String = other.to_string().chars().take(80).collect();
            let expected = "expected true or false";
            Err(Failure::invalid(format!("chat_template_kwargs.enable_thinking: {other}: {expected}")))
        }
    }
}

/// A limit of tokens: a number of at least 0, or -1 for none.
pub fn max_tokens(given: Option<i64>) -> Result<Option<usize>, Failure> {
    match given {
        None | Some(-1) => Ok(None),
        Some(tokens) => match usize::try_from(tokens) {
            Ok(tokens) => Ok(Some(tokens)),
            Err(_) => Err(Failure::invalid(format!("max_tokens: {tokens}: expected a number of at least 0"))),
        },
    }
}

/// How many replies are asked for.
pub fn choices(given: Option<u64>, server: &Server) -> Result<usize, Failure> {
    let (given, most) = (given.unwrap_or(1), server.limits.choices);
    let count = usize::try_from(given).ok().filter(|count| (1..=most).contains(count));
    count.ok_or_else(|| Failure::invalid(format!("n: {given}: expected a number from 1 to {most}")))
}

/// How many of the likeliest tokens are told of, of at most 20.
pub fn top_logprobs(given: Option<u64>) -> Result<usize, Failure> {
    let given = given.unwrap_or(0);
    let top = usize::try_from(given).ok().filter(|top| *top <= TOP_LOGPROBS);
    top.ok_or_else(|| Failure::invalid(format!("logprobs: {given}: expected a number from 0 to {TOP_LOGPROBS}")))
}

/// Refuses conversations of too many messages.
pub fn few_enough(messages: usize, server: &Server) -> Result<(), Failure> {
    match server.limits.messages {
        _ if messages == 0 => Err(Failure::invalid("there are no messages")),
        most if messages > most => Err(Failure::invalid(format!("{messages} messages, at most {most} may be"))),
        _ => Ok(()),
    }
}

/// Refuses more variables of the template than any needs: each is copied several times while a prompt is made.
pub fn few_variables(kwargs: &Map<String, Value>) -> Result<(), Failure> {
    within("chat_template_kwargs", Size::of_map(kwargs), VARIABLES)
}

/// Refuses more tools than a prompt can have.
pub fn few_tools(tools: &[Value]) -> Result<(), Failure> {
    if tools.len() > TOOLS {
        return Err(Failure::invalid(format!("tools: {}, at most {TOOLS} may be", tools.len())));
    }
    within("tools", tools.iter().map(Size::of).fold(Size::default(), |all, tool| all + tool), TOOL_SIZE)
}

fn within(what: &str, found: Size, most: Size) -> Result<(), Failure> {
    if found.values <= most.values && found.text <= most.text {
        return Ok(());
    }
    let (values, text) = (found.values, found.text);
    Err(Failure::invalid(format!(
        "{what}: {values} values and keys with {text} bytes of text, at most {} with {} bytes may be",
        most.values, most.text
    )))
}

/// Refuses messages of too many parts or calls.
pub fn few_parts(index: usize, what: &str, count: usize) -> Result<(), Failure> {
    if count <= PARTS {
        return Ok(());
    }
    Err(Failure::invalid(format!("message {index}: {count} {what}, at most {PARTS} may be")))
}

/// What the replies to a conversation keep until they end, beside `other` bytes.
pub fn kept(engine: &Engine, prepared: &PreparedChat, replies: usize, other: usize) -> Kept {
    let dropped: usize = prepared.dropped().iter().map(message_size).sum();
    let mut kept = kept_of_tokens(engine, prepared.prompt_tokens(), prepared.options(), replies);
    kept.other += other + dropped * (replies + 1);
    kept
}

/// The same of replies to prompts of at most so many tokens.
pub fn kept_of_tokens(engine: &Engine, prompt: usize, options: &GenerateOptions, replies: usize) -> Kept {
    let room = engine.scheduler.context().saturating_sub(prompt);
    let generated = options.max_tokens.map_or(room, |most| most.min(room));
    let stops: usize = options.stop.iter().map(String::len).sum();
    let other = replies * (stops + options.sampling.logit_bias.len() * 16);
    Kept { replies, prompt, generated, likeliest: options.logprobs, other }
}

/// About how many bytes of memory a message takes.
fn message_size(message: &Message) -> usize {
    let calls = message.tool_calls.iter().map(|call| Size::of(&call.function.arguments).bytes() + VALUE);
    let texts = message.text().len() + message.reasoning_content.as_ref().map_or(0, String::len);
    texts + calls.sum::<usize>() + VALUE
}

/// How many bytes the functions and the form of a conversation take while its replies run: the parser's copies, those of
/// grammars, and those that an answer repeats.
pub fn held(tools: &[Value], format: &Format) -> usize {
    let schema = if let Format::Schema(schema) = format { Size::of(schema).bytes() } else { 0 };
    HELD_COPIES * (schema + tools.iter().map(|tool| Size::of(tool).bytes()).sum::<usize>())
}

/// For a field that clients set to null: the default.
pub fn or_default<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}
