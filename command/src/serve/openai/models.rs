//! `/v1/models`, with the fields of OpenAI, Anthropic and llama.cpp together.

use crate::serve::failure::Failure;
use crate::serve::others::Listed;
use crate::serve::router::{PathEnd, json};
use crate::serve::server::{Server, seconds, timestamp};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;

/// A model in the list. `context` is the context of its conversations, if it is loaded.
fn model(server: &Server, name: &str, meta: Option<Value>, context: Option<usize>) -> Value {
    let mut model = json!({
        "id": name,
        "object": "model",
        "created": seconds(server.started),
        "owned_by": "wglm",
        "type": "model",
        "display_name": name,
        "created_at": timestamp(server.started),
        "lifecycle": "active",
    });
    if let Some(meta) = meta {
        model["meta"] = meta;
    }
    if let Some(context) = context {
        for most in ["max_model_len", "max_input_tokens", "max_tokens"] {
            model[most] = context.into();
        }
    }
    model
}

/// The model that the server was started with.
fn own(server: &Server) -> Value {
    let Ok(loaded) = server.loaded.peek() else { return model(server, &server.name, None, None) };
    let (config, context) = (loaded.model.config(), loaded.scheduler.context());
    let meta = json!({
        "n_ctx": context,
        "n_ctx_train": config.context,
        "n_vocab": config.vocab,
        "size": loaded.model.file().file_bytes(),
    });
    model(server, &server.name, Some(meta), Some(context))
}

/// A model that requests can name.
fn other(server: &Server, Listed { model: local, described, .. }: &Listed) -> Value {
    let meta = json!({"n_ctx_train": described.context, "n_vocab": described.vocab, "size": local.bytes});
    model(server, &local.name, Some(meta), None)
}

async fn models(server: &Arc<Server>) -> Result<Vec<Value>, Failure> {
    let others = server.listed_models().await?;
    Ok([own(server)].into_iter().chain(others.iter().map(|listed| other(server, listed))).collect())
}

pub async fn list(State(server): State<Arc<Server>>) -> Result<Response, Failure> {
    let models = models(&server).await?;
    let [first, last] = [models.first(), models.last()].map(|model| model.map(|model| model["id"].clone()));
    Ok(json(&json!({"object": "list", "data": models, "has_more": false, "first_id": first, "last_id": last})))
}

pub async fn one(State(server): State<Arc<Server>>, PathEnd(id): PathEnd) -> Result<Response, Failure> {
    let models = models(&server).await?;
    let is_it = |model: &&Value| model["id"].as_str().is_some_and(|name| name.eq_ignore_ascii_case(&id));
    if let Some(model) = models.iter().find(is_it) {
        return Ok(json(model));
    }
    let names: Vec<&str> = models.iter().filter_map(|model| model["id"].as_str()).collect();
    let message = format!("no such model; this server has {}", names.join(", "));
    Err(Failure::new(StatusCode::NOT_FOUND, message).with_code("model_not_found"))
}
