//! The replies that are running or waiting. Their number is limited. When the limit is reached, a client with fewer
//! replies displaces the newest waiting reply of the client with the most. So a single client can use the whole queue,
//! but cannot keep others out.

use super::client::{Client, ClientId};
use super::lock;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use wglm_engine::Cancel;

/// A reply that is running or waiting.
#[derive(Debug, Clone)]
pub struct Entry {
    pub client: Client,
    pub cancel: Cancel,
    pub status: Arc<ReplyStatus>,
}

/// What has happened to a reply.
#[derive(Debug, Default)]
pub struct ReplyStatus {
    begun: AtomicBool,
    displaced: AtomicBool,
}

impl ReplyStatus {
    /// Its turn has come.
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// It waits for another turn, so it can be displaced again.
    pub fn wait(&self) {
        self.begun.store(false, Ordering::Relaxed);
    }

    /// Whether it lost its place to another client.
    pub fn is_displaced(&self) -> bool {
        self.displaced.load(Ordering::Relaxed)
    }
}

pub struct ReplyPermits {
    most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The replies by number: newer ones have higher numbers.
    entries: BTreeMap<u64, Entry>,
    /// The number of replies so far.
    count: u64,
    /// Whether no more replies are accepted.
    closed: bool,
}

/// The place of a reply. Dropping it cancels the reply and frees the place.
pub struct ReplyPermit {
    permits: Arc<ReplyPermits>,
    number: u64,
    pub entry: Entry,
}

impl ReplyPermits {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, state: Mutex::default() })
    }

    /// Places for several replies of a client, if enough are free or replies of other clients can be displaced.
    /// Otherwise nothing is displaced.
    pub fn take(self: &Arc<Self>, client: Client, count: usize) -> Option<Vec<ReplyPermit>> {
        let mut state = lock(&self.state);
        for displaced in state.displaced_by(client.id, count, self.most)? {
            displaced.status.displaced.store(true, Ordering::Relaxed);
            displaced.cancel.cancel();
        }
        let permit = |_| {
            let (number, entry) = (state.count, Entry { client, cancel: Cancel::default(), status: Arc::default() });
            state.count += 1;
            state.entries.insert(number, entry.clone());
            ReplyPermit { permits: self.clone(), number, entry }
        };
        Some((0..count).map(permit).collect())
    }

    /// Whether a client would get a place.
    pub fn has_one_for(&self, id: ClientId) -> bool {
        lock(&self.state).displaced_by(id, 1, self.most).is_some()
    }

    /// How many replies are running or waiting.
    pub fn taken(&self) -> usize {
        lock(&self.state).entries.len()
    }

    pub fn close(&self) {
        lock(&self.state).closed = true;
    }

    pub fn is_closed(&self) -> bool {
        lock(&self.state).closed
    }

    pub fn cancel_all(&self) {
        lock(&self.state).entries.values().for_each(|entry| entry.cancel.cancel());
    }
}

impl Drop for ReplyPermit {
    fn drop(&mut self) {
        self.entry.cancel.cancel();
        lock(&self.permits.state).entries.remove(&self.number);
    }
}

impl State {
    /// The replies that were not displaced.
    fn staying(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().filter(|entry| !entry.status.is_displaced())
    }

    /// The replies of other clients that a client displaces to get `wanted` places of at most `most`. Each of the other
    /// clients still has at least as many replies then. `None` if they are too few.
    fn displaced_by(&self, id: ClientId, wanted: usize, most: usize) -> Option<Vec<&Entry>> {
        let mut counts: HashMap<ClientId, usize> = HashMap::new();
        self.staying().for_each(|entry| *counts.entry(entry.client.id).or_default() += 1);
        let free = most.saturating_sub(counts.values().sum());
        let own = counts.remove(&id).unwrap_or_default();
        let is_waiting = |entry: &&Entry| !entry.status.begun.load(Ordering::Relaxed);
        let mut waiting: Vec<&Entry> = self.staying().filter(is_waiting).collect();
        let mut displaced = Vec::new();
        for taken in free..wanted {
            let count = |entry: &Entry| counts.get(&entry.client.id).copied().unwrap_or_default();
            let (age, _) = waiting.iter().enumerate().max_by_key(|(age, entry)| (count(entry), *age))?;
            let entry = waiting.remove(age);
            let count = counts.get_mut(&entry.client.id).filter(|count| **count > own + taken + 1)?;
            *count -= 1;
            displaced.push(entry);
        }
        Some(displaced)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Client, ClientId, ReplyPermit, ReplyPermits};
    use std::sync::Arc;

    fn client(key: usize) -> Client {
        Client { id: ClientId::Key(key), cache: 0 }
    }

    fn take(permits: &Arc<ReplyPermits>, key: usize) -> Option<ReplyPermit> {
        permits.take(client(key), 1)?.pop()
    }

    /// How many of these places each of three clients has.
    fn held(permits: &[ReplyPermit]) -> [usize; 3] {
        let is_of =
            |permit: &ReplyPermit, key| permit.entry.client == client(key) && !permit.entry.status.is_displaced();
        [0, 1, 2].map(|key| permits.iter().filter(|permit| is_of(permit, key)).count())
    }

    #[test]
    fn no_client_keeps_others_out() {
        let permits = ReplyPermits::new(8);
        let mut taken: Vec<ReplyPermit> = (0..8).map(|_| take(&permits, 0).unwrap()).collect();
        let another = take(&permits, 0).is_some();
        assert_eq!((held(&taken), another), ([8, 0, 0], false), "a single client has all permits");
        taken.iter().take(2).for_each(|permit| permit.entry.status.begin());
        let got = [1, 2, 1, 2, 1, 2, 1].map(|key| take(&permits, key).map(|permit| taken.push(permit)).is_some());
        assert_eq!((held(&taken), got), ([3, 3, 2], [true, true, true, true, true, false, false]));
        let first = &taken[..8];
        let displaced = first.iter().map(|permit| permit.entry.status.is_displaced());
        assert!(displaced.eq((0..8).map(|number| number >= 3)), "the newest of those that were waiting");
        assert!(first.iter().all(|permit| permit.entry.cancel.is_cancelled() == permit.entry.status.is_displaced()));
        taken.drain(..8);
        assert_eq!((held(&taken), permits.taken()), ([0, 3, 2], 5));
    }

    #[test]
    fn a_client_gets_all_places_of_a_request_or_none() {
        let permits = ReplyPermits::new(8);
        let waiting = permits.take(client(0), 6).unwrap();
        assert!(permits.take(client(1), 5).is_none(), "the other client would have fewer");
        assert_eq!((held(&waiting), permits.taken()), ([6, 0, 0], 6), "and nothing was displaced");
        let taken = permits.take(client(1), 4).unwrap();
        assert_eq!((held(&waiting), held(&taken)), ([4, 0, 0], [0, 4, 0]), "two permits were free");
        assert!(permits.take(client(2), 9).is_none() && !permits.has_one_for(client(1).id));
        assert!(permits.has_one_for(client(2).id));
    }

    #[test]
    fn what_waits_for_another_turn_can_be_displaced() {
        let permits = ReplyPermits::new(2);
        let taken: Vec<ReplyPermit> = permits.take(client(0), 2).unwrap();
        taken.iter().for_each(|permit| permit.entry.status.begin());
        assert!(take(&permits, 1).is_none(), "both have their turns");
        taken[0].entry.status.wait();
        assert!(take(&permits, 1).is_some());
        assert!(taken[0].entry.status.is_displaced() && !taken[1].entry.status.is_displaced());
    }
}
