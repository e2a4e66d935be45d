//! A generation without its session. The session is lent to each step, so that it can belong to a [`Generation`] or to
//! a slot that serves one reply after another, and so that several generations can take a step together.
//!
//! [`Generation`]: super::Generation

use super::chooser::Steering;
#[cfg(feature = "constrain")]
use super::constraining::{self, Constraining};
use super::event_builder::EventBuilder;
use super::loops::LoopFinder;
use super::{Chooser, Event, GenerateOptions, PartialReply, Stats, Stop, TokenLogprobs};
use crate::cancel::{Cancel, Cancels};
#[cfg(feature = "constrain")]
use crate::constrain::{Calls, Constraint};
use crate::error::{Error, Result};
use crate::model::Model;
use crate::sample::logprobs;
use crate::session::{Reuse, Session};
use crate::speculate::DraftStats;
use crate::text::ReplyParser;
#[cfg(feature = "constrain")]
use crate::text::ReplyPlace;
use crate::threads::stoppable;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How many tokens of a prompt are computed between two [`Event::Prompt`], if the prompt is computed token by token.
const ONE_BY_ONE: usize = 16;

/// A generation in progress, apart from its session.
pub(crate) struct GenerationTask<'a> {
    prompt: Vec<u32>,
    options: GenerateOptions,
    cancels: Cancels,
    steering: Option<Steering<'a>>,
    #[cfg(feature = "constrain")]
    constraining: Option<Constraining>,
    events: EventBuilder,
    loops: Option<LoopFinder>,
    /// Tokens that the session holds already and that were not reported yet: those behind the first of a step.
    pending: VecDeque<u32>,
    /// What guessing had come to in the session before.
    drafts_before: DraftStats,
    state: TaskState,
}

/// What the next call of [`GenerationTask::advance`] does.
#[derive(Debug, Clone, Copy)]
enum TaskState {
    Start,
    Prompt { start: Instant, cached: usize },
    Tokens(TaskProgress),
    Over,
}

/// How far a generation has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It has not computed all of its prompt.
    Prompt,
    /// It generates tokens.
    Tokens,
    /// It has ended.
    Over,
}

/// The figures of a generation that is past its prompt.
#[derive(Debug, Clone, Copy)]
struct TaskProgress {
    prompt: Reuse,
    prompt_time: Duration,
    since: Instant,
    generated: usize,
}

/// What is known of the next token before it is chosen.
pub(crate) struct Step {
    progress: TaskProgress,
    /// The tokens of the session that were reported.
    before: usize,
    /// Whether the context has room for the token.
    room: bool,
    /// The logits of the token, if they are wanted.
    logits: Option<Vec<f32>>,
}

impl<'a> GenerationTask<'a> {
    /// Prepares what [`Generation::new`](super::Generation::new) does.
    ///
    /// # Errors
    /// As there.
    pub fn new(model: &Model, prompt: Vec<u32>, parser: Option<ReplyParser>, options: GenerateOptions) -> Result<Self> {
        let events = EventBuilder::new(model, parser, options.stop.clone());
        Self::of(model, prompt, events, options)
    }

    fn of(
        #[cfg_attr(not(feature = "constrain"), allow(unused_variables))] model: &Model,
        prompt: Vec<u32>,
        #[cfg_attr(not(feature = "constrain"), allow(unused_mut))] mut events: EventBuilder,
        mut options: GenerateOptions,
    ) -> Result<Self> {
        options.check()?;
        options.sampling.seed = Some(options.sampling.seed());
        #[cfg(feature = "constrain")]
        if options.calls == Calls::None {
            events.forbid_calls(&mut options.sampling.logit_bias);
        }
        #[cfg(feature = "constrain")]
        let constraining = Constraining::new(model, events.parser(), &prompt, &options)?;
        let loops = options.stop_loops.then(LoopFinder::default);
        let (cancels, steering, state) = (Cancels::default(), None, TaskState::Start);
        let (pending, drafts_before) = (VecDeque::new(), DraftStats::default());
        Ok(Self {
            prompt,
            options,
            cancels,
            steering,
            #[cfg(feature = "constrain")]
            constraining,
            events,
            loops,
            pending,
            drafts_before,
            state,
        })
    }

