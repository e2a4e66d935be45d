//! What the threads share that wait for replies: the queue of requests, the events that were not taken yet, and the
//! engine.
//!
//! Whoever takes the engine out drives it: a thread that waits for an event, or the one of `background.rs`. The lock is not
//! held meanwhile, so that others can take events, ask for replies and cancel them. Once the driver has an event of its
//! own, it puts the engine back and wakes another one who waits. Code of the app (wakers, choosers) never runs under the
//! lock.

use super::engine::{Engine, Outcome, Request};
use super::state::{SchedulerCounts, SchedulerState, SlotState};
use super::turns::Turns;
use crate::error::{Error, Result};
use crate::generate::{Event, GenerationTask};
use crate::threads::{WakerCalls, lock};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// A reply pauses when this many of its events were not taken.
const MOST_EVENTS: usize = 64;
/// It goes on once there are fewer than this many: a reply that gave its memory up meanwhile, and has it computed again,
/// should not pause again at once.
const FEW_EVENTS: usize = MOST_EVENTS / 2;
/// How long a thread waits at a time where nobody drives the engine. A [`Cancel`](crate::Cancel) wakes nobody, so it looks
/// again.
const LOOK: Duration = Duration::from_millis(20);
/// The same where somebody drives, who looks in each round and wakes another when it leaves.
const LOOK_SELDOM: Duration = Duration::from_secs(1);

/// What threads share.
pub struct Shared {
    pub context: usize,
    /// How many replies can be on their way.
    sessions: usize,
    /// How many requests may wait beside them.
    queue: usize,
    board: Mutex<Board>,
    /// The calls to wakers of polled replies.
    pub wakers: WakerCalls,
}

/// What the lock is for.
struct Board {
    /// `None` while somebody drives it.
    engine: Option<Box<Engine>>,
    /// Requests that are in no slot, oldest first.
    waiting: VecDeque<Request>,
    /// The requests that the engine has, and who takes its turn next.
    turns: Turns,
    /// Of each reply that is held by somebody.
    mailboxes: BTreeMap<u64, Mailbox>,
    slots: Vec<SlotState>,
    counts: SchedulerCounts,
    outside: Outside,
    /// Whether the thread for polled replies runs, and what wakes it.
    has_thread: bool,
    thread_wakes: Arc<Condvar>,
    /// The last handle is gone.
    ended: bool,
}

/// What is called or dropped once the lock is free. It is the app's, in part or as a whole, so that code of the app runs:
/// that may lock what another thread holds while it waits for the lock here, or drop a reply, which takes the lock itself.
#[derive(Default)]
struct Outside {
    /// Wakers to call.
    wakers: Vec<Waker>,
    /// Tasks that have ended, with their choosers.
    tasks: Vec<GenerationTask<'static>>,
    /// Events that nobody takes. Errors in them may be the app's.
    events: Vec<Result<Event>>,
}

/// The events of a reply that were not taken yet.
#[derive(Default)]
struct Mailbox {
    events: VecDeque<Result<Event>>,
    /// No more will come.
    over: bool,
    /// Whether somebody waits for `changed`.
    waits: bool,
    changed: Arc<Condvar>,
    /// Whether it is polled, so that nobody waits who would drive the engine.
    polled: bool,
    waker: Option<Waker>,
}

impl Shared {
    pub fn new(engine: Engine, sessions: usize, queue: usize) -> Self {
        let context = engine.context();
        let board = Board {
            slots: engine.slots(),
            engine: Some(Box::new(engine)),
            waiting: VecDeque::new(),
            turns: Turns::default(),
            mailboxes: BTreeMap::new(),
            counts: SchedulerCounts::default(),
            outside: Outside::default(),
            has_thread: false,
            thread_wakes: Arc::default(),
            ended: false,
        };
        Self { context, sessions, queue, board: Mutex::new(board), wakers: WakerCalls::default() }
    }

    /// What the scheduler holds and does.
    pub fn state(&self) -> SchedulerState {
        let board = lock(&self.board);
        SchedulerState { slots: board.slots.clone(), waiting: board.waiting.len(), counts: board.counts }
    }

