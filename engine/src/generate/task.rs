//! A generation without its session. Each step borrows the session, so that the session can belong to a [`Generation`]
//! or to code that serves several replies, and so that several generations can take a step together.
//!
//! [`Generation`]: super::Generation

use super::choose::{Policy, Turn};
use super::event_builder::EventBuilder;
use super::loops::LoopFinder;
use super::rule::{relaxed, rule_for};
use super::scoring::Scoring;
use super::{Chooser, Event, GenerateOptions, PartialReply, Stats, Stop, TokenLogprobs};
use crate::cancel::{Cancel, Cancels};
use crate::error::{Error, Result};
use crate::model::Model;
use crate::sample::logprobs;
use crate::session::{HiddenMean, Reuse, Session};
use crate::speculate::DraftStats;
use crate::text::{ReplyParser, ReplyPosition};
use crate::threads::with_stop_signal;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How many tokens of a prompt are computed between two [`Event::Prompt`], if the prompt is computed token by token.
const ONE_BY_ONE: usize = 16;

/// A generation in progress, apart from its session.
pub(crate) struct GenerationTask<'a> {
    prompt: Vec<u32>,
    options: GenerateOptions,
    cancels: Cancels,
    policy: Policy<'a>,
    events: EventBuilder,
    loops: Option<LoopFinder>,
    /// The tokens of the prompt that get log-probabilities.
    scoring: Option<Scoring>,
    /// The mean of the hidden states of the prompt's tokens so far, if that is wanted instead of a reply.
    mean: Option<HiddenMean>,
    /// Tokens in the session that were not reported yet: those after the first of a step.
    pending: VecDeque<u32>,
    /// Tokens that the session has to compute again first, because its cache was dropped or lost.
    again: Vec<u32>,
    /// The session's statistics of guesses before this generation.
    drafts_before: DraftStats,
    state: TaskState,
}

/// The next work of [`GenerationTask::advance`].
#[derive(Debug, Clone, Copy)]
enum TaskState {
    Start,
    Prompt { start: Instant, cached: usize },
    Tokens(TaskProgress),
    Over,
}

/// The phase of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its prompt is not complete.
    Prompt,
    /// It generates tokens.
    Tokens,
    /// It has ended.
    Over,
}

/// The statistics of a generation that is past its prompt.
#[derive(Debug, Clone, Copy)]
struct TaskProgress {
    prompt: Reuse,
    prompt_time: Duration,
    since: Instant,
    generated: usize,
}

impl TaskProgress {
    /// After the part of a prompt that a session has.
    fn after(start: Instant, cached: usize, session: &Session) -> Self {
        let (since, done) = (Instant::now(), session.tokens().len());
        let prompt = Reuse { cached, new: done.saturating_sub(cached) }; // fewer if results were lost
        Self { prompt, prompt_time: since - start, since, generated: 0 }
    }

    /// Before a prompt.
    fn none() -> Self {
        Self { prompt: Reuse { cached: 0, new: 0 }, prompt_time: Duration::ZERO, since: Instant::now(), generated: 0 }
    }
}

/// A token being produced: what `open_token` found, kept until `close_token`.
pub(crate) struct OpenToken {
    /// The number of the session's tokens that were reported.
    before: usize,
    /// The maximum number of tokens that may be fed; 0 if the context is full.
    most: usize,
    /// The logits of the token, if they are wanted.
    logits: Option<Vec<f32>>,
}

impl OpenToken {
    fn turn<'s>(&'s self, events: &'s EventBuilder, options: &'s GenerateOptions) -> Turn<'s> {
        Turn { events, logits: self.logits.as_deref(), most: self.most, sampling: &options.sampling }
    }
}

impl<'a> GenerationTask<'a> {
    /// Like [`Generation::new`](super::Generation::new).
    ///
    /// # Errors
    /// See [`Generation::new`](super::Generation::new).
    pub fn new(model: &Model, prompt: Vec<u32>, parser: Option<ReplyParser>, options: GenerateOptions) -> Result<Self> {
        let events = EventBuilder::new(model, parser, options.stop.clone());
        Self::of(model, (prompt, 0), events, options)
    }

