//! What the server says about itself and its models: `/api/tags`, `/api/show`, `/api/ps` and `/api/version`. Models can
//! neither be fetched nor made.

use crate::inspect::{scalar, tensors_by_type};
use crate::serve::body::{JsonBody, refuse};
use crate::serve::failure::Failure;
use crate::serve::figures::decimal;
use crate::serve::others::Listed;
use crate::serve::parse::read;
use crate::serve::router::{counted_json, json};
use crate::serve::server::{LoadedModel, Server, timestamp};
use axum::extract::{Request, State};
use axum::response::Response;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::SystemTime;
use wglm_engine::{Config, GenerateOptions, Gguf, MetadataValue};

/// The version of Ollama whose API this is. Programs refuse servers whose version is too old for them.
const VERSION: &str = "0.33.0";

/// What programs show as the identity of a file; they expect 64 digits. The file is not hashed, because that takes
/// minutes.
const DIGEST: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// When the model is unloaded: never, which the API cannot express.
const NEVER: &str = "2999-01-01T00:00:00Z";

/// How many copies of the file's texts there are while `/api/show` is answered.
const SHOW_COPIES: usize = 4;

/// The width of the names in a list of parameters, as Ollama writes it.
const COLUMNS: usize = 30;

/// The key of the chat template in a file.
const TEMPLATE: &str = "tokenizer.chat_template";

/// The number of parameters.
fn parameters(file: &Gguf) -> u64 {
    file.tensors().map(|tensor| tensor.dims.iter().product::<usize>() as u64).sum()
}

/// A number with a unit, such as 29.9B.
fn short(count: u64) -> String {
    let units = [(1e9, "B"), (1e6, "M"), (1e3, "K")];
    let unit = units.into_iter().find(|(size, _)| count as f64 >= *size);
    unit.map_or_else(|| count.to_string(), |(size, name)| format!("{:.1}{name}", count as f64 / size))
}

fn details(file: &Gguf) -> Value {
    let family = file.opt_string("general.architecture").ok().flatten().unwrap_or_default();
    let most = tensors_by_type(file).into_iter().max_by_key(|(_, total)| total.bytes);
    json!({
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family],
        "parameter_size": short(parameters(file)),
        "quantization_level": most.map_or_else(String::new, |(name, _)| name.to_uppercase()),
    })
}

/// What the model can do, according to its template.
fn capabilities(template: &str) -> Value {
    let optional = [("tools", template.contains("tools")), ("thinking", template.contains("<think>"))];
    let known = optional.into_iter().filter(|(_, has)| *has).map(|(name, _)| name);
    ["completion"].into_iter().chain(known).collect()
}

fn template(file: &Gguf) -> &str {
    file.opt_string(TEMPLATE).ok().flatten().unwrap_or_default()
}

/// The description of a model file that clients receive.
#[derive(Debug, Clone)]
pub struct Described {
    /// The context that the model was made for, and the size of its vocabulary, in tokens.
    pub context: usize,
    pub vocab: usize,
    details: Value,
    capabilities: Value,
}

pub fn describe(file: &Gguf) -> Described {
    let (context, vocab) = Config::read(file).map_or((0, 0), |config| (config.context, config.vocab));
    Described { context, vocab, details: details(file), capabilities: capabilities(template(file)) }
}

/// An entry of a list of models.
fn entry(name: &str, bytes: u64, modified: SystemTime, described: &Described) -> Value {
    json!({
        "name": name,
        "model": name,
        "modified_at": timestamp(modified),
        "size": bytes,
        "digest": DIGEST,
        "details": described.details,
        "capabilities": described.capabilities,
    })
}

/// The server's own model, and those that requests can name.
pub async fn tags(State(server): State<Arc<Server>>) -> Result<Response, Failure> {
    let loaded = server.loaded()?;
    let others = server.listed_models().await?;
    let own = entry(&server.name, loaded.model.file().file_bytes(), server.started, &describe(loaded.model.file()));
    let others = others.iter().map(|Listed { model, modified, described }| {
        entry(&model.name, model.bytes, modified.unwrap_or(server.started), described)
    });
    let models: Vec<Value> = [own].into_iter().chain(others).collect();
    Ok(json(&json!({"models": models})))
}

