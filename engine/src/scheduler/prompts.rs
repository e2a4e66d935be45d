//! Computes the prompts of conversations: a part of one in each round, or several short prompts in one batch.

use super::engine::{Engine, Slot, Work, caught, died, empty};
use crate::cancel::Cancels;
use crate::error::{Error, Result};
use crate::plan::PAGE;
use crate::session::FinalPart;
use crate::threads::with_stop_signal;

impl Engine {
    /// Computes a part of the next prompt in turn, together with other prompts if they are short.
    pub(super) fn read(&mut self) {
        let count = self.slots.len();
        let turns = (self.turn..self.turn + count).map(|turn| turn % count);
        let reading: Vec<usize> = turns.filter(|index| self.reads(*index)).collect();
        let Some(&index) = reading.first() else { return };
        self.turn = index + 1;
        let others_wait = self.slots.iter().any(|slot| slot.work.as_ref().is_some_and(Work::decodes));
        if !self.begin_reading(index, others_wait) {
            return;
        }
        let mut batch: Vec<(usize, FinalPart)> = self.final_part(index).map(|part| (index, part)).into_iter().collect();
        for (place, other) in reading.iter().enumerate().skip(1) {
            self.join((*other, &reading[..place]), &mut batch, others_wait);
        }
        // Beginning one may have failed, or dropped the cache of another.
        batch.retain(|(index, part)| self.final_part(*index) == Some(*part));
        self.read_together(batch);
        if self.reads(index) {
            self.advance(index);
        }
    }

    /// Whether a slot computes tokens of a prompt next.
    fn reads(&self, index: usize) -> bool {
        self.slots[index].work.as_ref().is_some_and(Work::reads)
    }

    /// Begins the prompt of a slot, unless it has begun. Returns whether a part of it has to be computed.
    fn begin_reading(&mut self, index: usize, others_wait: bool) -> bool {
        self.slots[index].session.set_others_waiting(others_wait);
        let is_begun = self.slots[index].work.as_ref().is_some_and(|work| work.task.is_begun());
        if !is_begun && self.bring_back(index, !others_wait) {
            return false;
        }
        if !is_begun {
            self.advance(index);
        }
        self.reads(index)
    }

    /// The rest of a slot's prompt, if it can be computed together with other prompts.
    fn final_part(&self, index: usize) -> Option<FinalPart> {
        let Slot { session, work: Some(work), .. } = &self.slots[index] else { return None };
        let is_ready = work.reads() && !work.task.is_cancelled() && !self.one_by_one;
        let rest = work.task.batchable_rest(session).filter(|_| is_ready)?;
        caught(|| session.final_part(rest))?.ok()? // computing it alone reports the error
    }

    /// Adds the prompt of a slot to a batch, if it suits the others. It waits if its pages come from disk, or if it
    /// could share pages with one of the `earlier` slots once that one's prompt is computed.
    fn join(&mut self, (index, earlier): (usize, &[usize]), batch: &mut Vec<(usize, FinalPart)>, others_wait: bool) {
        let Some((_, first)) = batch.first().copied() else { return };
        let rows: usize = batch.iter().map(|(_, part)| part.rows).sum();
        let most = batch.iter().map(|(_, part)| part.most).fold(first.most, usize::min);
        let waits = self.slots[index].work.as_ref().is_none_or(|work| work.reading.is_some() && !work.task.is_begun());
        let shares = || earlier.iter().any(|earlier| self.may_share(*earlier, index));
        if waits || rows + first.least > most || shares() || !self.begin_reading(index, others_wait) {
            return;
        }
        if let Some(part) = self.final_part(index)
            && part.shape == first.shape
            && rows + part.rows <= most.min(part.most)
        {
            batch.push((index, part));
        }
    }

    /// Whether the prompt of a slot begins with full pages of an earlier one's that cannot be shared yet.
    fn may_share(&self, earlier: usize, later: usize) -> bool {
        let [earlier, later] = [earlier, later].map(|index| &self.slots[index]);
        let (Some(first), Some(second)) = (&earlier.work, &later.work) else { return false };
        let offered = if first.task.is_begun() { earlier.session.offered_pages() } else { 0 };
        let [first, second] = [first, second].map(|work| work.task.prompt().get(..(offered + 1) * PAGE));
        earlier.session.tenant() == later.session.tenant() && first.is_some() && first == second
    }

    /// Computes the rest of several prompts in one batch, if there is memory for it. Otherwise they have to be computed
    /// one after another.
    fn read_together(&mut self, mut batch: Vec<(usize, FinalPart)>) {
        if batch.len() < 2 {
            return;
        }
        // Those for which there is no memory wait for their own turn, in which others may make room for them.
        batch.retain(|(index, _)| self.reserve_rest(*index).is_ok());
        let read = if batch.len() > 1 { self.feed_together(&batch) } else { Ok(false) };
        if let Ok(false) = read {
            for (index, _) in batch {
                let _ = caught(|| self.slots[index].session.release_reserved());
            }
            return;
        }
        for (index, _) in batch {
            self.work_on(index, |task, session| {
                read.clone()?;
                task.complete_prompt(session);
                Ok(())
            });
        }
    }

    /// Reserves the pages for the rest of a slot's prompt.
    fn reserve_rest(&mut self, index: usize) -> Result<()> {
        self.attempt(index, |task, session| match task.batchable_rest(session) {
            Some(rest) => session.begin_prompt(rest),
            None => Ok(()),
        })
    }

    /// Feeds the rest of several prompts. Returns false if none was fed.
    fn feed_together(&mut self, batch: &[(usize, FinalPart)]) -> Result<bool> {
        let (mut sessions, mut prompts, mut cancels) = (Vec::new(), Vec::new(), Vec::new());
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Slot { session, work: Some(Work { task, .. }), .. } = slot else { continue };
            let rest = task.batchable_rest(session).filter(|_| batch.iter().any(|(of, _)| *of == index));
            if let Some(rest) = rest {
                prompts.push(rest);
                cancels.push(task.cancels().clone());
                sessions.push(session);
            }
        }
        let held: Vec<usize> = sessions.iter().map(|session| session.tokens().len()).collect();
        let are_cancelled = move || cancels.iter().all(Cancels::is_cancelled);
        let cancelled = are_cancelled.clone();
        let mut check_stop = || if are_cancelled() { Err(Error::Cancelled) } else { Ok(()) };
        let read = with_stop_signal(cancelled, || {
            caught(|| {
                let read = self.pool.feed_together(&mut sessions, &prompts, batch[0].1, &mut check_stop)?;
                sessions[0].wait().map(|()| read)
            })
        });
        let unchanged = sessions.iter().zip(held).all(|(session, held)| session.tokens().len() == held);
        match read {
            None => {
                sessions.into_iter().for_each(empty);
                Err(died())
            }
            Some(Err(Error::OutOfMemory { .. } | Error::TooLarge { .. })) if unchanged => {
                self.one_by_one = true;
                Ok(false)
            }
            Some(read) => read,
        }
    }
}