    /// A generation that brings the session to `prompt`, of which the last `begun` tokens belong to the reply.
    fn of(
        model: &Model,
        (prompt, begun): (Vec<u32>, usize),
        mut events: EventBuilder,
        mut options: GenerateOptions,
    ) -> Result<Self> {
        options.check()?;
        options.sampling.seed = Some(options.sampling.seed());
        let rule = rule_for(model, &prompt[..prompt.len() - begun], &mut events, &mut options)?;
        let policy = Policy::new(rule);
        if options.ignore_eos {
            let must_end = policy.rules(|_| true) || events.looks_for_calls();
            ban_ends(model, must_end, &mut options.sampling.logit_bias)?;
        }
        let loops = options.stop_loops.then(LoopFinder::default);
        let scoring = options.prompt_logprobs.map(Scoring::new);
        let (cancels, state) = (Cancels::default(), TaskState::Start);
        let (pending, again, drafts_before) = (VecDeque::new(), Vec::new(), DraftStats::default());
        let mean = None;
        Ok(Self {
            prompt,
            options,
            cancels,
            policy,
            events,
            loops,
            scoring,
            mean,
            pending,
            again,
            drafts_before,
            state,
        })
    }

    /// A task that reports the mean of the hidden states of the prompt's tokens, and generates nothing.
    ///
    /// # Errors
    /// The errors of [`Generation::new`](super::Generation::new).
    pub fn mean_of(model: &Model, prompt: Vec<u32>) -> Result<Self> {
        let options = GenerateOptions { max_tokens: Some(0), ..GenerateOptions::default() };
        Ok(Self { mean: Some(HiddenMean::default()), ..Self::new(model, prompt, None, options)? })
    }

    /// A generation that brings the session to `prompt`, which ends with the beginning of a reply, and continues that
    /// reply.
    ///
    /// # Errors
    /// The errors of [`Generation::new`](super::Generation::new).
    pub fn resumed(
        model: &Model,
        prompt: Vec<u32>,
        partial_reply: PartialReply,
        options: GenerateOptions,
    ) -> Result<Self> {
        let PartialReply { events, tokens, .. } = partial_reply;
        let events = events.with_stop_strings(options.stop.clone());
        let mut task = Self::of(model, (prompt, tokens.len()), events, options)?;
        task.replay(model, &tokens)?;
        Ok(task)
    }

    /// Replays the beginning of a reply that is to be continued.
    fn replay(&mut self, model: &Model, begun: &[(u32, ReplyPosition)]) -> Result<()> {
        let Some(Err(refused)) = self.policy.rule.as_mut().map(|rule| rule.replay(begun)) else { return Ok(()) };
        let relaxed = relaxed(&self.options).filter(|_| matches!(refused, Error::Argument { .. }));
        let Some(mut options) = relaxed else { return Err(refused) };
        let prompt = &self.prompt[..self.prompt.len() - begun.len()];
        self.policy = Policy::new(rule_for(model, prompt, &mut self.events, &mut options)?);
        let replayed = self.policy.rule.as_mut().map(|rule| rule.replay(begun));
        if replayed.is_some_and(|replayed| replayed.is_err()) { Err(refused) } else { Ok(()) }
    }

    pub fn set_cancel(&mut self, cancel: &Cancel) {
        self.cancels.others.push(cancel.clone());
    }

    pub fn set_chooser(&mut self, chooser: Box<dyn Chooser + Send + 'a>) {
        self.policy.set_chooser(chooser);
    }

    pub fn cancel(&self) -> Cancel {
        self.cancels.own.clone()
    }

    /// The tokens of the prompt.
    pub fn prompt(&self) -> &[u32] {
        &self.prompt
    }

