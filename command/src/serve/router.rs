//! The paths, and what applies to all of them.

use super::access::Access;
use super::anthropic::Messages;
use super::body::refuse;
use super::client::{Caller, Client, ClientId};
use super::failure::{Dialect, Failure, shown};
use super::interface::answer;
use super::link::Link;
use super::memory::counted;
use super::openai::{Chat, Completions, Responses};
use super::rerank::Rerank;
use super::server::Server;
use super::{anthropic, embeddings, llama, metrics, ollama, openai, page, ready};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, delete, get, post};
use hyper::body::{Frame, SizeHint};
use serde_json::Value;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

pub fn json(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], Body::from(value.to_string())).into_response()
}

/// An answer that is already JSON. Its memory stays counted until the client has received it.
pub fn counted_json(text: String, memory: impl Send + 'static) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], Body::from(counted(text, memory))).into_response()
}

pub fn router(server: Arc<Server>, access: Access, with_page: bool) -> Router {
    let paths = Router::new()
        .route("/v1/models", get(openai::models::list))
        .route("/models", get(openai::models::list))
        .route("/v1/models/{*id}", get(openai::models::one))
        .route("/v1/chat/completions", post(answer::<Chat>))
        .route("/chat/completions", post(answer::<Chat>))
        .route("/v1/chat/completions/input_tokens", post(openai::chat::input_tokens))
        .route("/chat/completions/input_tokens", post(openai::chat::input_tokens))
        .route("/v1/completions", post(answer::<Completions>))
        .route("/v1/responses", post(answer::<Responses>))
        .route("/responses", post(answer::<Responses>))
        .route("/v1/responses/{id}", get(openai::kept::get).delete(openai::kept::delete))
        .route("/v1/responses/input_tokens", post(openai::input_tokens))
        .route("/responses/input_tokens", post(openai::input_tokens))
        .route("/v1/embeddings", post(embeddings::answer::<embeddings::OpenAi>))
        .route("/embeddings", post(embeddings::answer::<embeddings::OpenAi>))
        .route("/embedding", post(embeddings::answer::<embeddings::Llama>))
        .route("/v1/rerank", post(answer::<Rerank>))
        .route("/v1/reranking", post(answer::<Rerank>))
        .route("/rerank", post(answer::<Rerank>))
        .route("/reranking", post(answer::<Rerank>))
        .route("/v1/messages", post(answer::<Messages>))
        .route("/v1/messages/count_tokens", post(anthropic::count_tokens))
        .route("/health", get(llama::health))
        .route("/v1/health", get(llama::health))
        .route("/ready", get(ready::ready))
        .route("/props", get(llama::props))
        .route("/slots", get(llama::slots::list))
        .route("/slots/{id}", post(llama::slots::act))
        .route("/infill", post(answer::<llama::Infill>))
        .route("/lora-adapters", get(llama::lora_adapters).post(llama::set_lora_adapters))
        .route("/completion", post(answer::<llama::Completion>))
        .route("/completions", post(answer::<llama::Completion>))
        .route("/tokenize", post(llama::tokens::tokenize))
        .route("/detokenize", post(llama::tokens::detokenize))
        .route("/tokenizer_info", get(llama::tokens::tokenizer_info))
        .route("/apply-template", post(llama::apply_template))
        .route("/metrics", get(metrics::metrics))
        .route("/openapi.json", get(openapi));
    // Programs for Ollama request this path to find out whether there is a server.
    let root: MethodRouter<Arc<Server>> = if with_page { get(page::page) } else { get("wglm is running") };
    let paths = paths.merge(of_ollama()).route("/", root);
    let paths = paths.fallback(any(unknown)).method_not_allowed_fallback(wrong_method).with_state(server.clone());
    // This layer is around the router and not in it, so that it knows the methods that a path allows.
    Router::new().fallback_service(paths).layer(from_fn_with_state((server, Arc::new(access)), around))
}

