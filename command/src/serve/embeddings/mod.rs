//! Embeddings of texts, in the forms of several APIs. The loaded model was not made for that: a vector is the mean of
//! its last hidden states over the tokens of a text, as [`Session::embed`](wglm_engine::Session::embed) computes it.
//!
//! The texts of a request are computed one after another, on a thread of their own. Each takes its turn as a reply does
//! and is computed in parts, so replies go on meanwhile. All of them together have one place in the queue.

mod forms;
mod input;

pub use forms::{Llama, OllamaEmbed, OllamaEmbeddings, OpenAi};

use super::body::JsonBody;
use super::client::Caller;
use super::deadline::Deadline;
use super::failure::Failure;
use super::memory::Share;
use super::parse::read;
use super::reply_permits::{Entry, ReplyPermit};
use super::router::counted_json;
use super::server::{LoadedModel, Server};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use forms::{AnswerForm, Form, Whole};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use wglm_engine::{Cancel, Error, Event};

/// The maximum number of texts in a request, as in OpenAI's API.
const TEXTS: usize = 2048;

/// How many copies of the tokens of a text there are: here and in the scheduler.
const TOKENS_COPIES: usize = 2;

/// The maximum number of bytes in an answer for a value of a vector: `-1.23456789e-30,`.
const VALUE: usize = 16;

/// The maximum number of bytes in an answer for a text besides its vector, and for the rest of the answer, with its
/// warnings.
const TEXT: usize = 64;
const REST: usize = 8 << 10;

/// What is computed for a request, and how the answer is written.
pub struct Work {
    start: Instant,
    loaded: Arc<LoadedModel>,
    /// The tokens of each text.
    texts: Vec<Vec<u32>>,
    /// Whether vectors have the length 1.
    normalised: bool,
    form: AnswerForm,
    warnings: Vec<String>,
}

/// Why there are no vectors.
enum Failed {
    /// A text could not be computed.
    Text(Error),
    Other(Failure),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Text(error)
    }
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self::Other(failure)
    }
}

/// A request whose texts are being computed. If the client disconnects, it is dropped, which stops them.
struct Open<'a> {
    server: &'a Server,
    cancel: Cancel,
    has_ended: bool,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.cancel.cancel();
        if !self.has_ended {
            self.server.counts.cancelled.fetch_add(1, Ordering::Relaxed);
        }
    }
}

pub async fn answer<F: Form>(State(server): State<Arc<Server>>, body: JsonBody) -> Result<Response, Failure> {
    let start = Instant::now();
    server.check_queue()?;
    let loaded = server.named(&body).await?;
    let (of, needed) = (server.clone(), body.completion());
    let read = move |memory: &Share| {
        let form: F = read(&body.bytes)?;
        drop(body);
        let work = form.request(&of, &loaded)?.work(start, loaded)?;
        if !work.warnings.is_empty() {
            tracing::debug!("a request has fields that are ignored: {:?}", work.warnings);
        }
        memory.resize(work.bytes())?;
        Ok(work)
    };
    let (work, memory) = server.work(&server.pools.prompts, needed, read).await?;
    let (text, memory) = match work.texts.is_empty() {
        true => (work.write(&[], 0, work.answer_bytes())?, memory),
        false => computed(&server, work, memory).await?,
    };
    memory.resize(text.capacity())?;
    Ok(counted_json(text, memory))
}

/// Computes what a request asks for on a thread, which keeps its memory until it ends, and returns the answer.
async fn computed(server: &Server, work: Work, memory: Share) -> Result<(String, Share), Failure> {
    let permit = server.take_permits(1)?.remove(0);
    let (entry, loaded) = (permit.entry.clone(), work.loaded.clone());
    let deadline = Deadline::new(server.limits.reply, vec![entry.cancel.clone()], Caller::current().link);
    let mut open = Open { server, cancel: entry.cancel.clone(), has_ended: false };
    let thread = tokio::task::spawn_blocking(move || (work.run(&permit), memory));
    let ended = tokio::select! {
        biased;
        ended = thread => ended,
        () = deadline.given_up() => {
            open.has_ended = true; // the client is still there
            return Err(Failure::unavailable("the request was cancelled, but its computation has not stopped yet", 5));
        }
    };
    open.has_ended = true;
    let failed = |_| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the thread that computes the texts failed");
    let (result, memory) = ended.map_err(failed)?;
    match result {
        Ok(text) => Ok((text, memory)),
        Err(Failed::Text(error)) => Err(failure(server, &loaded, &entry, deadline.is_over(), &error)),
        Err(Failed::Other(failure)) => Err(failure),
    }
}

