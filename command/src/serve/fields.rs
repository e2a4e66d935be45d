//! Fields of requests that all interfaces share: how tokens are sampled, and where the reply ends.

use super::constraints::SCHEMAS;
use super::failure::{Failure, shown};
use super::interface::Stream;
use super::server::{LoadedModel, Server};
use axum::body::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};
use wglm_engine::{Constraint, GenerateOptions, Overflow};

const STOPS: usize = 64;

/// The most bytes of all stop strings together.
const STOP_BYTES: usize = 16 << 10;

/// The most tokens with a bias.
const BIASES: usize = 4096;

/// The most alternatives that can be requested for each token, as in OpenAI's API.
pub const TOP_LOGPROBS: usize = 20;

/// A bias that OpenAI's API takes for a ban.
const BAN: f32 = -100.0;

/// Parses a body. Fields that `T` does not have are ignored. Numbers in schemas keep all of their digits.
pub fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Failure> {
    let marked = std::str::from_utf8(body).ok().and_then(|text| Constraint::keep_digits(text, &SCHEMAS));
    serde_json::from_slice(marked.as_ref().map_or(&**body, String::as_bytes))
        .map_err(|error| Failure::invalid(format!("cannot parse the body: {error}")))
}

/// The fields. The server's options apply where one is absent or null, which some clients send for fields that they do
/// not use. For their sake the fields of all bodies are optional.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Fields {
    stream: Option<bool>,
    /// llama.cpp's name for reports of how much of the prompt is computed.
    return_progress: Option<bool>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<i64>,
    min_p: Option<f32>,
    #[serde(deserialize_with = "seed")]
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
    /// llama.cpp's grammars, which this server does not read.
    grammar: Option<Value>,
    stop_loops: Option<bool>,
    ignore_eos: Option<bool>,
    pub overflow: Option<OverflowField>,
    /// Whether requested JSON may have spaces and line ends between its parts.
    pub json_whitespace: Option<bool>,
    pub chat_template_kwargs: Option<Value>,
}

/// What a stream reports besides the replies.
#[derive(Debug, Deserialize)]
pub struct StreamOptions {
    include_usage: Option<bool>,
}

impl StreamOptions {
    /// Whether a stream ends with the numbers of tokens.
    pub fn usage(given: Option<Self>) -> bool {
        given.is_some_and(|options| options.include_usage == Some(true))
    }
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
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

/// Biases: an object as in OpenAI's API, or a list of pairs as in llama.cpp's.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Biases {
    Object(Map<String, Value>),
    Pairs(Vec<(Value, Value)>),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverflowField {
    Refuse,
    DropOldest,
}

impl From<OverflowField> for Overflow {
    fn from(field: OverflowField) -> Self {
        match field {
            OverflowField::Refuse => Self::Refuse,
            OverflowField::DropOldest => Self::DROP_OLDEST,
        }
    }
}

impl Fields {
    pub fn stream(&self) -> Stream {
        Stream { is_on: self.stream == Some(true), progress: self.return_progress == Some(true) }
    }

    /// The options of generation for a request with these fields.
    pub fn options(self, loaded: &LoadedModel) -> Result<GenerateOptions, Failure> {
        if self.grammar.is_some_and(|grammar| grammar.as_str() != Some("")) {
            return Err(Failure::unsupported("grammar: not supported; use response_format with a JSON schema"));
        }
        let mut options = loaded.defaults.clone();
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
            sampling.logit_bias = biases.read(loaded.model.config().vocab)?;
        }
        let stops = [self.stop, self.stop_sequences];
        if stops.iter().any(Option::is_some) {
            options.stop = stops.into_iter().flatten().flat_map(OneOrMore::all).collect();
            at_most("stop", options.stop.len(), STOPS, "strings")?;
            at_most("stop", options.stop.iter().map(String::len).sum(), STOP_BYTES, "bytes")?;
        }
        options.stop_loops = self.stop_loops.unwrap_or(options.stop_loops);
        options.ignore_eos = self.ignore_eos.unwrap_or(options.ignore_eos);
        Ok(options)
    }
}

