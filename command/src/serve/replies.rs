//! The replies to a request. Each is generated on a thread of its own, because the library blocks, and its events wait
//! in a queue until the client takes them (`unread.rs`), so a reply and its slot never wait for a client that reads
//! slowly. A client that goes away drops the [`Replies`], which cancels them.

use super::client::Caller;
use super::deadline::Deadline;
use super::failure::Failure;
use super::memory::Reserve;
use super::reply::{Delta, Fold, Reply};
use super::reply_permits::{Entry, ReplyPermit};
use super::server::{LoadedModel, Server};
use super::unread::{self, Message};
use axum::http::StatusCode;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use wglm_engine::{Error, Event, GenerateOptions, PreparedChat, ScheduledReply, Scheduler, Stats, Stop};

/// How long an answer waits for the first token before it begins. A failure until then has a status of its own.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a reply is generated from, besides its seed.
#[derive(Debug, Clone)]
pub enum Start {
    Chat(PreparedChat),
    Tokens(Vec<u32>, Box<GenerateOptions>),
}

impl Start {
    pub fn options(&self) -> &GenerateOptions {
        match self {
            Self::Chat(chat) => chat.options(),
            Self::Tokens(_, options) => options,
        }
    }

    pub fn tokens(&self) -> usize {
        match self {
            Self::Chat(chat) => chat.prompt_tokens(),
            Self::Tokens(tokens, _) => tokens.len(),
        }
    }

    /// The messages that the prompt leaves out.
    pub fn dropped(&self) -> &[wglm_engine::Message] {
        match self {
            Self::Chat(chat) => chat.dropped(),
            Self::Tokens(..) => &[],
        }
    }
}

pub struct Replies {
    receiver: unread::Receiver,
    /// Events that came before the answer began, with the numbers of their replies.
    early: VecDeque<(usize, Event)>,
    folds: Vec<Fold>,
    entries: Vec<Entry>,
    /// How many replies were accepted.
    accepted: usize,
    /// The tokens of their prompts together.
    prompt_tokens: usize,
    /// How many replies have not ended.
    open: usize,
    /// Whether the turn of any reply has come.
    begun: bool,
    server: Arc<Server>,
    loaded: Arc<LoadedModel>,
    deadline: Deadline,
    memory: Arc<Reserve>,
}

impl Replies {
    /// Starts the replies, and waits until the answer can begin: all are accepted, and the first token is there or a
    /// moment has passed. The memory that is reserved for them is held until the last one has ended.
    pub async fn start(
        server: &Arc<Server>,
        loaded: Arc<LoadedModel>,
        starts: Vec<(Start, Option<u64>)>,
        one_call: bool,
        memory: Arc<Reserve>,
    ) -> Result<Self, Failure> {
        let permits = server.take_permits(starts.len())?;
        let (sender, receiver) = unread::channel(&server.unread);
        let entries: Vec<Entry> = permits.iter().map(|permit| permit.entry.clone()).collect();
        let cancels = entries.iter().map(|entry| entry.cancel.clone()).collect();
        let deadline = Deadline::new(server.limits.reply, cancels, Caller::current().link);
        let fold = |(start, _): &(Start, _)| Fold::new(one_call).with_all_tokens(matches!(start, Start::Tokens(..)));
        let (open, folds) = (starts.len(), starts.iter().map(fold).collect());
        for (index, (start, permit)) in starts.into_iter().zip(permits).enumerate() {
            let (loaded, sender, memory) = (loaded.clone(), sender.clone(), memory.clone());
            // Nobody waits for the thread: it ends when the reply does.
            drop(tokio::task::spawn_blocking(move || {
                generate(&loaded, start, &permit, |message| sender.send((index, message)));
                drop(memory); // after everything that is counted in it
            }));
        }
        drop(sender);
        let (server, early) = (server.clone(), VecDeque::new());
        let (accepted, prompt_tokens, begun) = (0, 0, false);
        let mut replies = Self {
            receiver,
            early,
            folds,
            entries,
            accepted,
            prompt_tokens,
            open,
            begun,
            server,
            loaded,
            deadline,
            memory,
        };
        replies.begin().await?;
        Ok(replies)
    }

    async fn begin(&mut self) -> Result<(), Failure> {
        let (mut first_token, mut until) = (false, None);
        while !first_token {
            let next = match until {
                None => self.receive().await,
                Some(until) => match timeout_at(until, self.receive()).await {
                    Ok(next) => next,
                    Err(_) => break,
                },
            };
            let Some((index, event)) = next? else { break };
            let all_accepted = self.accepted == self.folds.len();
            match event {
                Some(event) => {
                    first_token = all_accepted && !matches!(event, Event::Prompt { .. } | Event::Dropped { .. });
                    self.early.push_back((index, event));
                }
                None if all_accepted => until = Some(Instant::now() + PATIENCE.min(self.server.limits.silence)),
                None => {}
            }
        }
        Ok(())
    }

    /// Adds warnings about the request to its first reply only, so that they appear once.
    pub fn warn(&mut self, warnings: Vec<String>) {
        if let Some(first) = self.folds.first_mut() {
            warnings.into_iter().for_each(|warning| first.warn(warning));
        }
    }

    pub fn prompt_tokens(&self) -> usize {
        self.prompt_tokens
    }

