//! Fields of requests that all interfaces share: how tokens are sampled, and where the reply ends.

use super::failure::{Failure, shown};
use super::interface::Stream;
use super::parse::located;
use super::prompts::start_tokens;
use super::server::{LoadedModel, Server};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use serde_path_to_error::{Deserializer as Tracked, Track};
use std::fmt;
use std::marker::PhantomData;
use wglm_engine::{GenerateOptions, Overflow};

const STOPS: usize = 64;

/// The maximum bytes of all stop strings together.
const STOP_BYTES: usize = 16 << 10;

/// The maximum number of tokens with a bias.
const BIASES: usize = 4096;

/// The maximum number of bytes of a text whose tokens get a bias.
const BIAS_TEXT: usize = 256;

/// The maximum number of alternatives that can be requested for each token, as in OpenAI's API.
pub const TOP_LOGPROBS: usize = 20;

/// A bias that OpenAI's API treats as a ban.
const BAN: f32 = -100.0;

/// The fields. The server's options apply where one is absent or null, which some clients send for fields that they do
/// not use. For their sake the fields of all bodies are optional.
#[derive(Debug, Default, Deserialize)]
#[serde(default, remote = "Self")] // so that the function below can say which field is wrong
pub struct Fields {
    stream: Option<bool>,
    /// llama.cpp's name for reports of how much of the prompt has been computed.
    return_progress: Option<bool>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    #[serde(deserialize_with = "integer")]
    top_k: Option<i64>,
    min_p: Option<f32>,
    /// Any integer: clients send signed and unsigned ones, and some send more than 64 bits.
    #[serde(deserialize_with = "integer")]
    seed: Option<i128>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    repeat_penalty: Option<f32>,
    /// Another name for `repeat_penalty`. An alias would refuse a request that has both.
    repetition_penalty: Option<f32>,
    #[serde(deserialize_with = "integer")]
    repeat_last_n: Option<i64>,
    logit_bias: Option<Biases>,
    stop: Option<OneOrMore>,
    /// Anthropic's name for `stop`.
    stop_sequences: Option<OneOrMore>,
    stop_loops: Option<bool>,
    ignore_eos: Option<bool>,
    pub overflow: Option<OverflowField>,
    /// Whether requested JSON may have spaces and line ends between its parts.
    pub json_whitespace: Option<bool>,
    pub chat_template_kwargs: Option<Value>,
    /// Whether the model thinks, in the forms of several APIs.
    thinking: Option<Value>,
    enable_thinking: Option<Value>,
    pub reasoning: Option<Value>,
    reasoning_effort: Option<Value>,
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut track = Track::new();
        Fields::deserialize(Tracked::new(from, &mut track)).map_err(|error| located(&error, track))
    }
}

/// What a stream reports in addition to the replies.
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
#[serde(untagged, expecting = "expected a string or a list of strings")]
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
#[serde(untagged, expecting = "expected an object, or a list of pairs of a token and its bias")]
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

    /// Whether the model thinks, if a field says so. It does not if one of several turns that off.
    pub fn thinking(&self) -> Result<Option<bool>, Failure> {
        let mut given = vec![
            switch("enable_thinking", self.enable_thinking.as_ref())?,
            effort("reasoning_effort", self.reasoning_effort.as_ref())?,
        ];
        match &self.thinking {
            Some(Value::Object(thinking)) => given.push(kind(thinking.get("type"))?),
            other => given.push(switch("thinking", other.as_ref())?),
        }
        match &self.reasoning {
            Some(Value::Object(reasoning)) => given.extend([
                switch("reasoning.enabled", reasoning.get("enabled"))?,
                effort("reasoning.effort", reasoning.get("effort"))?,
            ]),
            other => given.push(switch("reasoning", other.as_ref())?),
        }
        Ok(given.into_iter().flatten().min())
    }

    /// Adds another field that says whether the model thinks.
    pub fn also_thinks(&mut self, thinks: Option<bool>) {
        match (thinks, &self.enable_thinking) {
            (Some(thinks), None) => self.enable_thinking = Some(thinks.into()),
            (Some(false), Some(Value::Bool(true))) => self.enable_thinking = Some(false.into()),
            _ => {}
        }
    }

    /// The given fields that have an effect in conversations only.
    pub fn of_conversations(&self) -> impl Iterator<Item = &'static str> {
        let fields = [
            ("chat_template_kwargs", self.chat_template_kwargs.is_some()),
            ("enable_thinking", self.enable_thinking.is_some()),
            ("json_whitespace", self.json_whitespace.is_some()),
            ("overflow", self.overflow.is_some()),
            ("reasoning", self.reasoning.is_some()),
            ("reasoning_effort", self.reasoning_effort.is_some()),
            ("thinking", self.thinking.is_some()),
        ];
        fields.into_iter().filter_map(|(name, is_given)| is_given.then_some(name))
    }

    /// The options of generation for a request with these fields.
    pub fn options(self, loaded: &LoadedModel) -> Result<GenerateOptions, Failure> {
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
            sampling.logit_bias = biases.read(loaded)?;
        }
        let field = if self.stop.is_some() { "stop" } else { "stop_sequences" };
        let stops = [self.stop, self.stop_sequences];
        if stops.iter().any(Option::is_some) {
            options.stop = stops.into_iter().flatten().flat_map(OneOrMore::all).collect();
            at_most(field, options.stop.len(), STOPS, "strings")?;
            at_most(field, options.stop.iter().map(String::len).sum(), STOP_BYTES, "bytes")?;
        }
        options.stop_loops = self.stop_loops.unwrap_or(options.stop_loops);
        options.ignore_eos = self.ignore_eos.unwrap_or(options.ignore_eos);
        Ok(options)
    }
}

