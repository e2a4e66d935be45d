//! Manages a shared KV cache that is smaller than all contexts together.
//!
//! The caches of conversations whose replies have ended are dropped first; then those of replies whose events are not
//! taken, and then those of the newest replies. These are computed again once they fit alongside the older ones: the
//! oldest reply always continues.

use super::engine::{Engine, Slot, Work};
use crate::error::Result;
use crate::plan::PAGE;
use std::time::Instant;

/// The result of evicting an idle conversation's cache.
pub(super) enum Eviction {
    /// One was dropped.
    One,
    /// One will be dropped in a later round, once it is stored.
    Later,
    /// There is none.
    None,
}

impl Engine {
    /// Frees memory for the reply of a slot, or makes it wait for memory. Returns false if nothing can be done.
    pub(super) fn free_memory(&mut self, index: usize) -> bool {
        let Some(id) = self.slots[index].work.as_ref().map(|work| work.id) else { return false };
        match self.evict_idle(index) {
            Eviction::One => return true,
            Eviction::Later => {
                self.slots[index].work.iter_mut().for_each(|work| work.waits = true);
                return true;
            }
            Eviction::None => {}
        }
        let others = self.holders().any(|(place, _)| place != index);
        match self.eviction_candidate(id) {
            Some(other) => self.give_up(other),
            None if others => self.give_up(index),
            None => return false,
        }
        true
    }

    /// The slots whose replies hold a part of the cache, and these replies.
    fn holders(&self) -> impl Iterator<Item = (usize, &Work)> {
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| !slot.session.tokens().is_empty());
        slots.filter_map(|(place, slot)| Some((place, slot.work.as_ref()?)))
    }

    /// The slot whose cache is dropped first if the reply with this number needs memory: that of the newest reply whose
    /// events are not taken, or otherwise of the newest reply that came later.
    fn eviction_candidate(&self, id: u64) -> Option<usize> {
        let others = || self.holders().filter(|(_, work)| work.id != id);
        let paused = others().filter(|(_, work)| work.paused).max_by_key(|(_, work)| work.id);
        let newer = others().filter(|(_, work)| work.id > id).max_by_key(|(_, work)| work.id);
        paused.or(newer).map(|(place, _)| place)
    }

    /// Drops the cache of the conversation without a reply that has been unused for longest, once it was stored. The
    /// slot `needy`, for which this is done, keeps its own.
    pub(super) fn evict_idle(&mut self, needy: usize) -> Eviction {
        let held = |slot: &Slot| slot.work.is_none() && !slot.session.tokens().is_empty();
        let idle = self.slots.iter().enumerate().filter(|(place, slot)| *place != needy && held(slot));
        let Some((oldest, _)) = idle.min_by_key(|(_, slot)| slot.used) else { return Eviction::None };
        let since = self.memory_awaited.into_iter().flatten().min().unwrap_or_else(Instant::now);
        if !self.leaves(oldest, since) {
            self.memory_awaited[1] = Some(since);
            return Eviction::Later;
        }
        self.slots[oldest].session.rewind(0);
        Eviction::One
    }

    /// Drops the cache of a reply until there is memory again.
    fn give_up(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if let Some(work) = &mut slot.work {
            work.given_up.get_or_insert_with(|| work.task.needed_tokens(&slot.session));
            self.outcome.given_up += slot.session.tokens().len();
        }
        slot.session.rewind(0);
    }

    /// Begins to compute the oldest dropped cache again if it fits alongside those of older replies. The caches of
    /// newer replies are dropped for it, so that it does not wait forever while others come and go.
    pub(super) fn compute_again(&mut self) {
        let waits = self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let work = slot.work.as_ref().filter(|work| !work.paused)?;
            Some((work.id, index, work.given_up.as_ref()?.len()))
        });
        let Some((id, index, length)) = waits.min() else { return };
        let goes_on = |work: &Work| work.id < id && !work.paused && work.given_up.is_none();
        let stays = |slot: &&Slot| slot.work.as_ref().is_some_and(goes_on);
        let older = || self.slots.iter().filter(stays);
        let needed = length + PAGE * (1 + older().count()); // a page for each, so that it is not dropped again at once
        let most = self.pool.tokens_beside(older().map(|slot| &slot.session));
        if most < needed && older().next().is_some() {
            return;
        }
        while self.pool.free() < needed {
            match self.evict_idle(index) {
                Eviction::One => {}
                Eviction::Later => return,
                Eviction::None => break,
            }
        }
        // Newer ones are dropped only when necessary.
        while self.pool.free() <= length
            && let Some(other) = self.eviction_candidate(id)
        {
            self.give_up(other);
        }
        if let Err(error) = self.begin_again(index) {
            self.fail(index, error);
        }
        self.outcome.worked = true;
    }

    fn begin_again(&mut self, index: usize) -> Result<()> {
        let slot = &mut self.slots[index];
        let Some(work) = &mut slot.work else { return Ok(()) };
        if let Some(tokens) = work.given_up.take() {
            slot.session.keep_common(work.task.cacheable(&tokens))?;
            work.task.compute_again(tokens);
        }
        Ok(())
    }
}
