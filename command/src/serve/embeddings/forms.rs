//! The bodies of requests for embeddings and their answers, in the forms of OpenAI's, Ollama's and llama.cpp's APIs.

use super::Work;
use super::input::Input;
use crate::serve::failure::{Failure, shown};
use crate::serve::ollama::{Common, nanoseconds};
use crate::serve::server::{LoadedModel, Server};
use crate::serve::unmet::{OtherFields, Warnings};
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};
use std::sync::Arc;
use std::time::{Duration, Instant};

const WARNING: &str =
    "this server's model is not an embedding model; each vector is the mean of its last hidden states";

/// A body.
pub trait Form: DeserializeOwned + Send + 'static {
    /// Turns a body into a request, or refuses it.
    fn request(self, server: &Server, loaded: &LoadedModel) -> Result<Request, Failure>;
}

/// What a body asks for.
pub struct Request {
    /// The field with the texts.
    field: &'static str,
    input: Input,
    /// Whether a text that is longer than the context is cut at its end. Otherwise it is refused.
    truncates: bool,
    /// Whether vectors have the length 1.
    normalised: bool,
    warnings: Warnings,
    form: AnswerForm,
}

impl Request {
    /// The work for it, which began to arrive at `start`.
    pub fn work(self, start: Instant, loaded: Arc<LoadedModel>) -> Result<Work, Failure> {
        let Self { field, input, truncates, normalised, mut warnings, form } = self;
        let (texts, cut) = input.tokens(field, &loaded, truncates)?;
        if cut > 0 {
            let context = loaded.scheduler.context();
            warnings.add(field, &format!("{cut} of {} texts cut to the context of {context} tokens", texts.len()));
        }
        let mut all = vec![WARNING.to_owned()];
        all.extend(warnings.texts());
        Ok(Work { start, loaded, texts, normalised, form, warnings: all })
    }
}

/// Refuses a number of values that vectors of this model do not have.
fn check_dimensions(asked: Option<u64>, loaded: &LoadedModel) -> Result<(), Failure> {
    let width = loaded.model.config().width;
    match asked {
        Some(asked) if asked != width as u64 => {
            let wrong = format!("{asked}: the vectors of this model have {width} values; leave it out");
            Err(Failure::of_field("dimensions", wrong).with_code("unsupported"))
        }
        _ => Ok(()),
    }
}

/// The body of `/v1/embeddings`.
#[derive(Debug, Deserialize)]
pub struct OpenAi {
    input: Option<Input>,
    encoding_format: Option<String>,
    dimensions: Option<u64>,
    #[serde(flatten)]
    others: OtherFields,
}

impl Form for OpenAi {
    fn request(self, _: &Server, loaded: &LoadedModel) -> Result<Request, Failure> {
        let warnings = self.others.read()?;
        check_dimensions(self.dimensions, loaded)?;
        let base64 = match self.encoding_format.as_deref() {
            None | Some("float") => false,
            Some("base64") => true,
            Some(other) => {
                let wrong = format!("{}: expected float or base64", shown(other));
                return Err(Failure::of_field("encoding_format", wrong));
            }
        };
        let input = self.input.filter(|input| !input.is_nothing()).ok_or_else(|| Input::missing("input"))?;
        let form = AnswerForm::OpenAi { base64 };
        Ok(Request { field: "input", input, truncates: false, normalised: true, warnings, form })
    }
}

/// The body of Ollama's `/api/embed`. Without a text it asks that the model is loaded, which it is.
#[derive(Debug, Deserialize)]
pub struct OllamaEmbed {
    input: Option<Input>,
    dimensions: Option<u64>,
    #[serde(flatten)]
    common: Common,
}

impl Form for OllamaEmbed {
    fn request(self, server: &Server, loaded: &LoadedModel) -> Result<Request, Failure> {
        check_dimensions(self.dimensions, loaded)?;
        let form = AnswerForm::OllamaEmbed;
        of_ollama(self.common, "input", self.input, (form, true), server, loaded)
    }
}

/// The body of Ollama's older `/api/embeddings`, whose vectors have the length that they have.
#[derive(Debug, Deserialize)]
pub struct OllamaEmbeddings {
    prompt: Option<String>,
    #[serde(flatten)]
    common: Common,
}