impl Biases {
    /// The tokens and their biases. A text stands for each of its tokens, as in llama.cpp's server. The keys of an
    /// object are texts too, but those of digits only are ids, as in OpenAI's API.
    fn read(self, loaded: &LoadedModel) -> Result<Vec<(u32, f32)>, Failure> {
        let (vocab, tokenizer) = (loaded.model.config().vocab, loaded.model.tokenizer()?);
        let start = start_tokens(tokenizer)?;
        let pairs = match self {
            Self::Object(object) => object.into_iter().map(|(key, bias)| (id_or_text(key), bias)).collect(),
            Self::Pairs(pairs) => pairs,
        };
        at_most("logit_bias", pairs.len(), BIASES, "tokens")?;
        let mut biases = Vec::with_capacity(pairs.len());
        for (token, bias) in pairs {
            let is_id = |id| u32::try_from(id).ok().filter(|id| (*id as usize) < vocab);
            let ids = match (token.as_u64(), token.as_str()) {
                (Some(id), _) => is_id(id).map(|id| vec![id]),
                (None, Some(text)) if (1..=BIAS_TEXT).contains(&text.len()) => {
                    Some(tokenizer.encode(text, false)?.split_off(start))
                }
                (None, _) => None,
            };
            let amount = match &bias {
                Value::Bool(false) => Some(f32::NEG_INFINITY),
                other => other.as_f64().map(|amount| amount as f32).filter(|amount| amount.is_finite()),
            };
            let wrong = || {
                let given = format!("{token}: {bias}");
                let wrong = format!(
                    "{}: expected a number for the id of a token, or for a text of at most {BIAS_TEXT} bytes",
                    shown(&given)
                );
                Failure::of_field("logit_bias", wrong)
            };
            let (ids, amount) = ids.zip(amount).ok_or_else(wrong)?;
            let amount = if amount <= BAN { f32::NEG_INFINITY } else { amount };
            biases.extend(ids.into_iter().map(|id| (id, amount)));
            at_most("logit_bias", biases.len(), BIASES, "tokens")?;
        }
        Ok(biases)
    }
}

/// A key of an object of biases.
fn id_or_text(key: String) -> Value {
    let is_id = key.bytes().all(|byte| byte.is_ascii_digit());
    key.parse().ok().filter(|_| is_id).map_or(Value::String(key), |id: u64| id.into())
}

/// Refuses more than `most` things in a field.
pub fn at_most(field: &str, found: usize, most: usize, things: &str) -> Result<(), Failure> {
    at_most_in(field, found, most, things).map_err(|failure| failure.with_param(field))
}

/// The same for something that is not a field, such as a message.
pub fn at_most_in(place: &str, found: usize, most: usize, things: &str) -> Result<(), Failure> {
    if found <= most {
        return Ok(());
    }
    Err(Failure::invalid(format!("{place}: {found} {things}; at most {most} are allowed")))
}

