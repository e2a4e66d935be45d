//! Guesses of the next tokens: which are available, how many are tried, and how many were right.
//!
//! Tokens that a mask restricts are guessed too. The mask of a token depends on those before it, so a step computes a
//! certain token together with guesses after it, and each of its rows is sampled separately, as long as the sampled
//! token is the guess. Such guesses come from the text only: those of the multi-token-prediction block stay on the
//! device, where no grammar can check them.

use super::Session;
use crate::error::Result;
use crate::kernels::{MAX_DRAFTS, VERIFIED_ROWS};
use crate::model::{most_drafts, most_sequences};
use crate::speculate::{
    Continuation, DraftEstimate, DraftKind, DraftOffer, DraftPlanner, DraftSource, DraftStats, Speculation,
};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The expected cost of a further row of a step until it is measured, relative to a single row: on a GPU, which reads
/// the weights once for all rows, and on the CPU.
const ROW: [f64; 2] = [0.2, 1.0];
/// The most drafts by the multi-token-prediction block. Each is made from the previous one, so later ones are worse.
const MAX_PREDICTED: usize = 8;
/// The default for the most rows of a step of several conversations with drafts. On an H200, with drafts that are right
/// as often as docs/performance.md assumes, two conversations gained 60 % by three drafts each and four 24 % by one,
/// which are steps of eight rows. Eight conversations with a draft each gained 4 %, and sixteen nothing.
const DRAFTED_ROWS: usize = 8;

/// Decides about guesses for a session, and counts their success.
pub struct Drafter {
    options: Speculation,
    planner: DraftPlanner,
    stats: DraftStats,
    clock: StepClock,
}

/// Decides about guesses in steps that several sessions of a pool take together.
pub struct CommonDrafter {
    /// Whether the device computes on the CPU.
    is_software: bool,
    /// The planners by the number of sessions.
    planners: HashMap<usize, DraftPlanner>,
    pub clock: StepClock,
    /// The most rows of a step with drafts.
    pub most_rows: usize,
}

/// Measures steps.
#[derive(Default)]
pub struct StepClock {
    /// The last step, if nothing has followed it.
    last: Option<TimedStep>,
}

/// A step whose result was read.
struct TimedStep {
    /// When its result was read.
    at: Instant,
    /// The number of tokens of the sessions after it.
    tokens: usize,
    /// Whether it verified drafts. Otherwise the next step was already running.
    verified: bool,
}

/// Guesses of the tokens that follow the one that was sampled.
pub struct Guess {
    pub source: DraftSource,
    pub count: usize,
    /// The guessed tokens from the text; `None` if the multi-token-prediction block makes them.
    pub tokens: Option<Vec<u32>>,
}

/// An offer of guesses, with the tokens if they come from the text.
type Offered = (DraftOffer, Option<Vec<u32>>);

impl StepClock {
    /// Records the end of a step that fed `fed` tokens, after which the sessions have `tokens`. Returns how long it
    /// took, without the rest of a running step, which takes `plain_time`; `None` if there was other work since the
    /// previous step.
    fn end_step(
        &mut self,
        tokens: usize,
        fed: usize,
        verified: bool,
        plain_time: Option<Duration>,
    ) -> Option<Duration> {
        let at = Instant::now();
        let before = self.last.replace(TimedStep { at, tokens, verified })?;
        let took = (before.tokens + fed == tokens).then_some(at - before.at)?;
        match (before.verified, verified) {
            (true, true) | (false, false) => Some(took),
            (false, true) => Some(took.saturating_sub(plain_time.unwrap_or_default())),
            (true, false) => None, // the next step is already running
        }
    }

    /// Records that other work has followed the last step.
    pub fn interrupt(&mut self) {
        self.last = None;
    }
}

impl Drafter {
    pub fn new(is_software: bool) -> Self {
        Self {
            options: Speculation::OFF,
            planner: DraftPlanner::new(1 + MAX_DRAFTS, ROW[usize::from(is_software)]),
            stats: DraftStats::default(),
            clock: StepClock::default(),
        }
    }

