//! The slots of conversations, and rounds of work on them.
//!
//! A round computes a part of one prompt, in turn, or several short prompts together (`scheduler/prompts.rs`), and
//! takes a step with all conversations whose prompts are complete (`scheduler/steps.rs`).
//!
//! A panic, which is a defect, ends only the replies that were being worked on. The results of a round stay in the
//! engine until they are taken, so that they are not lost with the thread that panics.

use super::Tenant;
use super::reading::Reading;
use super::state::SlotState;
use super::storing::{ROUND, Storing};
use crate::chat::CallIds;
use crate::disk::DiskCache;
use crate::error::{Error, Result};
use crate::generate::{Event, GenerationTask, Phase};
use crate::plan::PAGE;
use crate::session::{Pool, Session};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// The most tokens at the end of a prompt that open its reply.
const OPENING: usize = 16;

/// A request that has no slot yet.
pub struct Request {
    /// Its number: later ones have higher numbers.
    pub id: u64,
    pub tenant: Tenant,
    pub task: GenerationTask<'static>,
    pub ids: CallIds,
    /// When it began to wait for a slot whose conversation is being stored; `None` if it has not waited.
    pub waits_since: Option<Instant>,
}

/// The slots of conversations.
pub struct Engine {
    pub(super) pool: Pool,
    pub(super) disk: Option<DiskCache>,
    pub(super) slots: Vec<Slot>,
    /// Requests for which there are slots.
    accepted: VecDeque<Request>,
    /// How many requests were given a slot so far.
    placed: u64,
    /// The slot whose prompt is computed next.
    pub(super) turn: usize,
    /// Whether there is no memory for a batch of several prompts.
    pub(super) one_by_one: bool,
    /// The tokens per second of the last long prompt that was computed; 0 before.
    pub(super) prompt_rate: f64,
    /// Since when replies have waited for the memory of conversations that are being stored, if any waited in the last
    /// round, or in this one.
    pub(super) memory_awaited: [Option<Instant>; 2],
    /// For how much longer this round may store pages.
    pub(super) stores_for: Duration,
    /// Results that were not taken yet.
    pub(super) outcome: Outcome,
}

/// A place for a conversation.
pub(super) struct Slot {
    pub session: Session,
    /// The reply being generated. Without one the session keeps its cache for the next turn.
    pub work: Option<Work>,
    /// The number of the last request in this slot, among all requests that were given one.
    pub used: u64,
    /// How many of the session's tokens are the last prompt.
    prompt: usize,
    /// The part of the session that has to be stored on disk.
    pub storing: Option<Storing>,
    /// Whether all that the session holds was stored, or as much as the disk took while another conversation waited.
    pub is_stored: bool,
}

/// A reply being generated in a slot.
pub(super) struct Work {
    pub id: u64,
    pub task: GenerationTask<'static>,
    ids: CallIds,
    /// Whether its events are not taken.
    pub paused: bool,
    /// The tokens whose cache was dropped, to be computed again once there is memory.
    pub given_up: Option<Vec<u32>>,
    /// Whether it waits until a conversation that holds memory was stored.
    pub waits: bool,
    /// Its prompt's pages, while the disk may have the next one.
    pub reading: Option<Reading>,
}

/// The results of rounds.
#[derive(Default)]
pub struct Outcome {
    /// Events of replies by their numbers.
    pub events: Vec<(u64, Result<Event>)>,
    /// The replies that have ended.
    pub over: Vec<u64>,
    /// Tokens whose cache was dropped before their reply ended.
    pub given_up: usize,
    /// The tasks of those that had a slot. They have choosers, which are dropped while no lock is held.
    pub ended: Vec<GenerationTask<'static>>,
    /// The error if the device is lost.
    pub lost: Option<Error>,
    /// Whether there was anything to do.
    pub worked: bool,
    /// Whether conversations have to be stored in further rounds, and whether the app waits for any of them.
    pub unstored: bool,
    pub asked: bool,
}

impl Work {
    /// Whether the next round works on it.
    pub fn is_active(&self) -> bool {
        !self.paused && !self.waits && self.given_up.is_none()
    }

