//! One connection. Its requests are answered one after the other, until its client disconnects or is too slow, or the
//! connection is closed in favour of another one.
//!
//! A client that closes its sending side may be gone, or may wait for its answer (`nc -N`). TCP does not say which:
//! only a write to a client that is gone fails. Until the answer begins, the server therefore sends `100 Continue`, an
//! interim response that clients have to skip. HTTP/1.0 has none, so there a closed side means that the client is gone,
//! as it does for proxies. Streams have lines that are not events (`stream.rs`).

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

/// The maximum bytes of a request's head.
const HEAD: usize = 64 << 10;

/// The time for the head of a request, from its first byte to its last. Most heads are one packet.
const HEAD_TIME: Duration = Duration::from_secs(10);

const CHECK: Duration = Duration::from_millis(500);

/// What is sent to find out whether a client is there, and the time after which it is sent again.
const PROBE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
const PROBE_AGAIN: Duration = Duration::from_secs(10);

/// If a connection is closed while its client still sends, the client's system discards the answer. So what the client
/// sends is first read and discarded: at most [`LINGER`] bytes, for at most [`LINGER_TIME`], until nothing
/// has arrived for [`LINGER_QUIET`].
const LINGER: usize = 64 << 20;
const LINGER_TIME: Duration = Duration::from_secs(30);
const LINGER_QUIET: Duration = Duration::from_secs(1);

/// What answers requests, and the time that a client has.
#[derive(Clone)]
pub struct Serving {
    pub router: Router,
    /// The time for a client to send a request, or to read what is sent to it.
    pub io: Duration,
}

/// Waits until the server accepts no more requests.
pub async fn closed(closing: &mut watch::Receiver<bool>) {
    // An error means that the sender was dropped: the server is shutting down.
    drop(closing.wait_for(|closing| *closing).await);
}

impl Serving {
    /// Answers the requests of a connection. Drops `open` when the last answer was sent.
    pub async fn serve(
        self,
        stream: TcpStream,
        link: Arc<Link>,
        closing: watch::Receiver<bool>,
        open: mpsc::Sender<()>,
    ) {
        // Each token is sent at once.
        let _ = stream.set_nodelay(true);
        let (transport, read) = Transport::new(stream, link.clone(), self.io);
        self.answer(transport, &read, &link, closing).await;
        drop(open);
        link.set(Phase::Idle);
        link.set_sent(true);
        // A connection that was closed for another one is no longer counted, so it ends at once. It was idle.
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
            link.set(Phase::Handling { interim });
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

/// Waits until the client is gone or takes too long for the head of a request, or until the connection is aborted.
async fn gone(read: &OwnedReadHalf, link: &Link, head: Duration) {
    let mut check = interval(CHECK);
    check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut probed = None;
    loop {
        check.tick().await;
        let doing = link.doing();
        let is_gone = match doing.phase {
            _ if link.is_aborted() => true,
            Phase::Idle => false,
            Phase::Head => doing.since.elapsed() > head,
            Phase::Handling { interim } => match side(read).await {
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

/// The state of the client's side of a connection.
enum Side {
    Open,
    /// The client sends nothing more.
    Closed,
    /// The client can receive nothing either.
    Gone,
}

/// The state of the client's side. If it has sent bytes that were not read, what comes after them is unknown.
async fn side(read: &OwnedReadHalf) -> Side {
    let stream: &TcpStream = read.as_ref();
    let mut byte = [0];
    let mut peek = std::pin::pin!(stream.peek(&mut byte));
    let now = poll_fn(|context| Poll::Ready(peek.as_mut().poll(context))).await;
    match now {
        Poll::Pending | Poll::Ready(Ok(1..)) => Side::Open,
        // Once a side was seen to be closed, only `take_error` returns later errors.
        Poll::Ready(Ok(0)) if matches!(stream.take_error(), Ok(None)) => Side::Closed,
        Poll::Ready(_) => Side::Gone,
    }
}

/// Sends something that a client skips, unless it was sent a moment ago. Returns false if the write fails.
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

/// Reads and discards what still arrives over a connection that has ended.
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