    /// The index of the offer to try, and how many of its drafts.
    fn chosen(&mut self, offers: &[DraftOffer]) -> Option<(usize, usize)> {
        let chosen = self.planner.choose(offers);
        match self.options {
            Speculation { kind: DraftKind::Auto, .. } => chosen,
            // If drafts are requested by name, all are tried: as many as requested, or as many as pay off.
            Speculation { most: Some(_), .. } => offers.first().map(|offer| (0, offer.count)),
            _ => chosen.or_else(|| self.planner.plain_time().and(offers.first()).map(|_| (0, 1))),
        }
    }

    /// Counts drafts and right ones.
    pub fn count(&mut self, drafts: usize, accepted: usize) {
        let stats = &mut self.stats;
        (stats.drafted, stats.accepted, stats.steps) =
            (stats.drafted + drafts, stats.accepted + accepted, stats.steps + 1);
    }

    /// Records a step of this session alone that verified the guess, if any, and fed `fed` tokens, after which the
    /// session has `tokens`.
    pub fn record_step(&mut self, guess: Option<&Guess>, fed: usize, tokens: usize) {
        let plain_time = self.planner.plain_time();
        let took = self.clock.end_step(tokens, fed, guess.is_some(), plain_time);
        let Some(Guess { source, count, .. }) = guess else {
            took.into_iter().for_each(|took| self.planner.record_plain_step(took));
            return;
        };
        self.planner.record_acceptance(*source, *count, fed - 1);
        let Some(took) = took else { return };
        self.planner.record_drafted_step(*source, 1 + count, took);
        self.saved(fed, plain_time, took);
    }

    /// Adds the time that a step with several tokens saved, each of which takes `plain_time` without drafts.
    fn saved(&mut self, fed: usize, plain_time: Option<Duration>, took: Duration) {
        if let Some(plain_time) = plain_time {
            self.stats.saved_seconds += fed as f64 * plain_time.as_secs_f64() - took.as_secs_f64();
        }
    }
}

impl CommonDrafter {
    pub fn new(is_software: bool) -> Self {
        Self { is_software, planners: HashMap::new(), clock: StepClock::default(), most_rows: DRAFTED_ROWS }
    }

    /// The planner for steps of this many sessions.
    fn planner(&mut self, sessions: usize) -> &mut DraftPlanner {
        let row = if self.is_software { ROW[1] } else { ROW[0] / sessions as f64 };
        self.planners.entry(sessions).or_insert_with(|| DraftPlanner::new(VERIFIED_ROWS, row))
    }

    /// The guesses of several sessions for a common step, with at most `most` tokens for each, including the certain
    /// one.
    pub fn guess(&mut self, sessions: &mut [&mut Session], most: &[usize]) -> Vec<Option<Guess>> {
        let rows = self.most_rows.min(VERIFIED_ROWS).min(most_sequences(sessions[0].model().config()));
        let capacity = rows.saturating_sub(sessions.len());
        let offer =
            |(session, most): (&mut &mut Session, &usize)| if capacity == 0 { None } else { session.best_offer(*most) };
        let mut offered: Vec<Option<Offered>> = sessions.iter_mut().zip(most).map(offer).collect();
        if offered.iter().all(Option::is_none) {
            return offered.iter().map(|_| None).collect();
        }
        let by_name = |it: &Speculation| it.most.is_some() && matches!(it.kind, DraftKind::Lookup | DraftKind::Mtp);
        let asked = sessions.iter().any(|session| by_name(&session.drafter.options));
        let chosen = if asked { shared_out(&offered, capacity) } else { self.chosen(sessions, &offered, capacity) };
        // The block makes the same number of drafts for all, which have to fit the context of each.
        let is_predicted =
            |it: &Option<Offered>| matches!(it, Some((offer, _)) if offer.source == DraftSource::Predicted);
        let predicting = sessions.iter().zip(&offered).filter(|(_, offered)| is_predicted(offered));
        let most = predicting.map(|(session, _)| session.left_after_next()).min().unwrap_or_default();
        let guess = |(offered, count): (&mut Option<Offered>, usize)| {
            let (DraftOffer { source, .. }, tokens) = offered.take().filter(|_| count > 0)?;
            let count = if source == DraftSource::Predicted { count.min(most) } else { count };
            let tokens = tokens.map(|tokens| tokens.into_iter().take(count).collect());
            Some(Guess { source, count, tokens })
        };
        offered.iter_mut().zip(chosen).map(guess).collect()
    }

