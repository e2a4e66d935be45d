//! The state that the threads waiting for replies share: the queue of requests, the events that were not taken yet, and
//! the engine.
//!
//! The thread that takes the engine out drives it: one that waits for an event, or that of `background.rs`. It does not
//! hold the lock meanwhile, so that others can take events, make requests and cancel replies. Once the driver has an
//! event of its own reply, it puts the engine back and wakes another waiting thread. The app's code (wakers, choosers)
//! never runs under the lock.

use super::engine::{Engine, Outcome, Request};
use super::state::{SchedulerCounts, SchedulerState, SlotState};
use super::turns::Turns;
use crate::disk::DiskCache;
use crate::error::{Error, Result, unpoisoned};
use crate::generate::{Event, GenerationTask};
use crate::threads::{WakerCalls, lock};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::thread::{ThreadId, current};
use std::time::Duration;

/// A reply pauses once this many of its events were not taken.
const MAX_EVENTS: usize = 64;
/// A paused reply continues once fewer than this many are left: if its cache was dropped meanwhile and has to be
/// computed again, it should not pause again at once.
const FEW_EVENTS: usize = MAX_EVENTS / 2;
/// How long a thread waits at a time if no thread drives the engine. A [`Cancel`](crate::Cancel) wakes no thread, so
/// the waiting thread has to check it.
const LOOK: Duration = Duration::from_millis(20);
/// The same if one does: the driver checks in each round, and wakes another thread when it stops.
const LOOK_SELDOM: Duration = Duration::from_secs(1);

/// The shared state.
pub struct Shared {
    pub context: usize,
    /// How many replies can be generated at a time.
    sessions: usize,
    /// How many more requests may wait.
    queue: usize,
    /// Where conversations are stored.
    disk: Option<DiskCache>,
    board: Mutex<Board>,
    /// What wakes the threads that wait to visit the engine.
    visits: Condvar,
    /// The calls to wakers of polled replies.
    pub wakers: WakerCalls,
}

/// The state under the lock.
struct Board {
    /// `None` while a thread drives it.
    engine: Option<Box<Engine>>,
    /// The thread that drives it, or did.
    driver: Option<ThreadId>,
    /// How many threads wait to visit the engine. They come before those that drive it.
    visitors: usize,
    /// Requests that are in no slot, oldest first.
    waiting: VecDeque<Request>,
    /// The requests that the engine has, and which tenant is next.
    turns: Turns,
    /// The events of the replies whose handles exist.
    mailboxes: BTreeMap<u64, Mailbox>,
    slots: Vec<SlotState>,
    counts: SchedulerCounts,
    outside: Outside,
    /// Whether the thread for polled replies runs, and what wakes it.
    has_thread: bool,
    thread_wakes: Arc<Condvar>,
    /// Whether the last handle was dropped.
    ended: bool,
    /// Whether the engine has conversations to store.
    unstored: bool,
    stores: Stores,
}

/// The calls of [`Shared::store`], by number.
#[derive(Default)]
struct Stores {
    asked: u64,
    begun: u64,
    done: u64,
    is_done: Arc<Condvar>,
}

/// What is called or dropped after the lock is released, because it may run the app's code. That code may lock a mutex
/// that another thread holds while it waits for this lock, or drop a reply, which takes this lock.
#[derive(Default)]
struct Outside {
    /// Wakers to call.
    wakers: Vec<Waker>,
    /// Tasks that have ended, with their choosers.
    tasks: Vec<GenerationTask<'static>>,
    /// Events of replies without a handle. Errors in them may be the app's.
    events: Vec<Result<Event>>,
}

/// The events of a reply that were not taken yet.
#[derive(Default)]
struct Mailbox {
    events: VecDeque<Result<Event>>,
    /// Whether no more events follow.
    over: bool,
    /// Whether a thread waits for `changed`.
    waits: bool,
    changed: Arc<Condvar>,
    /// Whether it is polled, so that no waiting thread drives the engine for it.
    polled: bool,
    waker: Option<Waker>,
}

impl Shared {
    pub fn new(engine: Engine, sessions: usize, queue: usize) -> Self {
        let (context, disk) = (engine.context(), engine.disk.clone());
        let board = Board {
            slots: engine.slots(),
            engine: Some(Box::new(engine)),
            driver: None,
            visitors: 0,
            waiting: VecDeque::new(),
            turns: Turns::default(),
            mailboxes: BTreeMap::new(),
            counts: SchedulerCounts::default(),
            outside: Outside::default(),
            has_thread: false,
            thread_wakes: Arc::default(),
            ended: false,
            unstored: false,
            stores: Stores::default(),
        };
        let (board, visits) = (Mutex::new(board), Condvar::new());
        Self { context, sessions, queue, disk, board, visits, wakers: WakerCalls::default() }
    }

