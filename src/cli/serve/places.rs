//! The replies that run or wait, of which there is a limit. When it is reached, a client with fewer replies displaces the
//! newest reply of the client with the most whose turn has not come. So one client alone may use the whole queue, but
//! cannot keep others out.

use super::client::{Client, Who};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wglm::Cancel;

/// A reply.
#[derive(Debug, Clone)]
pub struct Reply {
    pub client: Client,
    pub cancel: Cancel,
    pub marks: Arc<Marks>,
}

/// What becomes of a reply.
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

    /// Whether another client has its place.
    pub fn is_displaced(&self) -> bool {
        self.displaced.load(Ordering::Relaxed)
    }
}

/// The replies that run or wait, by number: newer ones have higher numbers.
#[derive(Debug, Default)]
pub struct Places {
    replies: BTreeMap<u64, Reply>,
    /// How many there were.
    count: u64,
}

impl Places {
    /// A place for a reply of a client, with its number, if there are fewer than `most` or another client gives one up.
    pub fn take(&mut self, client: Client, most: usize) -> Option<(u64, Reply)> {
        if self.staying().count() >= most && !self.displace_for(client.who) {
            return None;
        }
        let (number, reply) = (self.count, Reply { client, cancel: Cancel::default(), marks: Arc::default() });
        self.count += 1;
        self.replies.insert(number, reply.clone());
        Some((number, reply))
    }

    /// Frees a place.
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

    /// The replies that keep their places.
    fn staying(&self) -> impl Iterator<Item = &Reply> {
        self.replies.values().filter(|reply| !reply.marks.is_displaced())
    }

    /// Whether a client would get a place.
    pub fn has_one_for(&self, who: Who, most: usize) -> bool {
        self.staying().count() < most || self.displaceable_for(who).is_some()
    }

    /// Has another client give up a place. Returns false if none may be taken.
    fn displace_for(&self, who: Who) -> bool {
        let Some(reply) = self.displaceable_for(who) else { return false };
        reply.marks.displaced.store(true, Ordering::Relaxed);
        reply.cancel.cancel();
        true
    }

    /// The reply of another client whose place this one gets. The other has then still as many as this one.
    fn displaceable_for(&self, who: Who) -> Option<&Reply> {
        let mut counts: HashMap<Who, usize> = HashMap::new();
        self.staying().for_each(|reply| *counts.entry(reply.client.who).or_default() += 1);
        let own = counts.get(&who).copied().unwrap_or_default();
        let waits = self.staying().filter(|reply| !reply.marks.begun.load(Ordering::Relaxed)).enumerate();
        let count = |reply: &Reply| counts.get(&reply.client.who).copied().unwrap_or_default();
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
        assert_eq!((held(&places), places.take(client(0), 8).is_none()), ([8, 0, 0], true), "alone it has all");
        first.iter().take(2).for_each(|(_, reply)| reply.marks.begin());
        let got = [1, 2, 1, 2, 1, 2, 1].map(|key| places.take(client(key), 8).is_some());
        assert_eq!((held(&places), got), ([3, 3, 2], [true, true, true, true, true, false, false]));
        let displaced = first.iter().map(|(_, reply)| reply.marks.is_displaced());
        assert!(displaced.eq((0..8).map(|number| number >= 3)), "the newest of those that have not begun");
        assert!(first.iter().all(|(_, reply)| reply.cancel.is_cancelled() == reply.marks.is_displaced()));
        first.iter().for_each(|(number, _)| places.leave(*number));
        assert_eq!(held(&places), [0, 3, 2]);
    }
}