    /// The beginning of `tokens` that may come from the cache: all of them, unless log-probabilities or hidden states
    /// of the prompt require the others to be computed.
    pub fn cacheable<'t>(&self, tokens: &'t [u32]) -> &'t [u32] {
        let open = self.scoring.filter(|scoring| scoring.is_open(&self.prompt));
        let scored = open.map(|scoring| scoring.without_logits());
        let most = self.mean.as_ref().map(HiddenMean::count).or(scored).unwrap_or(usize::MAX);
        &tokens[..most.min(tokens.len())]
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

    /// Whether it computes known tokens next.
    pub fn reads(&self) -> bool {
        self.phase() == Phase::Prompt || !self.again.is_empty()
    }

    /// Whether what it leaves in its session is worth keeping. Nothing is likely to continue a text that was embedded.
    pub fn is_kept(&self) -> bool {
        self.mean.is_none()
    }

    /// Whether it has begun.
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

    /// Ends it without another event after an error.
    pub fn fail(&mut self) {
        self.state = TaskState::Over;
    }

    /// Does other work for it, which stops once it is cancelled.
    pub fn with_stop_signal<T>(&self, work: impl FnOnce(&Self) -> T) -> T {
        let cancels = self.cancels.clone();
        with_stop_signal(move || cancels.is_cancelled(), || work(self))
    }

    /// Computes a part of the prompt, or a token. The events that this completes can be [popped](Self::pop) afterwards.
    ///
    /// # Errors
    /// After any error the generation cannot continue, except after [`Error::PoolFull`], once there is memory.
    pub fn advance(&mut self, session: &mut Session) -> Result<()> {
        let cancels = self.cancels.clone();
        let advanced = with_stop_signal(
            move || cancels.is_cancelled(),
            || match self.state {
                _ if !self.again.is_empty() => self.read_again(session),
                TaskState::Start => self.start(session),
                TaskState::Prompt { .. } => self.read_prompt(session),
                TaskState::Tokens(_) => self.next_token(session),
                TaskState::Over => Ok(()),
            },
        );
        match advanced {
            // Cancelled while a submission waited for the end of a pause.
            Err(Error::Cancelled) if self.cancels.is_cancelled() => {
                self.end_cancelled(Some(session));
                Ok(())
            }
            advanced => advanced,
        }
    }

    /// Reduces the session to the tokens that it has in common with the prompt.
    fn start(&mut self, session: &mut Session) -> Result<()> {
        let cached = session.keep_common(self.cacheable(&self.prompt))?;
        self.set_up(session)?;
        self.drafts_before = session.draft_stats();
        self.events.push(Event::Prompt { done: cached, total: self.prompt.len() });
        self.state = TaskState::Prompt { start: Instant::now(), cached };
        Ok(())
    }

    /// The tokens that a session needs before the next step if its cache is dropped: those of the prompt, and those of
    /// the reply that are known.
    pub fn needed_tokens(&self, session: &Session) -> Vec<u32> {
        match self.state {
            _ if !self.again.is_empty() => self.again.clone(),
            TaskState::Tokens(progress) => {
                let known = self.prompt.len() + progress.generated + self.pending.len();
                session.tokens().iter().copied().take(known).collect()
            }
            _ => self.prompt.clone(),
        }
    }

    /// Makes the session compute these tokens again first, unless it computes its prompt anyway.
    pub fn compute_again(&mut self, tokens: Vec<u32>) {
        if self.phase() == Phase::Tokens {
            self.again = tokens;
        }
    }

    fn read_again(&mut self, session: &mut Session) -> Result<()> {
        match read_part(session, &self.again, &|| self.cancels.is_cancelled()) {
            Ok(false) => Ok(()),
            Ok(true) | Err(Error::Cancelled) => {
                self.again.clear(); // the next step ends a cancelled generation
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Continues with another, empty session, which [computes](Self::compute_again) the tokens again.
    ///
    /// # Errors
    /// Any error from the device.
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

    /// Sets the session's sampling as the options say.
    fn set_up(&mut self, session: &mut Session) -> Result<()> {
        session.set_masked(false);
        session.set_sampling(&self.options.sampling)?;
        session.set_speculation(&self.options.speculation)
    }

    fn read_prompt(&mut self, session: &mut Session) -> Result<()> {
        match self.read_next(session) {
            Ok(false) => self.report_prompt(session),
            Ok(true) => {
                self.complete_prompt(session);
                if let Some(mean) = &self.mean {
                    self.events.push(Event::Embedding(mean.value()));
                    self.finish(session, Stop::Length);
                }
            }
            Err(Error::Cancelled) => self.end_cancelled(Some(session)),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Reports how many tokens of the prompt the session has.
    fn report_prompt(&mut self, session: &Session) {
        self.events.push(Event::Prompt { done: session.tokens().len(), total: self.prompt.len() });
    }

    /// The remaining tokens of the prompt if they can be computed together with other prompts: the caller wants only
    /// the next token, and the device samples it.
    pub fn batchable_rest(&self, session: &Session) -> Option<&[u32]> {
        let chosen = self.policy.has_chooser() || self.policy.rules(|rule| rule.holds_at(self.events.position()));
        let read = self.options.logprobs.is_some() || self.scoring.is_some() || self.mean.is_some();
        let is_batchable = matches!(self.state, TaskState::Prompt { .. }) && self.again.is_empty() && !chosen && !read;
        self.prompt.get(session.tokens().len()..).filter(|_| is_batchable)
    }

    /// Records that the remaining tokens of the prompt were computed.
    pub fn complete_prompt(&mut self, session: &Session) {
        self.report_prompt(session);
        if let TaskState::Prompt { start, cached } = self.state {
            self.state = TaskState::Tokens(TaskProgress::after(start, cached, session));
        }
    }

    /// What cancels it.
    pub fn cancels(&self) -> &Cancels {
        &self.cancels
    }

    /// Computes a part of the prompt. Reports its tokens if their log-probabilities are wanted, and adds their hidden
    /// states to the mean if a mean is wanted. Returns whether the prompt is complete.
    fn read_next(&mut self, session: &mut Session) -> Result<bool> {
        let cancels = &self.cancels;
        let cancelled = || cancels.is_cancelled();
        let check_stop = &mut || if cancelled() { Err(Error::Cancelled) } else { Ok(()) };
        if let Some(mean) = &mut self.mean {
            let done = mean.count();
            if session.tokens().len() < done {
                return read_part(session, &self.prompt[..done], &cancelled).map(|_| false);
            }
            session.feed_first_into(mean, &self.prompt[done..], check_stop)?;
            return Ok(mean.count() == self.prompt.len());
        }
        let Some(scoring) = self.scoring.as_mut().filter(|scoring| scoring.is_open(&self.prompt)) else {
            return read_part(session, &self.prompt, &cancelled);
        };
        if session.tokens().len() < scoring.without_logits() {
            return read_part(session, &self.prompt[..scoring.without_logits()], &cancelled).map(|_| false);
        }
        let scored = scoring.read(session, &self.prompt, check_stop)?;
        scored.into_iter().for_each(|token| self.events.push(Event::PromptToken(token)));
        Ok(false)
    }

    fn next_token(&mut self, session: &mut Session) -> Result<()> {
        let Some(open) = self.open_token(session)? else { return Ok(()) };
        let known = match self.pending.pop_front() {
            None => self.policy.next(session, &open.turn(&self.events, &self.options), &mut self.pending)?,
            pending => pending,
        };
        match known {
            Some(token) => self.take(session, open, token),
            None if open.most == 0 => {
                let token = session.sampled_token()?;
                self.take(session, open, token)
            }
            None => {
                let fed = session.next_tokens(self.wants(&open))?;
                self.close_token(session, open, &fed)
            }
        }
    }

    /// Whether its next token may come from a common step: if it is sampled on the device, and fed as it is sampled.
    pub fn joins(&self, session: &Session) -> bool {
        let fits = session.tokens().len() < session.context();
        let by_device =
            !self.policy.has_chooser() && self.pending.is_empty() && !self.policy.rules(|rule| rule.lacks_token());
        self.phase() == Phase::Tokens && fits && by_device
    }

    /// Chooses the next token if a rule restricts it, after [`open_token`](Self::open_token) and before a common step.
    /// That step has to be taken then: it feeds the token that was sampled last.
    ///
    /// # Errors
    /// Any error from the device.
    pub fn choose_ahead(&mut self, session: &mut Session, open: &OpenToken) -> Result<()> {
        if !self.policy.rules(|rule| rule.holds_at(self.events.position())) {
            return Ok(());
        }
        self.policy.choose(session, &open.turn(&self.events, &self.options)).map(drop)
    }

    /// Whether the session has tokens that were not reported yet.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The maximum number of tokens that a step may feed, including the certain one.
    pub fn wants(&self, open: &OpenToken) -> usize {
        let one_by_one = open.logits.is_some() || self.policy.rules(|rule| rule.holds_at(self.events.position()));
        if one_by_one { 1 } else { open.most }
    }

    /// Prepares the choice of the next token. `None` if there is none, because the generation has ended.
    ///
    /// # Errors
    /// Any error from the device.
    pub fn open_token(&mut self, session: &mut Session) -> Result<Option<OpenToken>> {
        let TaskState::Tokens(progress) = self.state else { return Ok(None) };
        if let Some(stop) = self.limit(&progress) {
            self.finish(session, stop);
            return Ok(None);
        }
        if let Some(rule) = &mut self.policy.rule {
            rule.begin(session, self.events.position(), &mut self.pending)?;
        }
        // The beginning given by a caller may be the whole answer already, and a call may be all that is wanted.
        if self.is_complete() {
            self.finish(session, Stop::End);
            return Ok(None);
        }
        let before = session.tokens().len().saturating_sub(self.pending.len());
        let left = self.options.max_tokens.map_or(usize::MAX, |most| most - progress.generated);
        let most = if before < session.context() { left } else { 0 };
        let wanted = self.options.logprobs.is_some() || self.policy.has_chooser();
        let logits = wanted.then(|| session.logits()).transpose()?;
        Ok(Some(OpenToken { before, most, logits }))
    }

    /// Whether the reply is complete by its rule, and nothing can follow.
    fn is_complete(&self) -> bool {
        self.pending.is_empty() && self.policy.rules(|rule| rule.is_over())
    }

    /// Takes the tokens that a step has fed: the first one now, and the others later.
    ///
    /// # Errors
    /// [`Error::TokenOutOfRange`] for a token that is not in the vocabulary, [`Error::NoResult`] if nothing was fed.
    pub fn close_token(&mut self, session: &mut Session, open: OpenToken, fed: &[u32]) -> Result<()> {
        let [token, following @ ..] = fed else { return Err(Error::NoResult) };
        self.pending.extend(following);
        self.take(session, open, *token)
    }

    /// Takes the token that was chosen and, unless the context was full, fed to the session.
    fn take(&mut self, session: &mut Session, open: OpenToken, mut token: u32) -> Result<()> {
        let turn = open.turn(&self.events, &self.options);
        if turn.ends(session, token) {
            self.pending.clear();
            let Some(another) = self.policy.next_no_end(session, open.before, &turn)? else {
                self.report(session.model(), token, open.logits.as_deref())?;
                session.rewind(open.before); // the end token was fed before the host knew it
                self.finish(session, Stop::End);
                return Ok(());
            };
            token = another;
        }
        self.emit(session.model(), token, open.logits.as_deref())?;
        if let TaskState::Tokens(progress) = &mut self.state {
            progress.generated += 1;
        }
        let loops = self.loops.as_mut().is_some_and(|loops| loops.push(token));
        let stop = match () {
            () if self.events.stopped() => Stop::StopString,
            () if self.events.ended() || self.is_complete() => Stop::End,
            () if loops => Stop::Loop,
            () if open.most == 0 => Stop::Context,
            () => return Ok(()),
        };
        self.finish(session, stop);
        Ok(())
    }

    /// The reason not to generate another token, if any.
    fn limit(&self, progress: &TaskProgress) -> Option<Stop> {
        let enough = self.options.max_tokens.is_some_and(|most| progress.generated >= most);
        let cancelled = self.cancels.is_cancelled().then_some(Stop::Cancelled);
        cancelled.or(enough.then_some(Stop::Length))
    }

    /// Adds the events of a generated token.
    fn emit(&mut self, model: &Model, token: u32, logits: Option<&[f32]>) -> Result<()> {
        self.report(model, token, logits)?;
        self.events.token(model.tokenizer()?, token)
    }

    /// Reports the log-probability of a token, if it is wanted.
    fn report(&mut self, model: &Model, token: u32, logits: Option<&[f32]>) -> Result<()> {
        if let (Some(logits), Some(top)) = (logits, self.options.logprobs) {
            let (chosen, mut top) = logprobs(logits, token, top);
            top.extend(self.options.logprob_tokens.iter().map(|other| logprobs(logits, *other, 0).0));
            let bytes = model.tokenizer()?.token_bytes(token)?.to_owned();
            self.events.push(Event::Token(TokenLogprobs { chosen, bytes, top }));
        }
        Ok(())
    }

    /// Removes the tokens that were not reported from the session.
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

    /// Ends it as cancelled in any phase. Without a session it has not begun.
    pub fn end_cancelled(&mut self, session: Option<&mut Session>) {
        match (self.state, session) {
            (TaskState::Tokens(_), Some(session)) => self.finish(session, Stop::Cancelled),
            (TaskState::Prompt { start, cached }, Some(session)) => {
                self.state = TaskState::Tokens(TaskProgress::after(start, cached, session));
                self.finish(session, Stop::Cancelled);
            }
            (TaskState::Over, _) => {}
            (TaskState::Start, _) => {
                self.mean = None; // the slot still holds what it held before
                self.done(Stop::Cancelled, DraftStats::default());
            }
            _ => self.done(Stop::Cancelled, DraftStats::default()),
        }
    }

    /// Adds the last events, and ends the generation.
    fn finish(&mut self, session: &mut Session, stop: Stop) {
        self.drop_pending(session);
        session.set_masked(false);
        let drafts = session.draft_stats().since(&self.drafts_before);
        self.done(stop, drafts);
    }

    fn done(&mut self, stop: Stop, drafts: DraftStats) {
        self.events.finish(stop != Stop::End);
        // The text that was held back until now may complete a stop string, which cuts it.
        let is_stopped = self.events.stopped() && stop != Stop::Cancelled;
        let stop = if is_stopped { Stop::StopString } else { stop };
        let progress = if let TaskState::Tokens(progress) = self.state { progress } else { TaskProgress::none() };
        let TaskProgress { prompt, prompt_time, since, generated } = progress;
        let generate_time = since.elapsed();
        let seed = self.options.sampling.seed.filter(|_| self.options.sampling.temperature > 0.0);
        let stop_string = self.events.stop_string().filter(|_| stop == Stop::StopString);
        let stats = Stats { prompt, generated, seed, stop, stop_string, prompt_time, generate_time, drafts };
        self.events.push(Event::Done(stats));
        self.state = TaskState::Over;
    }
}

/// Bans the tokens that end a reply.
///
/// # Errors
/// [`Error::Argument`] if the reply must end by itself.
fn ban_ends(model: &Model, must_end: bool, biases: &mut Vec<(u32, f32)>) -> Result<()> {
    if must_end {
        let expected = "false, because a reply with a constraint or with functions has to end by itself";
        return Err(Error::argument("ignore_eos", expected, "true"));
    }
    biases.extend(model.tokenizer()?.end_tokens().iter().map(|token| (*token, f32::NEG_INFINITY)));
    Ok(())
}

/// Feeds the next part of `tokens` to a session that already has the first of them. The session gets all remaining
/// tokens, so that it can plan for all, and is stopped at the end of a part. Returns whether it then has all of them.
///
/// # Errors
/// [`Error::Cancelled`] if `cancelled` says so; the errors of [`Session::feed`].
fn read_part(session: &mut Session, tokens: &[u32], cancelled: &dyn Fn() -> bool) -> Result<bool> {
    let rest = &tokens[session.tokens().len().min(tokens.len())..];
    let part = if session.prompt_options().together() > 1 { 1 } else { ONE_BY_ONE };
    let mut check_stop = |read| match cancelled() || (part..rest.len()).contains(&read) {
        true => Err(Error::Cancelled),
        false => Ok(()),
    };
    match session.feed_while(rest, &mut check_stop).and_then(|()| session.wait()) {
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
