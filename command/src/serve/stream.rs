//! Answers as streams of server-sent events or of lines of JSON. hyper asks for the next bytes when the connection has
//! taken the previous ones, so what the client has not read waits in the queue of its replies (`unread.rs`) and nowhere
//! else. When the connection ends, the stream is dropped, and its replies with it.

use super::client::Caller;
use super::failure::Failure;
use super::interface::Interface;
use super::link::Link;
use super::memory::counted;
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

/// How often a stream that has nothing to send checks whether its client has closed its side. If so, a heartbeat is
/// sent each time, because only a failed write shows that the client is gone.
const SECOND: Duration = Duration::from_secs(1);

/// Characters that end a line for Python's `str.splitlines`, by which some clients divide a stream, although JSON may
/// have them in its strings. Written as escapes they are the same strings.
const LINE_ENDS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];

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
        self.push_on_one_line(line);
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

    /// A line of JSON, in a stream that consists of such lines.
    pub fn json_line(&mut self, data: &Value) {
        self.push_on_one_line(&data.to_string());
        self.text.push('\n');
    }

    /// Adds JSON, or another text that contains no [`LINE_ENDS`], so that every client takes it for one line.
    fn push_on_one_line(&mut self, json: &str) {
        let mut from = 0;
        for (at, end) in json.match_indices(LINE_ENDS) {
            self.text.push_str(&json[from..at]);
            end.chars().for_each(|end| self.text.push_str(&format!("\\u{:04x}", u32::from(end))));
            from = at + end.len();
        }
        self.text.push_str(&json[from..]);
    }

    /// The data of all events, for tests.
    #[cfg(test)]
    pub fn values(&self) -> Vec<Value> {
        let data = self.text.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
        data.filter_map(|data| serde_json::from_str(data).ok()).collect()
    }
}

/// Where the deltas of a stream come from, each with the number of its reply.
trait Source: Send {
    /// The next one, or nothing when all replies have ended. It is not lost when the future is dropped.
    fn next(&mut self) -> impl Future<Output = Result<Option<(usize, Delta)>, Failure>> + Send;
}

impl Source for Replies {
    async fn next(&mut self) -> Result<Option<(usize, Delta)>, Failure> {
        Self::next(self).await
    }
}

struct Stream<I, S> {
    replies: S,
    interface: I,
    /// The replies that have ended.
    ended: Vec<usize>,
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
    let (sent, ended) = (Instant::now(), Vec::new());
    let stream = Stream { replies, interface, ended, link, silence, sent, progress, events };
    let body = unfold(Some(stream), |stream| async move {
        let (bytes, rest) = stream?.next().await;
        Some((Ok::<_, Infallible>(bytes), rest))
    });
    answer::<I>(Body::from_stream(body))
}

/// The answer that is a stream without replies, because of a failure. Its memory stays counted until the client has
/// received it.
pub fn refusal<I: Interface>(mut interface: I, failure: &Failure, memory: impl Send + 'static) -> Response {
    let mut events = Events::default();
    interface.begin(0, &mut events);
    interface.failed(failure, &mut events);
    answer::<I>(Body::from(counted(events.text, memory)))
}

fn answer<I: Interface>(body: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, I::STREAM_TYPE),
        (header::CACHE_CONTROL, "no-cache"),
        // For nginx, which would collect events before it passes them on.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, body).into_response()
}