/// A field that is true or false.
pub fn switch(field: &str, given: Option<&Value>) -> Result<Option<bool>, Failure> {
    match given {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(is_on)) => Ok(Some(*is_on)),
        Some(other) => {
            let found = other.to_string();
            Err(Failure::of_field(field, format_args!("{}: expected true or false", shown(&found))))
        }
    }
}

/// The type of Anthropic's `thinking`.
fn kind(given: Option<&Value>) -> Result<Option<bool>, Failure> {
    match given.unwrap_or(&Value::Null) {
        Value::Null => Ok(None),
        Value::String(kind) if kind == "disabled" => Ok(Some(false)),
        Value::String(kind) if ["adaptive", "auto", "enabled"].contains(&kind.as_str()) => Ok(Some(true)),
        other => {
            let found = other.to_string();
            let wrong = format!("{}: expected enabled, adaptive or disabled", shown(&found));
            Err(Failure::of_field("thinking.type", wrong))
        }
    }
}

/// A field with a level of effort. Any level but the lowest ones makes the model think.
fn effort(field: &str, given: Option<&Value>) -> Result<Option<bool>, Failure> {
    match given.unwrap_or(&Value::Null) {
        Value::Null => Ok(None),
        Value::String(effort) => Ok(Some(!["none", "minimal"].contains(&effort.as_str()))),
        other => {
            let found = other.to_string();
            Err(Failure::of_field(field, format_args!("{}: expected none, low, medium or high", shown(&found))))
        }
    }
}

/// A limit on the number of tokens, from the first of several fields that is given: at least 0, or -1 for no limit.
pub fn max_tokens<const N: usize>(given: [(&str, Option<i64>); N]) -> Result<Option<usize>, Failure> {
    let given = given.into_iter().find_map(|(field, tokens)| Some((field, tokens?)));
    let Some((field, tokens)) = given.filter(|(_, tokens)| *tokens != -1) else { return Ok(None) };
    let wrong = || format!("{tokens}: expected a number of at least 0, or -1 for no limit");
    usize::try_from(tokens).map(Some).map_err(|_| Failure::of_field(field, wrong()))
}

pub fn choices(given: Option<u64>, server: &Server) -> Result<usize, Failure> {
    let (given, most) = (given.unwrap_or(1), server.limits.choices);
    let count = usize::try_from(given).ok().filter(|count| (1..=most).contains(count));
    count.ok_or_else(|| Failure::of_field("n", format_args!("{given}: expected a number from 1 to {most}")))
}

/// The number of alternatives to report for each token, at most [`TOP_LOGPROBS`].
pub fn top_logprobs(field: &str, given: u64) -> Result<usize, Failure> {
    let top = usize::try_from(given).ok().filter(|top| *top <= TOP_LOGPROBS);
    let wrong = || format!("{given}: expected a number from 0 to {TOP_LOGPROBS}");
    top.ok_or_else(|| Failure::of_field(field, wrong()))
}

/// An integer that may be absent. Some clients keep all numbers as floating point and send 40.0 for 40.
pub fn integer<'de, T: TryFrom<i128>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    from.deserialize_option(Integer(PhantomData))
}

struct Integer<T>(PhantomData<T>);

impl<T: TryFrom<i128>> Integer<T> {
    fn of<E: Error>(&self, number: i128, found: Unexpected<'_>) -> Result<Option<T>, E> {
        T::try_from(number).map(Some).map_err(|_| E::invalid_value(found, self))
    }
}

impl<'de, T: TryFrom<i128>> Visitor<'de> for Integer<T> {
    type Value = Option<T>;