    /// # Errors
    /// [`Error::Busy`] if no request may wait.
    pub fn check_queue(&self) -> Result<()> {
        let mut board = lock(&self.board);
        let admitted = self.admits(&mut board);
        drop(self.woken(board));
        admitted
    }

    fn admits(&self, board: &mut Board) -> Result<()> {
        let full =
            |board: &Board| board.waiting.len() + board.turns.running() >= self.sessions.saturating_add(self.queue);
        if full(board) {
            board.end_cancelled();
        }
        if !full(board) {
            return Ok(());
        }
        Err(Error::Busy { waiting: board.waiting.len(), most: self.queue })
    }

    /// Has a request wait. Returns its number: later ones have higher numbers.
    ///
    /// # Errors
    /// [`Error::Busy`] if too many wait.
    pub fn submit(&self, request: impl FnOnce(u64) -> Request) -> Result<u64> {
        let mut board = lock(&self.board);
        let admitted = self.admits(&mut board);
        let id = board.counts.requests;
        if admitted.is_ok() {
            board.counts.requests += 1;
            board.mailboxes.insert(id, Mailbox::default());
            board.waiting.push_back(request(id)); // one that is refused is dropped outside of the lock
        }
        drop(self.woken(board));
        admitted.map(|()| id)
    }

    /// The next event of a reply.
    pub fn next(&self, id: u64) -> Option<Result<Event>> {
        let mut board = lock(&self.board);
        loop {
            let mailbox = board.mailboxes.get_mut(&id)?;
            if let Some(event) = mailbox.events.pop_front() {
                if mailbox.events.len() + 1 == FEW_EVENTS {
                    board.wake_one(); // who waits for a slot may go on with this reply
                }
                return Some(event);
            }
            if mailbox.over {
                return None;
            }
            let worked;
            (board, worked) = match board.engine.take() {
                Some(engine) => self.drive(board, engine, &|board| board.has_news(id)),
                None => (board, false),
            };
            if !worked {
                board = self.wait(board, id);
            }
        }
    }

    /// The next event of a reply, if there is one; if not, the waker is woken when there is. Also whether the thread for
    /// polled replies may have to be started for it.
    pub fn poll(&self, id: u64, waker: Option<&Waker>) -> (Poll<Option<Result<Event>>>, bool) {
        let mut waker = waker.cloned(); // here, and dropped after `board`: both are code of the app
        let mut board = lock(&self.board);
        let Some(mailbox) = board.mailboxes.get_mut(&id) else { return (Poll::Ready(None), false) };
        mailbox.polled = true;
        let event = match mailbox.events.pop_front() {
            None if !mailbox.over => {
                if waker.is_some() {
                    std::mem::swap(&mut mailbox.waker, &mut waker);
                }
                Poll::Pending
            }
            event => Poll::Ready(event),
        };
        if mailbox.events.len() + 1 == FEW_EVENTS {
            board.wake_one(); // it goes on
        }
        (event, board.needs_thread())
    }

    /// Whether the caller has to start the thread for polled replies; it counts as running from here on.
    pub fn claim_thread(&self) -> bool {
        let mut board = lock(&self.board);
        let is_needed = board.needs_thread();
        board.has_thread |= is_needed;
        is_needed
    }

