//! Guesses of the tokens to come: what is offered, how many of it are tried, and what came of them.
//!
//! Tokens that a mask restricts are guessed, too. The mask of a token depends on those before it, so a step computes a token
//! that is certain together with guesses of those after it, and each of its rows is sampled by itself, as long as what is
//! sampled is what was guessed. Such guesses are from the text alone: those of the multi-token-prediction block stay on the
//! device, where no grammar can look at them.

use super::Session;
use crate::error::Result;
use crate::kernels::VERIFIED_ROWS;
use crate::model::most_drafts;
use crate::speculate::{Continuation, DraftKind, DraftPlanner, DraftStats, Evidence, Offer, Speculation};
use std::time::Instant;

/// What a further row of a step is expected to cost until it is measured, as a part of what a row alone costs: on a GPU,
/// which reads weights for all rows once, and on the CPU, which has to multiply.
const ROW: [f64; 2] = [0.2, 1.0];
/// The most drafts by the multi-token-prediction block. Each is made from the one before it, so later ones are worse.
const MOST_PREDICTED: usize = 8;

/// Decides about guesses for a session, and counts what comes of them.
pub struct Drafter {
    options: Speculation,
    planner: DraftPlanner,
    stats: DraftStats,
    /// The last step, while nothing else has followed it.
    last: Option<TimedStep>,
}

/// A step whose result was taken.
struct TimedStep {
    /// When.
    at: Instant,
    /// Tokens of the session after it.
    tokens: usize,
    /// Whether it verified drafts. Otherwise the step after it was under way by then.
    verified: bool,
}

/// Guesses of the tokens that follow the one that was sampled.
pub struct Guess {
    pub evidence: Evidence,
    pub count: usize,
    /// Those from the text; the multi-token-prediction block makes others.
    pub tokens: Option<Vec<u32>>,
}

impl Drafter {
    pub fn new(is_software: bool) -> Self {
        Self {
            options: Speculation::OFF,
            planner: DraftPlanner::new(VERIFIED_ROWS, ROW[usize::from(is_software)]),
            stats: DraftStats::default(),
            last: None,
        }
    }

    /// Which of the drafts that could be verified are tried, and how many.
    fn chosen(&mut self, offers: &[Offer]) -> Option<(usize, usize)> {
        let Speculation { kind, most: asked } = self.options;
        let chosen = self.planner.choose(offers);
        match (kind, asked) {
            (DraftKind::Auto, _) => chosen,
            // Asked for by name, drafts are tried wherever there are any: as many as was said, or as pay.
            (_, Some(_)) => offers.first().map(|offer| (0, offer.count)),
            (_, None) => chosen.or_else(|| self.planner.alone().and(offers.first()).map(|_| (0, 1))),
        }
    }

    /// Counts drafts, and those of them that were right.
    pub fn count(&mut self, drafts: usize, accepted: usize) {
        let stats = &mut self.stats;
        (stats.drafted, stats.accepted, stats.steps) =
            (stats.drafted + drafts, stats.accepted + accepted, stats.steps + 1);
    }

    /// Takes notice of a step that verified `drafts` drafts and fed `fed` tokens, after which the session has `tokens`.
    pub fn verified(&mut self, (evidence, drafts): (Evidence, usize), fed: usize, tokens: usize) {
        self.planner.verified(evidence, drafts, fed - 1);
        let Some((before, at)) = self.next_step(tokens, fed, true) else { return };
        let (took, alone) = (at - before.at, self.planner.alone().unwrap_or_default());
        let took = if before.verified { took } else { took.saturating_sub(alone) };
        self.planner.took(evidence, 1 + drafts, took);
        if !alone.is_zero() {
            self.stats.saved_seconds += fed as f64 * alone.as_secs_f64() - took.as_secs_f64();
        }
    }