    /// The next delta of any reply, with the number of the reply; nothing when all have ended. If the future is
    /// dropped, no delta is lost: the next call returns it.
    pub async fn next(&mut self) -> Result<Option<(usize, Delta)>, Failure> {
        loop {
            let (index, event) = match self.early.pop_front() {
                Some((index, event)) => (index, Some(event)),
                None => match self.receive().await? {
                    Some(next) => next,
                    None => return Ok(None),
                },
            };
            let (Some(event), Some(fold)) = (event, self.folds.get_mut(index)) else { continue };
            if matches!(&event, Event::Done(stats) if stats.stop == Stop::Cancelled) && !fold.has_enough() {
                let limit = self.deadline.is_over();
                let why =
                    if limit { "the time limit of the request was reached" } else { "the server is shutting down" };
                fold.warn(format!("the reply was cut off: {why}"));
            }
            let delta = fold.delta(event, self.loaded.model.tokenizer().ok());
            if fold.has_enough() {
                self.entries[index].cancel.cancel(); // its last event still follows
            }
            if let Some(delta) = delta {
                return Ok(Some((index, delta)));
            }
        }
    }

    /// Waits for the ends of all replies.
    pub async fn collect(mut self) -> Result<Vec<Reply>, Failure> {
        let mut replies: Vec<Reply> = self.folds.iter().map(|_| Reply::default()).collect();
        while let Some((index, delta)) = self.next().await? {
            replies[index].add(delta);
        }
        Ok(replies)
    }

    /// Waits for the next message. Returns the number of its reply and the event, unless the reply was just accepted,
    /// and nothing when all replies have ended.
    async fn receive(&mut self) -> Result<Option<(usize, Option<Event>)>, Failure> {
        let next = tokio::select! {
            biased;
            next = self.receiver.recv() => next,
            () = self.deadline.given_up() => {
                self.open = 0;
                return Err(Failure::unavailable("the reply was cancelled, but has not stopped yet", 5));
            }
        };
        let checked = match next {
            Some((index, message)) => self.checked(index, message).map(|event| Some((index, event))),
            None if self.open == 0 => Ok(None),
            // The thread ended without a last event: the client must not mistake what it has for the whole reply.
            None => Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the thread that generates the reply failed")),
        };
        if checked.is_err() {
            self.open = 0;
        }
        checked
    }

    fn checked(&mut self, index: usize, message: Message) -> Result<Option<Event>, Failure> {
        let event = match message {
            Message::Accepted { prompt_tokens } => {
                self.accepted += 1;
                self.prompt_tokens += prompt_tokens;
                return Ok(None);
            }
            Message::Failed(error) => return Err(self.failure(&error)),
            Message::Overflow => {
                let message = "too much of the reply is unread; read it as it is generated";
                return Err(Failure::unavailable(message, 1));
            }
            Message::Event(event) => event,
        };
        match &event {
            Event::Done(stats) if self.had_no_turn(index, stats) => return Err(self.no_turn()),
            Event::Done(_) => self.open = self.open.saturating_sub(1),
            Event::Dropped { .. } => {}
            _ => self.begun = true,
        }
        self.memory.add_text(length(&event))?;
        Ok(Some(event))
    }

    /// Whether a reply was cancelled before its turn came: another client got its place, or none of the replies began.
    fn had_no_turn(&self, index: usize, stats: &Stats) -> bool {
        stats.stop == Stop::Cancelled && (!self.begun || self.entries[index].status.is_displaced())
    }

    /// The failure of a request whose turn did not come.
    fn no_turn(&self) -> Failure {
        if self.entries.iter().any(|entry| entry.status.is_displaced()) {
            self.server.counts.refused.fetch_add(1, Ordering::Relaxed);
            return Failure::displaced();
        }
        match self.deadline.is_over() {
            true => Failure::unavailable("the request waited too long for its turn", 5),
            false => Failure::shutting_down(),
        }
    }

    /// The failure for an error. If the model was lost, this has it loaded again.
    fn failure(&self, error: &Error) -> Failure {
        if matches!(error.cause(), Error::DeviceLost { .. }) {
            self.server.lost(&self.loaded);
        }
        Failure::from(error)
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        self.entries.iter().for_each(|entry| entry.cancel.cancel());
        if self.open > 0 {
            self.server.counts.cancelled.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The bytes of an event's text, which may be long.
fn length(event: &Event) -> usize {
    match event {
        Event::Text(text) | Event::Thinking(text) | Event::ToolCallPiece(text) => text.len(),
        _ => 0,
    }
}

/// Generates a reply and sends its events, until it ends or nobody receives them.
fn generate(loaded: &LoadedModel, start: (Start, Option<u64>), permit: &ReplyPermit, send: impl Fn(Message) -> bool) {
    let reply = match begin(&loaded.scheduler.for_tenant(permit.entry.client.tenant()), start) {
        Ok(reply) => reply.with_cancel(&permit.entry.cancel),
        Err(error) => {
            send(Message::Failed(error));
            return;
        }
    };
    if !send(Message::Accepted { prompt_tokens: reply.prompt_tokens() }) {
        return;
    }
    for event in reply {
        if matches!(event, Ok(Event::Prompt { .. })) {
            permit.entry.status.begin();
        }
        if !send(event.map_or_else(Message::Failed, |event| Message::Event(without_arguments(event)))) {
            return;
        }
    }
}

/// An event without the arguments of a complete call, whose pieces have already been sent.
fn without_arguments(mut event: Event) -> Event {
    if let Event::ToolCall(call) = &mut event {
        call.function.arguments = Value::Null;
    }
    event
}

fn begin(scheduler: &Scheduler, (start, seed): (Start, Option<u64>)) -> wglm_engine::Result<ScheduledReply> {
    match start {
        Start::Chat(prepared) => scheduler.reply(&prepared, seed),
        Start::Tokens(tokens, mut options) => {
            options.sampling.seed = seed;
            scheduler.generate(tokens, *options)
        }
    }
}