    /// The scheduler's current state.
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

    /// Adds a request to the queue. Returns its number: later ones have higher numbers.
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
            board.waiting.push_back(request(id)); // a refused request is dropped outside the lock
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
                    board.wake_one(); // a thread that waits may continue this reply
                }
                return Some(event);
            }
            if mailbox.over {
                return None;
            }
            if board.is_driven_here() {
                return Some(Err(Error::Unsupported {
                    what: "waiting for an event inside a waker or a chooser".to_owned(),
                    found: "this thread generates the replies".to_owned(),
                    remedy: "use `try_next`, or wait on another thread".to_owned(),
                }));
            }
            let worked;
            (board, worked) = match board.engine_to_drive() {
                Some(engine) => self.drive(board, engine, &|board| board.has_news(id)),
                None => (board, false),
            };
            if !worked {
                board = self.wait(board, id);
            }
        }
    }

    /// The next event of a reply, if there is one. Otherwise the waker is woken when one arrives. Also whether the
    /// thread for polled replies has to be started.
    pub fn poll(&self, id: u64, waker: Option<&Waker>) -> (Poll<Option<Result<Event>>>, bool) {
        let mut waker = waker.cloned(); // cloned here and dropped after `board`: both run the app's code
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
            board.wake_one(); // it continues
        }
        (event, board.needs_thread())
    }

    /// Whether the caller has to start the thread for polled replies. It counts as running from then on.
    pub fn claim_thread(&self) -> bool {
        let mut board = lock(&self.board);
        let is_needed = board.needs_thread();
        board.has_thread |= is_needed;
        is_needed
    }

    /// Drives the engine until no polled reply can continue and all conversations that have ended were stored.
    pub fn drive_polled(&self) {
        let _ends = ThreadEnds(self);
        let mut board = lock(&self.board);
        while board.has_work() {
            let worked;
            (board, worked) = match board.engine_to_drive() {
                Some(engine) => self.drive(board, engine, &|board| !board.has_work()),
                None => (board, false),
            };
            if !worked {
                let (changed, look) = (board.thread_wakes.clone(), board.look());
                board = unpoisoned(changed.wait_timeout(board, look)).0;
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

    /// Stores what all slots hold, and drives the engine meanwhile unless another thread does. Returns false if that
    /// is impossible, because the thread that drives it is in the app's code: it is this thread, or there are no
    /// handles left (`last`) and it has not ended yet.
    pub fn store(&self, last: bool) -> bool {
        let Some(disk) = self.disk.as_ref().filter(|disk| disk.has_thread()) else { return true };
        let mut board = lock(&self.board);
        if board.engine.is_none() && last || board.is_driven_here() {
            return false;
        }
        board.stores.asked += 1;
        let number = board.stores.asked;
        while board.stores.done < number {
            let worked;
            (board, worked) = match board.engine_to_drive() {
                Some(engine) => self.drive(board, engine, &|board| board.stores.done >= number),
                None => (board, false),
            };
            if !worked {
                let (changed, look) = (board.stores.is_done.clone(), board.look());
                board = unpoisoned(changed.wait_timeout(board, look)).0;
            }
        }
        drop(board);
        disk.wait();
        true
    }

    /// Calls `work` with the engine between two rounds, without the lock. `None` if this thread drives it, and is in
    /// the app's code.
    pub fn visit<T>(&self, work: impl FnOnce(&mut Engine) -> T) -> Option<T> {
        let mut board = lock(&self.board);
        if board.is_driven_here() {
            return None;
        }
        board.visitors += 1;
        let engine = loop {
            match board.engine.take() {
                Some(engine) => break engine,
                None => board = unpoisoned(self.visits.wait_timeout(board, LOOK_SELDOM)).0,
            }
        };
        board.visitors -= 1;
        board.driver = Some(current().id());
        let mut driving = Driving { shared: self, engine: Some(engine) };
        drop(board);
        let done = driving.engine.as_mut().map(|engine| work(engine));
        let mut board = lock(&self.board);
        board.engine = driving.engine.take();
        board.end_cancelled(); // which also records the state of the slots
        board.wake_one();
        self.visits.notify_one();
        drop(self.woken(board));
        done
    }

    /// Releases the lock to call the collected wakers and to drop what may run the app's code, and takes it again.
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

    /// Drives the engine until there is `news` or nothing to do. Returns whether there is news or anything was done.
    fn drive<'a>(
        &'a self,
        board: MutexGuard<'a, Board>,
        engine: Box<Engine>,
        news: &dyn Fn(&Board) -> bool,
    ) -> (MutexGuard<'a, Board>, bool) {
        let mut driving = Driving { shared: self, engine: Some(engine) };
        let mut board = board; // dropped before `driving`, which takes the lock if there is a panic
        let mut worked = false;
        board.driver = Some(current().id());
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
            if news || idle || board.visitors > 0 {
                board.engine = driving.engine.take();
                board.end_cancelled(); // replies that were dropped during the round
            }
        }
        if worked {
            board.wake_one();
        }
        self.visits.notify_one();
        (self.woken(board), worked)
    }

    /// Waits for a change.
    fn wait<'a>(&'a self, board: MutexGuard<'a, Board>, id: u64) -> MutexGuard<'a, Board> {
        let mut board = self.woken(board);
        let Some(mailbox) = board.mailboxes.get_mut(&id) else { return board };
        mailbox.waits = true;
        let changed = mailbox.changed.clone();
        let look = board.look();
        let (mut board, _) = unpoisoned(changed.wait_timeout(board, look));
        if let Some(mailbox) = board.mailboxes.get_mut(&id) {
            mailbox.waits = false;
        }
        board
    }

    /// Forgets a cancelled reply whose handle was dropped.
    pub fn leave(&self, id: u64) {
        let mut board = lock(&self.board);
        let mailbox = board.mailboxes.remove(&id);
        board.end_cancelled();
        board.wake_one();
        drop(self.woken(board));
        drop(mailbox); // it has the app's waker, so outside the lock
    }
}

