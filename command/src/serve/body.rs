//! Bodies of requests: their length, the memory of all of them together, the memory that it takes to read one, and what
//! happens to those of refused requests.

use super::failure::Failure;
use super::memory::{Share, VALUE, counted};
use super::server::Server;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use futures_util::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How many bytes of a refused body are received and discarded, and for how long.
const DISCARDED: usize = 1 << 20;
const DISCARDING: Duration = Duration::from_secs(2);

/// The minimum memory for a body, unless it is known to be shorter.
const FIRST: usize = 16 << 10;

/// The maximum bytes in the body of a request without a reply, which the context does not limit.
const TEXT: usize = 4 << 20;

/// The maximum number of copies of a conversation while its prompt is made: what was read; what the template gets, in
/// its own form and in that of the engine; what the template writes, whose buffer doubles; and the tokens, of four
/// bytes each.
const TEXT_COPIES: usize = 12;

/// The additional bytes in all of these copies for a character that is marked as not being part of a tag.
const SIGN: usize = 24;

/// The maximum number of trees that contain a JSON value, at [`VALUE`] bytes each: measured, with a third to spare.
const VALUE_COPIES: usize = 2;

/// The body of a request, which has an acceptable length and arrived in time.
pub struct JsonBody {
    pub bytes: Bytes,
    count: Count,
}

impl JsonBody {
    /// The maximum memory that a conversation needs while it is read and its prompt is made.
    pub fn conversation(&self) -> usize {
        self.count.conversation(self.bytes.len())
    }

    /// The same for prompts that are texts or tokens, without a template.
    pub fn completion(&self) -> usize {
        self.bytes.len() * TEXT_COPIES + self.count.values * VALUE * 2
    }

    /// The same for a text to be tokenized.
    pub fn text(&self) -> usize {
        self.bytes.len() * TEXT_COPIES
    }

    /// The same for a list of tokens, without their text.
    pub fn tokens(&self) -> usize {
        self.count.values * 16
    }

    /// Refuses a body that is too long for a request without a reply.
    pub fn check_text(&self) -> Result<(), Failure> {
        match self.bytes.len() {
            bytes if bytes > TEXT => {
                Err(Failure::invalid(format!("the body has {bytes} bytes; at most {TEXT} are allowed for this path")))
            }
            _ => Ok(()),
        }
    }
}

/// The maximum memory that a conversation in JSON needs while it is read and its prompt is made.
pub fn conversation_memory(text: &str) -> usize {
    let mut count = Count::default();
    count.add(text.as_bytes());
    count.conversation(text.len())
}

/// How deeply the lists and objects of JSON are nested.
pub fn levels(json: &[u8]) -> usize {
    let mut count = Count::default();
    count.add(json);
    count.deepest
}

/// The memory that the values of JSON in a string of a conversation need in addition.
pub fn inner_memory(text: &str) -> usize {
    let mut count = Count::default();
    count.add(text.as_bytes());
    count.values * VALUE * VALUE_COPIES
}

/// Whether a byte of text is, or begins, a character that may be marked (`text/marker.rs` of the library). 0xEF begins
/// the marks themselves, which are escaped.
pub fn is_sign(byte: u8) -> bool {
    matches!(byte, b'<' | b'>' | b'[' | b']' | 0xEF)
}

/// Counts, while a body arrives, the memory that reading it will take.
#[derive(Debug, Default)]
struct Count {
    /// The number of JSON values and keys, at least as many as a parser would make.
    values: usize,
    /// The number of characters in strings that may be marked.
    signs: usize,
    /// The number of lists and objects that are open, and the maximum so far.
    level: usize,
    deepest: usize,
    in_string: bool,
    escaped: bool,
}

impl Count {
    /// The maximum memory for a conversation whose JSON has `bytes` bytes.
    fn conversation(&self, bytes: usize) -> usize {
        bytes * TEXT_COPIES + self.signs * SIGN + self.values * VALUE * VALUE_COPIES
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    byte if is_sign(*byte) => self.signs += 1,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b',' | b':' => self.values += 1,
                b'[' | b'{' => {
                    self.values += 1;
                    self.level += 1;
                    self.deepest = self.deepest.max(self.level);
                }
                b']' | b'}' => self.level = self.level.saturating_sub(1),
                _ => {}
            }
        }
    }
}

impl FromRequest<Arc<Server>> for JsonBody {
    type Rejection = Failure;

    async fn from_request(request: Request, server: &Arc<Server>) -> Result<Self, Failure> {
        let (most, announced) = (server.limits.body, length(request.headers()));
        if announced.is_some_and(|announced| announced > most as u64) {
            refuse(request).await;
            return Err(long(most));
        }
        let expected = announced.map_or(most, |announced| most.min(usize::try_from(announced).unwrap_or(most)));
        match timeout(server.limits.io, received(request.into_body(), server, expected)).await {
            Ok(received) => received,
            Err(_) => Err(Failure::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time (--io-timeout)")),
        }
    }
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn long(most: usize) -> Failure {
    let message = format!("the body is too long; at most {most} bytes are allowed (--max-body)");
    Failure::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}

/// Receives a body of at most `most` bytes. Memory is counted when bytes arrive, so a client that announces a long body
/// and sends nothing takes none.
async fn received(body: Body, server: &Server, most: usize) -> Result<JsonBody, Failure> {
    let (mut bytes, mut count, memory) = (Vec::new(), Count::default(), server.memory.bodies.empty());
    let mut body = body.into_data_stream();
    while let Some(data) = body.next().await {
        let data = data.map_err(|error| Failure::invalid(format!("the body is incomplete: {error}")))?;
        if let Err(failure) = reserve(&mut bytes, data.len(), most, &memory) {
            drop((bytes, memory));
            discard(&mut body).await;
            return Err(failure);
        }
        bytes.extend_from_slice(&data);
        count.add(&data);
    }
    Ok(JsonBody { bytes: counted(bytes, memory), count })
}

/// Reserves memory for more bytes of a body. The capacity doubles.
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

/// Receives and discards the body of a request that is refused. If the connection were closed while the client still
/// sends, the client's system would discard the answer.
pub async fn refuse(request: Request) {
    // A client that expects `100 Continue` does not send the body.
    if !request.headers().contains_key(header::EXPECT) {
        discard(&mut request.into_body().into_data_stream()).await;
    }
}

async fn discard(body: &mut BodyDataStream) {
    let all = async {
        let mut left = DISCARDED;
        while let Some(Ok(data)) = body.next().await {
            let Some(rest) = left.checked_sub(data.len()) else { return };
            left = rest;
        }
    };
    // A client that sends too slowly may lose the answer.
    let _ = timeout(DISCARDING, all).await;
}

#[cfg(test)]
mod tests {
    use super::{Count, levels};

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

    #[test]
    fn levels_outside_of_strings_are_counted() {
        for (text, wanted) in [("3", 0), (r#"{"a": [[], 1], "b": {}}"#, 3), (r#"["[[\"[", {"]\\": "{"}]"#, 2)] {
            assert_eq!(levels(text.as_bytes()), wanted, "{text}");
        }
    }
}
