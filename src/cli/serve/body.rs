//! Bodies of requests: how long they may be, how much memory all of them may take together, what reading them will take,
//! and what becomes of those that nobody reads.

use super::failure::Failure;
use super::memory::{Share, VALUE};
use super::server::Server;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use hyper::body::{Body as _, Frame};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How many bytes of a body are taken that nobody reads, and for how long.
const DISCARDED: usize = 1 << 20;
const DISCARDING: Duration = Duration::from_secs(2);

/// The least memory that a body takes, unless it is known to be shorter.
const FIRST: usize = 16 << 10;

/// The most bytes of a body from which no reply is made, of which the context does not say how long it may be.
const TEXT: usize = 4 << 20;

/// How many copies of a conversation there are at most while its prompt is made: what was read, what the template gets, in
/// its own form and in the engine's, what it writes, which grows by doubling, and the tokens of four bytes each.
const TEXT_COPIES: usize = 12;

/// The further bytes that a character takes in all of these copies if marks keep it from being part of a tag.
const SIGN: usize = 24;

/// How many trees there are at most of a JSON value, as large as those that are counted for each: measured, with a third
/// to spare.
const VALUE_COPIES: usize = 2;

/// The body of a request, which is not longer than the server accepts and came in time.
pub struct JsonBody {
    pub bytes: Bytes,
    count: Count,
}

impl JsonBody {
    /// The memory that a conversation takes at most while it is read and its prompt made.
    pub fn conversation(&self) -> usize {
        let Count { values, signs, .. } = self.count;
        self.bytes.len() * TEXT_COPIES + signs * SIGN + values * VALUE * VALUE_COPIES
    }

    /// The same for prompts as texts or tokens, which go through no template.
    pub fn completion(&self) -> usize {
        self.bytes.len() * TEXT_COPIES + self.count.values * VALUE * 2
    }

    /// The same for a text that becomes tokens.
    pub fn text(&self) -> usize {
        self.bytes.len() * TEXT_COPIES
    }

    /// The same for a list of tokens, but for the text that they make.
    pub fn tokens(&self) -> usize {
        self.count.values * 16
    }

    /// # Errors
    /// A [`Failure`] if it is longer than what becomes no reply may be.
    pub fn check_text(&self) -> Result<(), Failure> {
        match self.bytes.len() {
            bytes if bytes > TEXT => {
                Err(Failure::invalid(format!("the body has {bytes} bytes, and here it may have {TEXT}")))
            }
            _ => Ok(()),
        }
    }
}

/// Counts what reading a body will take, as it comes.
#[derive(Debug, Default)]
struct Count {
    /// About how many values and keys of JSON there are: never fewer than a parser would make.
    values: usize,
    /// How many characters in strings may get marks (`text/marker.rs` of the library).
    signs: usize,
    in_string: bool,
    escaped: bool,
}

impl Count {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    // 0xEF begins the marks themselves, which are escaped.
                    b'<' | b'>' | b'[' | b']' | 0xEF => self.signs += 1,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b',' | b':' | b'[' | b'{' => self.values += 1,
                _ => {}
            }
        }
    }
}

impl FromRequest<Arc<Server>> for JsonBody {
    type Rejection = Failure;

    async fn from_request(request: Request, server: &Arc<Server>) -> Result<Self, Failure> {
        let (most, told) = (server.limits.body, length(request.headers()));
        if told.is_some_and(|told| told > most as u64) {
            refuse(request).await;
            return Err(long(most));
        }
        let expected = told.map_or(most, |told| most.min(usize::try_from(told).unwrap_or(most)));
        match timeout(server.limits.io, received(request.into_body(), server, expected)).await {
            Ok(received) => received,
            Err(_) => Err(Failure::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")),
        }
    }
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn long(most: usize) -> Failure {
    let message = format!("the body is longer than {most} bytes, which is the most");
    Failure::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}

/// A body, and the memory that it takes of what there is for bodies.
struct Held {
    bytes: Vec<u8>,
    _memory: Share,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The next frame of a body.
async fn next(body: &mut Body) -> Option<Result<Frame<Bytes>, axum::Error>> {
    poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await
}

/// Receives a body of at most `most` bytes. Memory is counted as bytes arrive, so a client that announces a long body and
/// sends nothing takes none.
async fn received(mut body: Body, server: &Server, most: usize) -> Result<JsonBody, Failure> {
    let (mut bytes, mut count, memory) = (Vec::new(), Count::default(), server.memory.bodies.empty());
    while let Some(frame) = next(&mut body).await {
        let frame = frame.map_err(|error| Failure::invalid(format!("the body did not come whole: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if let Err(failure) = reserve(&mut bytes, data.len(), most, &memory) {
            drop((bytes, memory));
            discard(&mut body).await;
            return Err(failure);
        }
        bytes.extend_from_slice(&data);
        count.add(&data);
    }
    Ok(JsonBody { bytes: Bytes::from_owner(Held { bytes, _memory: memory }), count })
}

/// Makes room for more of a body, in steps that double it, and counts it.
fn reserve(bytes: &mut Vec<u8>, more: usize, most: usize, memory: &Share) -> Result<(), Failure> {
    let needed = bytes.len() + more;
    if needed > most {
        return Err(long(most));
    }
    if needed > bytes.capacity() {
        let capacity = needed.max(bytes.capacity() * 2).max(FIRST).min(most);
        memory.resize(capacity)?;
        bytes.reserve_exact(capacity - bytes.len());
    }
    Ok(())
}

/// Takes the body of a request that is refused. While a client sends, closing the connection would reset it, and the
/// client might never see why.
pub async fn refuse(request: Request) {
    // Who waits to be asked for the body does not send it.
    if !request.headers().contains_key(header::EXPECT) {
        discard(&mut request.into_body()).await;
    }
}

async fn discard(body: &mut Body) {
    let all = async {
        let mut left = DISCARDED;
        while let Some(Ok(frame)) = next(body).await {
            let Some(rest) = left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) else { return };
            left = rest;
        }
    };
    // Who sends too slowly may lose the answer.
    let _ = timeout(DISCARDING, all).await;
}

#[cfg(test)]
mod tests {
    use super::Count;

    #[test]
    fn values_are_counted_outside_of_strings() {
        for (text, values, signs) in [
            (r#"{"a": [1, 2, {"b": "x,y:[{\"<"}]}"#, 7, 2),
            (r#"[[],[],[]]"#, 6, 0),
            (r#""a\\","b""#, 1, 0),
            (r#""a\",[","#, 1, 1),
        ] {
            let mut count = Count::default();
            text.as_bytes().chunks(3).for_each(|bytes| count.add(bytes));
            assert_eq!((count.values, count.signs), (values, signs), "{text}");
        }
    }
}
