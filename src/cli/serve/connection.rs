//! One connection: its requests are answered one after the other, until its client goes away, is too slow, or somebody
//! else needs it.
//!
//! A client that closes its side of the connection may be gone, or may wait for its answer (`nc -N`). TCP does not say
//! which: only what is sent to one that is gone comes back as an error. Until the answer begins, it is therefore sent an
//! interim answer of HTTP, `100 Continue`, which clients have to skip. HTTP/1.0 has none, so there a closed side is a
//! client that is gone, as it is with proxies. Streams have lines that are no event (`events.rs`).

use super::link::{Link, Phase};
use super::transport::Transport;
use axum::Router;
use axum::http::Version;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// The most bytes of a request's head.
const HEAD: usize = 64 << 10;

/// How long the head of a request may take, from its first byte to its last. Most heads are one packet.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// How often a connection is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// What is sent to see whether a client is there, and how long after that it is sent again.
const PROBE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
const PROBE_AGAIN: Duration = Duration::from_secs(10);

/// Closing a connection while its client still sends makes the client's system discard the answer. So what it sends is
/// read and discarded first: at most this many bytes, for at most this long, until nothing has come for a second.
const LINGER: usize = 64 << 20;
const LINGER_TIME: Duration = Duration::from_secs(30);
const LINGER_QUIET: Duration = Duration::from_secs(1);

/// What answers requests, and how long a client may take.
#[derive(Clone)]
pub struct Serving {
    pub router: Router,
    /// The time for a client to send a request, or to take what is sent to it.
    pub io: Duration,
}

/// Waits until no more requests are taken.
pub async fn closed(closing: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone: the server is closing.
    drop(closing.wait_for(|closing| *closing).await);
}

impl Serving {
    /// Answers the requests of a connection. `open` is dropped when the last answer was sent.
    pub async fn serve(
        self,
        stream: TcpStream,
        link: Arc<Link>,
        closing: watch::Receiver<bool>,
        open: mpsc::Sender<()>,
    ) {
        // Tokens are sent as they come.
        let _ = stream.set_nodelay(true);
        let (transport, read) = Transport::new(stream, link.clone(), self.io);
        self.answer(transport, &read, &link, closing).await;
        drop(open);
        link.set(Phase::Idle);
        link.set_sent(true);
        // One that was asked to end for another one is not counted any more, so it ends at once. It was idle.
        if link.is_ending() {
            return;
        }
        tokio::select! {
            () = linger(&read) => {}
            () = link.ending() => {}
        }
    }

    async fn answer(
        self,
        transport: Transport,
        read: &OwnedReadHalf,
        link: &Arc<Link>,
        mut closing: watch::Receiver<bool>,
    ) {
        let (router, of) = (TowerToHyperService::new(self.router), link.clone());
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            let (link, interim) = (of.clone(), request.version() > Version::HTTP_10);
            link.set(Phase::Asked { interim });
            request.extensions_mut().insert(link.clone());
            let answer = router.call(request);
            async move {
                let answer = answer.await;
                link.set(Phase::Answering { interim });
                answer
            }
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .half_close(true)
            .header_read_timeout(self.io)
            .max_buf_size(HEAD)
            .serve_connection(TokioIo::new(transport), service);
        let (mut serving, mut ends) = (std::pin::pin!(serving), false);
        let ended = loop {
            tokio::select! {
                ended = serving.as_mut() => break ended,
                () = closed(&mut closing), if !ends => ends = true,
                () = link.ending(), if !ends => ends = true,
                () = gone(read, link, self.io.min(HEAD_TIME)) => return,
            }
            serving.as_mut().graceful_shutdown();
        };
        if let Err(error) = ended {
            tracing::debug!("a connection ended: {error}");
        }
    }
}

/// Waits until the client is gone, or takes too long for the head of a request.
async fn gone(read: &OwnedReadHalf, link: &Link, head: Duration) {
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut probed = None;
    loop {
        look.tick().await;
        let doing = link.doing();
        let is_gone = match doing.phase {
            Phase::Idle => false,
            Phase::Head => doing.since.elapsed() > head,
            Phase::Asked { interim } => match side(read).await {
                Side::Open => false,
                Side::Closed => !interim || doing.sent && !probe(read.as_ref(), &mut probed),
                Side::Gone => true,
            },
            Phase::Answering { interim } => match side(read).await {
                Side::Open => false,
                Side::Closed => {
                    link.set_sends_no_more();
                    !interim
                }
                Side::Gone => true,
            },
        };
        if is_gone {
            return;
        }
    }
}

/// The client's side of a connection.
enum Side {
    Open,
    /// Nothing more comes.
    Closed,
    /// Nothing can be sent to it either.
    Gone,
}

/// Looks at the client's side. Where it has sent more than was read, what comes after that cannot be seen.
async fn side(read: &OwnedReadHalf) -> Side {
    let stream: &TcpStream = read.as_ref();
    let mut byte = [0];
    let mut peek = std::pin::pin!(stream.peek(&mut byte));
    let now = poll_fn(|context| Poll::Ready(peek.as_mut().poll(context))).await;
    match now {
        Poll::Pending | Poll::Ready(Ok(1..)) => Side::Open,
        // The system tells an error once a closed side was seen by another way only.
        Poll::Ready(Ok(0)) if matches!(stream.take_error(), Ok(None)) => Side::Closed,
        Poll::Ready(_) => Side::Gone,
    }
}

/// Sends something that a client skips, unless that was a moment ago. Returns false if it cannot be sent.
fn probe(stream: &TcpStream, probed: &mut Option<Instant>) -> bool {
    if probed.is_some_and(|probed| probed.elapsed() < PROBE_AGAIN) {
        return true;
    }
    *probed = Some(Instant::now());
    match stream.try_write(PROBE) {
        Ok(count) => count == PROBE.len(),
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

/// Takes what still comes over a connection that has ended.
pub async fn linger(read: &OwnedReadHalf) {
    let (mut left, mut scratch) = (LINGER, vec![0; 16 << 10]);
    let all = async {
        while let Ok(Ok(())) = timeout(LINGER_QUIET, read.readable()).await {
            match read.try_read(&mut scratch) {
                Ok(count) if count > 0 && count < left => left -= count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return,
            }
        }
    };
    let _ = timeout(LINGER_TIME, all).await;
}
