//! `/v1/models`, with the fields of OpenAI, Anthropic and llama.cpp together, and the refusal of `/v1/embeddings`.

use crate::serve::body::refuse;
use crate::serve::failure::Failure;
use crate::serve::router::{PathEnd, json};
use crate::serve::server::{Server, seconds, timestamp};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;

fn model(server: &Server) -> Value {
    let created = seconds(server.started);
    let mut model = json!({
        "id": server.name,
        "object": "model",
        "created": created,
        "owned_by": "wglm",
        "type": "model",
        "display_name": server.name,
        "created_at": timestamp(server.started),
        "lifecycle": "active",
    });
    if let Ok(loaded) = server.loaded.peek() {
        let config = loaded.model.config();
        model["meta"] = json!({
            "n_ctx": loaded.scheduler.context(),
            "n_ctx_train": config.context,
            "n_vocab": config.vocab,
            "size": loaded.model.file().file_bytes(),
        });
        for most in ["max_model_len", "max_input_tokens", "max_tokens"] {
            model[most] = loaded.scheduler.context().into();
        }
    }
    model
}

pub async fn list(State(server): State<Arc<Server>>) -> Response {
    let (model, id) = (model(&server), &server.name);
    json(&json!({"object": "list", "data": [model], "has_more": false, "first_id": id, "last_id": id}))
}

pub async fn one(State(server): State<Arc<Server>>, PathEnd(id): PathEnd) -> Result<Response, Failure> {
    if id == server.name {
        return Ok(json(&model(&server)));
    }
    let message = format!("no such model; this server has {}", server.name);
    Err(Failure::new(StatusCode::NOT_FOUND, message).with_code("model_not_found"))
}

/// Refuses embeddings. The status is not 501 because clients retry after any status from 500 on.
pub async fn no_embeddings(request: Request) -> Failure {
    refuse(request).await;
    Failure::invalid("embeddings are not supported: the model of this server generates text").with_code("not_supported")
}