    /// Prepares what [`Generation::resumed`](super::Generation::resumed) does.
    ///
    /// # Errors
    /// As there.
    pub fn resumed(
        model: &Model,
        prompt: Vec<u32>,
        partial_reply: PartialReply,
        options: GenerateOptions,
    ) -> Result<Self> {
        #[cfg(feature = "constrain")]
        let begun = partial_reply.tokens().to_vec();
        let events = partial_reply.go_on(options.stop.clone());
        #[cfg_attr(not(feature = "constrain"), allow(unused_mut))]
        let mut task = Self::of(model, prompt, events, options)?;
        #[cfg(feature = "constrain")]
        task.replay(model, &begun)?;
        Ok(task)
    }

    /// Follows the beginning of a reply that is to be continued. Blanks in JSON that was given as a beginning are allowed, and
    /// then also in what follows, even where the constraint is of compact JSON.
    #[cfg(feature = "constrain")]
    fn replay(&mut self, model: &Model, begun: &[(u32, ReplyPlace)]) -> Result<()> {
        let Some(constraining) = &mut self.constraining else { return Ok(()) };
        let Err(refused) = constraining.replay(begun) else { return Ok(()) };
        let spaced = self.options.constraint.as_ref().and_then(Constraint::with_blanks);
        let Some(spaced) = spaced.filter(|_| matches!(refused, Error::Argument { .. })) else { return Err(refused) };
        let options = GenerateOptions { constraint: Some(spaced), ..self.options.clone() };
        let constraining = Constraining::new(model, self.events.parser(), &self.prompt, &options)?;
        self.constraining = constraining;
        let replayed = self.constraining.as_mut().map(|constraining| constraining.replay(begun));
        if replayed.is_some_and(|replayed| replayed.is_err()) { Err(refused) } else { Ok(()) }
    }

    pub fn set_cancel(&mut self, cancel: &Cancel) {
        self.cancels.others.push(cancel.clone());
    }

    pub fn set_chooser(&mut self, chooser: Box<dyn Chooser + Send + 'a>) {
        self.steering = Some(Steering::new(chooser));
    }

    pub fn cancel(&self) -> Cancel {
        self.cancels.own.clone()
    }

    /// The tokens of the prompt.
    pub fn prompt(&self) -> &[u32] {
        &self.prompt
    }

    /// How many tokens were generated.
    pub fn generated(&self) -> usize {
        if let TaskState::Tokens(progress) = self.state { progress.generated } else { 0 }
    }

    pub fn phase(&self) -> Phase {
        match self.state {
            TaskState::Start | TaskState::Prompt { .. } => Phase::Prompt,
            TaskState::Tokens(_) => Phase::Tokens,
            TaskState::Over => Phase::Over,
        }
    }

    /// Whether it has looked at its session.
    pub fn is_begun(&self) -> bool {
        !matches!(self.state, TaskState::Start)
    }

