//! Places for requests that run on the host or wait for it. In a shared room a client can have half of the places, so
//! that it cannot keep others out.

use super::client::{Caller, Request, UnderWay};
use super::failure::Failure;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub struct Room {
    /// What the requests wait for, for errors.
    wait_for: &'static str,
    places: Arc<Semaphore>,
    /// How many requests can run, and how many can wait.
    most: (usize, usize),
    of_clients: UnderWay,
    /// How many places a client can have; 0 for all.
    each: usize,
}

/// A place of a request, which is free again when this is dropped.
pub struct RoomPlace {
    _place: OwnedSemaphorePermit,
    _of_client: Request,
}

impl Room {
    /// `most` says how many requests can run and how many can wait.
    pub fn new(wait_for: &'static str, most: (usize, usize)) -> Self {
        let all = most.0.saturating_add(most.1).min(Semaphore::MAX_PERMITS);
        Self { wait_for, places: Arc::new(Semaphore::new(all)), most, of_clients: UnderWay::default(), each: 0 }
    }

    /// The same room, of whose places a client can have half if the server limits what a client can have.
    pub fn shared(self, limits_clients: bool) -> Self {
        let all = self.most.0.saturating_add(self.most.1);
        Self { each: if limits_clients { all.div_ceil(2) } else { 0 }, ..self }
    }

    /// A place for a request of the current caller.
    pub fn enter(&self) -> Result<RoomPlace, Failure> {
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
        let of_client = self.of_clients.begin(Caller::current().client.who, each).ok_or_else(many)?;
        let place = self.places.clone().try_acquire_owned().map_err(full)?;
        Ok(RoomPlace { _place: place, _of_client: of_client })
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
    use super::{Room, RoomPlace};
    use crate::serve::client::{Caller, Client, ClientId, Network};
    use crate::serve::failure::Failure;
    use crate::serve::link::Link;
    use std::sync::Arc;

    async fn enter(room: &Room, key: usize) -> Result<RoomPlace, Failure> {
        let client = Client { who: ClientId::Key(key), cache: 0 };
        let caller = Caller { client, link: Arc::new(Link::new(Network::V4(0))) };
        caller.answer(async { room.enter() }).await
    }

    #[tokio::test]
    async fn a_client_has_half_of_the_places() {
        let room = Room::new("to be tried", (1, 3)).shared(true);
        let mut held = vec![enter(&room, 0).await.unwrap(), enter(&room, 0).await.unwrap()];
        let refused = enter(&room, 0).await.err().unwrap();
        assert_eq!((refused.status.as_u16(), refused.retry_after, room.is_full()), (429, Some(1), false));
        assert!(refused.message.contains("of this client are waiting to be tried (limit 2 per client"));
        held.push(enter(&room, 1).await.unwrap());
        held.push(enter(&room, 2).await.unwrap());
        let refused = enter(&room, 3).await.err().unwrap();
        assert_eq!((refused.status.as_u16(), refused.retry_after, room.is_full()), (503, Some(1), true));
        assert!(refused.message.contains("too many requests are waiting to be tried (limit 3)"), "{refused:?}");
        held.clear();
        assert_eq!(room.taken(), 0);
        assert!(enter(&room, 0).await.is_ok(), "its places are free again");
    }

    #[tokio::test]
    async fn a_server_without_limits_for_clients_has_none_here() {
        let room = Room::new("to be tried", (1, 1)).shared(false);
        let held = [enter(&room, 0).await.unwrap(), enter(&room, 0).await.unwrap()];
        assert_eq!((room.taken(), enter(&room, 0).await.err().unwrap().status.as_u16()), (2, 503));
        drop(held);
    }
}
