//! What a client is told when a request fails, in the form of the interface that it used.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::borrow::Cow;
use wglm::Error;

/// The most characters of a message that a client is told.
const SHOWN: usize = 1000;

/// Whose form an error has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    OpenAi,
    Anthropic,
}

impl Dialect {
    /// The form that clients expect of a path.
    pub fn of(path: &str) -> Self {
        if path == "/v1/messages" || path.starts_with("/v1/messages/") { Self::Anthropic } else { Self::OpenAi }
    }
}

/// A request that cannot be answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    pub status: StatusCode,
    pub message: String,
    /// What programs tell failures of one status apart by, in OpenAI's words where it has one.
    pub code: Option<&'static str>,
    /// After how many seconds the client may try again.
    pub retry_after: Option<u64>,
}

impl Failure {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), code: None, retry_after: None }
    }

    /// A request that is wrong in itself.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// A request for what the server does not do.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self { code: Some("unsupported"), ..Self::invalid(message) }
    }

    /// A request that may succeed later.
    pub fn unavailable(message: impl Into<String>, retry_after: u64) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self { retry_after: Some(retry_after), code: Some("unavailable"), ..Self::new(status, message) }
    }

    /// A request beyond those that may wait.
    pub fn busy(waiting: usize) -> Self {
        let message = format!("{waiting} requests are waiting already, which is the most; try again later");
        let (status, code) = (StatusCode::TOO_MANY_REQUESTS, Some("rate_limit_exceeded"));
        Self { status, message, code, retry_after: Some(1) }
    }

    /// A request that was waiting, whose place another client got.
    pub fn displaced() -> Self {
        let message = "the queue is full, and this client had the most requests in it; try again later".to_owned();
        let (status, code) = (StatusCode::TOO_MANY_REQUESTS, Some("rate_limit_exceeded"));
        Self { status, message, code, retry_after: Some(1) }
    }

    /// A request of a client that has too many under way.
    pub fn too_many(most: usize) -> Self {
        let message = format!("{most} requests with this key are under way, which is the most for one key");
        let (status, code) = (StatusCode::TOO_MANY_REQUESTS, Some("rate_limit_exceeded"));
        Self { status, message, code, retry_after: Some(1) }
    }

    pub fn with_code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    /// The kind of failure in OpenAI's words.
    fn openai_type(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            503 => "unavailable_error",
            400..=499 => "invalid_request_error",
            _ => "server_error",
        }
    }

    /// The kind of failure in Anthropic's words.
    fn anthropic_type(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 => "overloaded_error",
            400..=499 => "invalid_request_error",
            _ => "api_error",
        }
    }

    /// The message without what is too much of it: some repeat what was sent.
    fn shown(&self) -> Cow<'_, str> {
        match self.message.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}…", &self.message[..end]).into(),
            None => self.message.as_str().into(),
        }
    }

    /// The body of the answer, which is also what a stream says that has begun.
    pub fn body(&self, dialect: Dialect) -> Value {
        let message = self.shown();
        match dialect {
            Dialect::OpenAi => json!({"error": {
                "message": message,
                "type": self.openai_type(),
                "param": null,
                "code": self.code,
            }}),
            Dialect::Anthropic => {
                json!({"type": "error", "error": {"type": self.anthropic_type(), "message": message}})
            }
        }
    }

    /// The answer.
    pub fn answer(&self, dialect: Dialect) -> Response {
        let json = [(header::CONTENT_TYPE, "application/json")];
        let mut response = (self.status, json, self.body(dialect).to_string()).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// The answer in OpenAI's form, with the failure beside it for whoever knows the form that the client expects.
impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = self.answer(Dialect::OpenAi);
        response.extensions_mut().insert(self);
        response
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        let message = error.to_string();
        match error.cause() {
            Error::Busy { waiting, .. } => Self::busy(*waiting),
            // The words "prompt is too long" are what programs for Anthropic's interface look for.
            Error::ContextFull { needed, context } => {
                Self::invalid(format!("prompt is too long: {needed} tokens > {context} maximum"))
                    .with_code("context_length_exceeded")
            }
            // A template that renders other conversations fails because of this one.
            Error::Message { .. }
            | Error::Refused { .. }
            | Error::Template { .. }
            | Error::Tokenizer { .. }
            | Error::Argument { .. }
            | Error::Constraint { .. }
            | Error::TokenOutOfRange { .. } => Self::invalid(message),
            Error::DeviceLost { .. } => Self::unavailable(message, 5),
            Error::OutOfMemory { .. } | Error::HostMemory { .. } | Error::NoResult | Error::PoolFull { .. } => {
                Self::unavailable(message, 2)
            }
            Error::Cancelled => Self::unavailable("the server is shutting down", 5),
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Dialect, Failure};
    use wglm::Error;

    #[test]
    fn errors_of_the_library_have_a_status() {
        let full = Failure::from(Error::ContextFull { needed: 9000, context: 8192 });
        assert_eq!((full.status.as_u16(), full.code), (400, Some("context_length_exceeded")));
        let lost = Failure::from(Error::DeviceLost { reason: "unplugged".into() });
        assert_eq!((lost.status.as_u16(), lost.retry_after), (503, Some(5)));
        assert_eq!(Failure::from(Error::NotANumber).status.as_u16(), 500);
    }

    #[test]
    fn what_was_sent_is_not_repeated_whole() {
        let failure = Failure::invalid(format!("unknown variant {}", "€".repeat(1 << 20)));
        assert!(failure.body(Dialect::OpenAi).to_string().len() < 4000);
        assert!(failure.body(Dialect::Anthropic).to_string().len() < 4000);
    }

    #[test]
    fn each_interface_has_its_form() {
        let failure = Failure::busy(3);
        assert_eq!(failure.body(Dialect::OpenAi)["error"]["type"], "rate_limit_error");
        let body = failure.body(Dialect::Anthropic);
        assert_eq!((&body["type"], &body["error"]["type"]), (&"error".into(), &"rate_limit_error".into()));
        assert_eq!(Dialect::of("/v1/messages/count_tokens"), Dialect::Anthropic);
        assert_eq!(Dialect::of("/v1/messagesx"), Dialect::OpenAi);
    }
}
