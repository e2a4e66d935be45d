//! Admits requests that run on the host or wait for it. In a shared queue a client can have half of the places, so
//! that it cannot keep others out.

use super::client::{Caller, CountedRequest, RequestCounts};
use super::failure::Failure;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub struct AdmissionQueue {
    /// What the requests wait for, for errors.
    wait_for: &'static str,
    places: Arc<Semaphore>,
    /// How many requests can run, and how many can wait.
    most: (usize, usize),
    of_clients: RequestCounts,
    /// How many places a client can have; 0 for all.
    each: usize,
}

/// A place of a request, which is free again when this is dropped.
pub struct Admission {
    _place: OwnedSemaphorePermit,
    _of_client: CountedRequest,
}

impl AdmissionQueue {
    /// `most` says how many requests can run and how many can wait.
    pub fn new(wait_for: &'static str, most: (usize, usize)) -> Self {
        let all = most.0.saturating_add(most.1).min(Semaphore::MAX_PERMITS);
        Self { wait_for, places: Arc::new(Semaphore::new(all)), most, of_clients: RequestCounts::default(), each: 0 }
    }

    /// The same queue, of whose places a client can have half if the server limits what a client can have.
    pub fn shared(self, limits_clients: bool) -> Self {
        let all = self.most.0.saturating_add(self.most.1);
        Self { each: if limits_clients { all.div_ceil(2) } else { 0 }, ..self }
    }

    /// A place for a request of the current caller.
    pub fn admit(&self) -> Result<Admission, Failure> {
        let (each, wait_for) = (self.each, self.wait_for);
        let many = || {
            let limit = format!("limit {each} per client, including running ones");
            Failure::rate_limited(format!(
                "too many requests of this client are waiting {wait_for} ({limit}); try again later"
            ))
        };
        let full = |_| {
            let (_, most) = self.most;
            Failure::unavailable(format!("too many requests are waiting {wait_for} (limit {most}); try again later"), 1)
        };
        let of_client = self.of_clients.begin(Caller::current().client.id, each).ok_or_else(many)?;
        let place = self.places.clone().try_acquire_owned().map_err(full)?;
        Ok(Admission { _place: place, _of_client: of_client })
    }

    /// How many places are taken.
    pub fn taken(&self) -> usize {
        self.most.0.saturating_add(self.most.1).saturating_sub(self.places.available_permits())
    }

    pub fn is_full(&self) -> bool {
        self.places.available_permits() == 0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Admission, AdmissionQueue};
    use crate::serve::client::{Caller, Client, ClientId, Network};
    use crate::serve::failure::Failure;
    use crate::serve::link::Link;
    use std::sync::Arc;

    async fn admit(queue: &AdmissionQueue, key: usize) -> Result<Admission, Failure> {
        let client = Client { id: ClientId::Key(key), cache: 0 };
        let caller = Caller { client, link: Arc::new(Link::new(Network::V4(0))) };
        caller.answer(async { queue.admit() }).await
    }

    #[tokio::test]
    async fn a_client_has_half_of_the_places() {
        let queue = AdmissionQueue::new("to be tried", (1, 3)).shared(true);
        let mut held = vec![admit(&queue, 0).await.unwrap(), admit(&queue, 0).await.unwrap()];
        let refused = admit(&queue, 0).await.err().unwrap();
        assert_eq!((refused.status.as_u16(), refused.retry_after, queue.is_full()), (429, Some(1), false));
        assert!(refused.message.contains("of this client are waiting to be tried (limit 2 per client"));
        held.push(admit(&queue, 1).await.unwrap());
        held.push(admit(&queue, 2).await.unwrap());
        let refused = admit(&queue, 3).await.err().unwrap();
        assert_eq!((refused.status.as_u16(), refused.retry_after, queue.is_full()), (503, Some(1), true));
        assert!(refused.message.contains("too many requests are waiting to be tried (limit 3)"), "{refused:?}");
        held.clear();
        assert_eq!(queue.taken(), 0);
        assert!(admit(&queue, 0).await.is_ok(), "its places are free again");
    }

    #[tokio::test]
    async fn a_server_without_limits_for_clients_has_none_here() {
        let queue = AdmissionQueue::new("to be tried", (1, 1)).shared(false);
        let held = [admit(&queue, 0).await.unwrap(), admit(&queue, 0).await.unwrap()];
        assert_eq!((queue.taken(), admit(&queue, 0).await.err().unwrap().status.as_u16()), (2, 503));
        drop(held);
    }
}