/// The failure for an error. One that takes the model away has it loaded again.
fn failure(server: &Server, loaded: &Arc<LoadedModel>, entry: &Entry, is_late: bool, error: &Error) -> Failure {
    match error.cause() {
        Error::Cancelled if entry.status.is_displaced() => {
            server.counts.refused.fetch_add(1, Ordering::Relaxed);
            return Failure::displaced();
        }
        Error::Cancelled if is_late => {
            let message = "the texts were not computed within the time limit of a request (--timeout); send fewer or \
                           shorter ones";
            return Failure::unavailable(message, 5);
        }
        Error::DeviceLost { .. } => server.lost(loaded),
        _ => {}
    }
    Failure::from(error)
}

impl Work {
    /// The number of values of a vector.
    fn width(&self) -> usize {
        self.loaded.model.config().width
    }

    fn tokens(&self) -> usize {
        self.texts.iter().map(Vec::len).sum()
    }

    /// The maximum size of the answer in bytes.
    fn answer_bytes(&self) -> usize {
        self.texts.len() * (self.width() * VALUE + TEXT) + REST
    }

    /// The bytes of memory from here to the answer: for the tokens, the vectors, the hidden states that are being read
    /// from the GPU, and the answer.
    fn bytes(&self) -> usize {
        let vectors = self.texts.len() * (self.width() * size_of::<f32>() + 2 * size_of::<Vec<f32>>());
        let longest = self.texts.iter().map(Vec::len).max().unwrap_or_default();
        let states = self.loaded.scheduler.embedding_memory(longest);
        TOKENS_COPIES * self.tokens() * size_of::<u32>() + vectors + states + self.answer_bytes()
    }

    /// Computes the vectors, and writes the answer. Between two texts the request waits like one that has not begun, so
    /// that it can lose its place to another client.
    fn run(mut self, permit: &ReplyPermit) -> Result<String, Failed> {
        let scheduler = self.loaded.scheduler.for_tenant(permit.entry.client.tenant());
        let (tokens, capacity, status) = (self.tokens(), self.answer_bytes(), &permit.entry.status);
        let mut vectors = Vec::with_capacity(self.texts.len());
        for text in std::mem::take(&mut self.texts) {
            status.wait();
            let reply = scheduler.embed_tokens(text)?.with_cancel(&permit.entry.cancel);
            let mut vector = reply.embedding(&mut |event| {
                if matches!(event, Event::Prompt { .. }) {
                    status.begin();
                }
            })?;
            normalise(&mut vector, self.normalised)?;
            vectors.push(vector);
        }
        Ok(self.write(&vectors, tokens, capacity)?)
    }

    /// The answer, of at most `capacity` bytes, with the vectors of texts that have `tokens` tokens together.
    fn write(&self, vectors: &[Vec<f32>], tokens: usize, capacity: usize) -> Result<String, Failure> {
        let Self { start, loaded, form, warnings, .. } = self;
        form.write(&Whole { model: &loaded.name, vectors, tokens, time: start.elapsed(), warnings }, capacity)
    }
}

/// Checks the values of a vector, and gives it the length 1 if that is wanted.
fn normalise(vector: &mut [f32], wanted: bool) -> Result<(), Failure> {
    let length = vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    if !length.is_finite() {
        let message = "the hidden states of the model are NaN or infinite; its file may be damaged";
        return Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, message));
    }
    if wanted && length > 0.0 {
        vector.iter_mut().for_each(|value| *value = (f64::from(*value) / length) as f32);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::normalise;

    #[test]
    fn vectors_have_the_length_one_if_that_is_wanted() {
        let (mut vector, mut zero) = ([3.0, -4.0], [0.0; 2]);
        assert!(normalise(&mut vector, false).is_ok() && vector == [3.0, -4.0]);
        assert!(normalise(&mut vector, true).is_ok() && vector == [0.6, -0.8]);
        assert!(normalise(&mut zero, true).is_ok() && zero == [0.0; 2]);
        assert!(normalise(&mut [1.0, f32::NAN], false).is_err());
    }
}
