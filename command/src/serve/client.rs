//! Clients. A client is identified by its API key or, if the server has no keys, by its address. Clients take turns at
//! the model, share the queue, and have separate KV caches.
//!
//! Code below the handlers gets the client from the task-local [`Caller::current`], so handlers do not pass it on. A
//! task that a handler spawns has no caller: take it before spawning.

use super::link::Link;
use super::lock;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use wglm_engine::Tenant;

/// The part of an address that one client has to itself: an IPv4 address, or the first 64 bits of an IPv6 address,
/// since whoever has one such network has all of its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Network {
    V4(u32),
    V6(u64),
}

impl Network {
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.to_bits()),
            IpAddr::V6(address) => Self::V6((address.to_bits() >> 64) as u64),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientId {
    /// The index of its key among the server's keys.
    Key(usize),
    Network(Network),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    pub id: ClientId,
    /// Clients with the same number share the KV cache.
    pub cache: u64,
}

impl Client {
    pub fn tenant(&self) -> Tenant {
        let mut hasher = DefaultHasher::new();
        self.id.hash(&mut hasher);
        Tenant { turns: hasher.finish(), cache: self.cache }
    }
}

#[derive(Debug, Clone)]
pub struct Caller {
    pub client: Client,
    pub link: Arc<Link>,
}

tokio::task_local! {
    static CALLER: Caller;
}

impl Caller {
    /// Answers a request of this caller.
    pub async fn answer<T>(self, answer: impl Future<Output = T>) -> T {
        CALLER.scope(self, answer).await
    }

    /// The sender of the request that this task answers. Outside a request, a placeholder with the address 0.0.0.0.
    pub fn current() -> Self {
        let nobody = || {
            let network = Network::V4(0);
            Self { client: Client { id: ClientId::Network(network), cache: 0 }, link: Arc::new(Link::new(network)) }
        };
        CALLER.try_with(Clone::clone).unwrap_or_else(|_| nobody())
    }
}

/// The number of requests of each client that are under way.
#[derive(Debug, Default)]
pub struct RequestCounts(Arc<Mutex<HashMap<ClientId, usize>>>);

/// A request that is under way, until it is dropped.
pub struct CountedRequest {
    all: Arc<Mutex<HashMap<ClientId, usize>>>,
    id: ClientId,
}

impl RequestCounts {
    /// Counts a request, unless its client has `most` under way; 0 for no limit.
    pub fn begin(&self, id: ClientId, most: usize) -> Option<CountedRequest> {
        let mut all = lock(&self.0);
        let count = all.entry(id).or_default();
        if most > 0 && *count >= most {
            return None;
        }
        *count += 1;
        Some(CountedRequest { all: self.0.clone(), id })
    }
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        let mut all = lock(&self.all);
        if let Some(count) = all.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{ClientId, Network, RequestCounts};

    #[test]
    fn a_network_belongs_to_one_client() {
        let of = |text: &str| Network::of(text.parse().unwrap());
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_eq!(of("2001:db8:1:2::3"), of("2001:db8:1:2:ffff::4"));
        assert_ne!(of("2001:db8:1:2::3"), of("2001:db8:1:3::3"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    #[test]
    fn requests_count_while_they_are_under_way() {
        let (requests, id) = (RequestCounts::default(), ClientId::Key(0));
        let held = [requests.begin(id, 2).unwrap(), requests.begin(id, 2).unwrap()];
        assert!(requests.begin(id, 2).is_none() && requests.begin(id, 0).is_some());
        assert!(requests.begin(ClientId::Key(1), 2).is_some(), "of another client");
        drop(held);
        assert!(requests.begin(id, 1).is_some() && requests.0.lock().unwrap().is_empty());
    }
}
