//! Bodies of requests: how long they may be, how much memory all of them may take together, and what becomes of those
//! that nobody reads.

use super::failure::Failure;
use super::server::Server;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use hyper::body::{Body as _, Frame};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

/// How many bytes of a body are taken that nobody reads, and for how long.
const DISCARDED: usize = 1 << 20;
const DISCARDING: Duration = Duration::from_secs(2);

/// The body of a request, which is not longer than the server accepts and came in time.
pub struct JsonBody(pub Bytes);

impl FromRequest<Arc<Server>> for JsonBody {
    type Rejection = Failure;

    async fn from_request(request: Request, server: &Arc<Server>) -> Result<Self, Failure> {
        let most = server.limits.body;
        if length(request.headers()).is_some_and(|told| told > most as u64) {
            refuse(request).await;
            return Err(long(most));
        }
        match timeout(server.limits.io, received(request.into_body(), server)).await {
            Ok(received) => received.map(Self),
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
    _memory: OwnedSemaphorePermit,
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

/// Receives a body. Memory is counted as it comes: a client who says that a body is long, and sends nothing, has none.
async fn received(mut body: Body, server: &Server) -> Result<Bytes, Failure> {
    let most = server.limits.body;
    let take = |bytes: usize| {
        let taken = server.bodies.clone().try_acquire_many_owned(u32::try_from(bytes).unwrap_or(u32::MAX));
        taken.map_err(|_| Failure::unavailable("other requests fill the memory for bodies; try again later", 1))
    };
    let (mut bytes, mut memory) = (Vec::new(), take(0)?);
    while let Some(frame) = next(&mut body).await {
        let frame = frame.map_err(|error| Failure::invalid(format!("the body did not come whole: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        let taken = if bytes.len() + data.len() > most { Err(long(most)) } else { take(data.len()) };
        match taken {
            Ok(taken) => memory.merge(taken),
            Err(failure) => {
                discard(&mut body).await;
                return Err(failure);
            }
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Bytes::from_owner(Held { bytes, _memory: memory }))
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
