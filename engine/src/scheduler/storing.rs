//! Conversations that go to disk when they lose their slot, and come back from there.
//!
//! When a reply has ended, the full pages of its prompt are stored. The reply itself is not: most templates leave its
//! thinking out of the next prompt, which then continues differently, and the next prompt stores what is left of it.
//! All of a conversation is stored when its slot or its memory goes to another one, and at the end of the program. Only
//! pages that are not on disk are read from the GPU, by the thread that drives the engine, one after the other and for
//! a limited time in each round, as the memory in which they wait for the disk allows. A slot is given to another
//! conversation once all of its pages were read. A thread of the cache writes them.
//!
//! Before a prompt is computed, the pages that the disk has of it come back: see [`Reading`]. Whatever fails here is
//! computed instead.

use super::engine::{Engine, Slot, caught, died, empty};
use super::reading::names;
use crate::disk::{DiskCache, Job, earlier};
use crate::error::Result;
use crate::plan::PAGE;
use crate::session::Session;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// For how long a round stores pages, and waits for pages from disk; the replies that are being generated wait for this
/// time.
pub(super) const ROUND: Duration = Duration::from_millis(30);
/// For how long a conversation waits for the place of another one that is being stored. A disk that is slower than
/// that loses the rest, which costs less than a reply that does not begin.
const LEAVING: Duration = Duration::from_secs(5);

/// What of a slot's conversation is on its way to disk.
pub(super) struct Storing {
    what: What,
    since: (Instant, SystemTime),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// The pages of its first tokens.
    First(usize),
    /// All that the slot holds, because another conversation takes its place. What takes too long is dropped.
    Leaving,
    /// All that the slot holds, because the app asked for it.
    Asked,
}

impl Engine {
    /// Stores what the slots have to store, until a round's time is over.
    pub(super) fn store(&mut self) {
        let until = Instant::now() + ROUND;
        for index in 0..self.slots.len() {
            self.store_slot(index, until);
        }
    }

    /// Stores all that a slot holds, because another conversation needs its place or its memory. Returns false if that
    /// takes longer than a round: it goes on in the next ones.
    pub(super) fn leaves(&mut self, index: usize) -> bool {
        let slot = &mut self.slots[index];
        if self.disk.is_none() || slot.is_stored || slot.session.tokens().len() < PAGE {
            return true;
        }
        if slot.storing.as_ref().is_none_or(|storing| storing.what != What::Leaving) {
            slot.storing = Some(Storing::new(What::Leaving));
        }
        self.store_slot(index, Instant::now() + ROUND)
    }

    /// Begins to store what all slots hold.
    pub fn begin_store(&mut self) {
        let leaving = |slot: &&mut Slot| slot.storing.as_ref().is_none_or(|storing| storing.what != What::Leaving);
        self.slots.iter_mut().filter(leaving).for_each(|slot| slot.storing = Some(Storing::new(What::Asked)));
    }

    /// Stores what a slot has to store, as much as time and the memory of the cache's queue allow. Returns whether
    /// nothing is left.
    fn store_slot(&mut self, index: usize, until: Instant) -> bool {
        let Self { disk: Some(disk), slots, outcome, .. } = self else { return true };
        let Slot { session, work, storing, is_stored, .. } = &mut slots[index];
        let Some(wanted) = storing.take() else { return true };
        let mut handed = 0;
        let done = caught(|| wanted.go_on(disk, session, until, &mut handed)).unwrap_or_else(|| {
            empty(session);
            Err(died())
        });
        outcome.worked |= handed > 0;
        if let Ok(false) = done {
            *storing = Some(wanted);
            return false;
        }
        if let Err(error) = done {
            tracing::warn!("cannot store a conversation in the disk cache: {error}");
        }
        outcome.worked = true;
        *is_stored |= !matches!(wanted.what, What::First(_)) && work.is_none();
        true
    }
}

impl Storing {
    fn new(what: What) -> Self {
        Self { what, since: (Instant::now(), SystemTime::now()) }
    }

    /// The pages of the first tokens.
    pub fn first(tokens: usize) -> Self {
        Self::new(What::First(tokens))
    }

    /// Whether the app waits for it.
    pub fn is_asked(&self) -> bool {
        self.what == What::Asked
    }

    /// Hands pages over to the cache's thread, at least one if there is memory for it. Returns whether none is left.
    /// The session may have changed since the last call.
    fn go_on(&self, disk: &DiskCache, session: &mut Session, until: Instant, handed: &mut usize) -> Result<bool> {
        let most = if let What::First(tokens) = self.what { tokens } else { usize::MAX };
        if session.tokens().len().min(most) < PAGE {
            return Ok(true);
        }
        let count = session.full_pages()?.min(most / PAGE);
        let names = names(session, &session.tokens()[..count * PAGE]);
        let there = |place: &usize, with_block: bool| {
            let [alone, both] = names[*place];
            disk.has(both) || !with_block && disk.has(alone)
        };
        let missing: Vec<(usize, bool)> = (0..count)
            .map(|place| (place, session.has_block_rows(place)))
            .filter(|(place, with_block)| !there(place, *with_block))
            .collect();
        if disk.is_failing() {
            disk.count_dropped(missing.len());
            return Ok(true);
        }
        let kept = Arc::new(names.iter().flatten().copied().collect());
        for (done, (place, with_block)) in missing.iter().copied().enumerate() {
            let Some(memory) = disk.reserve(session.page_bytes(with_block)) else {
                return Ok(self.gives_up(disk, missing.len() - done));
            };
            let rows = session.read_page(place, with_block)?;
            let used = earlier(self.since.1, place as u32);
            memory.fill(Job { name: names[place][usize::from(with_block)], rows, used, kept: Arc::clone(&kept) });
            *handed += 1;
            if Instant::now() >= until && done + 1 < missing.len() {
                return Ok(false);
            }
        }
        disk.use_now(&names);
        Ok(true)
    }

    /// Whether the rest is dropped, because the disk is too slow for the conversation that waits for this one to leave.
    fn gives_up(&self, disk: &DiskCache, left: usize) -> bool {
        let gives_up = self.what == What::Leaving && self.since.0.elapsed() >= LEAVING;
        if gives_up {
            disk.count_dropped(left);
            tracing::warn!("the disk cache is too slow: {} tokens of a conversation are not stored", left * PAGE);
        }
        gives_up
    }
}
