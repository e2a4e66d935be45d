//! Replies on their way to a client. Each is generated on a thread of its own, because the library blocks. What it says
//! is kept until the client takes it (`unread.rs`), so a reply and its slot never wait for a client that is slow to read.
//! A client that goes away drops the [`Job`], which cancels its replies.

use super::deadline::Deadline;
use super::failure::Failure;
use super::memory::{Reserve, Size};
use super::places::Marks;
use super::server::{Engine, Place, Server};
use super::unread::{self, Told};
use axum::http::StatusCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use wglm::{Error, Event, GenerateOptions, PreparedChat, ScheduledReply, Scheduler, Stats, Stop};

/// How long a reply that is out of time may take to end, and its client to take what is left of it.
const END: Duration = Duration::from_secs(10);

/// How long an answer waits for the first token before it begins: what fails until then has a status of its own.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is to be generated.
#[derive(Debug, Clone)]
pub enum Work {
    /// A reply to a conversation, with a seed of its own.
    Chat(PreparedChat, Option<u64>),
    Tokens(Vec<u32>, Box<GenerateOptions>),
}

/// The replies to one request.
pub struct Job {
    receiver: unread::Receiver,
    /// What came before anybody asked.
    ready: std::collections::VecDeque<(usize, Event)>,
    /// How many replies have not come to their end.
    open: usize,
    /// How many replies were accepted, and how many tokens their prompts have together.
    started: (usize, usize),
    /// Whether the turn of any of them came.
    begun: bool,
    marks: Vec<Arc<Marks>>,
    server: Arc<Server>,
    engine: Arc<Engine>,
    deadline: Deadline,
    memory: Arc<Reserve>,
}

impl Work {
    /// The replies to a conversation, each with a seed of its own.
    pub fn chats(prepared: &PreparedChat, replies: usize) -> Vec<Self> {
        let seed = prepared.options().sampling.seed;
        let one = |index| Self::Chat(prepared.clone(), seed.map(|seed| seed.wrapping_add(index as u64)));
        (0..replies).map(one).collect()
    }
}

impl Job {
    /// Begins the replies, and waits until it is known whether they begin. `memory` is what was counted for them, which
    /// lasts as long as any of them.
    ///
    /// # Errors
    /// A [`Failure`] if one of them is refused, or fails early.
    pub async fn start(
        server: &Arc<Server>,
        engine: Arc<Engine>,
        works: Vec<Work>,
        memory: Arc<Reserve>,
    ) -> Result<Self, Failure> {
        let places = works.iter().map(|_| server.place()).collect::<Result<Vec<Place>, _>>()?;
        let (sender, receiver) = unread::channel(&server.unread);
        let cancels = places.iter().map(|place| place.reply.cancel.clone()).collect();
        let marks = places.iter().map(|place| place.reply.marks.clone()).collect();
        let deadline = Deadline::new(server.limits.reply, END, cancels);
        let count = works.len();
        for (index, (work, place)) in works.into_iter().zip(places).enumerate() {
            let (engine, sender, memory) = (engine.clone(), sender.clone(), memory.clone());
            let told = move |told| sender.send((index, told));
            // The thread is not waited for: it ends when the reply does.
            drop(tokio::task::spawn_blocking(move || {
                generate(&engine, work, &place, told);
                drop(memory); // after all that is counted in it
            }));
        }
        drop(sender);
        let (server, ready) = (server.clone(), Default::default());
        let (started, begun) = ((0, 0), false);
        let mut job = Self { receiver, ready, open: count, started, begun, marks, server, engine, deadline, memory };
        job.begin(count).await?;
        Ok(job)
    }

    /// Waits until all replies are accepted, and then a moment for the first token.
    async fn begin(&mut self, count: usize) -> Result<(), Failure> {
        let deadline = self.deadline.at();
        let mut patience = None;
        loop {
            let until = patience.map_or(deadline, |patience: Instant| patience.min(deadline));
            let told = match timeout_at(until, self.receiver.recv()).await {
                Ok(told) => told,
                Err(_) if patience.is_some() => return Ok(()),
                Err(_) => {
                    self.open = 0;
                    self.deadline.expire();
                    return Err(self.no_turn());
                }
            };
            match told {
                Some((_, Told::Started(prompt))) => {
                    self.accepted(prompt);
                    if self.started.0 == count {
                        patience = Some(Instant::now() + PATIENCE);
                    }
                }
                Some((index, Told::Event(Event::Done(stats))))
                    if self.never_began(&stats) || self.lost_place(index, &stats) =>
                {
                    self.open = 0;
                    return Err(self.no_turn());
                }
                Some((index, Told::Event(event))) => {
                    let waits = matches!(event, Event::Prompt { .. } | Event::Dropped { .. });
                    self.ready.push_back((index, event));
                    if !waits && self.started.0 == count {
                        return Ok(());
                    }
                }
                Some((_, Told::Failed(error))) => {
                    self.open = 0;
                    return Err(self.told(&error));
                }
                Some((_, Told::Unread)) => {
                    self.open = 0;
                    return Err(unread_reply());
                }
                None => return Ok(()),
            }
        }
    }

    /// Whether these are the figures of a reply that was cancelled before its turn, and none of the others began.
    fn never_began(&self, stats: &Stats) -> bool {
        let begun = || self.begun || self.ready.iter().any(|(_, event)| matches!(event, Event::Prompt { .. }));
        stats.stop == Stop::Cancelled && !begun()
    }

