//! Conversations that go to disk when they lose their slot, and come back from there.
//!
//! When a reply has ended, the full pages of its prompt are stored. The reply itself is not: most templates leave its
//! thinking out of the next prompt, which then continues differently, and the next prompt stores what is left of it. All
//! of a conversation is stored when its slot or its memory goes to another one, and at the end of the program. Only
//! pages that are not on disk are read from the GPU, by the thread that drives the engine, one after the other and for
//! a limited time in each round, as the memory in which they wait for the disk allows. A slot is given to another
//! conversation once all of its pages were read. A thread of the cache writes them.
//!
//! Before a prompt is computed, the pages that the disk has of it are read, a few in each round, so that the others
//! continue meanwhile. Whatever fails here is computed instead.

use super::engine::{Engine, Slot, caught, died, empty};
use crate::disk::{DiskCache, PageName};
use crate::error::{Error, Result};
use crate::plan::PAGE;
use crate::session::Session;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How many pages are read from disk in a round.
const PAGES: usize = 4;
/// For how long a round stores pages; the replies that are being generated wait for this time.
const ROUND: Duration = Duration::from_millis(30);
/// For how long a conversation waits for the place of another one that is being stored. A disk that is slower than
/// that loses the rest, which costs less than a reply that does not begin.
const LEAVING: Duration = Duration::from_secs(5);

impl Engine {
    /// The names of the pages of a prompt that may be on disk. Its last token has to be computed in any case.
    pub(super) fn stored_pages(&self, index: usize, prompt: &[u32]) -> Option<Vec<PageName>> {
        self.disk.as_ref()?;
        let computed = prompt.len().saturating_sub(1);
        Some(names(&self.slots[index].session, &prompt[..computed]))
    }

    /// Reads the next pages of a slot's prompt from disk. Returns false if there are none, so that the prompt has to be
    /// computed from here.
    pub(super) fn bring_back(&mut self, index: usize) -> bool {
        let Some(disk) = self.disk.clone() else { return false };
        let Some(names) = self.slots[index].work.as_mut().and_then(|work| work.stored.take()) else { return false };
        let read = self.attempt(index, |task, session| next_pages(&disk, &names, task.prompt(), session));
        let (goes_on, ended) = match read {
            Ok(goes_on) => (goes_on, Ok(())),
            Err(error @ (Error::PoolFull { .. } | Error::DeviceLost { .. })) => (true, Err(error)),
            Err(error) => {
                tracing::warn!("cannot use the disk cache: {error}");
                (false, Ok(()))
            }
        };
        if goes_on {
            self.slots[index].work.iter_mut().for_each(|work| work.stored = Some(names.clone()));
            self.conclude(index, ended);
        }
        goes_on
    }

    /// Stores what the slots have to store, until a round's time is over.
    pub(super) fn store(&mut self) {
        let until = Instant::now() + ROUND;
        for index in 0..self.slots.len() {
            self.store_slot(index, until, false);
        }
    }

    /// Stores all that a slot holds, because another conversation needs its place or its memory. Returns false if that
    /// takes longer than a round: it goes on in the next ones.
    pub(super) fn leaves(&mut self, index: usize) -> bool {
        let slot = &mut self.slots[index];
        if self.disk.is_none() || slot.is_stored || slot.session.tokens().len() < PAGE {
            return true;
        }
        if !slot.storing.as_ref().is_some_and(Storing::is_of_all) {
            slot.storing = Some(Storing::new(usize::MAX));
        }
        self.store_slot(index, Instant::now() + ROUND, false)
    }

    /// Stores what a slot has to store, as much as time and the memory of the cache's queue allow; all of it if this
    /// `waits` for that memory. Returns whether nothing is left.
    fn store_slot(&mut self, index: usize, until: Instant, waits: bool) -> bool {
        let Self { disk: Some(disk), slots, outcome, .. } = self else { return true };
        let Slot { session, work, storing, is_stored, .. } = &mut slots[index];
        let Some(mut wanted) = storing.take() else { return true };
        let handed = wanted.handed;
        let done = caught(|| wanted.go_on(disk, session, until, waits)).unwrap_or_else(|| {
            empty(session);
            Err(died())
        });
        outcome.worked |= wanted.handed > handed;
        if let Ok(false) = done {
            *storing = Some(wanted);
            return false;
        }
        if let Err(error) = done {
            tracing::warn!("cannot store a conversation in the disk cache: {error}");
        }
        outcome.worked = true;
        *is_stored |= wanted.is_of_all() && work.is_none();
        true
    }

