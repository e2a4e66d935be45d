//! `/v1/models`, for programs of OpenAI's, Anthropic's and llama.cpp's interfaces at once, and what there is not.

use crate::cli::serve::body::refuse;
use crate::cli::serve::failure::Failure;
use crate::cli::serve::router::json;
use crate::cli::serve::server::{Server, seconds};
use axum::extract::{Path, Request, State};
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
    });
    if let Ok(engine) = server.engine.peek() {
        let config = engine.model.config();
        model["meta"] = json!({
            "n_ctx": engine.scheduler.context(),
            "n_ctx_train": config.context,
            "n_vocab": config.vocab,
            "size": engine.model.file().file_bytes(),
        });
        model["max_model_len"] = engine.scheduler.context().into();
    }
    model
}

/// The one model.
pub async fn list(State(server): State<Arc<Server>>) -> Response {
    let (model, id) = (model(&server), &server.name);
    json(&json!({"object": "list", "data": [model], "has_more": false, "first_id": id, "last_id": id}))
}

/// The model by its name.
pub async fn one(State(server): State<Arc<Server>>, Path(id): Path<String>) -> Result<Response, Failure> {
    if id == server.name {
        return Ok(json(&model(&server)));
    }
    let message = format!("there is no such model here, only {}", server.name);
    Err(Failure::new(StatusCode::NOT_FOUND, message).with_code("model_not_found"))
}

/// The model makes no embeddings. The status is not 501, for clients try again after any from 500 on.
pub async fn no_embeddings(request: Request) -> Failure {
    refuse(request).await;
    Failure::invalid("this server makes no embeddings: its model generates text").with_code("not_supported")
}
