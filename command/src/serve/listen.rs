//! Accepts connections, and limits their number in total and from one address. `connection.rs` serves them.
//!
//! A connection beyond a limit replaces one that is idle. If none is, it is answered with 429 or 503 at once instead of
//! waiting in the system's backlog.

use super::client::Network;
use super::connection::{self, Serving};
use super::failure::{Dialect, Failure};
use super::link::Link;
use super::lock;
use super::transport::SEND_BUFFER;
use anyhow::Context;
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;

/// How long to wait after a failure to accept a connection, for example because the process has no more file handles.
const PAUSE: Duration = Duration::from_millis(100);

/// How many connections can wait in the system until they are accepted.
const BACKLOG: u32 = 1024;

/// How many refused connections are answered at once. Others are closed without an answer.
const REFUSED: usize = 64;

/// Listens at the first address that works.
pub fn listen(host: &str, port: u16) -> anyhow::Result<TcpListener> {
    let wanted = || format!("cannot listen at {host}, port {port}");
    let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs().with_context(wanted)?.collect();
    let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match listen_at(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => failed = error,
        }
    }
    Err(failed).with_context(wanted)
}

fn listen_at(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    #[cfg(unix)]
    socket.set_reuseaddr(true)?; // on other systems it would let another process listen at the same address
    // Connections inherit the size. They work without it too, but then slow readers are noticed later.
    let _ = socket.set_send_buffer_size(SEND_BUFFER);
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts connections until `closing` is set, and then returns at once. Each connection ends after its current answer,
/// and then drops its copy of `open`.
pub async fn accept(
    listener: TcpListener,
    limiter: Arc<ConnectionLimiter>,
    serving: Serving,
    mut closing: watch::Receiver<bool>,
    open: tokio::sync::mpsc::Sender<()>,
) {
    let refused = Arc::new(Semaphore::new(REFUSED));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = connection::closed(&mut closing) => return,
        };
        let (stream, network) = match accepted {
            Ok((stream, address)) => (stream, Network::of(address.ip())),
            Err(error) => {
                tracing::warn!("a connection was not accepted: {error}");
                sleep(PAUSE).await;
                continue;
            }
        };
        match limiter.admit(network) {
            Ok(entry) => {
                let (serving, closing, open) = (serving.clone(), closing.clone(), open.clone());
                tokio::spawn(async move {
                    serving.serve(stream, entry.link.clone(), closing, open).await;
                    drop(entry);
                });
            }
            Err(failure) => refuse(stream, &failure, &refused),
        }
    }
}

/// Tells a client why its connection is refused.
fn refuse(stream: TcpStream, failure: &Failure, refused: &Arc<Semaphore>) {
    let Ok(place) = refused.clone().try_acquire_owned() else { return };
    let body = failure.body(Dialect::OpenAi).to_string();
    let answer = format!(
        "HTTP/1.1 {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nretry-after: {}\r\nconnection: close\r\n\
         \r\n{body}",
        failure.status,
        body.len(),
        failure.retry_after.unwrap_or(1),
    );
    tokio::spawn(async move {
        // The answer fits into the buffer of a new connection.
        if stream.writable().await.is_ok() && stream.try_write(answer.as_bytes()).is_ok() {
            let (read, write) = stream.into_split();
            drop(write);
            connection::linger(&read).await;
        }
        drop(place);
    });
}

/// All connections, and their limits.
#[derive(Debug)]
pub struct ConnectionLimiter {
    most: usize,
    /// The maximum number of connections from one network; 0 for no limit.
    most_each: usize,
    links: Mutex<Links>,
}

#[derive(Debug, Default)]
struct Links {
    open: HashMap<u64, Arc<Link>>,
    /// The number of connections so far.
    count: u64,
}

/// A connection, which counts as open until this is dropped.
pub struct ConnectionGuard {
    limiter: Arc<ConnectionLimiter>,
    number: u64,
    link: Arc<Link>,
}

impl ConnectionLimiter {
    pub fn new(most: usize, most_each: usize) -> Arc<Self> {
        Arc::new(Self { most, most_each, links: Mutex::default() })
    }

    /// Admits a connection. If a limit is reached, an idle connection is ended in its favour.
    fn admit(self: &Arc<Self>, network: Network) -> Result<ConnectionGuard, Failure> {
        let mut links = lock(&self.links);
        let own = |link: &Link| link.network == network;
        if self.most_each > 0 && links.count(own) >= self.most_each && !links.end_idle(own) {
            let message = format!("too many connections from this address; at most {} are allowed", self.most_each);
            return Err(Failure::rate_limited(message));
        }
        if links.count(|_| true) >= self.most && !links.end_idle(|_| true) {
            return Err(Failure::unavailable(
                format!("too many connections (limit {}); try again later", self.most),
                1,
            ));
        }
        let (number, link) = (links.count, Arc::new(Link::new(network)));
        links.count += 1;
        links.open.insert(number, link.clone());
        Ok(ConnectionGuard { limiter: self.clone(), number, link })
    }
}

impl Links {
    /// The number of connections with a property, not counting idle ones that are already ending.
    fn count(&self, is_of: impl Fn(&Link) -> bool) -> usize {
        let ends = |link: &Link| link.is_ending() && link.idle_since().is_some();
        self.open.values().filter(|link| !ends(link) && is_of(link)).count()
    }

    /// Among the connections with a property, ends the one that has been idle longest. Returns false if none is idle.
    fn end_idle(&self, is_of: impl Fn(&Link) -> bool) -> bool {
        let idle = self.open.values().filter(|link| !link.is_ending() && is_of(link));
        let oldest = idle.filter_map(|link| Some((link.idle_since()?, link))).min_by_key(|(since, _)| *since);
        oldest.map(|(_, link)| link.end()).is_some()
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        lock(&self.limiter.links).open.remove(&self.number);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::ConnectionLimiter;
    use crate::serve::client::Network;
    use crate::serve::link::Phase;

    #[test]
    fn connections_of_one_address_are_limited() {
        let limiter = ConnectionLimiter::new(4, 2);
        let status = |network| limiter.admit(Network::V4(network)).map_err(|failure| failure.status.as_u16());
        let mut held: Vec<_> = [1, 1, 2].map(|network| status(network).ok().unwrap()).into_iter().collect();
        held.iter().for_each(|entry| entry.link.set(Phase::Head));
        assert_eq!(status(1).err(), Some(429));
        held.push(status(3).ok().unwrap());
        held[3].link.set(Phase::Head);
        assert_eq!((status(4).err(), status(1).err()), (Some(503), Some(429)));
        // An idle connection is replaced.
        held[2].link.set(Phase::Idle);
        held.push(status(4).ok().unwrap());
        assert!(held[2].link.is_ending() && !held[0].link.is_ending());
        held.clear();
        assert_eq!(limiter.links.lock().unwrap().open.len(), 0);
        let limiter = ConnectionLimiter::new(4, 0);
        let held: Vec<_> = (0..4).map(|_| limiter.admit(Network::V4(1)).ok().unwrap()).collect();
        assert_eq!(held.len(), 4, "0 is no limit");
    }
}
