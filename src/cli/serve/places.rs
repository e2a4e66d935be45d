//! The replies that are running or waiting. Their number is limited. When the limit is reached, a client with fewer
//! replies displaces the newest waiting reply of the client with the most. So a single client can use the whole queue,
//! but cannot keep others out.

use super::client::{Client, Who};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wglm::Cancel;

/// A reply that is running or waiting.
#[derive(Debug, Clone)]
pub struct Entry {
    pub client: Client,
    pub cancel: Cancel,
    pub marks: Arc<Marks>,
}

/// What has happened to a reply.
#[derive(Debug, Default)]
pub struct Marks {
    begun: AtomicBool,
    displaced: AtomicBool,
}

impl Marks {
    /// Its turn has come.
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// Whether it lost its place to another client.
    pub fn is_displaced(&self) -> bool {
        self.displaced.load(Ordering::Relaxed)
    }
}

/// All replies that are running or waiting, by number: newer ones have higher numbers.
#[derive(Debug, Default)]
pub struct Places {
    replies: BTreeMap<u64, Entry>,
    /// How many there were so far.
    count: u64,
}

impl Places {
    /// Adds a reply of a client and returns it with its number, if there are fewer than `most` or another one can be
    /// displaced.
    pub fn take(&mut self, client: Client, most: usize) -> Option<(u64, Entry)> {
        if self.staying().count() >= most && !self.displace_for(client.who) {
            return None;
        }
        let (number, reply) = (self.count, Entry { client, cancel: Cancel::default(), marks: Arc::default() });
        self.count += 1;
        self.replies.insert(number, reply.clone());
        Some((number, reply))
    }

    /// Removes a reply.
    pub fn leave(&mut self, number: u64) {
        self.replies.remove(&number);
    }

    /// How many replies there are.
    pub fn len(&self) -> usize {
        self.replies.len()
    }

    pub fn cancel_all(&self) {
        self.replies.values().for_each(|reply| reply.cancel.cancel());
    }

    /// The replies that were not displaced.
    fn staying(&self) -> impl Iterator<Item = &Entry> {
        self.replies.values().filter(|reply| !reply.marks.is_displaced())
    }

    /// Whether a reply of a client could be added.
    pub fn has_one_for(&self, who: Who, most: usize) -> bool {
        self.staying().count() < most || self.displaceable_for(who).is_some()
    }

    /// Displaces a reply of another client. Returns false if none may be displaced.
    fn displace_for(&self, who: Who) -> bool {
        let Some(reply) = self.displaceable_for(who) else { return false };
        reply.marks.displaced.store(true, Ordering::Relaxed);
        reply.cancel.cancel();
        true
    }

    /// The reply of another client that a client displaces. The other client still has at least as many replies then.
    fn displaceable_for(&self, who: Who) -> Option<&Entry> {
        let mut counts: HashMap<Who, usize> = HashMap::new();
        self.staying().for_each(|reply| *counts.entry(reply.client.who).or_default() += 1);
        let own = counts.get(&who).copied().unwrap_or_default();
        let waits = self.staying().filter(|reply| !reply.marks.begun.load(Ordering::Relaxed)).enumerate();
        let count = |reply: &Entry| counts.get(&reply.client.who).copied().unwrap_or_default();
        let most = waits.max_by_key(|(age, reply)| (count(reply), *age)).map(|(_, reply)| reply);
        most.filter(|reply| count(reply) > own + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::{Client, Places, Who};

    fn client(key: usize) -> Client {
        Client { who: Who::Key(key), cache: 0 }
    }

    /// How many places each of three clients has.
    fn held(places: &Places) -> [usize; 3] {
        [0, 1, 2].map(|key| places.staying().filter(|reply| reply.client == client(key)).count())
    }

    #[test]
    fn no_client_keeps_others_out() {
        let mut places = Places::default();
        let first = (0..8).filter_map(|_| places.take(client(0), 8)).collect::<Vec<_>>();
        assert_eq!(
            (held(&places), places.take(client(0), 8).is_none()),
            ([8, 0, 0], true),
            "a single client has all places"
        );
        first.iter().take(2).for_each(|(_, reply)| reply.marks.begin());
        let got = [1, 2, 1, 2, 1, 2, 1].map(|key| places.take(client(key), 8).is_some());
        assert_eq!((held(&places), got), ([3, 3, 2], [true, true, true, true, true, false, false]));
        let displaced = first.iter().map(|(_, reply)| reply.marks.is_displaced());
        assert!(displaced.eq((0..8).map(|number| number >= 3)), "the newest of those that were waiting");
        assert!(first.iter().all(|(_, reply)| reply.cancel.is_cancelled() == reply.marks.is_displaced()));
        first.iter().for_each(|(number, _)| places.leave(*number));
        assert_eq!(held(&places), [0, 3, 2]);
    }
}
