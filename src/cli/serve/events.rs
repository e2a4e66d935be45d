//! Replies as streams of server-sent events. A task takes the pieces of a reply, has a [`Speaker`] put them in the
//! words of an interface, and hands them to the connection, at most a few at a time: what the connection does not take
//! waits as the reply said it (`unread.rs`). When the connection is gone, so is the task, and the reply with it.

use super::client::Caller;
use super::failure::Failure;
use super::job::Job;
use super::link::Link;
use super::pieces::{Piece, Pieces};
use super::server::Engine;
use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use serde_json::Value;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;

/// How many chunks wait for the connection.
const ROOM: usize = 8;

/// After this long without an event a comment line is sent to keep the connection alive; after one second if the client
/// has closed its side, because only a failed write shows that it is gone.
const SILENCE: u32 = 10;
const SECOND: Duration = Duration::from_secs(1);

/// Puts the pieces of a reply into the words of an interface.
pub trait Speaker: Send + 'static {
    /// What is said first. `prompt` is the number of the prompt's tokens.
    fn begin(&mut self, prompt: usize, to: &mut Chunks);
    /// What a piece of reply `index` is in words.
    fn piece(&mut self, index: usize, piece: Piece, to: &mut Chunks);
    /// What is said when all replies have ended.
    fn end(&mut self, to: &mut Chunks);
    /// What is said of a failure, which is the last that is said.
    fn failed(&mut self, failure: &Failure, to: &mut Chunks);
    /// A sign of life.
    fn alive(&mut self, to: &mut Chunks) {
        to.comment("waiting");
    }
}

/// Events in the form of the stream.
#[derive(Debug, Default)]
pub struct Chunks {
    text: String,
}

impl Chunks {
    /// An event that is data alone.
    pub fn data(&mut self, data: &Value) {
        self.raw(&data.to_string());
    }

    /// An event of a line of text.
    pub fn raw(&mut self, line: &str) {
        self.text.push_str("data: ");
        self.text.push_str(line);
        self.text.push_str("\n\n");
    }

    /// An event with a name, which its data has as `type` too.
    pub fn named(&mut self, data: &Value) {
        self.text.push_str("event: ");
        self.text.push_str(data.get("type").and_then(Value::as_str).unwrap_or("message"));
        self.text.push('\n');
        self.data(data);
    }

    /// A line that is no event.
    pub fn comment(&mut self, text: &str) {
        self.text.push_str(": ");
        self.text.push_str(text);
        self.text.push_str("\n\n");
    }

    /// What was said, for tests.
    #[cfg(test)]
    pub fn said(&self) -> Vec<Value> {
        let data = self.text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter_map(|data| serde_json::from_str(data).ok()).collect()
    }

    fn take(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.text))
    }
}

/// The answer that streams what a job generates.
pub fn stream(job: Job, engine: Arc<Engine>, choices: usize, one_call: bool, speaker: impl Speaker) -> Response {
    let (sender, receiver) = mpsc::channel(ROOM);
    let whole = Arc::new(AtomicBool::new(false));
    let (said, link) = (whole.clone(), Caller::current().link);
    let telling = Telling { job, engine, choices, one_call, link };
    tokio::spawn(async move {
        // Before the channel closes, at whose end the body looks at this.
        said.store(telling.speak(speaker, &sender).await, Ordering::Release);
        drop(sender);
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        // For nginx, which would collect events before it hands them on.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::new(ChannelBody { receiver, whole })).into_response()
}

/// A stream on its way.
struct Telling {
    job: Job,
    engine: Arc<Engine>,
    choices: usize,
    one_call: bool,
    link: Arc<Link>,
}

impl Telling {
    /// Returns whether all was said.
    async fn speak(mut self, mut speaker: impl Speaker, to: &mpsc::Sender<Bytes>) -> bool {
        let mut pieces: Vec<Pieces> = (0..self.choices).map(|_| Pieces::new(self.one_call)).collect();
        let (mut chunks, mut silence) = (Chunks::default(), 0);
        speaker.begin(self.job.prompt(), &mut chunks);
        loop {
            // A client that is gone, or that takes its reply more slowly than it may.
            if !chunks.text.is_empty() && !matches!(self.job.taken(to.send(chunks.take())).await, Some(Ok(()))) {
                return false;
            }
            let next = tokio::select! {
                biased;
                () = to.closed() => return false,
                next = tokio::time::timeout(SECOND, self.job.next()) => next,
            };
            silence = if next.is_err() { silence + 1 } else { 0 };
            match next {
                Err(_) if silence % SILENCE == 0 || self.link.sends_no_more() => speaker.alive(&mut chunks),
                Err(_) => {}
                Ok(Ok(Some((index, event)))) => {
                    let Some(of) = pieces.get_mut(index) else { continue };
                    if let Some(piece) = of.heard(&self.job, index, event, &self.engine) {
                        speaker.piece(index, piece, &mut chunks);
                    }
                }
                Ok(Ok(None)) => {
                    speaker.end(&mut chunks);
                    break;
                }
                Ok(Err(failure)) => {
                    speaker.failed(&failure, &mut chunks);
                    break;
                }
            }
        }
        matches!(self.job.taken(to.send(chunks.take())).await, Some(Ok(())))
    }
}

/// A body of what comes through a channel. If that ends before all is said, so does the connection, so that the client
/// does not take what it has for the whole.
struct ChannelBody {
    receiver: mpsc::Receiver<Bytes>,
    whole: Arc<AtomicBool>,
}

impl hyper::body::Body for ChannelBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.receiver.poll_recv(context).map(|next| match next {
            Some(bytes) => Some(Ok(Frame::data(bytes))),
            None if self.whole.load(Ordering::Acquire) => None,
            None => Some(Err(io::ErrorKind::ConnectionAborted.into())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Chunks;
    use serde_json::json;

    #[test]
    fn events_have_the_form_of_the_stream() {
        let mut chunks = Chunks::default();
        chunks.data(&json!({"a": "line\nline"}));
        chunks.named(&json!({"type": "ping"}));
        chunks.comment("waiting");
        let wanted = "data: {\"a\":\"line\\nline\"}\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n: waiting\n\n";
        assert_eq!(chunks.text, wanted);
    }
}