    /// Removes the next event.
    pub fn pop(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Appends an event.
    pub fn push(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Ends it without another event, because of an error.
    pub fn fail(&mut self) {
        self.state = TaskState::Over;
    }

    /// Computes a part of the prompt, or a token. The events that this completes can be [popped](Self::pop) afterwards.
    ///
    /// # Errors
    /// Any error means that the generation cannot go on. After [`Error::PoolFull`] it can, once there is room.
    pub fn advance(&mut self, session: &mut Session) -> Result<()> {
        let cancels = self.cancels.clone();
        match stoppable(move || cancels.is_cancelled(), || self.advance_by_state(session)) {
            // Cancelled while a submission waited for the end of a pause.
            Err(Error::Cancelled) if self.cancels.is_cancelled() => {
                self.end_cancelled(Some(session));
                Ok(())
            }
            advanced => advanced,
        }
    }

    fn advance_by_state(&mut self, session: &mut Session) -> Result<()> {
        match self.state {
            TaskState::Start => self.start(session),
            TaskState::Prompt { start, cached } => self.read_prompt(session, start, cached),
            TaskState::Tokens(_) => self.next_token(session),
            TaskState::Over => Ok(()),
        }
    }

    /// Does work of this task, which stops waiting for the end of a [`Pause`](crate::Pause) once the task is cancelled.
    pub fn stoppable<T>(&self, work: impl FnOnce() -> T) -> T {
        let cancels = self.cancels.clone();
        stoppable(move || cancels.is_cancelled(), work)
    }

    /// Brings the session to what it has in common with the prompt.
    fn start(&mut self, session: &mut Session) -> Result<()> {
        let cached = session.keep_common(&self.prompt)?;
        self.set_up(session)?;
        self.drafts_before = session.draft_stats();
        self.events.push(Event::Prompt { done: cached, total: self.prompt.len() });
        self.state = TaskState::Prompt { start: Instant::now(), cached };
        Ok(())
    }

    /// The tokens that the session holds of this generation: those of the prompt and of the reply as far as it is known,
    /// or none if the prompt is not computed yet.
    pub fn known_tokens(&self, session: &Session) -> Vec<u32> {
        let TaskState::Tokens(progress) = self.state else { return Vec::new() };
        let mut tokens = session.tokens().to_vec();
        tokens.truncate(self.prompt.len() + progress.generated + self.pending.len());
        tokens
    }

    /// Continues with another, empty session. Before the next step that has to hold the [known
    /// tokens](Self::known_tokens).
    ///
    /// # Errors
    /// What the device reports.
    pub fn moved(&mut self, session: &mut Session) -> Result<()> {
        self.drafts_before = session.draft_stats();
        if let TaskState::Prompt { cached, .. } = &mut self.state {
            *cached = 0;
        }
        match self.state {
            TaskState::Start | TaskState::Over => Ok(()),
            TaskState::Prompt { .. } | TaskState::Tokens(_) => self.set_up(session),
        }
    }

    /// Has the session sample as the options say.
    fn set_up(&mut self, session: &mut Session) -> Result<()> {
        session.set_masked(false);
        session.set_sampling(&self.options.sampling)?;
        session.set_speculation(&self.options.speculation)
    }

    fn read_prompt(&mut self, session: &mut Session, start: Instant, cached: usize) -> Result<()> {
        let read = read_part(session, &self.prompt, &|| self.cancels.is_cancelled());
        let (done, total) = (session.tokens().len(), self.prompt.len());
        let since = Instant::now();
        let prompt = Reuse { cached, new: done.saturating_sub(cached) }; // the session drops tokens whose results were lost
        let progress = TaskProgress { prompt, prompt_time: since - start, since, generated: 0 };
        match read {
            Ok(true) => {
                self.events.push(Event::Prompt { done, total });
                self.state = TaskState::Tokens(progress);
            }
            Ok(false) => self.events.push(Event::Prompt { done, total }),
            Err(Error::Cancelled) => self.finish(session, progress, Stop::Cancelled),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn next_token(&mut self, session: &mut Session) -> Result<()> {
        let Some(step) = self.begin_step(session)? else { return Ok(()) };
        let token = match self.pending.pop_front() {
            Some(token) => token,
            None => self.choose(session, &step)?,
        };
        self.end_step(session, step, token)
    }

    /// Whether its next token may come from a step that the session takes with others: it is sampled on the device, and
    /// fed as it is sampled.
    pub fn joins(&self, session: &Session) -> bool {
        let room = session.tokens().len() < session.context();
        self.phase() == Phase::Tokens
            && self.pending.is_empty()
            && self.steering.is_none()
            && room
            && !self.lacks_token()
    }

    /// Whether the session does not hold the last token of the reply yet, because memory was too short.
    fn lacks_token(&self) -> bool {
        #[cfg(feature = "constrain")]
        return self.constraining.as_ref().is_some_and(Constraining::lacks_token);
        #[cfg(not(feature = "constrain"))]
        false
    }

    /// Between [`begin_step`](Self::begin_step) and a step that the session takes with others: chooses the next token if a
    /// grammar says what it may be. The step feeds what was sampled last, so here it is not fed. A token that the grammar
    /// forces is the only one that its mask allows. Behind this the step has to be taken.
    ///
    /// # Errors
    /// What the device reports.
    pub fn choose_ahead(&mut self, session: &mut Session, step: &mut Step) -> Result<()> {
        if !self.is_masked() {
            return Ok(());
        }
        let room = std::mem::replace(&mut step.room, false);
        let chosen = self.choose(session, step);
        step.room = room;
        chosen.map(drop)
    }

    /// Whether a grammar says what its next token may be.
    fn is_masked(&self) -> bool {
        #[cfg(feature = "constrain")]
        return self.constraining.as_ref().is_some_and(|it| it.holds_at(self.events.place()));
        #[cfg(not(feature = "constrain"))]
        false
    }

    /// Whether the reply is complete by its constraint, and nothing can follow.
    fn is_complete(&self) -> bool {
        #[cfg(feature = "constrain")]
        return self.pending.is_empty() && self.constraining.as_ref().is_some_and(Constraining::is_over);
        #[cfg(not(feature = "constrain"))]
        false
    }

    /// Prepares the choice of the next token. `None` if there is none, because the generation ends.
    ///
    /// # Errors
    /// What the device reports.
    pub fn begin_step(&mut self, session: &mut Session) -> Result<Option<Step>> {
        let TaskState::Tokens(progress) = self.state else { return Ok(None) };
        if let Some(stop) = self.limit(&progress) {
            self.finish(session, progress, stop);
            return Ok(None);
        }
        #[cfg(feature = "constrain")]
        if let Some(constraining) = &mut self.constraining {
            constraining.begin(session, self.events.place(), &mut self.pending)?;
        }
        // The beginning that a caller gave may be the whole answer already, and a call may be all that is wanted.
        if self.is_complete() {
            self.finish(session, progress, Stop::End);
            return Ok(None);
        }
        let before = session.tokens().len().saturating_sub(self.pending.len());
        let room = before < session.context();
        let wanted = self.options.logprobs.is_some() || self.steering.is_some();
        let logits = wanted.then(|| session.logits()).transpose()?;
        Ok(Some(Step { progress, before, room, logits }))
    }

    /// Takes the token that was chosen and, if the context had room for it, fed to the session.
    ///
    /// # Errors
    /// [`Error::TokenOutOfRange`] for one that is not in the vocabulary.
    pub fn end_step(&mut self, session: &mut Session, step: Step, token: u32) -> Result<()> {
        let Step { progress, before, room, logits } = step;
        // The end of a message is not that of the reply if a call may follow as another message.
        let ends = session.model().tokenizer()?.is_end(token) && !self.events.is_tag(token);
        #[cfg(feature = "constrain")]
        let (token, ends) = match &mut self.constraining {
            Some(constraining) if ends && constraining.awaits_answer() => {
                self.pending.clear();
                let (steering, sampling) = (self.steering.as_mut(), &self.options.sampling);
                let (place, logits) = (self.events.place(), logits.as_deref());
                let choice = constraining::Instead { place, logits, steering, sampling };
                (constraining.choose_no_end(session, before, room, choice)?, false)
            }
            _ => (token, ends),
        };
        if ends {
            session.rewind(before); // the end token was fed before the host knew it
            self.pending.clear();
            self.finish(session, progress, Stop::End);
            return Ok(());
        }
        self.emit(session.model(), token, logits.as_deref())?;
        let progress = TaskProgress { generated: progress.generated + 1, ..progress };
        self.state = TaskState::Tokens(progress);
        let loops = self.loops.as_mut().is_some_and(|loops| loops.push(token));
        if self.events.stopped() {
            self.finish(session, progress, Stop::StopString);
        } else if self.events.ended() || self.is_complete() {
            self.finish(session, progress, Stop::End);
        } else if loops {
            self.finish(session, progress, Stop::Loop);
        } else if !room {
            self.finish(session, progress, Stop::Context);
        }
        Ok(())
    }

    /// Chooses the next token, and feeds it to the session if there is room, perhaps with others that follow it.
    fn choose(&mut self, session: &mut Session, step: &Step) -> Result<u32> {
        let Step { room, progress, .. } = *step;
        #[cfg(feature = "constrain")]
        if let Some(constraining) = &mut self.constraining {
            let most = self.options.max_tokens.map_or(usize::MAX, |most| most - progress.generated);
            let (steering, sampling, pending) = (self.steering.as_mut(), &self.options.sampling, &mut self.pending);
            let (events, logits) = (&self.events, step.logits.as_deref());
            let (place, model) = (events.place(), session.model().clone());
            let ends = |token| model.tokenizer().is_ok_and(|known| known.is_end(token)) && !events.is_tag(token);
            let choice = constraining::Choice { place, ends: &ends, room, logits, most, steering, sampling, pending };
            if let Some(token) = constraining.choose(session, choice)? {
                return Ok(token);
            }
        }
        let Some(logits) = &step.logits else {
            if !room {
                return session.sampled_token();
            }
            let most = self.options.max_tokens.map_or(usize::MAX, |most| most - progress.generated);
            let fed = session.next_tokens(most)?;
            self.pending.extend(&fed[1..]);
            return Ok(fed[0]);
        };
        let Some(steering) = &mut self.steering else {
            return if room { session.next_token() } else { session.sampled_token() };
        };
        let token = steering.choose(&mut logits.clone(), session.tokens(), &self.options.sampling)?;
        if room {
            session.feed(&[token])?;
        }
        Ok(token)
    }

    /// The reason not to generate another token, if there is one.
    fn limit(&self, progress: &TaskProgress) -> Option<Stop> {
        let enough = self.options.max_tokens.is_some_and(|most| progress.generated >= most);
        let cancelled = self.cancels.is_cancelled().then_some(Stop::Cancelled);
        cancelled.or(enough.then_some(Stop::Length))
    }

    /// Adds the events of a generated token.
    fn emit(&mut self, model: &Model, token: u32, logits: Option<&[f32]>) -> Result<()> {
        let tokenizer = model.tokenizer()?;
        if let (Some(logits), Some(top)) = (logits, self.options.logprobs) {
            let (chosen, top) = logprobs(logits, token, top);
            let bytes = tokenizer.token_bytes(token)?.to_owned();
            self.events.push(Event::Token(TokenLogprobs { chosen, bytes, top }));
        }
        self.events.token(tokenizer, token)
    }

    /// Has the session forget the tokens that were not reported.
    pub fn drop_pending(&mut self, session: &mut Session) {
        if self.pending.is_empty() {
            return;
        }
        let reported = session.tokens().len().saturating_sub(self.pending.len());
        self.pending.clear();
        session.rewind(reported);
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancels.is_cancelled()
    }

    /// Ends it as cancelled, wherever it is. Without a session it has not begun.
    pub fn end_cancelled(&mut self, session: Option<&mut Session>) {
        let now = Instant::now();
        let early =
            |since: Instant, prompt| TaskProgress { prompt, prompt_time: now - since, since: now, generated: 0 };
        match (self.state, session) {
            (TaskState::Tokens(progress), Some(session)) => self.finish(session, progress, Stop::Cancelled),
            (TaskState::Prompt { start, cached }, Some(session)) => {
                let new = session.tokens().len().saturating_sub(cached);
                self.finish(session, early(start, Reuse { cached, new }), Stop::Cancelled);
            }
            (TaskState::Over, _) => {}
            _ => {
                let none = early(now, Reuse { cached: 0, new: 0 });
                self.done(none, Stop::Cancelled, DraftStats::default());
            }
        }
    }

    /// Adds the last events, and ends the generation.
    fn finish(&mut self, session: &mut Session, progress: TaskProgress, stop: Stop) {
        self.drop_pending(session);
        session.set_masked(false);
        let drafts = session.draft_stats().since(&self.drafts_before);
        self.done(progress, stop, drafts);
    }

    fn done(&mut self, progress: TaskProgress, stop: Stop, drafts: DraftStats) {
        self.events.finish();
        let TaskProgress { prompt, prompt_time, since, generated } = progress;
        let generate_time = since.elapsed();
        let seed = self.options.sampling.seed.filter(|_| self.options.sampling.temperature > 0.0);
        self.events.push(Event::Done(Stats { prompt, generated, seed, stop, prompt_time, generate_time, drafts }));
        self.state = TaskState::Over;
    }
}

/// Feeds a session the next part of `tokens`, with the first of which it begins. The session is given all remaining
/// tokens, so that it can plan for all, and is stopped at the end of a part. Returns whether it then holds
/// all of them.
///
/// # Errors
/// [`Error::Cancelled`] if `cancelled` says so; those of [`Session::feed`].
pub(crate) fn read_part(session: &mut Session, tokens: &[u32], cancelled: &dyn Fn() -> bool) -> Result<bool> {
    let rest = &tokens[session.tokens().len().min(tokens.len())..];
    let part = if session.prompt_options().together() > 1 { 1 } else { ONE_BY_ONE };
    let mut go_on = |read| match cancelled() || (part..rest.len()).contains(&read) {
        true => Err(Error::Cancelled),
        false => Ok(()),
    };
    match session.feed_while(rest, &mut go_on).and_then(|()| session.wait()) {
        Ok(()) => Ok(true),
        Err(Error::Cancelled) if !cancelled() => Ok(false),
        Err(error) => Err(error),
    }
}

impl std::fmt::Debug for GenerationTask<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generation")
            .field("prompt", &self.prompt.len())
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