impl Form for OllamaEmbeddings {
    fn request(self, server: &Server, loaded: &LoadedModel) -> Result<Request, Failure> {
        let form = AnswerForm::OllamaEmbeddings;
        of_ollama(self.common, "prompt", self.prompt.map(Input::of), (form, false), server, loaded)
    }
}

fn of_ollama(
    mut common: Common,
    field: &'static str,
    input: Option<Input>,
    (form, normalised): (AnswerForm, bool),
    server: &Server,
    loaded: &LoadedModel,
) -> Result<Request, Failure> {
    let warnings = common.warnings(loaded.scheduler.context(), false)?;
    if let Some(keep) = common.keep_alive()? {
        server.others.keep(loaded, keep);
    }
    let input = input.filter(|input| !input.is_nothing()).unwrap_or_default();
    Ok(Request { field, input, truncates: common.truncates(), normalised, warnings, form })
}

/// The body of llama.cpp's `/embedding`, whose texts are in either field; `input` comes first.
#[derive(Debug, Deserialize)]
pub struct Llama {
    input: Option<Input>,
    content: Option<Input>,
    embd_normalize: Option<i64>,
    #[serde(flatten)]
    others: OtherFields,
}

impl Form for Llama {
    fn request(self, _: &Server, _: &LoadedModel) -> Result<Request, Failure> {
        let warnings = self.others.read()?;
        let normalised = match self.embd_normalize {
            None | Some(2) => true,
            Some(-1) => false,
            Some(other) => {
                let wrong = format!("{other}: expected 2 for vectors of length 1, or -1 for vectors as they are");
                return Err(Failure::of_field("embd_normalize", wrong).with_code("unsupported"));
            }
        };
        let (field, input) = if self.input.is_some() { ("input", self.input) } else { ("content", self.content) };
        let input = input.filter(|input| !input.is_nothing()).ok_or_else(|| Input::missing(field))?;
        Ok(Request { field, input, truncates: false, normalised, warnings, form: AnswerForm::Llama })
    }
}

/// What an answer has, in any form.
pub struct Whole<'a> {
    pub model: &'a str,
    pub vectors: &'a [Vec<f32>],
    /// The number of tokens of all texts.
    pub tokens: usize,
    /// The time since the request began to be read.
    pub time: Duration,
    pub warnings: &'a [String],
}

/// The form of an answer.
#[derive(Debug, Clone, Copy)]
pub enum AnswerForm {
    OpenAi { base64: bool },
    OllamaEmbed,
    OllamaEmbeddings,
    Llama,
}

#[derive(Serialize)]
struct OpenAiAnswer<'a> {
    object: &'static str,
    data: Vec<OpenAiVector<'a>>,
    model: &'a str,
    usage: Usage,
    warnings: &'a [String],
}

#[derive(Serialize)]
struct OpenAiVector<'a> {
    object: &'static str,
    index: usize,
    embedding: Values<'a>,
}

#[derive(Serialize)]
struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
}

#[derive(Serialize)]
struct EmbedAnswer<'a> {
    model: &'a str,
    embeddings: &'a [Vec<f32>],
    total_duration: serde_json::Value,
    load_duration: u64,
    prompt_eval_count: usize,
    warnings: &'a [String],
}

#[derive(Serialize)]
struct EmbeddingsAnswer<'a> {
    embedding: &'a [f32],
    warnings: &'a [String],
}

#[derive(Serialize)]
struct LlamaVector<'a> {
    index: usize,
    /// A list, because the server of llama.cpp has a vector for each token if it does not pool them.
    embedding: [&'a [f32]; 1],
}

/// The values of a vector: numbers, or their bytes in base64.
enum Values<'a> {
    Numbers(&'a [f32]),
    Base64(&'a [f32]),
}

impl Serialize for Values<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Numbers(values) => values.serialize(to),
            Self::Base64(values) => {
                let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                to.serialize_str(&STANDARD.encode(bytes))
            }
        }
    }
}