    /// Whether it computes tokens of a prompt next, or tokens whose cache was dropped.
    pub fn reads(&self) -> bool {
        self.is_active() && self.task.reads()
    }

    /// Whether it generates a token next.
    pub fn decodes(&self) -> bool {
        self.is_active() && self.task.phase() == Phase::Tokens && !self.task.reads()
    }
}

impl Slot {
    pub fn new(session: Session) -> Self {
        Self { session, work: None, used: 0, prompt: 0, storing: None, is_stored: false }
    }

    /// Whether a prompt that shares `common` tokens with the session continues its last prompt: all of that except its
    /// last tokens, which open the reply and may change once the reply is part of the prompt.
    fn is_continued(&self, common: usize) -> bool {
        let read = self.prompt.min(self.session.tokens().len());
        common > 0 && read.saturating_sub(common) <= (read / 4).min(OPENING)
    }

    fn state(&self) -> SlotState {
        let tokens = self.session.tokens().len();
        let state = SlotState { tokens, context: self.session.context(), ..SlotState::default() };
        let Some(work) = &self.work else { return state };
        let total = work.task.prompt().len();
        let done = if work.task.phase() == Phase::Prompt { tokens.min(total) } else { total };
        SlotState {
            busy: true,
            prompt_done: if work.task.is_begun() { done } else { 0 },
            prompt_total: total,
            generated: work.task.generated(),
            ..state
        }
    }
}

impl Engine {
    pub fn new(pool: Pool, disk: Option<DiskCache>) -> Self {
        let (slots, accepted, outcome) = (Vec::new(), VecDeque::new(), Outcome::default());
        let stores_for = Duration::ZERO;
        let memory_awaited = [None; 2];
        Self {
            pool,
            disk,
            slots,
            accepted,
            placed: 0,
            turn: 0,
            one_by_one: false,
            prompt_rate: 0.0,
            memory_awaited,
            stores_for,
            outcome,
        }
    }

    /// The context of a slot in tokens.
    pub fn context(&self) -> usize {
        self.pool.cache().context
    }

    /// The states of all slots, including those that do not exist yet.
    pub fn slots(&self) -> Vec<SlotState> {
        let empty = SlotState { context: self.context(), ..SlotState::default() };
        self.slots.iter().map(Slot::state).chain(std::iter::repeat(empty)).take(self.pool.sessions()).collect()
    }

    /// Takes a request for which there is a slot.
    pub fn accept(&mut self, request: Request) {
        self.accepted.push_back(request);
    }

    /// Pauses the replies for which `paused` returns true, given the number and whether it is paused, and no others.
    pub fn pause(&mut self, paused: impl Fn(u64, bool) -> bool) {
        let works = self.slots.iter_mut().filter_map(|slot| slot.work.as_mut());
        works.for_each(|work| work.paused = paused(work.id, work.paused));
    }

    /// Works on all replies until each active one has another token or a part of a prompt was computed.
    pub fn round(&mut self) {
        if caught(|| self.work()).is_none() {
            (0..self.slots.len()).for_each(|index| self.fail(index, died()));
        }
    }

    fn work(&mut self) {
        self.stores_for = ROUND;
        self.end_cancelled(); // first, because the next requests need their slots
        let mut awaited = Vec::new();
        for _ in 0..self.accepted.len() {
            let Some(request) = self.accepted.pop_front() else { break };
            let waits = self.place(request, &mut awaited);
            self.accepted.extend(waits);
        }
        self.slots.iter_mut().filter_map(|slot| slot.work.as_mut()).for_each(|work| work.waits = false);
        self.memory_awaited = [self.memory_awaited[1], None];
        self.compute_again();
        self.read();
        self.decode();
        self.store();
    }

    /// Takes the results so far.
    pub fn take_outcome(&mut self) -> Outcome {
        let storing = || self.slots.iter().filter_map(|slot| slot.storing.as_ref());
        let (unstored, asked) = (storing().next().is_some(), storing().any(Storing::is_asked));
        Outcome { unstored, asked, ..std::mem::take(&mut self.outcome) }
    }

