//! Failures of requests, in the form of the interface of the request.

use super::parse::joined;
use crate::output::shortened;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fmt::Display;
use wglm_engine::Error;

/// The maximum number of characters in a message, which may repeat what was sent, and in a single value within it.
const MESSAGE: usize = 1000;
const VALUE: usize = 80;

/// A value of a request as a message repeats it.
pub fn shown(value: &str) -> Cow<'_, str> {
    shortened(value, VALUE)
}

/// The form of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    OpenAi,
    Anthropic,
    Ollama,
}

impl Dialect {
    pub fn of(path: &str) -> Self {
        match path {
            "/v1/messages" => Self::Anthropic,
            _ if path.starts_with("/v1/messages/") => Self::Anthropic,
            _ if path.starts_with("/api/") => Self::Ollama,
            _ => Self::OpenAi,
        }
    }
}

/// What the engine calls the part of a request that is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineName {
    Argument(&'static str),
    /// A message of the conversation, by its index, and a field of it.
    Message(usize, Option<&'static str>),
}

/// Why a request fails.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    pub status: StatusCode,
    pub message: String,
    /// A code by which programs distinguish failures with the same status, OpenAI's code if there is one.
    pub code: Option<&'static str>,
    /// The field of the request that is wrong, if it is one.
    pub param: Option<String>,
    /// The number of seconds after which the client can try again.
    pub retry_after: Option<u64>,
    /// How many tokens a prompt has, and how many the context has, if the prompt is too long.
    pub length: Option<(usize, usize)>,
    /// What the engine calls the field, if the field has the engine's name.
    pub engine_name: Option<Box<EngineName>>,
}

impl Failure {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let (code, param, retry_after, length, engine_name) = Default::default();
        Self { status, message: message.into(), code, param, retry_after, length, engine_name }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// A request with a wrong value in a field.
    pub fn of_field(field: &str, wrong: impl Display) -> Self {
        Self::invalid(format!("{}: {wrong}", shown(field))).with_param(field)
    }