    /// Whether these are the figures of a reply whose place another client got before its turn came.
    fn lost_place(&self, index: usize, stats: &Stats) -> bool {
        stats.stop == Stop::Cancelled && self.marks.get(index).is_some_and(|marks| marks.is_displaced())
    }

    /// Tokens of all prompts.
    pub fn prompt(&self) -> usize {
        self.started.1
    }

    fn accepted(&mut self, prompt: usize) {
        self.started.0 += 1;
        self.started.1 += prompt;
    }

    /// The next event of any of the replies, with the reply's number, or nothing if all have ended.
    ///
    /// # Errors
    /// A [`Failure`] of a reply, which ends all of them.
    pub async fn next(&mut self) -> Result<Option<(usize, Event)>, Failure> {
        let mut next = self.receive().await;
        match &next {
            Ok(Some((index, Event::Done(stats)))) => {
                self.open = self.open.saturating_sub(1);
                if self.never_began(stats) || self.lost_place(*index, stats) {
                    next = Err(self.no_turn());
                }
            }
            Ok(Some((_, Event::Dropped { .. }))) => {}
            Ok(Some(_)) => self.begun = true,
            // A thread that is gone without a word: the client must not take what it has for the whole.
            Ok(None) if self.open > 0 => {
                let message = "the reply ended without its end, which is a fault of the server";
                next = Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, message));
            }
            Ok(None) | Err(_) => {}
        }
        if let Ok(Some((_, event))) = &next
            && let Err(failure) = self.memory.said(length(event))
        {
            next = Err(failure);
        }
        if !matches!(next, Ok(Some(_))) {
            self.open = 0;
        }
        next
    }

    async fn receive(&mut self) -> Result<Option<(usize, Event)>, Failure> {
        if let Some(ready) = self.ready.pop_front() {
            return Ok(Some(ready));
        }
        loop {
            match self.deadline.wait(self.receiver.recv()).await {
                Some(None) => return Ok(None),
                Some(Some((index, Told::Event(event)))) => return Ok(Some((index, event))),
                Some(Some((_, Told::Failed(error)))) => return Err(self.told(&error)),
                Some(Some((_, Told::Started(prompt)))) => self.accepted(prompt),
                Some(Some((_, Told::Unread))) => return Err(unread_reply()),
                None => return Err(Failure::unavailable("the reply does not end", 5)),
            }
        }
    }

    /// Waits until the client has room for what is sent to it, or returns nothing if that takes longer than the replies
    /// may.
    pub async fn taken<T>(&mut self, taking: impl Future<Output = T>) -> Option<T> {
        self.deadline.wait(taking).await
    }

    /// Why replies end that their clients did not end.
    pub fn why_cancelled(&self) -> &'static str {
        match self.deadline.is_over() {
            true => "the reply was ended by the server, for its time was over",
            false => "the reply was ended by the server, which is shutting down",
        }
    }

    /// What is told of a request that the model had no time for.
    fn no_turn(&self) -> Failure {
        if self.marks.iter().any(|marks| marks.is_displaced()) {
            self.server.counts.refused.fetch_add(1, Ordering::Relaxed);
            return Failure::displaced();
        }
        match self.deadline.is_over() {
            true => Failure::unavailable("the request waited too long for its turn", 5),
            false => Failure::unavailable("the server is shutting down", 5),
        }
    }

    /// Ends one of the replies, whose client has what it asked for. Its last event still comes.
    pub fn end(&self, index: usize) {
        self.deadline.cancel_one(index);
    }

    /// What is told of an error. One that takes the model away has it loaded again.
    fn told(&self, error: &Error) -> Failure {
        if matches!(error.cause(), Error::DeviceLost { .. }) {
            self.server.lost(&self.engine);
        }
        Failure::from(error)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.deadline.cancel();
        if self.open > 0 {
            self.server.counts.cancelled.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The error for a client that has left too much of its reply unread.
fn unread_reply() -> Failure {
    Failure::unavailable("more of the reply was left unread than the server keeps; read it as it comes", 1)
}

/// Bytes of what an event says that may be long.
fn length(event: &Event) -> usize {
    match event {
        Event::Text(text) | Event::Thinking(text) | Event::ToolCallFailed { text, .. } => text.len(),
        Event::ToolCall(call) => Size::of(&call.function.arguments).bytes(),
        _ => 0,
    }
}

/// Generates a reply and tells of it, until it ends or nobody listens.
fn generate(engine: &Engine, work: Work, place: &Place, tell: impl Fn(Told) -> bool) {
    match begin(&engine.scheduler.for_tenant(place.reply.client.tenant()), work) {
        Ok(reply) => {
            let reply = reply.with_cancel(&place.reply.cancel);
            if !tell(Told::Started(reply.prompt_tokens())) {
                return;
            }
            for event in reply {
                if matches!(event, Ok(Event::Prompt { .. })) {
                    place.reply.marks.begin();
                }
                let told = event.map_or_else(Told::Failed, Told::Event);
                if !tell(told) {
                    return;
                }
            }
        }
        Err(error) => {
            tell(Told::Failed(error));
        }
    }
}

fn begin(scheduler: &Scheduler, work: Work) -> wglm::Result<ScheduledReply> {
    match work {
        Work::Chat(prepared, seed) => scheduler.reply(&prepared, seed),
        Work::Tokens(tokens, options) => scheduler.generate(tokens, *options),
    }
}