    /// Ends the replies that were cancelled. It runs under the lock of the scheduler's state, and leaves the work for
    /// the GPU and the disk to the next round.
    pub fn end_cancelled(&mut self) {
        let (gone, stay): (VecDeque<Request>, _) =
            std::mem::take(&mut self.accepted).into_iter().partition(|request| request.task.is_cancelled());
        self.accepted = stay;
        for mut request in gone {
            request.task.end_cancelled(None);
            self.end_request(request, None);
        }
        for index in 0..self.slots.len() {
            if self.slots[index].work.as_ref().is_some_and(|work| work.task.is_cancelled()) {
                self.work_on(index, |task, session| {
                    task.end_cancelled(Some(session));
                    Ok(())
                });
            }
        }
    }

    /// Does work for the reply of a slot, if there is one. After a panic the content of its session is unknown, so it
    /// is emptied.
    pub(super) fn attempt<T: Default>(
        &mut self,
        index: usize,
        work: impl FnOnce(&mut GenerationTask<'static>, &mut Session) -> Result<T>,
    ) -> Result<T> {
        let Slot { session, work: Some(Work { task, .. }), .. } = &mut self.slots[index] else {
            return Ok(T::default());
        };
        caught(|| work(task, session)).unwrap_or_else(|| {
            empty(session);
            Err(died())
        })
    }

    /// Advances the reply of a slot.
    pub(super) fn advance(&mut self, index: usize) {
        self.work_on(index, GenerationTask::advance);
    }

    /// Does work for the reply of a slot, and records the result.
    pub(super) fn work_on(
        &mut self,
        index: usize,
        work: impl FnOnce(&mut GenerationTask<'static>, &mut Session) -> Result<()>,
    ) {
        let result = self.attempt(index, work);
        self.conclude(index, result);
    }

    /// Puts a request into the slot that suits it best. Returns it if it has to wait until what the slot holds was
    /// stored. The slots that earlier requests await are left to them, unless the prompt continues what they hold.
    fn place(&mut self, request: Request, awaited: &mut Vec<usize>) -> Option<Request> {
        let Request { task, tenant, waits_since, .. } = &request;
        let since = waits_since.unwrap_or_else(Instant::now);
        let found = caught(|| self.slot_for(task.cacheable(task.prompt()), tenant.cache, awaited));
        match found.unwrap_or_else(|| Err(died())) {
            Ok((index, continued)) if !continued && !self.leaves(index, since) => {
                awaited.push(index);
                return Some(Request { waits_since: Some(since), ..request });
            }
            Ok((index, _)) => {
                let id = request.id;
                if caught(|| self.begin(index, request)).is_none() {
                    empty(&mut self.slots[index].session);
                    self.outcome.events.push((id, Err(died())));
                    self.outcome.over.push(id);
                }
            }
            Err(error) => self.end_request(request, Some(error)),
        }
        self.outcome.worked = true;
        None
    }

    /// Begins a request in a slot.
    fn begin(&mut self, index: usize, request: Request) {
        let Request { id, tenant, task, ids, .. } = request;
        self.slots[index].session.set_tenant(tenant.cache);
        let reading = self.reading(index, task.cacheable(task.prompt()));
        let slot = self.occupy(index, task.prompt().len());
        slot.storing = slot.storing.take().and_then(Storing::of_continued).filter(|_| task.is_kept());
        slot.work = Some(Work { id, task, ids, paused: false, given_up: None, waits: false, reading });
    }

    /// Records that a slot was given a conversation whose prompt has `prompt` tokens.
    pub(super) fn occupy(&mut self, index: usize, prompt: usize) -> &mut Slot {
        let slot = &mut self.slots[index];
        self.placed += 1;
        (slot.used, slot.prompt, slot.is_stored) = (self.placed, prompt, false);
        slot
    }

    /// Ends a request that has no slot, with its last events and an error, if any.
    fn end_request(&mut self, mut request: Request, error: Option<Error>) {
        let events = std::iter::from_fn(|| request.task.pop()).map(Ok);
        self.outcome.events.extend(events.chain(error.map(Err)).map(|event| (request.id, event)));
        self.outcome.over.push(request.id);
        self.outcome.ended.push(request.task);
        self.outcome.worked = true;
    }

    /// The slot for a prompt, and whether the prompt continues what it holds: of those whose last prompt it continues,
    /// the one with the most tokens in common; otherwise one that is empty, or has been unused for longest. If only the
    /// beginning is the same, such as a system prompt, the other conversation keeps its slot: most of that beginning is
    /// shared in any case. Prompts of other tenants have nothing in common with this one.
    fn slot_for(&mut self, prompt: &[u32], tenant: u64, awaited: &[usize]) -> Result<(usize, bool)> {
        let free = || self.slots.iter().enumerate().filter(|(_, slot)| slot.work.is_none());
        let common = |slot: &Slot| if slot.session.tenant() == tenant { slot.session.reusable(prompt) } else { 0 };
        let continued = free().filter(|(_, slot)| slot.is_continued(common(slot)));
        if let Some((index, _)) = continued.max_by_key(|(_, slot)| common(slot)) {
            return Ok((index, true));
        }
        let others = free().filter(|(index, _)| !awaited.contains(index));
        let oldest = others.min_by_key(|(_, slot)| (!slot.session.tokens().is_empty(), slot.used));
        let oldest = oldest.map(|(index, slot)| (index, slot.session.tokens().is_empty()));
        match oldest {
            Some((index, empty)) if empty || self.slots.len() >= self.pool.sessions() => Ok((index, false)),
            _ => {
                let session = self.pool.session()?;
                self.slots.push(Slot::new(session));
                Ok((self.slots.len() - 1, false))
            }
        }
    }

    /// Records the result of work in a slot. Waiting for memory does not count as work.
    pub(super) fn conclude(&mut self, index: usize, result: Result<()>) {
        let mut waits = false;
        match result {
            Ok(()) | Err(Error::Cancelled) => {} // a cancelled reply is ended in the next round
            Err(Error::PoolFull { .. }) if self.free_memory(index) => {
                waits = self.slots[index].work.as_ref().is_some_and(|work| work.waits);
            }
            Err(error) => self.fail(index, error),
        }
        self.outcome.worked |= !waits;
        self.collect(index);
    }

    /// Ends a reply with an error; all of them if the device is lost.
    pub(super) fn fail(&mut self, index: usize, error: Error) {
        let lost = matches!(error, Error::DeviceLost { .. });
        for other in (0..self.slots.len()).filter(|other| lost || *other == index) {
            self.collect(other);
            if let Some(work) = &mut self.slots[other].work {
                work.task.fail();
                self.outcome.events.push((work.id, Err(error.clone())));
            }
            self.collect(other);
        }
        if lost {
            for request in std::mem::take(&mut self.accepted) {
                self.end_request(request, Some(error.clone()));
            }
            self.outcome.lost = Some(error);
        }
    }

    /// Collects the events of a slot, and frees it if its reply is over.
    fn collect(&mut self, index: usize) {
        let Self { slots, outcome, disk, prompt_rate, .. } = self;
        let slot = &mut slots[index];
        let Some(work) = &mut slot.work else { return };
        while let Some(mut event) = work.task.pop() {
            work.ids.give(&mut event);
            if let Event::Done(stats) = &event
                && stats.prompt.new >= PAGE
            {
                *prompt_rate = stats.prompt.new as f64 / stats.prompt_time.as_secs_f64();
            }
            outcome.events.push((work.id, Ok(event)));
        }
        if work.task.phase() == Phase::Over {
            let is_kept = work.task.is_kept();
            if !is_kept || caught(|| work.task.drop_pending(&mut slot.session)).is_none() {
                empty(&mut slot.session);
            }
            let _ = caught(|| slot.session.release_reserved());
            outcome.over.push(work.id);
            outcome.worked = true;
            if is_kept && disk.is_some() && slot.storing.is_none() {
                slot.storing = Some(Storing::first(work.task.prompt().len()));
            }
            outcome.ended.extend(slot.work.take().map(|work| work.task));
        }
    }
}

/// The result of some work, unless it panics.
pub(super) fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// The error of replies that were being worked on when there was a panic.
pub(super) fn died() -> Error {
    Error::Worker { doing: "generating a reply" }
}

/// Empties a session whose content is unknown.
pub(super) fn empty(session: &mut Session) {
    let _ = caught(|| session.rewind(0)); // if this panics too, nothing more can be done
}