/// The models that are loaded. All of them are on the GPU.
pub async fn ps(State(server): State<Arc<Server>>) -> Response {
    let running = |(loaded, until): (Arc<LoadedModel>, Option<SystemTime>)| {
        let held = loaded.model.gpu().memory().held;
        let mut entry = entry(&loaded.name, held, server.started, &describe(loaded.model.file()));
        entry["size_vram"] = held.into();
        let until = until.and_then(|until| Timestamp::try_from(until).ok());
        entry["expires_at"] = until.map_or_else(|| NEVER.into(), |until| until.to_string()).into();
        entry["context_length"] = loaded.scheduler.context().into();
        entry
    };
    let own = server.loaded.peek().into_iter().map(|loaded| (loaded, None));
    let models: Vec<Value> = own.chain(server.others.staying()).map(running).collect();
    json(&json!({"models": models}))
}

/// The options of a request that gives none, in Ollama's form.
fn usual(defaults: &GenerateOptions, context: usize) -> String {
    let sampling = &defaults.sampling;
    let stops = defaults.stop.iter().map(|stop| ("stop", json!(stop)));
    let options = [
        ("num_ctx", context.into()),
        ("temperature", decimal(sampling.temperature)),
        ("top_k", sampling.top_k.into()),
        ("top_p", decimal(sampling.top_p)),
        ("min_p", decimal(sampling.min_p)),
        ("repeat_penalty", decimal(sampling.repeat_penalty)),
        ("presence_penalty", decimal(sampling.presence_penalty)),
        ("frequency_penalty", decimal(sampling.frequency_penalty)),
    ];
    let most = defaults.max_tokens.map(|most| ("num_predict", most.into()));
    let lines = options.into_iter().chain(most).chain(stops).map(|(name, value)| format!("{name:COLUMNS$} {value}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The metadata of the file without arrays, which are its vocabulary, and without the template.
fn model_info(file: &Gguf) -> Map<String, Value> {
    let is_short =
        |(key, value): &(&str, MetadataValue<'_>)| *key != TEMPLATE && !matches!(value, MetadataValue::Array(_));
    let metadata = file.metadata().filter(is_short).map(|(key, value)| (key.to_owned(), scalar(&value)));
    metadata.chain([("general.parameter_count".to_owned(), parameters(file).into())]).collect()
}

/// The bytes of all texts in the metadata.
fn texts(file: &Gguf) -> usize {
    let length =
        |(_, value): (&str, MetadataValue<'_>)| if let MetadataValue::String(text) = value { text.len() } else { 0 };
    file.metadata().map(length).sum()
}

#[derive(Deserialize)]
struct ShowBody {
    /// The second name is older.
    model: Option<String>,
    name: Option<String>,
}

/// Describes the model that the body names, without loading it.
pub async fn show(State(server): State<Arc<Server>>, body: JsonBody) -> Result<Response, Failure> {
    body.check_text()?;
    let loaded = server.loaded()?;
    let ShowBody { model, name } = read(&body.bytes)?;
    let name = model.or(name).unwrap_or_default();
    let models = server.local_models(Some(&name)).await?;
    let other = server.read_models(move |server, _turn| server.others.file(&name, &models)).await??;
    let (file, defaults, context) = match &other {
        Some((file, defaults)) => (file, defaults, describe(file).context),
        None => (loaded.model.file(), &loaded.defaults, loaded.scheduler.context()),
    };
    let memory = server.memory.requests.try_take(texts(file) * SHOW_COPIES)?; // the file may have long ones
    let template = template(file);
    let shown = json!({
        "modified_at": timestamp(server.started),
        "parameters": usual(defaults, context),
        "template": template,
        "details": details(file),
        "model_info": model_info(file),
        "capabilities": capabilities(template),
    });
    Ok(counted_json(shown.to_string(), memory))
}

pub async fn version() -> Response {
    json(&json!({"version": VERSION}))
}

/// Refuses requests that would change which models there are.
pub async fn fixed(request: Request) -> Failure {
    refuse(request).await;
    Failure::unsupported("not supported; use `wglm pull` and `wglm models` to manage models")
}