    /// Takes notice of a step of a row alone, after which the session has `tokens` tokens.
    pub fn took_alone(&mut self, tokens: usize) {
        let Some((before, at)) = self.next_step(tokens, 1, false) else { return };
        if !before.verified {
            self.planner.took_alone(at - before.at); // otherwise the next such step is under way already
        }
    }

    /// A step has ended. Returns the one before, if nothing came between, and when this one ended.
    fn next_step(&mut self, tokens: usize, fed: usize, verified: bool) -> Option<(TimedStep, Instant)> {
        let at = Instant::now();
        let before = self.last.replace(TimedStep { at, tokens, verified });
        before.filter(|before| before.tokens + fed == tokens).map(|before| (before, at))
    }
}

impl Session {
    /// Whether and how tokens are guessed ahead in [`Session::next_tokens`]: not at all until this is called.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for no guesses at a time.
    pub fn set_speculation(&mut self, options: &Speculation) -> Result<()> {
        options.check()?;
        self.drafter.options = *options;
        self.sequence.block.wanted = match options.kind {
            DraftKind::Auto => !self.model().gpu().report().is_software(), // on the CPU drafts never pay
            kind => kind == DraftKind::Mtp,
        };
        Ok(())
    }

    /// Guesses nothing any more.
    pub(super) fn stop_guessing(&mut self) {
        (self.drafter.options, self.sequence.block.wanted) = (Speculation::OFF, false);
    }

    /// What guessing has come to since the session was made.
    pub fn draft_stats(&self) -> DraftStats {
        self.drafter.stats
    }

    /// The most guesses of tokens after a certain one, of which `most` are wanted.
    fn most_guesses(&self, most: usize) -> usize {
        let left = self.context().saturating_sub(self.tokens().len() + 1);
        let asked = self.drafter.options.most.unwrap_or(usize::MAX);
        most.min(left).min(asked).min(most_drafts(self.model().config()))
    }

    /// Guesses of the tokens that follow the one that was sampled, if there are any worth a try.
    pub(super) fn guess(&mut self, most: usize) -> Option<Guess> {
        let (kind, most) = (self.drafter.options.kind, self.most_guesses(most.saturating_sub(1)));
        if kind == DraftKind::Off || most == 0 {
            return None;
        }
        let mut offers = Vec::with_capacity(2);
        let continuation = if kind == DraftKind::Mtp { None } else { self.look_up(most) };
        offers.extend(
            continuation.iter().map(|it| Offer { evidence: Evidence::Matched(it.matched), count: it.tokens.len() }),
        );
        if kind != DraftKind::Lookup && self.model().has_block() {
            // Penalties on a row need the tokens before it, and the host does not know drafts of the block but by name.
            let count = if self.sequence.sampling.penalises() { 1 } else { MOST_PREDICTED };
            offers.push(Offer { evidence: Evidence::Predicted, count: most.min(count) });
        }
        let (number, count) = self.drafter.chosen(&offers)?;
        let evidence = offers.get(number)?.evidence;
        let from_text = continuation.filter(|_| evidence != Evidence::Predicted);
        let tokens = from_text.map(|it| it.tokens.into_iter().take(count).collect());
        Some(Guess { evidence, count, tokens })
    }

    /// What the text predicts to follow the token that was sampled.
    fn look_up(&mut self, count: usize) -> Option<Continuation> {
        let Some(sampled) = self.sequence.sampled else {
            // That token itself is not known yet, and the first one to be guessed.
            let Continuation { tokens, matched } = self.sequence.lookup.predict(&self.sequence.tokens, 1 + count)?;
            return Some(Continuation { tokens: tokens[1..].to_vec(), matched });
        };
        self.predicted_after(sampled, count)
    }

    /// What the text predicts after a token that is to follow the last one.
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
    use super::{Continuation, DraftKind, Evidence, Offer, Result, Session};
    use crate::error::Error;
    use crate::session::owners::{Output, Values};
    use crate::session::step::{StepRequest, Token, Want};
    use std::time::Duration;

