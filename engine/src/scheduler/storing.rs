//! Stores conversations on disk.
//!
//! When a reply has ended, the full pages of its prompt are stored. The reply itself is not: most templates leave its
//! thinking out of the next prompt, which then continues differently, and the next prompt stores what is left of it.
//! All of a conversation is stored when its slot or its memory goes to another one, and at the end of the program. Only
//! pages that are not known to be on disk are read from the GPU, by the thread that drives the engine, one after the
//! other and for a limited time in each round, as the memory in which they wait for the disk allows. A slot is given to
//! another conversation once all of its pages were read. A thread of the cache writes them.
//!
//! Before a prompt is computed, those of its pages that are on disk are read back: see [`Reading`]. Whatever fails here
//! is computed instead.

use super::engine::{Engine, Slot, caught, died, empty};
use super::reading::names;
use crate::disk::{DiskCache, Job, earlier};
use crate::error::Result;
use crate::plan::PAGE;
use crate::session::Session;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// How long a round stores pages, and waits for pages from disk; the replies that are being generated wait for this
/// time.
pub(super) const ROUND: Duration = Duration::from_millis(30);
/// How long a conversation waits, in all, for slots and memory of others that are being stored. A disk that is
/// slower than that loses the rest, which costs less than a reply that does not begin.
const MAX_EVICTION_WAIT: Duration = Duration::from_secs(5);

/// The part of a slot's conversation that is being stored on disk.
pub(super) struct Storing {
    scope: StoreScope,
    /// Whether the app waits for it.
    is_asked: bool,
    /// When its pages count as used.
    used: SystemTime,
    /// Since when another conversation has waited.
    awaited_since: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoreScope {
    /// The pages of its first tokens.
    First(usize),
    /// All that the slot holds, because another conversation takes its place. What takes too long is dropped.
    Leaving,
    /// All that the slot holds.
    All,
}

/// How much of what is to be stored was handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoreProgress {
    /// More follows in the next rounds.
    Part,
    All,
    /// Pages were dropped, because the disk is too slow or fails, and all others were handed over.
    AllButDropped,
}

impl Engine {
    /// Stores what the slots have to store, until the round's time for it is over, and at least a page of each slot.
    pub(super) fn store(&mut self) {
        for index in 0..self.slots.len() {
            self.store_slot(index);
        }
    }

    /// Stores all that a slot holds, because another conversation needs its place or its memory, and has waited for
    /// that, or for those of others, since `since`. Returns false if that takes longer than a round: it goes on in the
    /// next ones.
    pub(super) fn leaves(&mut self, index: usize, since: Instant) -> bool {
        let slot = &mut self.slots[index];
        if self.disk.is_none() || slot.is_stored || slot.session.tokens().len() < PAGE {
            return true;
        }
        let leaving = match slot.storing.take() {
            Some(storing) if storing.scope == StoreScope::Leaving => storing,
            other => {
                Storing { is_asked: other.is_some_and(|other| other.is_asked), ..Storing::new(StoreScope::Leaving) }
            }
        };
        slot.storing = Some(Storing { awaited_since: leaving.awaited_since.min(since), ..leaving });
        self.store_slot(index)
    }

    /// Begins to store what all slots hold, except texts that are being embedded.
    pub fn begin_store(&mut self) {
        for Slot { storing, work, .. } in &mut self.slots {
            if work.as_ref().is_some_and(|work| !work.task.is_kept()) {
                continue;
            }
            match storing {
                Some(storing) if storing.scope == StoreScope::Leaving => storing.is_asked = true,
                _ => *storing = Some(Storing { is_asked: true, ..Storing::new(StoreScope::All) }),
            }
        }
    }

    /// Stores what a slot has to store, as much as time and the memory of the cache's queue allow. Returns whether
    /// nothing is left.
    fn store_slot(&mut self, index: usize) -> bool {
        let Self { disk: Some(disk), slots, outcome, stores_for, .. } = self else { return true };
        let Slot { session, work, storing, is_stored, .. } = &mut slots[index];
        let Some(wanted) = storing.take() else { return true };
        let (mut handed, since) = (0, Instant::now());
        let done = caught(|| wanted.go_on(disk, session, since + *stores_for, &mut handed)).unwrap_or_else(|| {
            empty(session);
            Err(died())
        });
        *stores_for = stores_for.saturating_sub(since.elapsed());
        outcome.worked |= handed > 0;
        match done {
            Ok(StoreProgress::Part) => {
                *storing = Some(wanted);
                return false;
            }
            Ok(StoreProgress::All) => *is_stored |= !matches!(wanted.scope, StoreScope::First(_)) && work.is_none(),
            // A conversation that waits for the slot does not wait a second time.
            Ok(StoreProgress::AllButDropped) => *is_stored |= wanted.scope == StoreScope::Leaving && work.is_none(),
            Err(error) => tracing::warn!("cannot store a conversation in the disk cache: {error}"),
        }
        outcome.worked = true;
        true
    }
}

impl Storing {
    fn new(scope: StoreScope) -> Self {
        Self { scope, is_asked: false, used: SystemTime::now(), awaited_since: Instant::now() }
    }

    /// The pages of the first tokens.
    pub fn first(tokens: usize) -> Self {
        Self::new(StoreScope::First(tokens))
    }

    /// Whether the app waits for it.
    pub fn is_asked(&self) -> bool {
        self.is_asked
    }

    /// What remains to be stored once the slot continues its conversation: only what the app waits for, since the rest
    /// is stored with the next prompt. Nobody waits for the slot any more.
    pub fn of_continued(self) -> Option<Self> {
        self.is_asked.then_some(Self { scope: StoreScope::All, ..self })
    }

    /// Hands pages over to the cache's thread, at least one if there is memory for it. The session may have changed
    /// since the last call.
    fn go_on(
        &self,
        disk: &DiskCache,
        session: &mut Session,
        until: Instant,
        handed: &mut usize,
    ) -> Result<StoreProgress> {
        let most = if let StoreScope::First(tokens) = self.scope { tokens } else { usize::MAX };
        if session.tokens().len().min(most) < PAGE {
            return Ok(StoreProgress::All);
        }
        if disk.is_failing() {
            return Ok(StoreProgress::AllButDropped);
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
        let kept = Arc::new(names.iter().flatten().copied().collect());
        for (done, (place, with_block)) in missing.iter().copied().enumerate() {
            let Some(memory) = disk.reserve(session.page_bytes(with_block)) else {
                let gives_up = self.gives_up(disk, missing.len() - done);
                return Ok(if gives_up { StoreProgress::AllButDropped } else { StoreProgress::Part });
            };
            let rows = session.read_page(place, with_block)?;
            let used = earlier(self.used, place as u32);
            memory.fill(Job { name: names[place][usize::from(with_block)], rows, used, kept: Arc::clone(&kept) });
            *handed += 1;
            if Instant::now() >= until && done + 1 < missing.len() {
                return Ok(StoreProgress::Part);
            }
        }
        disk.use_now(&names);
        Ok(StoreProgress::All)
    }

    /// Whether the rest is dropped, because the disk is too slow for the conversation that waits for this one to leave.
    fn gives_up(&self, disk: &DiskCache, left: usize) -> bool {
        let gives_up = self.scope == StoreScope::Leaving && self.awaited_since.elapsed() >= MAX_EVICTION_WAIT;
        if gives_up {
            disk.count_dropped(left);
            tracing::warn!("the disk cache is too slow: {} tokens of a conversation are not stored", left * PAGE);
        }
        gives_up
    }
}
