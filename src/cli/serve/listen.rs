//! Connections: how many there may be, how long their clients may take, and how they end.

use super::server::Server;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Sleep, sleep};

/// The most bytes of a request's head.
const HEAD: usize = 64 << 10;

/// How long to wait after the system refused a connection, for want of file handles for example.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections until `closing` says so, and then returns at once. Connections go on: each ends after its
/// answer, and takes its copy of `open` along.
pub async fn accept(
    listener: TcpListener,
    router: Router,
    server: Arc<Server>,
    most: usize,
    mut closing: watch::Receiver<bool>,
    open: tokio::sync::mpsc::Sender<()>,
) {
    let places = Arc::new(Semaphore::new(most));
    loop {
        // While there are as many as may be, others wait with the system.
        let place = tokio::select! {
            place = places.clone().acquire_owned() => place,
            () = closed(&mut closing) => return,
        };
        let Ok(place) = place else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = closed(&mut closing) => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("a connection was not accepted: {error}");
                sleep(PAUSE).await;
                continue;
            }
        };
        let (router, io, closing, open) = (router.clone(), server.limits.io, closing.clone(), open.clone());
        tokio::spawn(async move {
            connection(stream, router, io, closing).await;
            drop((place, open));
        });
    }
}

/// Waits until no more requests are taken.
async fn closed(closing: &mut watch::Receiver<bool>) {
    // Who could say so may be gone, which is the end too.
    drop(closing.wait_for(|closing| *closing).await);
}

/// Answers the requests of a connection.
async fn connection(stream: TcpStream, router: Router, io: Duration, mut closing: watch::Receiver<bool>) {
    // Tokens are sent as they come.
    let _ = stream.set_nodelay(true);
    let stream = TokioIo::new(Timed { stream, limit: io, waiting: None });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(io)
        .max_buf_size(HEAD)
        .serve_connection(stream, TowerToHyperService::new(router));
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => Some(ended),
        () = closed(&mut closing) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection ended: {error}");
    }
}

/// A connection whose client has to take what is sent within a time.
struct Timed {
    stream: TcpStream,
    limit: Duration,
    /// Since when the client takes nothing.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Timed {
    /// The result of a write, or an error if the client has taken nothing for too long.
    fn timed<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let limit = self.limit;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(limit)));
        match waiting.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Timed {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Timed {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.timed(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.timed(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.timed(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
