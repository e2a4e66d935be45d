//! The bytes of a connection: reads and writes update its [`Link`], and a client that reads too slowly is disconnected.

use super::link::Link;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Instant, Sleep, sleep_until};

/// The fewest bytes that a client has to take in a second, on average over the time that it has for taking anything,
/// while more is there for it. A reply of 20 tokens a second is about 5 KiB a second as events. The system takes more
/// only when a third of its buffer is free ([`SEND_BUFFER`]), so a client may need three times this rate.
const LEAST_RATE: u64 = 512;

/// The system's buffer for what a client has not taken, in bytes. Linux doubles it for its own records. Left to itself
/// it grows to megabytes for each connection, and says that a client takes something only every megabyte or so.
pub const SEND_BUFFER: u32 = 64 << 10;

/// A connection's bytes.
pub struct Transport {
    read: Arc<OwnedReadHalf>,
    write: OwnedWriteHalf,
    link: Arc<Link>,
    taking: Taking,
}

/// What a client takes of what is there for it.
struct Taking {
    /// The time over which its rate counts.
    limit: Duration,
    /// Since when something has been waiting for it, and how many bytes it has taken since then.
    waiting: Option<(Pin<Box<Sleep>>, u64)>,
}

impl Taking {
    /// The client has taken some bytes.
    fn took(&mut self, bytes: usize) {
        if let Some((_, taken)) = &mut self.waiting {
            *taken += bytes as u64;
        }
    }

    /// The client has taken everything.
    fn took_all(&mut self) {
        self.waiting = None;
    }

    /// Something waits for the client. Ready with an error when it has taken too little.
    fn poll_slow(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let limit = self.limit;
        let (until, taken) = self.waiting.get_or_insert_with(|| (Box::pin(sleep_until(Instant::now() + limit)), 0));
        loop {
            ready!(until.as_mut().poll(context));
            if *taken < (LEAST_RATE * limit.as_secs()).max(1) {
                return Poll::Ready(io::ErrorKind::TimedOut.into());
            }
            *taken = 0;
            until.as_mut().reset(Instant::now() + limit);
        }
    }
}

impl Transport {
    /// The bytes of a connection whose client has `limit` to take something. The connection itself is returned beside
    /// it, for who looks at it meanwhile.
    pub fn new(stream: TcpStream, link: Arc<Link>, limit: Duration) -> (Self, Arc<OwnedReadHalf>) {
        let (read, write) = stream.into_split();
        let read = Arc::new(read);
        (Self { read: read.clone(), write, link, taking: Taking { limit, waiting: None } }, read)
    }

    /// The result of a write.
    fn written(&mut self, context: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.link.set_sent(false);
        match &written {
            Poll::Ready(Ok(bytes)) => self.taking.took(*bytes),
            Poll::Ready(Err(_)) => return written,
            Poll::Pending => {}
        }
        // Also of one whose writes all succeed, each with a little.
        let waits = written.is_pending() || self.taking.waiting.is_some();
        if waits && let Poll::Ready(slow) = self.taking.poll_slow(context) {
            return Poll::Ready(Err(slow));
        }
        written
    }
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream: &TcpStream = (*self.read).as_ref();
        loop {
            let is_ready = stream.poll_read_ready(context);
            if is_ready.is_pending() {
                self.link.waits();
            }
            ready!(is_ready)?;
            match stream.try_read(into.initialize_unfilled()) {
                Ok(count) => {
                    into.advance(count);
                    if count > 0 {
                        self.link.received();
                    }
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.write).poll_write(context, bytes);
        self.written(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.write).poll_write_vectored(context, bytes);
        self.written(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.write.is_write_vectored()
    }

    /// Comes when everything was written, and only then.
    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.taking.took_all();
        self.link.set_sent(true);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(context)
    }
}
