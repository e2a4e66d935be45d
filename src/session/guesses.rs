//! Tokens that are guessed ahead under masks. The mask of a token depends on those before it, so a step computes a token
//! that is certain together with guesses of those behind it, and each of its rows is sampled by itself, as long as what
//! is sampled is what was guessed. Guesses are from the text alone: those of the multi-token-prediction block stay on the
//! device, where no grammar can look at them.

use super::pool::RowOutput;
use super::verify::Drafter;
use super::{LastOutput, Session};
use crate::error::{Error, Result};
use crate::model::most_drafts;
use crate::speculate::{Continuation, DraftKind, Evidence, Offer, Speculation};
use std::time::Duration;

/// Where the output of the last accepted row of a step with guesses lies.
#[derive(Debug)]
pub struct GuessedRows(RowOutput);

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
    /// What the text predicts behind a token that is to follow the last one: at most `most` tokens, if there are any worth a
    /// try.
    pub(crate) fn guesses_behind(&mut self, token: u32, most: usize) -> Option<Continuation> {
        let Speculation { kind, most: asked } = self.drafter.options;
        let room = self.context().saturating_sub(self.tokens.len() + 1);
        let most = most.min(room).min(most_drafts(self.model().config())).min(asked.unwrap_or(usize::MAX));
        if most == 0 || matches!(kind, DraftKind::Off | DraftKind::Mtp) {
            return None;
        }
        let mut guesses = self.predicted_behind(token, most)?;
        let offer = Offer { evidence: Evidence::Matched(guesses.matched), count: guesses.tokens.len() };
        let (_, count) = self.drafter.chosen(&[offer])?;
        guesses.tokens.truncate(count);
        Some(guesses)
    }

    /// Feeds a token, and computes guesses of those behind it in the same step. The guesses do not belong to the session:
    /// each does once [`Session::sample_masked`] has returned it and [`Session::accept_guess`] was called. `None`, and nothing
    /// is fed, where there is no room for guesses.
    ///
    /// # Errors
    /// As for [`Session::feed`].
    pub(crate) fn feed_with_guesses(&mut self, token: u32, guesses: &[u32]) -> Result<Option<GuessedRows>> {
        match self.try_guesses(token, guesses) {
            Err(Error::PoolFull { .. } | Error::DeviceLost { .. }) => Ok(None), // the token alone is tried next
            Err(Error::OutOfMemory { .. } | Error::TooLarge { .. }) if self.output.is_some() => {
                self.drafter.options = Speculation::OFF; // plans that guess do not fit
                Ok(None)
            }
            tried => tried.map(Some),
        }
    }

    fn try_guesses(&mut self, token: u32, guesses: &[u32]) -> Result<GuessedRows> {
        self.check_drafts(guesses.len())?;
        let tokens = [&[token], guesses].concat();
        self.check(self.tokens.len(), &tokens)?;
        self.with_runner(|session, runner| {
            session.claim_rings(runner);
            session.reach(runner, tokens.len())?;
            session.drafter.forget_sampled();
            session.drafter.block.reopen_last(session.tokens.len());
            session.keep_room(runner, tokens.len(), Some(token))?;
            let (rows, shape) = (session.verified_rows(&tokens), session.verified_shape(tokens.len()));
            let (submissions, model) = (&mut runner.submissions, session.pool.model());
            runner.shared_runs += 1; // a plan that is made may take the place of others and of what they left
            let ready = runner.plans.get(model, shape, session.options.limit, &mut || Ok(()))?;
            session.output = None; // until there is another
            submissions.write(ready, &rows)?;
            let place = submissions.place;
            let submitted = submissions.run(ready, 0..ready.planned.end(), None, place).map(drop);
            session.or_rewound(runner, submitted)?;
            let first = RowOutput { shape, row: 0, run: runner.shared_runs };
            session.go_on(token, first);
            Ok(GuessedRows(first))
        })
    }

    /// Takes the next guess, which was sampled behind the last token. Returns false, and does not, if another session has
    /// used what held its row.
    ///
    /// # Errors
    /// As for [`Session::feed`].
    pub(crate) fn accept_guess(&mut self, guess: u32, rows: &mut GuessedRows) -> Result<bool> {
        self.with_runner(|session, runner| {
            if rows.0.run != runner.shared_runs {
                return Ok(false);
            }
            session.drafter.forget_sampled();
            rows.0.row += 1;
            session.go_on(guess, rows.0);
            Ok(true)
        })
    }

    /// Takes a token whose output is that of a row, from which nothing was sampled yet.
    fn go_on(&mut self, token: u32, at: RowOutput) {
        self.tokens.push(token);
        (self.output, self.unsampled) = (Some(LastOutput::Row(at)), true);
    }

    /// Whether nothing was sampled after the last token yet, because a mask will say from what.
    pub(crate) fn awaits_mask(&self) -> bool {
        self.unsampled
    }

    /// Takes notice of what came of a step with guesses.
    pub(crate) fn guessed(&mut self, step: GuessedStep) {
        let GuessedStep { matched, guessed, accepted, .. } = step;
        self.drafter.planner.verified(Evidence::Matched(matched), guessed, accepted);
        let stats = &mut self.drafter.stats;
        (stats.drafted, stats.accepted, stats.steps) =
            (stats.drafted + guessed, stats.accepted + accepted, stats.steps + 1);
    }

    /// Takes notice of how long it took from a step, with guesses or without, until the token behind it was known.
    pub(crate) fn took_masked(&mut self, took: Duration, step: Option<GuessedStep>) {
        let Drafter { planner, stats, .. } = &mut self.drafter;
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