impl Board {
    /// Ends cancelled requests: in the queue, and in slots unless a thread drives the engine, which then does it.
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
        // The engine stays here, so that it is not lost by a panic.
        let Some(engine) = &mut self.engine else { return };
        engine.end_cancelled();
        let (outcome, slots) = (engine.take_outcome(), engine.slots());
        self.deliver(outcome, slots);
    }

    /// Whether this thread drives the engine, and is in the app's code.
    fn is_driven_here(&self) -> bool {
        self.engine.is_none() && self.driver == Some(current().id())
    }

    /// Takes the engine to drive it, unless somebody else has it or waits to visit it.
    fn engine_to_drive(&mut self) -> Option<Box<Engine>> {
        if self.visitors == 0 { self.engine.take() } else { None }
    }

    /// How long a waiting thread waits before it checks again.
    fn look(&self) -> Duration {
        if self.engine.is_some() { LOOK } else { LOOK_SELDOM }
    }

    /// Whether any polled reply can continue.
    fn any_polled(&self) -> bool {
        let goes_on = |it: &Mailbox| it.polled && !it.over && it.events.len() < MAX_EVENTS;
        !self.ended && self.mailboxes.values().any(goes_on)
    }

    /// Whether the thread of the scheduler has something to do.
    fn has_work(&self) -> bool {
        self.any_polled() || self.unstored && !self.ended
    }

    /// Whether the thread of the scheduler has something to do, and does not run.
    fn needs_thread(&self) -> bool {
        !self.has_thread && self.has_work()
    }

    /// Whether a reply has events to take or has ended, even if its handle was dropped.
    fn has_news(&self, id: u64) -> bool {
        self.mailboxes.get(&id).is_none_or(|own| own.over || !own.events.is_empty())
    }

    /// Gives the engine the requests that it has slots for, and pauses the replies whose events are not taken.
    fn hand_over(&mut self, engine: &mut Engine, sessions: usize) {
        self.end_cancelled();
        while self.turns.running() < sessions {
            let Some(request) = self.turns.next(&mut self.waiting) else { break };
            engine.accept(request);
        }
        let most = |paused| if paused { FEW_EVENTS } else { MAX_EVENTS };
        if self.stores.begun < self.stores.asked {
            self.stores.begun = self.stores.asked;
            engine.begin_store();
        }
        engine.pause(|id, paused| self.mailboxes.get(&id).is_some_and(|it| it.events.len() >= most(paused)));
    }

    /// Distributes the results of the engine's work, and records the state of its slots.
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
        self.unstored = outcome.unstored;
        if !outcome.asked && self.stores.done < self.stores.begun {
            self.stores.done = self.stores.begun;
            self.stores.is_done.notify_all();
        }
    }

    /// Wakes a waiting thread that has no event, to drive the engine, and the thread for polled replies.
    fn wake_one(&self) {
        let waits = |mailbox: &&Mailbox| mailbox.waits && mailbox.events.is_empty() && !mailbox.over;
        if let Some(mailbox) = self.mailboxes.values().find(waits) {
            mailbox.changed.notify_all();
        }
        self.thread_wakes.notify_all();
        self.stores.is_done.notify_all();
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

/// The thread that drives the engine. If it panics, the engine is put back with its results, so that others can
/// continue.
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