/// The paths of Ollama's API.
fn of_ollama() -> Router<Arc<Server>> {
    let paths = Router::new()
        .route("/api/chat", post(answer::<ollama::Chat>))
        .route("/api/generate", post(answer::<ollama::Generate>))
        .route("/api/tags", get(ollama::models::tags))
        .route("/api/show", post(ollama::models::show))
        .route("/api/ps", get(ollama::models::ps))
        .route("/api/version", get(ollama::models::version))
        .route("/api/embed", post(embeddings::answer::<embeddings::OllamaEmbed>))
        .route("/api/embeddings", post(embeddings::answer::<embeddings::OllamaEmbeddings>))
        .route("/api/delete", delete(ollama::models::fixed));
    let fixed = ["/api/pull", "/api/push", "/api/create", "/api/copy"];
    fixed.into_iter().fold(paths, |paths, path| paths.route(path, post(ollama::models::fixed)))
}

/// Where OpenAI's servers shorten conversations. To the router, it looks like the path of a response.
const COMPACTION: &str = "v1/responses/compact";

/// The last part of a path.
pub struct PathEnd(pub String);

impl<S: Send + Sync> FromRequestParts<S> for PathEnd {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let Path(end) =
            Path::from_request_parts(parts, state).await.map_err(|wrong| Failure::invalid(wrong.body_text()))?;
        Ok(Self(end))
    }
}

/// The description of all paths for programs.
async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], include_str!("openapi.json")).into_response()
}

async fn unknown(request: Request) -> Failure {
    let message = format!("no such path: {}", shown(request.uri().path()));
    refuse(request).await;
    Failure::new(StatusCode::NOT_FOUND, message)
}

async fn wrong_method(request: Request) -> Failure {
    let compacts = request.uri().path().trim_start_matches('/') == COMPACTION;
    refuse(request).await;
    if compacts {
        let message = "no such path: this server does not compact conversations; let the client shorten them";
        return Failure::new(StatusCode::NOT_FOUND, message);
    }
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed")
}

/// Checks who sent a request. Returns the caller, and a guard that counts the request among those of its client.
fn admitted(
    server: &Server,
    access: &Access,
    request: &Request,
) -> Result<(Caller, Option<super::client::CountedRequest>), Failure> {
    let link: Arc<Link> = request.extensions().get().cloned().unwrap_or_else(|| Caller::current().link);
    let client: Client = access.check(request, link.network)?;
    let most = server.limits.requests;
    let full = || Failure::rate_limited(format!("too many requests with this key; at most {most} may be under way"));
    // An address has at most one request per connection, and its connections are limited.
    let counted = match client.id {
        ClientId::Network(_) => None,
        id => Some(server.request_counts.begin(id, most).ok_or_else(full)?),
    };
    Ok((Caller { client, link }, counted))
}

/// The body of an answer. Its request counts as under way until all of it has been sent.
struct CountedBody {
    body: Body,
    _counted: Option<super::client::CountedRequest>,
}

impl hyper::body::Body for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// What applies to all paths: who may call, the form of failures, and headers.
async fn around(State((server, access)): State<(Arc<Server>, Arc<Access>)>, request: Request, next: Next) -> Response {
    server.counts.requests.fetch_add(1, Ordering::Relaxed);
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let origin = request.headers().get(header::ORIGIN).cloned();
    let mut response = match admitted(&server, &access, &request) {
        Err(failure) => {
            refuse(request).await;
            failure.into_response()
        }
        Ok(_) if method == Method::OPTIONS => Access::preflight(request.headers()),
        Ok((caller, counted)) => {
            let response = caller.answer(next.run(request)).await;
            response.map(|body| Body::new(CountedBody { body, _counted: counted }))
        }
    };
    if let Some(mut failure) = response.extensions_mut().remove::<Failure>() {
        let is_wrong_method = failure.status == StatusCode::METHOD_NOT_ALLOWED;
        let allow = response.headers().get(header::ALLOW).filter(|_| is_wrong_method).cloned();
        if let Some(allow) = allow.as_ref().and_then(|allow| allow.to_str().ok()) {
            failure.message = format!("method not allowed: use {}", allow.replace(',', " or "));
        }
        response = failure.answer(Dialect::of(&path));
        allow.map(|allow| response.headers_mut().insert(header::ALLOW, allow));
    }
    access.share(origin.as_ref(), &mut response);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // The method and the path are left out: clients choose both, and what they send is not logged.
    tracing::debug!("a request was answered with status {}", response.status().as_u16());
    response
}