    /// Drives the engine for replies that are polled, until none of them can go on.
    pub fn drive_polled(&self) {
        let _ends = ThreadEnds(self);
        let mut board = lock(&self.board);
        while board.any_polled() {
            let worked;
            (board, worked) = match board.engine.take() {
                Some(engine) => self.drive(board, engine, &|board| !board.any_polled()),
                None => (board, false),
            };
            if !worked {
                let (changed, look) = (board.thread_wakes.clone(), board.look());
                board = changed.wait_timeout(board, look).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        board.has_thread = false;
    }

    /// The thread for polled replies could not be started.
    pub fn no_thread(&self) {
        lock(&self.board).has_thread = false;
    }

    /// Ends the thread for polled replies.
    pub fn end(&self) {
        let mut board = lock(&self.board);
        board.ended = true;
        board.thread_wakes.notify_all();
    }

    /// Calls the wakers that were collected while the board was locked, and drops what is the app's.
    fn woken<'a>(&'a self, mut board: MutexGuard<'a, Board>) -> MutexGuard<'a, Board> {
        let Outside { wakers, tasks, events } = std::mem::take(&mut board.outside);
        if wakers.is_empty() && tasks.is_empty() && events.is_empty() {
            return board;
        }
        drop(board);
        self.wakers.call(wakers);
        drop((tasks, events));
        lock(&self.board)
    }

    /// Drives the engine until there is `news`, or nothing to do. Returns whether there is, or anything was done.
    fn drive<'a>(
        &'a self,
        board: MutexGuard<'a, Board>,
        engine: Box<Engine>,
        news: &dyn Fn(&Board) -> bool,
    ) -> (MutexGuard<'a, Board>, bool) {
        let mut driving = Driving { shared: self, engine: Some(engine) };
        let mut board = board; // dropped before `driving`, which takes the lock if there is a panic
        let mut worked = false;
        while let Some(engine) = &mut driving.engine {
            board.hand_over(engine, self.sessions);
            let mut idle = false;
            if !news(&board) {
                drop(board);
                engine.round();
                board = lock(&self.board);
                let outcome = engine.take_outcome();
                idle = !outcome.worked;
                board.deliver(outcome, engine.slots());
                board = self.woken(board);
            }
            let news = news(&board);
            worked |= news || !idle;
            if news || idle {
                board.engine = driving.engine.take();
                board.end_cancelled(); // who left during the round
            }
        }
        if worked {
            board.wake_one();
        }
        (self.woken(board), worked)
    }

    /// Waits for a change.
    fn wait<'a>(&'a self, board: MutexGuard<'a, Board>, id: u64) -> MutexGuard<'a, Board> {
        let mut board = self.woken(board);
        let Some(mailbox) = board.mailboxes.get_mut(&id) else { return board };
        mailbox.waits = true;
        let changed = mailbox.changed.clone();
        let look = board.look();
        let (mut board, _) = changed.wait_timeout(board, look).unwrap_or_else(PoisonError::into_inner);
        if let Some(mailbox) = board.mailboxes.get_mut(&id) {
            mailbox.waits = false;
        }
        board
    }

    /// Forgets a reply that nobody holds any more, and that was cancelled.
    pub fn leave(&self, id: u64) {
        let mut board = lock(&self.board);
        let mailbox = board.mailboxes.remove(&id);
        board.end_cancelled();
        board.wake_one();
        drop(self.woken(board));
        drop(mailbox); // with a waker of the app, so outside of the lock
    }
}

impl Board {
    /// Ends what was cancelled: in the queue, and in slots unless somebody drives, who then does that.
    fn end_cancelled(&mut self) {
        if !self.waiting.iter().any(|request| request.task.is_cancelled()) {
            return self.end_cancelled_in_slots();
        }
        let (gone, stay): (VecDeque<Request>, _) =
            std::mem::take(&mut self.waiting).into_iter().partition(|request| request.task.is_cancelled());
        self.waiting = stay;
        for mut request in gone {
            request.task.end_cancelled(None);
            if let Some(mailbox) = self.mailboxes.get_mut(&request.id) {
                mailbox.events.extend(std::iter::from_fn(|| request.task.pop()).map(Ok));
                self.outside.wakers.extend(mailbox.end());
            }
            self.outside.tasks.push(request.task);
        }
        self.end_cancelled_in_slots();
    }

    fn end_cancelled_in_slots(&mut self) {
        // The engine stays here, so that a panic does not take it along.
        let Some(engine) = &mut self.engine else { return };
        engine.end_cancelled();
        let (outcome, slots) = (engine.take_outcome(), engine.slots());
        self.deliver(outcome, slots);
    }