    /// A request for something that the server does not support.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self { code: Some("unsupported"), ..Self::invalid(message) }
    }

    /// A request that may succeed later.
    pub fn unavailable(message: impl Into<String>, retry_after: u64) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self { retry_after: Some(retry_after), code: Some("unavailable"), ..Self::new(status, message) }
    }

    /// A request that exceeds a limit for the moment.
    pub fn rate_limited(message: impl Into<String>) -> Self {
        let (status, code) = (StatusCode::TOO_MANY_REQUESTS, Some("rate_limit_exceeded"));
        Self { code, retry_after: Some(1), ..Self::new(status, message) }
    }

    /// A request that finds the queue full.
    pub fn queue_full(waiting: usize) -> Self {
        Self::rate_limited(format!("the queue is full ({waiting} waiting); try again later"))
    }

    /// A request that was waiting and lost its place to another client.
    pub fn displaced() -> Self {
        Self::rate_limited("the queue is full, and this client had the most requests in it; try again later")
    }

    /// A request that arrived while the server was shutting down.
    pub fn shutting_down() -> Self {
        Self::unavailable("the server is shutting down", 5)
    }

    pub fn with_code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    /// The same for a field of the request.
    pub fn with_param(self, field: &str) -> Self {
        Self { param: Some(shown(field).into_owned()), ..self }
    }

    /// The same for a failure within a field: its own field, if it has one, is relative to that one.
    pub fn within(self, place: &str) -> Self {
        let path = joined(place, self.param.as_deref().unwrap_or_default());
        self.renamed(&path)
    }

    /// The same for a failure of fields that are within this one, unless it is empty. One that is about no field stays
    /// as it is.
    pub fn of_fields_in(self, place: &str) -> Self {
        if place.is_empty() || self.param.is_none() { self } else { self.within(place) }
    }

    /// The same with another name of its field.
    fn renamed(self, field: &str) -> Self {
        let wrong = self.param.as_ref().and_then(|param| self.message.strip_prefix(param.as_str())?.strip_prefix(": "));
        let message = format!("{}: {}", shown(field), wrong.unwrap_or(&self.message));
        Self { message, ..self.with_param(field) }
    }

    /// The failure for an error of the engine about something that has this name there.
    pub fn of_engine(name: EngineName, wrong: impl Display) -> Self {
        let field = match name {
            EngineName::Argument(argument) => argument.to_owned(),
            EngineName::Message(index, field) => joined(&format!("messages[{index}]"), field.unwrap_or_default()),
        };
        Self { engine_name: Some(Box::new(name)), ..Self::of_field(&field, wrong) }
    }

    /// The same with the name that a field has in the request, if `name` knows one for the engine's.
    pub fn with_name(self, name: impl FnOnce(EngineName) -> Option<String>) -> Self {
        match self.engine_name.as_deref().copied().and_then(name) {
            Some(field) => Self { engine_name: None, ..self.renamed(&field) },
            None => self,
        }
    }

    /// The type of the error in OpenAI's and in Anthropic's form.
    fn kinds(&self) -> (&'static str, &'static str) {
        match self.status.as_u16() {
            401 => ("authentication_error", "authentication_error"),
            403 => ("permission_error", "permission_error"),
            404 => ("not_found_error", "not_found_error"),
            413 => ("invalid_request_error", "request_too_large"),
            429 => ("rate_limit_error", "rate_limit_error"),
            503 => ("unavailable_error", "overloaded_error"),
            400..=499 => ("invalid_request_error", "invalid_request_error"),
            _ => ("server_error", "api_error"),
        }
    }

    /// The body of the answer, and the last event of a stream.
    pub fn body(&self, dialect: Dialect) -> Value {
        let (message, (openai, anthropic)) = (shortened(&self.message, MESSAGE), self.kinds());
        match dialect {
            Dialect::OpenAi => {
                let mut error = json!({"message": message, "type": openai, "param": self.param, "code": self.code});
                if let Some((prompt, context)) = self.length {
                    // The names of llama.cpp's server.
                    (error["n_prompt_tokens"], error["n_ctx"]) = (prompt.into(), context.into());
                }
                json!({"error": error})
            }
            Dialect::Anthropic => json!({"type": "error", "error": {"type": anthropic, "message": message}}),
            Dialect::Ollama => json!({"error": message}),
        }
    }

    pub fn answer(&self, dialect: Dialect) -> Response {
        let json = [(header::CONTENT_TYPE, "application/json")];
        let mut response = (self.status, json, self.body(dialect).to_string()).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// The answer in OpenAI's form. The failure is also in its extensions, for the router, which knows the form for the
/// path.
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
        let cause = error.cause(); // clients need not know the path of the file
        let message = cause.to_string();
        match cause {
            Error::Busy { waiting, .. } => Self::queue_full(*waiting),
            // Programs for Anthropic's API look for the text "prompt is too long".
            Error::ContextFull { needed, context } => {
                let message = format!("prompt is too long: {needed} tokens > {context} maximum");
                let failure = Self::invalid(message).with_code("context_length_exceeded");
                Self { length: Some((*needed, *context)), ..failure }
            }
            Error::Message { index, what, expected, found } => {
                // Some parts are not fields, such as "arguments of a tool call".
                let (field, part) =
                    if what.contains(' ') { (None, format!("{what}: ")) } else { (Some(*what), String::new()) };
                let wrong = format_args!("{part}expected {expected}, found {found}");
                Self::of_engine(EngineName::Message(*index, field), wrong)
            }
            Error::Argument { argument, expected, found } => {
                Self::of_engine(EngineName::Argument(argument), format_args!("expected {expected}, found {found}"))
            }
            // The template renders other conversations, so its failure is the fault of this one.
            Error::Refused { .. }
            | Error::Template { .. }
            | Error::Tokenizer { .. }
            | Error::Constraint { .. }
            | Error::TokenOutOfRange { .. }
            | Error::NoToken { .. } => Self::invalid(message),
            Error::DeviceLost { .. } => Self::unavailable(message, 5),
            Error::OutOfMemory { .. } | Error::HostMemory { .. } | Error::NoResult | Error::PoolFull { .. } => {
                Self::unavailable(message, 2)
            }
            Error::Cancelled => Self::shutting_down(),
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Dialect, EngineName, Failure, HeaderValue, StatusCode, header};
    use wglm_engine::Error;

    #[test]
    fn errors_of_the_library_have_a_status() {
        let full = Failure::from(Error::ContextFull { needed: 9000, context: 8192 });
        assert_eq!((full.status.as_u16(), full.code), (400, Some("context_length_exceeded")));
        let lost = Failure::from(Error::DeviceLost { reason: "unplugged".into() });
        assert_eq!((lost.status.as_u16(), lost.retry_after), (503, Some(5)));
        assert_eq!(Failure::from(Error::NotANumber).status.as_u16(), 500);
    }

    #[test]
    fn a_field_has_the_name_that_it_has_in_the_request() {
        let argument = |argument| Error::Argument { argument, expected: "none".into(), found: "one".into() };
        let name = |name| match name {
            EngineName::Argument("constraint") => Some("text.format".to_owned()),
            EngineName::Argument(_) => None,
            EngineName::Message(index, field) => Some(format!("input[{}].{}", index + 1, field.unwrap_or("none"))),
        };
        let index = 2;
        let message = Error::Message { index, what: "role", expected: "a role".into(), found: "none".into() };
        for (error, field, wrong) in [
            (argument("constraint"), "text.format", "text.format: expected none, found one"),
            (argument("top_p"), "top_p", "top_p: expected none, found one"),
            (message, "input[3].role", "input[3].role: expected a role, found none"),
        ] {
            let failure = Failure::from(error).with_name(name);
            assert_eq!((failure.param.as_deref(), failure.message.as_str()), (Some(field), wrong));
        }
        let within = Failure::invalid("it is empty").within("[1]").within("content").within("messages[2]");
        assert_eq!(within.message, "messages[2].content[1]: it is empty");
        assert_eq!(within.param.as_deref(), Some("messages[2].content[1]"));
    }

    #[test]
    fn fields_within_another_have_its_name() {
        let failure = Failure::of_field("stop", "65 strings");
        assert_eq!(failure.clone().of_fields_in(""), failure);
        assert_eq!(failure.of_fields_in("options"), Failure::of_field("options.stop", "65 strings"));
        let of_none = Failure::invalid("the model has no tokenizer");
        assert_eq!(of_none.clone().of_fields_in("options"), of_none);
    }

    #[test]
    fn a_client_without_a_key_is_told_how_to_send_it() {
        let sent = |status| {
            let answer = Failure::new(status, "no").answer(Dialect::OpenAi);
            answer.headers().get(header::WWW_AUTHENTICATE).cloned()
        };
        assert_eq!(sent(StatusCode::UNAUTHORIZED), Some(HeaderValue::from_static("Bearer")));
        assert_eq!(sent(StatusCode::FORBIDDEN), None);
    }

    #[test]
    fn messages_are_limited() {
        let failure = Failure::invalid(format!("unknown variant {}", "€".repeat(1 << 20)));
        assert!(failure.body(Dialect::OpenAi).to_string().len() < 4000);
        assert!(failure.body(Dialect::Anthropic).to_string().len() < 4000);
    }

    #[test]
    fn each_interface_has_its_form() {
        let failure = Failure::queue_full(3);
        assert_eq!(failure.body(Dialect::OpenAi)["error"]["type"], "rate_limit_error");
        let body = failure.body(Dialect::Anthropic);
        assert_eq!((&body["type"], &body["error"]["type"]), (&"error".into(), &"rate_limit_error".into()));
        let message = "the queue is full (3 waiting); try again later";
        assert_eq!(failure.body(Dialect::Ollama), serde_json::json!({"error": message}));
        assert_eq!(Dialect::of("/v1/messages/count_tokens"), Dialect::Anthropic);
        assert_eq!(Dialect::of("/v1/messagesx"), Dialect::OpenAi);
        assert_eq!((Dialect::of("/api/chat"), Dialect::of("/apiary")), (Dialect::Ollama, Dialect::OpenAi));
    }
}