impl<I: Interface, S: Source> Stream<I, S> {
    /// The next bytes and the rest of the stream, if there is more.
    async fn next(mut self) -> (Bytes, Option<Self>) {
        let mut has_ended = false;
        while self.events.text.is_empty() && !has_ended {
            let due = self.sent + self.silence;
            // What is ready comes first, even if a heartbeat is due: a timeout polls what it waits for before the
            // clock.
            let next = timeout_at(due.min(Instant::now() + SECOND), self.replies.next()).await;
            let (interface, events) = (&mut self.interface, &mut self.events);
            match next {
                Err(_) if Instant::now() >= due || self.link.sends_no_more() => {
                    let open = (0..).find(|reply| !self.ended.contains(reply)).unwrap_or_default();
                    interface.alive(open, None, events);
                }
                Err(_) => {}
                Ok(Ok(Some((index, delta)))) => {
                    let progress = if let Delta::Prompt(progress) = &delta { Some(*progress) } else { None };
                    if matches!(delta, Delta::End(_)) {
                        self.ended.push(index);
                    }
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
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Events, Link, Source, Stream};
    use crate::serve::client::Network;
    use crate::serve::failure::Failure;
    use crate::serve::interface::{Interface, Prompt, Request};
    use crate::serve::reply::{Delta, Progress, Reply};
    use crate::serve::server::{LoadedModel, Server};
    use serde_json::{Value, json};
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::time::{Instant, advance, sleep_until};

    #[test]
    fn events_have_the_form_of_the_stream() {
        let mut events = Events::default();
        events.data(&json!({"a": "line\nline"}));
        events.named(&json!({"type": "ping"}));
        events.comment("waiting");
        let wanted = "data: {\"a\":\"line\\nline\"}\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n: waiting\n\n";
        assert_eq!(events.text, wanted);
    }

    /// Python's `str.splitlines` would end lines at these characters.
    #[test]
    fn every_client_takes_json_for_one_line() {
        let data = json!({"type": "a", "text": "\u{2028}b\u{2029}\u{85}c\u{a0}"});
        let mut events = Events::default();
        events.named(&data);
        events.json_line(&data);
        let written = r#"{"type":"a","text":"\u2028b\u2029\u0085c@"}"#.replace('@', "\u{a0}");
        assert_eq!(events.text, format!("event: a\ndata: {written}\n\n{written}\n"));
        assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), data);
    }

    /// Writes texts and heartbeats with the number of their reply.
    struct Numbered;

    impl Interface for Numbered {
        type Body = Value;

        fn request(_: Value, _: &Server, _: &LoadedModel) -> Result<(Prompt, Request<Self>), Failure> {
            Err(Failure::invalid("nobody asks"))
        }

        fn delta(&mut self, reply: usize, delta: Delta, to: &mut Events) {
            if let Delta::Text { text, .. } = delta {
                to.line(&format!("{text}{reply}"));
            }
        }

        fn end(&mut self, to: &mut Events) {
            to.line("end");
        }

        fn failed(&mut self, _: &Failure, to: &mut Events) {
            to.line("failed");
        }

        fn alive(&mut self, reply: usize, _: Option<Progress>, to: &mut Events) {
            to.line(&format!("sign{reply}"));
        }

        fn whole(self, _: Vec<Reply>) -> String {
            String::new()
        }
    }

    /// Deltas, each after some seconds, with the numbers of their replies.
    struct Script(Instant, VecDeque<(u64, usize, Delta)>);

    impl Source for Script {
        async fn next(&mut self) -> Result<Option<(usize, Delta)>, Failure> {
            let Some((seconds, ..)) = self.1.front() else { return Ok(None) };
            let at = self.0 + Duration::from_secs(*seconds);
            if at > Instant::now() {
                sleep_until(at).await;
            }
            Ok(self.1.pop_front().map(|(_, reply, delta)| (reply, delta)))
        }
    }

    fn text(text: &str) -> Delta {
        Delta::Text { text: text.into(), tokens: Vec::new() }
    }

    /// What a stream with a silence of ten seconds writes, and after how many seconds, for a client that takes some
    /// seconds for each event.
    fn written(script: Vec<(u64, usize, Delta)>, seconds: u64) -> Vec<(u64, String)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let start = Instant::now();
            let mut written = Vec::new();
            let mut rest = Some(Stream {
                replies: Script(start, script.into()),
                interface: Numbered,
                ended: Vec::new(),
                link: Arc::new(Link::new(Network::V4(0))),
                silence: Duration::from_secs(10),
                sent: start,
                progress: false,
                events: Events::default(),
            });
            while let Some(stream) = rest {
                let (bytes, more) = stream.next().await;
                let text = String::from_utf8(bytes.to_vec()).unwrap();
                written.push((start.elapsed().as_secs(), text.trim_start_matches("data: ").trim_end().to_owned()));
                rest = more;
                advance(Duration::from_secs(seconds)).await;
            }
            written
        })
    }

    fn at(seconds: u64, text: &str) -> (u64, String) {
        (seconds, text.to_owned())
    }

    /// Deltas for which nothing is written do not count.
    #[test]
    fn a_stream_is_silent_for_ten_seconds_at_most() {
        let nothing = (1..8).map(|step| (3 * step, 0, Delta::Arguments("{".into())));
        let script = [(0, 0, text("a"))].into_iter().chain(nothing).chain([(25, 0, text("b"))]).collect();
        let wanted = [at(0, "a0"), at(10, "sign0"), at(20, "sign0"), at(25, "b0"), at(25, "end")];
        assert_eq!(written(script, 0), wanted);
    }

    /// A client that reads so slowly that a heartbeat is always due gets what is ready, and a heartbeat only if nothing
    /// is.
    #[test]
    fn what_is_ready_comes_before_a_sign() {
        let script = vec![(0, 0, text("a")), (0, 0, text("b")), (0, 0, text("c")), (50, 0, text("d"))];
        let wanted =
            [at(0, "a0"), at(11, "b0"), at(22, "c0"), at(33, "sign0"), at(44, "sign0"), at(55, "d0"), at(66, "end")];
        assert_eq!(written(script, 11), wanted);
    }

    #[test]
    fn signs_are_of_a_reply_that_has_not_ended() {
        let end = Delta::End(Box::new(Reply::default().finish));
        let script = vec![(0, 1, text("a")), (0, 0, end), (15, 1, text("b"))];
        assert_eq!(written(script, 0), [at(0, "a1"), at(10, "sign1"), at(15, "b1"), at(15, "end")]);
    }
}