    /// How long who waits does so before it looks again.
    fn look(&self) -> Duration {
        if self.engine.is_some() { LOOK } else { LOOK_SELDOM }
    }

    /// Whether any reply that is polled can go on.
    fn any_polled(&self) -> bool {
        let goes_on = |it: &Mailbox| it.polled && !it.over && it.events.len() < MOST_EVENTS;
        !self.ended && self.mailboxes.values().any(goes_on)
    }

    /// Whether the thread for polled replies has something to do, and does not run.
    fn needs_thread(&self) -> bool {
        !self.has_thread && self.any_polled()
    }

    /// Whether there is something for a reply that its owner does not have yet, if it has one.
    fn has_news(&self, id: u64) -> bool {
        self.mailboxes.get(&id).is_none_or(|own| own.over || !own.events.is_empty())
    }

    /// Gives the engine the requests that it has slots for, and tells it whose events are not taken.
    fn hand_over(&mut self, engine: &mut Engine, sessions: usize) {
        self.end_cancelled();
        while self.turns.running() < sessions {
            let Some(request) = self.turns.next(&mut self.waiting) else { break };
            engine.accept(request);
        }
        let most = |paused| if paused { FEW_EVENTS } else { MOST_EVENTS };
        engine.pause(|id, paused| self.mailboxes.get(&id).is_some_and(|it| it.events.len() >= most(paused)));
    }

    /// Hands out what the engine has made, and takes notice of the state of its slots.
    fn deliver(&mut self, outcome: Outcome, slots: Vec<SlotState>) {
        for (id, event) in outcome.events {
            if let Ok(Event::Done(stats)) = &event {
                self.counts.prompt_tokens += stats.prompt.new as u64;
                self.counts.cached_tokens += stats.prompt.cached as u64;
                self.counts.generated_tokens += stats.generated as u64;
            }
            match self.mailboxes.get_mut(&id) {
                Some(mailbox) => {
                    mailbox.events.push_back(event);
                    self.outside.wakers.extend(mailbox.wake());
                }
                None => self.outside.events.push(event),
            }
        }
        self.outside.tasks.extend(outcome.ended);
        self.counts.given_up += outcome.given_up as u64;
        self.counts.rounds += u64::from(outcome.worked);
        for id in outcome.over {
            self.turns.end(id);
            if let Some(mailbox) = self.mailboxes.get_mut(&id) {
                self.outside.wakers.extend(mailbox.end());
            }
        }
        if let Some(error) = outcome.lost {
            for request in std::mem::take(&mut self.waiting) {
                if let Some(mailbox) = self.mailboxes.get_mut(&request.id) {
                    mailbox.events.push_back(Err(error.clone()));
                    self.outside.wakers.extend(mailbox.end());
                }
                self.outside.tasks.push(request.task);
            }
        }
        self.slots = slots;
    }

    /// Wakes one who waits without having an event, to drive the engine, and the thread for polled replies.
    fn wake_one(&self) {
        let waits = |mailbox: &&Mailbox| mailbox.waits && mailbox.events.is_empty() && !mailbox.over;
        if let Some(mailbox) = self.mailboxes.values().find(waits) {
            mailbox.changed.notify_all();
        }
        self.thread_wakes.notify_all();
    }
}

impl Mailbox {
    /// Wakes the thread that waits, and returns the waker to call.
    fn wake(&mut self) -> Option<Waker> {
        if self.waits {
            self.changed.notify_all();
        }
        self.waker.take()
    }

    fn end(&mut self) -> Option<Waker> {
        self.over = true;
        self.wake()
    }
}

/// The thread for polled replies. If it panics, the next poll starts another.
struct ThreadEnds<'a>(&'a Shared);

impl Drop for ThreadEnds<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.no_thread();
        }
    }
}

/// Somebody who drives the engine. If that panics all the same, the engine is put back with what it has made, so that
/// others can go on.
struct Driving<'a> {
    shared: &'a Shared,
    engine: Option<Box<Engine>>,
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take() {
            lock(&self.shared.board).engine = Some(engine);
        }
    }
}