    /// How many drafts of each session pay off.
    fn chosen(&mut self, sessions: &[&mut Session], offered: &[Option<Offered>], capacity: usize) -> Vec<usize> {
        let estimate = |(session, offered): (&&mut Session, &Option<Offered>)| match offered {
            Some((offer, _)) => DraftEstimate { source: offer.source, odds: session.drafter.planner.odds(offer) },
            None => DraftEstimate { source: DraftSource::Matched(0), odds: Vec::new() },
        };
        let estimates: Vec<DraftEstimate> = sessions.iter().zip(offered).map(estimate).collect();
        let chosen = self.planner(sessions.len()).choose_together(&estimates, capacity);
        chosen.unwrap_or_else(|| vec![0; sessions.len()])
    }

    /// Records a step of several sessions that verified the guesses, if any, and how many tokens it fed.
    pub fn record_step(&mut self, sessions: &mut [&mut Session], guesses: &[Option<Guess>], fed: &[usize]) {
        let plain_time = self.planner(sessions.len()).plain_time();
        let tokens = sessions.iter().map(|session| session.tokens().len()).sum();
        let drafts: usize = guesses.iter().flatten().map(|guess| guess.count).sum();
        let took = self.clock.end_step(tokens, fed.iter().sum(), drafts > 0, plain_time);
        let planner = self.planner(sessions.len());
        let predicted = guesses.iter().flatten().find(|guess| guess.source == DraftSource::Predicted);
        let source = predicted.map_or(DraftSource::Matched(0), |guess| guess.source);
        match took {
            Some(took) if drafts > 0 => planner.record_drafted_step(source, 1 + drafts, took),
            Some(took) => planner.record_plain_step(took),
            None => {}
        }
        for ((session, guess), fed) in sessions.iter_mut().zip(guesses).zip(fed) {
            let (Some(Guess { source, count, .. }), 1..) = (guess, *fed) else { continue };
            planner.record_acceptance(*source, *count, fed - 1);
            session.drafter.planner.record_acceptance(*source, *count, fed - 1);
            took.into_iter().for_each(|took| session.drafter.saved(*fed, plain_time, took));
        }
    }
}

/// How many drafts of each session fit if drafts are tried whether or not they pay off: every session gets the same
/// number, or as many as it has.
fn shared_out(offered: &[Option<Offered>], capacity: usize) -> Vec<usize> {
    let mut left: Vec<usize> = offered.iter().map(|it| it.as_ref().map_or(0, |(offer, _)| offer.count)).collect();
    let (mut chosen, mut capacity) = (vec![0; offered.len()], capacity);
    while capacity > 0 && left.iter().any(|left| *left > 0) {
        for (chosen, left) in chosen.iter_mut().zip(&mut left) {
            let more = (*left).min(capacity).min(1);
            *chosen += more;
            *left -= more;
            capacity -= more;
        }
    }
    chosen
}

impl Session {
    /// Sets whether and how [`Session::next_tokens`] guesses tokens ahead. Until this is called, it does not.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for a maximum of no guesses.
    pub fn set_speculation(&mut self, options: &Speculation) -> Result<()> {
        options.check()?;
        self.drafter.options = *options;
        self.sequence.block.wanted = match options.kind {
            DraftKind::Auto => !self.model().gpu().report().is_software(), // on the CPU drafts never pay off
            kind => kind == DraftKind::Mtp,
        };
        Ok(())
    }

    /// Turns guessing off.
    pub(super) fn stop_guessing(&mut self) {
        (self.drafter.options, self.sequence.block.wanted) = (Speculation::OFF, false);
    }