impl Biases {
    fn read(self, vocab: usize) -> Result<Vec<(u32, f32)>, Failure> {
        let pairs = match self {
            Self::Object(object) => object.into_iter().map(|(token, bias)| (Value::String(token), bias)).collect(),
            Self::Pairs(pairs) => pairs,
        };
        at_most("logit_bias", pairs.len(), BIASES, "tokens")?;
        let read = |(token, bias): (Value, Value)| {
            let id = token.as_u64().or_else(|| token.as_str()?.parse().ok());
            let id = id.and_then(|id| u32::try_from(id).ok()).filter(|id| (*id as usize) < vocab);
            let amount = match &bias {
                Value::Bool(false) => Some(f32::NEG_INFINITY),
                other => other.as_f64().map(|amount| amount as f32).filter(|amount| amount.is_finite()),
            };
            let wrong = || {
                let given = format!("{token}: {bias}");
                Failure::invalid(format!("logit_bias: {}: expected the id of a token and a number", shown(&given)))
            };
            let (id, amount) = id.zip(amount).ok_or_else(wrong)?;
            Ok((id, if amount <= BAN { f32::NEG_INFINITY } else { amount }))
        };
        pairs.into_iter().map(read).collect()
    }
}

/// Refuses more than `most` things in a field.
pub fn at_most(field: &str, found: usize, most: usize, things: &str) -> Result<(), Failure> {
    if found <= most {
        return Ok(());
    }
    Err(Failure::invalid(format!("{field}: {found} {things}; at most {most} are allowed")))
}

/// A limit of tokens: a number of at least 0, or -1 for none.
pub fn max_tokens(given: Option<i64>) -> Result<Option<usize>, Failure> {
    let Some(tokens) = given.filter(|tokens| *tokens != -1) else { return Ok(None) };
    let wrong =
        |_| Failure::invalid(format!("max_tokens: {tokens}: expected a number of at least 0, or -1 for no limit"));
    usize::try_from(tokens).map(Some).map_err(wrong)
}

pub fn choices(given: Option<u64>, server: &Server) -> Result<usize, Failure> {
    let (given, most) = (given.unwrap_or(1), server.limits.choices);
    let count = usize::try_from(given).ok().filter(|count| (1..=most).contains(count));
    count.ok_or_else(|| Failure::invalid(format!("n: {given}: expected a number from 1 to {most}")))
}

/// The number of alternatives to report for each token, at most [`TOP_LOGPROBS`].
pub fn top_logprobs(given: u64) -> Result<usize, Failure> {
    let top = usize::try_from(given).ok().filter(|top| *top <= TOP_LOGPROBS);
    top.ok_or_else(|| Failure::invalid(format!("logprobs: {given}: expected a number from 0 to {TOP_LOGPROBS}")))
}

/// A seed is any integer. Clients send signed and unsigned ones, and some send more than 64 bits.
fn seed<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i128>, D::Error> {
    let Some(number) = Option::<Number>::deserialize(from)? else { return Ok(None) };
    let large = || number.as_f64().filter(|seed| seed.fract() == 0.0).map(|seed| seed as i128);
    let seed = number.as_i128().or_else(large);
    seed.map(Some).ok_or_else(|| serde::de::Error::custom(format!("seed: {number}: expected an integer")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::Fields;

    #[test]
    fn a_seed_is_any_integer() {
        let seed = |text: &str| serde_json::from_str::<Fields>(&format!("{{\"seed\": {text}}}")).map(|read| read.seed);
        assert_eq!(seed("-1").unwrap(), Some(-1));
        assert_eq!(seed("18446744073709551615").unwrap(), Some(i128::from(u64::MAX)));
        assert_eq!((seed("null").unwrap(), seed("1e30").unwrap().is_some()), (None, true));
        assert!(seed("1.5").is_err() && seed("\"1\"").is_err());
    }
}
