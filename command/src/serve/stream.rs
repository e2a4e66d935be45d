//! Answers as streams of server-sent events. hyper asks for the next bytes when the connection has taken those before,
//! so what the client has not read waits in the queue of its replies (`unread.rs`) and nowhere else. When the
//! connection ends, the stream is dropped, and its replies with it.

use super::client::Caller;
use super::interface::Interface;
use super::link::Link;
use super::replies::Replies;
use super::reply::Delta;
use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How often a stream that has nothing to send checks whether its client has closed its side. If so, a sign of life is
/// sent each time, because only a failed write shows that the client is gone.
const SECOND: Duration = Duration::from_secs(1);

/// Events in the form of the stream.
#[derive(Debug, Default)]
pub struct Events {
    text: String,
}

impl Events {
    /// An event that consists of data.
    pub fn data(&mut self, data: &Value) {
        self.line(&data.to_string());
    }

    /// An event that consists of a line of text.
    pub fn line(&mut self, line: &str) {
        self.text.push_str("data: ");
        self.text.push_str(line);
        self.text.push_str("\n\n");
    }

    /// An event whose name is the `type` of its data.
    pub fn named(&mut self, data: &Value) {
        self.text.push_str("event: ");
        self.text.push_str(data.get("type").and_then(Value::as_str).unwrap_or("message"));
        self.text.push('\n');
        self.data(data);
    }

    /// A line that is not an event.
    pub fn comment(&mut self, text: &str) {
        self.text.push_str(": ");
        self.text.push_str(text);
        self.text.push_str("\n\n");
    }

    /// The data of all events, for tests.
    #[cfg(test)]
    pub fn values(&self) -> Vec<Value> {
        let data = self.text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter_map(|data| serde_json::from_str(data).ok()).collect()
    }
}

struct Stream<I> {
    replies: Replies,
    interface: I,
    link: Arc<Link>,
    /// The longest time without bytes for the client.
    silence: Duration,
    /// When the client last got bytes.
    sent: Instant,
    /// Whether the client asked for the progress of its prompts.
    progress: bool,
    events: Events,
}

/// The answer that streams replies, with the progress of their prompts if the client asked for it. The client gets
/// something at least every `silence`, whatever the replies do.
pub fn response<I: Interface>(replies: Replies, mut interface: I, progress: bool, silence: Duration) -> Response {
    let mut events = Events::default();
    interface.begin(replies.prompt_tokens(), &mut events);
    let link = Caller::current().link;
    let stream = Stream { replies, interface, link, silence, sent: Instant::now(), progress, events };
    let body = unfold(Some(stream), |stream| async move {
        let (bytes, rest) = stream?.next().await;
        Some((Ok::<_, Infallible>(bytes), rest))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        // For nginx, which would collect events before it passes them on.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(body)).into_response()
}

impl<I: Interface> Stream<I> {
    /// The next bytes, and the rest of the stream unless they are its end.
    async fn next(mut self) -> (Bytes, Option<Self>) {
        let mut has_ended = false;
        while self.events.text.is_empty() && !has_ended {
            let (now, due) = (Instant::now(), self.sent + self.silence);
            // Asked again for each event, since many events write nothing.
            if now >= due {
                self.interface.alive(0, None, &mut self.events);
                break;
            }
            let next = timeout_at(due.min(now + SECOND), self.replies.next()).await;
            let (interface, events) = (&mut self.interface, &mut self.events);
            match next {
                Err(_) if self.link.sends_no_more() => interface.alive(0, None, events),
                Err(_) => {}
                Ok(Ok(Some((index, delta)))) => {
                    let progress = if let Delta::Prompt(progress) = &delta { Some(*progress) } else { None };
                    interface.delta(index, delta, events);
                    if let Some(progress) = progress.filter(|_| self.progress) {
                        interface.alive(index, Some(progress), events);
                    }
                }
                Ok(Ok(None)) => {
                    interface.end(events);
                    has_ended = true;
                }
                Ok(Err(failure)) => {
                    interface.failed(&failure, events);
                    has_ended = true;
                }
            }
        }
        let bytes = Bytes::from(std::mem::take(&mut self.events.text));
        self.sent = Instant::now();
        (bytes, (!has_ended).then_some(self))
    }
}

#[cfg(test)]
mod tests {
    use super::Events;
    use serde_json::json;

    #[test]
    fn events_have_the_form_of_the_stream() {
        let mut events = Events::default();
        events.data(&json!({"a": "line\nline"}));
        events.named(&json!({"type": "ping"}));
        events.comment("waiting");
        let wanted = "data: {\"a\":\"line\\nline\"}\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n: waiting\n\n";
        assert_eq!(events.text, wanted);
    }
}