    /// The statistics of guesses since the session was created.
    pub fn draft_stats(&self) -> DraftStats {
        self.drafter.stats
    }

    /// How many tokens fit the context after the next one.
    fn left_after_next(&self) -> usize {
        self.context().saturating_sub(self.tokens().len() + 1)
    }

    /// The most guesses after a certain token, at most `most`.
    fn most_guesses(&self, most: usize) -> usize {
        let left = self.left_after_next();
        let asked = self.drafter.options.most.unwrap_or(usize::MAX);
        most.min(left).min(asked).min(most_drafts(self.model().config()))
    }

    /// The available guesses after the sampled token: at most `most` tokens, including that one.
    fn offers(&mut self, most: usize) -> Option<Vec<Offered>> {
        let (kind, most) = (self.drafter.options.kind, self.most_guesses(most.saturating_sub(1)));
        if kind == DraftKind::Off || most == 0 {
            return None;
        }
        let mut offers = Vec::with_capacity(2);
        let continuation = if kind == DraftKind::Mtp { None } else { self.look_up(most) };
        offers.extend(continuation.map(|Continuation { tokens, matched }| {
            let offer = DraftOffer { source: DraftSource::Matched(matched), count: tokens.len() };
            (offer, Some(tokens))
        }));
        if kind != DraftKind::Lookup && self.model().has_block() {
            // Penalties on a row depend on the tokens before it, and the host does not know the ids of the block's
            // drafts.
            let count = if self.sequence.sampling.penalises() { 1 } else { MAX_PREDICTED };
            offers.push((DraftOffer { source: DraftSource::Predicted, count: most.min(count) }, None));
        }
        Some(offers)
    }

    /// The guesses after the sampled token, if any are worth trying.
    pub(super) fn guess(&mut self, most: usize) -> Option<Guess> {
        let mut offered = self.offers(most)?;
        let offers: Vec<DraftOffer> = offered.iter().map(|(offer, _)| *offer).collect();
        let (number, count) = self.drafter.chosen(&offers)?;
        let (DraftOffer { source, .. }, tokens) = offered.swap_remove(number);
        let tokens = tokens.map(|tokens| tokens.into_iter().take(count).collect());
        Some(Guess { source, count, tokens })
    }

    /// The offer for a common step: the one that is likelier to be right.
    fn best_offer(&mut self, most: usize) -> Option<Offered> {
        let offered = self.offers(most)?;
        let first = |offer: &DraftOffer| self.drafter.planner.odds(&DraftOffer { count: 1, ..*offer })[0];
        offered.into_iter().reduce(|best, other| if first(&other.0) > first(&best.0) { other } else { best })
    }

    /// What the text predicts after the sampled token.
    fn look_up(&mut self, count: usize) -> Option<Continuation> {
        let Some(sampled) = self.sequence.sampled else {
            // That token is not known yet, so it is guessed first.
            let Continuation { tokens, matched } = self.sequence.lookup.predict(&self.sequence.tokens, 1 + count)?;
            return Some(Continuation { tokens: tokens[1..].to_vec(), matched });
        };
        self.predicted_after(sampled, count)
    }

    /// What the text predicts after a token that will follow the last one.
    pub(super) fn predicted_after(&mut self, token: u32, count: usize) -> Option<Continuation> {
        let super::Sequence { lookup, tokens, .. } = &mut self.sequence;
        tokens.push(token);
        let predicted = lookup.predict(tokens, count);
        lookup.truncate(tokens, tokens.len() - 1);
        tokens.pop();
        predicted
    }
}

#[cfg(feature = "constrain")]
pub(crate) use masked::{GuessedRows, GuessedStep};

/// Guesses of tokens that masks restrict.
#[cfg(feature = "constrain")]
mod masked {
    use super::{Continuation, DraftKind, DraftOffer, DraftSource, Result, Session};
    use crate::error::Error;
    use crate::session::owners::{Output, Values};
    use crate::session::step::{StepRequest, Token, Want};
    use std::time::Duration;

    /// Where the device has the output of the last accepted row of a step with guesses.
    #[derive(Debug)]
    pub struct GuessedRows(Output);