    /// Where the output of the last accepted row of a step with guesses lies.
    #[derive(Debug)]
    pub struct GuessedRows(Output);

    /// What came of a step with guesses.
    #[derive(Debug, Clone, Copy)]
    pub struct GuessedStep {
        /// How many tokens before the guesses stood in the text before.
        pub matched: usize,
        /// The rows of the step.
        pub rows: usize,
        /// The guesses that were not the only choice, and how many of those were right.
        pub guessed: usize,
        pub accepted: usize,
    }

    impl Session {
        /// What the text predicts after a token that is to follow the last one: at most `most` tokens, if there are any worth
        /// a try.
        pub(crate) fn guesses_after(&mut self, token: u32, most: usize) -> Option<Continuation> {
            let most = self.most_guesses(most);
            if most == 0 || matches!(self.drafter.options.kind, DraftKind::Off | DraftKind::Mtp) {
                return None;
            }
            let mut guesses = self.predicted_after(token, most)?;
            let offer = Offer { evidence: Evidence::Matched(guesses.matched), count: guesses.tokens.len() };
            let (_, count) = self.drafter.chosen(&[offer])?;
            guesses.tokens.truncate(count);
            Some(guesses)
        }

        /// Feeds a token, and computes guesses of those after it in the same step. The guesses do not belong to the session:
        /// each does once [`Session::sample_masked`] has returned it and [`Session::accept_guess`] was called. `None`, and
        /// nothing is fed, where guesses do not fit.
        ///
        /// # Errors
        /// As for [`Session::feed`].
        pub(crate) fn feed_with_guesses(&mut self, token: u32, guesses: &[u32]) -> Result<Option<GuessedRows>> {
            self.check_drafts(guesses.len())?;
            self.check(self.tokens().len(), &[&[token], guesses].concat())?;
            let request = StepRequest::verification(Token::Known(token), guesses, Want::Logits);
            let fed = self.device().and_then(|(mut device, sequence)| {
                device.run(&mut [&mut *sequence], request)?;
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

        /// Takes the next guess, which was sampled after the last token. Returns false, and does not, if another session has
        /// used what held its row.
        ///
        /// # Errors
        /// As for [`Session::feed`].
        pub(crate) fn accept_guess(&mut self, guess: u32, rows: &mut GuessedRows) -> Result<bool> {
            let (device, sequence) = self.device()?;
            let Values::Row { shape, row } = device.owners.values(&rows.0) else { return Ok(false) };
            rows.0.values = Values::Row { shape, row: row + 1 };
            sequence.forget_sampled();
            sequence.tokens.push(guess);
            sequence.output = Some(rows.0);
            Ok(true)
        }

        /// Whether nothing was sampled after the last token yet, because a mask will say from what.
        pub(crate) fn awaits_mask(&self) -> bool {
            self.sequence.has_output() && !self.sequence.is_sampled()
        }

        /// Takes notice of what came of a step with guesses.
        pub(crate) fn guessed(&mut self, step: GuessedStep) {
            let GuessedStep { matched, guessed, accepted, .. } = step;
            self.drafter.planner.verified(Evidence::Matched(matched), guessed, accepted);
            self.drafter.count(guessed, accepted);
        }

        /// Takes notice of how long it took from a step, with guesses or without, until the token after it was known.
        pub(crate) fn took_masked(&mut self, took: Duration, step: Option<GuessedStep>) {
            let (planner, stats) = (&mut self.drafter.planner, &mut self.drafter.stats);
            let Some(GuessedStep { matched, rows, accepted, .. }) = step else {
                planner.took_alone(took);
                return;
            };
            if let Some(alone) = planner.alone() {
                stats.saved_seconds += (1 + accepted) as f64 * alone.as_secs_f64() - took.as_secs_f64();
            }
            planner.took(Evidence::Matched(matched), rows, took);
        }
    }
}