impl AnswerForm {
    /// The answer as JSON, of about `capacity` bytes.
    pub fn write(self, whole: &Whole<'_>, capacity: usize) -> Result<String, Failure> {
        let Whole { model, vectors, tokens, time, warnings } = *whole;
        let mut text = Vec::with_capacity(capacity);
        let all = || vectors.iter().map(Vec::as_slice).enumerate();
        let written = match self {
            Self::OpenAi { base64 } => {
                let values = if base64 { Values::Base64 } else { Values::Numbers };
                let vector = |(index, vector)| OpenAiVector { object: "embedding", index, embedding: values(vector) };
                let usage = Usage { prompt_tokens: tokens, total_tokens: tokens };
                let data = all().map(vector).collect();
                serde_json::to_writer(&mut text, &OpenAiAnswer { object: "list", data, model, usage, warnings })
            }
            Self::OllamaEmbed => {
                let (embeddings, total_duration) = (vectors, nanoseconds(time));
                let answer = EmbedAnswer {
                    model,
                    embeddings,
                    total_duration,
                    load_duration: 0,
                    prompt_eval_count: tokens,
                    warnings,
                };
                serde_json::to_writer(&mut text, &answer)
            }
            Self::OllamaEmbeddings => {
                let embedding = vectors.first().map(Vec::as_slice).unwrap_or_default();
                serde_json::to_writer(&mut text, &EmbeddingsAnswer { embedding, warnings })
            }
            Self::Llama => {
                let vector = |(index, vector)| LlamaVector { index, embedding: [vector] };
                serde_json::to_writer(&mut text, &all().map(vector).collect::<Vec<_>>())
            }
        };
        let failed = |error: String| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error);
        written.map_err(|error| failed(error.to_string()))?;
        String::from_utf8(text).map_err(|error| failed(error.to_string()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{REST, TEXT, VALUE};
    use super::{AnswerForm, Whole};
    use serde_json::{Value, json};
    use std::time::Duration;

    /// The longest values, so that the memory of an answer is counted as what it takes at most.
    const LONG: [f32; 4] = [-1.1754944e-38, -1.234_567_9e-30, -1.2345679e8, -0.00012345679];

    fn written(form: AnswerForm) -> (Value, usize) {
        let vectors = [LONG.to_vec(), vec![1.0, -2.5, 0.0, 3.0]];
        let warnings = ["w".to_owned()];
        let time = Duration::from_nanos(7);
        let whole = Whole { model: "m", vectors: &vectors, tokens: 5, time, warnings: &warnings };
        let text = form.write(&whole, 0).unwrap();
        (serde_json::from_str(&text).unwrap(), text.len())
    }

    #[test]
    fn each_api_has_its_form() {
        let second = json!([1.0, -2.5, 0.0, 3.0]);
        let (openai, length) = written(AnswerForm::OpenAi { base64: false });
        assert_eq!(openai["data"][1], json!({"object": "embedding", "index": 1, "embedding": second}));
        assert_eq!((&openai["object"], &openai["model"]), (&"list".into(), &"m".into()));
        assert_eq!(
            (&openai["usage"], &openai["warnings"]),
            (&json!({"prompt_tokens": 5, "total_tokens": 5}), &json!(["w"]))
        );
        assert!(length <= 2 * (4 * VALUE + TEXT) + REST);
        let numbers = openai["data"][0]["embedding"].as_array().unwrap();
        assert!(numbers.iter().zip(LONG).all(|(read, value)| read.as_f64().unwrap() as f32 == value), "{numbers:?}");
        assert!(LONG.iter().all(|value| serde_json::to_string(value).unwrap().len() < VALUE));
        let (base64, _) = written(AnswerForm::OpenAi { base64: true });
        assert_eq!(base64["data"][1]["embedding"], "AACAPwAAIMAAAAAAAABAQA==");
        let (embed, _) = written(AnswerForm::OllamaEmbed);
        assert_eq!((&embed["embeddings"][1], &embed["prompt_eval_count"]), (&second, &json!(5)));
        assert_eq!((&embed["total_duration"], &embed["load_duration"]), (&json!(7), &json!(0)));
        let (embeddings, _) = written(AnswerForm::OllamaEmbeddings);
        assert_eq!(embeddings["embedding"].as_array().unwrap().len(), 4);
        let (llama, _) = written(AnswerForm::Llama);
        assert_eq!(llama[1], json!({"index": 1, "embedding": [second]}));
    }
}
