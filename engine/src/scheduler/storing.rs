//! Conversations that go to disk when they lose their slot, and come back from there.
//!
//! When a reply has ended, the full pages of its prompt are stored. The reply itself is not: most templates leave its
//! thinking out of the next prompt, which then continues differently, and the next prompt stores what is left of it. All
//! of a conversation is stored when its slot or its memory goes to another one, and at the end of the program. Only
//! pages that are not on disk are read from the GPU, which the other replies wait for: a page of each layer at a time, a
//! few milliseconds for a page. A thread of the cache writes them.
//!
//! Before a prompt is computed, the pages that the disk has of it are read, a few in each round, so that the others
//! continue meanwhile. Whatever fails here is computed instead.

use super::engine::{Engine, Slot, caught, died, empty};
use crate::disk::{DiskCache, PageName};
use crate::error::{Error, Result};
use crate::plan::PAGE;
use crate::session::Session;

/// How many pages are read from disk in a round.
const PAGES: usize = 4;

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

    /// Stores the full pages of the first `tokens` tokens of a slot. If the disk is too slow, those that do not fit into
    /// memory are dropped, unless this `waits`.
    pub(super) fn store(&mut self, index: usize, tokens: usize, waits: bool) {
        let (Some(disk), Slot { session, .. }) = (&self.disk, &mut self.slots[index]) else { return };
        let stored = caught(|| store_pages(disk, session, tokens, waits)).unwrap_or_else(|| {
            empty(session);
            Err(died())
        });
        if let Err(error) = stored {
            tracing::warn!("cannot store a conversation in the disk cache: {error}");
        }
    }

    /// Stores what all slots hold, and waits until it is on disk.
    pub fn store_all(&mut self) {
        (0..self.slots.len()).for_each(|index| self.store(index, usize::MAX, true));
        self.disk.iter().for_each(DiskCache::wait);
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

fn store_pages(disk: &DiskCache, session: &mut Session, tokens: usize, waits: bool) -> Result<()> {
    if session.tokens().len().min(tokens) < PAGE {
        return Ok(());
    }
    let count = session.full_pages()?.min(tokens / PAGE);
    let names = names(session, &session.tokens()[..count * PAGE]);
    let missing: Vec<usize> = (0..count).filter(|place| !disk.has(names[*place])).collect();
    let (mut left, bytes) = (&missing[..], session.page_bytes());
    while !left.is_empty() {
        let (now, later) = left.split_at(disk.places(bytes, waits).min(left.len()));
        if now.is_empty() {
            disk.count_dropped(left.len());
            break;
        }
        let pages = now.iter().map(|place| names[*place]).zip(session.read_pages(now)?).collect();
        disk.write(names.clone(), pages);
        left = later;
    }
    if missing.is_empty() && count > 0 {
        disk.write(names, Vec::new()); // they are used now
    }
    Ok(())
}