    /// Stores what all slots hold.
    pub fn store_all(&mut self) {
        let now = Instant::now();
        for index in 0..self.slots.len() {
            self.slots[index].storing = Some(Storing::new(usize::MAX));
            while !self.store_slot(index, now, true) {}
        }
    }
}

/// A conversation on its way to disk.
pub(super) struct Storing {
    /// How many of its tokens are stored, as far as they fill pages.
    tokens: usize,
    since: Instant,
    /// The names of its pages, and the places of those that are not on disk; `None` before the first round.
    pages: Option<(Vec<PageName>, VecDeque<usize>)>,
    /// How many pages were handed over.
    handed: usize,
}

impl Storing {
    pub fn new(tokens: usize) -> Self {
        Self { tokens, since: Instant::now(), pages: None, handed: 0 }
    }

    fn is_of_all(&self) -> bool {
        self.tokens == usize::MAX
    }

    /// Hands pages over to the cache's thread, at least one if there is memory for it. Returns whether none is left.
    fn go_on(&mut self, disk: &DiskCache, session: &mut Session, until: Instant, waits: bool) -> Result<bool> {
        if session.tokens().len().min(self.tokens) < PAGE {
            return Ok(true);
        }
        if self.pages.is_none() {
            let count = session.full_pages()?.min(self.tokens / PAGE);
            let names = names(session, &session.tokens()[..count * PAGE]);
            let missing: VecDeque<usize> = (0..count).filter(|place| !disk.has(names[*place])).collect();
            if missing.is_empty() {
                disk.write(names, Vec::new()); // they are used now
                return Ok(true);
            }
            self.pages = Some((names, missing));
        }
        let Some((names, missing)) = &mut self.pages else { return Ok(true) };
        if session.tokens().len() < names.len() * PAGE {
            return Ok(true); // it was emptied after a defect
        }
        let bytes = session.page_bytes();
        while let Some(place) = missing.front().copied() {
            if disk.places(bytes, waits) == 0 {
                return Ok(self.is_given_up(disk, waits));
            }
            let pages = session.read_pages(&[place])?;
            disk.write(names.clone(), pages.into_iter().map(|rows| (names[place], rows)).collect());
            missing.pop_front();
            self.handed += 1;
            if Instant::now() >= until {
                break;
            }
        }
        Ok(missing.is_empty())
    }

    /// Whether the rest is dropped, because the disk is too slow for the conversation that waits for this one to leave.
    fn is_given_up(&self, disk: &DiskCache, waits: bool) -> bool {
        let left = self.pages.as_ref().map_or(0, |(_, missing)| missing.len());
        let given_up = waits || self.is_of_all() && self.since.elapsed() >= LEAVING;
        if given_up {
            disk.count_dropped(left);
            tracing::warn!("the disk cache is too slow: {} tokens of a conversation are not stored", left * PAGE);
        }
        given_up
    }
}

/// The names of the full pages of some tokens.
fn names(session: &Session, tokens: &[u32]) -> Vec<PageName> {
    let identity = [&session.paging_identity()[..], &[session.tenant()]].concat();
    let next = |name: &mut PageName, page: &[u32]| {
        *name = name.then(page);
        Some(*name)
    };
    tokens.chunks_exact(PAGE).scan(PageName::start(&identity), next).collect()
}

/// Reads the pages of a prompt that follow those in memory. Returns whether there may be more.
fn next_pages(disk: &DiskCache, names: &[PageName], prompt: &[u32], session: &mut Session) -> Result<bool> {
    let (held, bytes) = (session.keep_common(prompt)? / PAGE, session.page_bytes());
    let there = names.iter().skip(held).take(PAGES);
    let pages: Vec<Vec<u8>> = there.map_while(|name| disk.read(*name, bytes)).collect();
    if !pages.is_empty() {
        session.append_pages(held, &prompt[held * PAGE..(held + pages.len()) * PAGE], &pages)?;
    }
    Ok(pages.len() == PAGES)
}
