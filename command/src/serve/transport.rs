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

/// The minimum number of bytes per second that a client has to read while more are waiting, on average over its time
/// limit. A reply of 20 tokens a second is about 5 KiB a second as events. The system accepts more only when a third of
/// its buffer is free ([`SEND_BUFFER`]), so a client may need three times this rate.
const MIN_RATE: u64 = 512;

/// The system's buffer for what a client has not read, in bytes. Linux doubles it for its own records. By default it
/// grows to megabytes for each connection, so the server would learn only every megabyte or so that a client reads.
pub const SEND_BUFFER: u32 = 64 << 10;

pub struct Transport {
    read: Arc<OwnedReadHalf>,
    write: OwnedWriteHalf,
    link: Arc<Link>,
    rate: ReadRate,
}

/// How much a client reads of what is waiting for it.
struct ReadRate {
    /// The time over which the rate is measured.
    limit: Duration,
    /// The end of the current measurement, and how many bytes the client has read in it; `None` while nothing waits for
    /// it.
    waiting: Option<(Pin<Box<Sleep>>, u64)>,
}

impl ReadRate {
    /// The client has read some bytes.
    fn read(&mut self, bytes: usize) {
        if let Some((_, bytes_read)) = &mut self.waiting {
            *bytes_read += bytes as u64;
        }
    }

    fn read_all(&mut self) {
        self.waiting = None;
    }

    /// Something waits for the client. Ready with an error if the client has read too little.
    fn poll_slow(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let limit = self.limit;
        let (until, bytes_read) =
            self.waiting.get_or_insert_with(|| (Box::pin(sleep_until(Instant::now() + limit)), 0));
        loop {
            ready!(until.as_mut().poll(context));
            if *bytes_read < (MIN_RATE * limit.as_secs()).max(1) {
                return Poll::Ready(io::ErrorKind::TimedOut.into());
            }
            *bytes_read = 0;
            until.as_mut().reset(Instant::now() + limit);
        }
    }
}

impl Transport {
    /// The bytes of a connection whose client is disconnected if it reads too little for `limit`. Also returns the
    /// reading half of the connection, so that it can be checked meanwhile.
    pub fn new(stream: TcpStream, link: Arc<Link>, limit: Duration) -> (Self, Arc<OwnedReadHalf>) {
        let (read, write) = stream.into_split();
        let read = Arc::new(read);
        (Self { read: read.clone(), write, link, rate: ReadRate { limit, waiting: None } }, read)
    }

    fn written(&mut self, context: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.link.set_sent(false);
        match &written {
            Poll::Ready(Ok(bytes)) => self.rate.read(*bytes),
            Poll::Ready(Err(_)) => return written,
            Poll::Pending => {}
        }
        // The client may also be slow if all writes succeed, each with a few bytes.
        let waits = written.is_pending() || self.rate.waiting.is_some();
        if waits && let Poll::Ready(slow) = self.rate.poll_slow(context) {
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

    /// hyper flushes when everything was written, and only then.
    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.rate.read_all();
        self.link.set_sent(true);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(context)
    }
}