    /// In the words of serde, which `parse` translates.
    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(std::any::type_name::<T>())
    }

    fn visit_none<E: Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Option<T>, D::Error> {
        from.deserialize_any(self)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Option<T>, E> {
        self.of(number.into(), Unexpected::Signed(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Option<T>, E> {
        self.of(number.into(), Unexpected::Unsigned(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Option<T>, E> {
        match number.fract() == 0.0 {
            true => self.of(number as i128, Unexpected::Float(number)),
            false => Err(E::invalid_type(Unexpected::Float(number), &self)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Fields, max_tokens};
    use serde_json::json;

    #[test]
    fn thinking_is_off_in_the_words_of_every_interface() {
        for (body, wanted) in [
            (r#"{"thinking": {"type": "disabled"}}"#, Some(false)),
            (r#"{"thinking": {"type": "enabled", "budget_tokens": 9}}"#, Some(true)),
            (r#"{"thinking": {"type": "adaptive"}}"#, Some(true)),
            (r#"{"thinking": {}, "reasoning": {}}"#, None),
            (r#"{"thinking": false}"#, Some(false)),
            (r#"{"enable_thinking": false}"#, Some(false)),
            (r#"{"reasoning": {"effort": "none"}}"#, Some(false)),
            (r#"{"reasoning": {"enabled": false}}"#, Some(false)),
            (r#"{"reasoning": true}"#, Some(true)),
            (r#"{"reasoning": {"effort": "high"}, "reasoning_effort": "none"}"#, Some(false)),
            (r#"{"reasoning": {"summary": "auto"}, "thinking": null}"#, None),
        ] {
            assert_eq!(serde_json::from_str::<Fields>(body).unwrap().thinking().unwrap(), wanted, "{body}");
        }
    }

    #[test]
    fn wrong_words_for_thinking_are_refused_by_name() {
        for (body, field) in [
            (json!({"thinking": {"type": "off"}}), "thinking.type"),
            (json!({"thinking": "on"}), "thinking"),
            (json!({"enable_thinking": "false"}), "enable_thinking"),
            (json!({"reasoning": "high"}), "reasoning"),
            (json!({"reasoning": {"effort": 3}}), "reasoning.effort"),
            (json!({"reasoning_effort": 3}), "reasoning_effort"),
        ] {
            let failure = serde_json::from_value::<Fields>(body).unwrap().thinking().unwrap_err();
            assert!(failure.message.starts_with(&format!("{field}: ")), "{failure:?}");
            assert_eq!((failure.status.as_u16(), failure.param.as_deref()), (400, Some(field)));
        }
    }

    #[test]
    fn the_model_thinks_only_if_no_field_turns_it_off() {
        for (enable, also, wanted) in [
            (json!(null), None, None),
            (json!(null), Some(true), Some(true)),
            (json!(true), Some(false), Some(false)),
            (json!(false), Some(true), Some(false)),
            (json!(true), None, Some(true)),
        ] {
            let mut fields: Fields = serde_json::from_value(json!({"enable_thinking": enable})).unwrap();
            fields.also_thinks(also);
            assert_eq!(fields.thinking().unwrap(), wanted, "{enable} {also:?}");
        }
    }

    #[test]
    fn a_limit_of_tokens_has_the_name_that_was_sent() {
        let read = |first, second| max_tokens([("max_completion_tokens", first), ("max_tokens", second)]);
        assert_eq!(read(None, Some(3)).unwrap(), Some(3));
        assert_eq!((read(Some(-1), Some(3)).unwrap(), read(None, None).unwrap()), (None, None));
        for (failure, field) in
            [(read(Some(-2), Some(3)), "max_completion_tokens"), (read(None, Some(-2)), "max_tokens")]
        {
            let failure = failure.unwrap_err();
            assert_eq!((failure.param.as_deref(), failure.message.starts_with(field)), (Some(field), true));
        }
    }

    #[test]
    fn a_seed_is_any_integer() {
        let seed = |text: &str| serde_json::from_str::<Fields>(&format!("{{\"seed\": {text}}}")).map(|read| read.seed);
        assert_eq!(seed("-1").unwrap(), Some(-1));
        assert_eq!(seed("18446744073709551615").unwrap(), Some(i128::from(u64::MAX)));
        assert_eq!((seed("null").unwrap(), seed("1e30").unwrap().is_some()), (None, true));
        assert!(seed("1.5").is_err() && seed("\"1\"").is_err());
    }

    /// Programs such as Home Assistant send them.
    #[test]
    fn an_integer_may_be_written_with_a_point() {
        let read = |top_k: &str| serde_json::from_str::<Fields>(&format!("{{\"top_k\": {top_k}}}"));
        let top_k = |text: &str| read(text).unwrap().top_k;
        assert_eq!(["40.0", "-1.0", "4e1", "40", "null"].map(top_k), [Some(40), Some(-1), Some(40), Some(40), None]);
        for wrong in ["40.5", "1e30", "\"40\"", "true", "[]"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