    /// The result of a step with guesses.
    #[derive(Debug, Clone, Copy)]
    pub struct GuessedStep {
        /// How many tokens before the guesses occurred in the text earlier.
        pub matched: usize,
        /// The rows of the step.
        pub rows: usize,
        /// The guesses that had alternatives, and how many of those were right.
        pub guessed: usize,
        pub accepted: usize,
    }

    impl Session {
        /// What the text predicts after a token that will follow the last one: at most `most` tokens, if any are worth
        /// trying.
        pub(crate) fn guesses_after(&mut self, token: u32, most: usize) -> Option<Continuation> {
            let most = self.most_guesses(most);
            if most == 0 || matches!(self.drafter.options.kind, DraftKind::Off | DraftKind::Mtp) {
                return None;
            }
            let mut guesses = self.predicted_after(token, most)?;
            let offer = DraftOffer { source: DraftSource::Matched(guesses.matched), count: guesses.tokens.len() };
            let (_, count) = self.drafter.chosen(&[offer])?;
            guesses.tokens.truncate(count);
            Some(guesses)
        }

        /// Feeds a token, and computes guesses after it in the same step. A guess belongs to the session once
        /// [`Session::sample_masked`] has returned it and [`Session::accept_guess`] was called. Returns `None`, and
        /// feeds nothing, if the guesses do not fit.
        ///
        /// # Errors
        /// See [`Session::feed`].
        pub(crate) fn feed_with_guesses(&mut self, token: u32, guesses: &[u32]) -> Result<Option<GuessedRows>> {
            self.check_drafts(guesses.len())?;
            self.check(self.tokens().len(), &[&[token], guesses].concat())?;
            let request = StepRequest::verification(Token::Known(token), guesses, Want::Logits);
            let fed = self.enter().and_then(|(mut state, sequence)| {
                state.run(&mut [&mut *sequence], request)?;
                Ok(sequence.output.map(GuessedRows))
            });
            match fed {
                Err(Error::PoolFull { .. } | Error::DeviceLost { .. }) => Ok(None), // the token alone is tried next
                Err(Error::OutOfMemory { .. } | Error::TooLarge { .. }) if self.sequence.has_output() => {
                    self.stop_guessing(); // plans that guess do not fit
                    Ok(None)
                }
                fed => fed,
            }
        }

        /// Accepts the next guess, which was sampled after the last token. Returns false, and does not accept it, if
        /// another session has used the buffer with its row.
        ///
        /// # Errors
        /// See [`Session::feed`].
        pub(crate) fn accept_guess(&mut self, guess: u32, rows: &mut GuessedRows) -> Result<bool> {
            let (state, sequence) = self.enter()?;
            let Values::Row { shape, row } = state.owners.values(&rows.0) else { return Ok(false) };
            rows.0.values = Values::Row { shape, row: row + 1 };
            sequence.forget_sampled();
            sequence.tokens.push(guess);
            sequence.output = Some(rows.0);
            Ok(true)
        }

        /// Whether nothing was sampled after the last token yet, because a mask will be given first.
        pub(crate) fn awaits_mask(&self) -> bool {
            self.sequence.has_output() && !self.sequence.is_sampled()
        }

        /// Records the result of a step with guesses.
        pub(crate) fn guessed(&mut self, step: GuessedStep) {
            let GuessedStep { matched, guessed, accepted, .. } = step;
            self.drafter.planner.record_acceptance(DraftSource::Matched(matched), guessed, accepted);
            self.drafter.count(guessed, accepted);
        }

        /// Records the time from a step, with or without guesses, until the token after it was known.
        pub(crate) fn record_masked_step(&mut self, took: Duration, step: Option<GuessedStep>) {
            let Some(GuessedStep { matched, rows, accepted, .. }) = step else {
                return self.drafter.planner.record_plain_step(took);
            };
            let plain_time = self.drafter.planner.plain_time();
            self.drafter.saved(1 + accepted, plain_time, took);
            self.drafter.planner.record_drafted_step(DraftSource::Matched(matched), rows, took);
        }
    }
}
