//! Several tokens a step: drafts are guessed, and verified together with the token that is certain.

use super::drafting::BlockState;
use super::pool::{RowOutput, Runner};
use super::run::known;
use super::submissions::Sampled;
use super::{LastOutput, Session};
use crate::error::{Error, Result};
use crate::kernels::{NO_TOKEN, VERIFIED_ROWS};
use crate::model::{BatchShape, Outputs, most_drafts, no_block};
use crate::plan::RowHeader;
use crate::speculate::{Continuation, DraftKind, DraftPlanner, DraftStats, Evidence, Lookup, Offer, Speculation};
use std::time::Instant;

/// What a further row of a step is expected to cost until it is measured, as a part of what a row alone costs: on a GPU,
/// which reads weights for all rows once, and on the CPU, which has to multiply.
const ROW: [f64; 2] = [0.2, 1.0];
/// The most drafts by the multi-token-prediction block. Each is made from the one before it, so later ones are worse.
const MOST_PREDICTED: usize = 8;

/// Guesses tokens for a session.
pub struct Drafter {
    pub(super) options: Speculation,
    lookup: Lookup,
    pub(super) planner: DraftPlanner,
    pub(super) stats: DraftStats,
    pub(super) block: BlockState,
    /// The token that was sampled after the last one, where the host knows it already.
    sampled: Option<u32>,
    /// The last step, while nothing else came behind it.
    last: Option<TimedStep>,
}

/// A step whose result was taken.
struct TimedStep {
    /// When.
    at: Instant,
    /// Tokens of the session behind it.
    tokens: usize,
    /// Whether it verified drafts. Otherwise the step after it was under way by then.
    verified: bool,
}

/// Guesses of the tokens that follow the one that was sampled.
enum Guess {
    /// Those that followed when so many tokens before them stood in the text before.
    Tokens { matched: usize, drafts: Vec<u32> },
    /// So many that the multi-token-prediction block makes.
    ByBlock { count: usize },
}

impl Guess {
    fn evidence(&self) -> Evidence {
        match self {
            Self::Tokens { matched, .. } => Evidence::Matched(*matched),
            Self::ByBlock { .. } => Evidence::Predicted,
        }
    }

    fn count(&self) -> usize {
        match self {
            Self::Tokens { drafts, .. } => drafts.len(),
            Self::ByBlock { count } => *count,
        }
    }
}

impl Drafter {
    pub fn new(is_software: bool) -> Self {
        Self {
            options: Speculation::OFF,
            lookup: Lookup::default(),
            planner: DraftPlanner::new(VERIFIED_ROWS, ROW[usize::from(is_software)]),
            stats: DraftStats::default(),
            block: BlockState::default(),
            sampled: None,
            last: None,
        }
    }

    /// Takes notice that another token was sampled after the last one, which the host does not know yet.
    pub fn forget_sampled(&mut self) {
        self.sampled = None;
        self.block.made = 0;
    }

    /// Which of the drafts that could be verified are tried, and how many.
    pub fn chosen(&mut self, offers: &[Offer]) -> Option<(usize, usize)> {
        let Speculation { kind, most: asked } = self.options;
        let chosen = self.planner.choose(offers);
        match (kind, asked) {
            (DraftKind::Auto, _) => chosen,
            // Asked for by name, drafts are tried wherever there are any: as many as was said, or as pay.
            (_, Some(_)) => offers.first().map(|offer| (0, offer.count)),
            (_, None) => chosen.or_else(|| self.planner.alone().and(offers.first()).map(|_| (0, 1))),
        }
    }

    /// Forgets what no longer holds of a sequence that is cut to its first tokens.
    pub fn truncate(&mut self, tokens: &[u32], length: usize) {
        self.lookup.truncate(tokens, length);
        self.block.truncate(tokens.len(), length);
        self.sampled = None;
    }
}

impl Session {
    /// Whether and how tokens are guessed ahead in [`Session::next_tokens`]: not at all until this is called.
    ///
    /// # Errors
    /// [`Error::Argument`] for no guesses at a time.
    pub fn set_speculation(&mut self, options: &Speculation) -> Result<()> {
        options.check()?;
        self.drafter.options = *options;
        Ok(())
    }

    /// What guessing has come to since the session was made.
    pub fn draft_stats(&self) -> DraftStats {
        self.drafter.stats
    }

    /// Feeds the token that was sampled after the last one, as [`Session::next_token`], and with it as many of those that
    /// follow as were guessed right: see [`Session::set_speculation`]. Returns all that were fed, in order: at least one, and
    /// at most `most`.
    ///
    /// Each is the token that the model samples at its place by itself. Only the rounding of sums may differ between a row
    /// alone and several rows, so that of two tokens that are equally likely the other one may be sampled.
    ///
    /// # Errors
    /// As for [`Session::next_token`].
    pub fn next_tokens(&mut self, most: usize) -> Result<Vec<u32>> {
        self.check(self.tokens.len() + 1, &[])?;
        if let Some(guess) = self.guess(most) {
            let (evidence, count) = (guess.evidence(), guess.count());
            let fed = self.with_runner(|session, runner| match guess {
                Guess::Tokens { drafts, .. } => session.verify_in(runner, &drafts, 0),
                Guess::ByBlock { count } => session.predict(runner, count),
            });
            match fed {
                Err(Error::PoolFull { .. }) => {} // there may be room for the token that is certain
                Err(Error::OutOfMemory { .. } | Error::TooLarge { .. }) if self.output.is_some() => {
                    self.drafter.options = Speculation::OFF; // plans that guess do not fit
                }
                fed => {
                    let fed = fed?;
                    self.drafter.planner.verified(evidence, count, fed.len() - 1);
                    self.timed(Some((evidence, 1 + count)), fed.len());
                    return Ok(fed);
                }
            }
        }
        let token = self.next_token()?;
        self.timed(None, 1);
        Ok(vec![token])
    }

    /// Verifies drafts by the block, and has it make others meanwhile.
    fn predict(&mut self, runner: &mut Runner, count: usize) -> Result<Vec<u32>> {
        self.prepare_drafts(runner, count)?;
        self.verify_in(runner, &self.made(count), count)
    }

    /// Has the block make so many drafts, unless they are there.
    fn prepare_drafts(&mut self, runner: &mut Runner, count: usize) -> Result<()> {
        self.last_output(runner)?;
        self.sample_if_left(runner)?;
        self.claim_rings(runner);
        let length = self.tokens.len();
        if self.drafter.block.made < count {
            self.reach(runner, count)?;
            self.catch_up(runner, None)?;
            self.draft(runner, length.saturating_sub(1), 0, count)?;
        }
        Ok(())
    }

    /// As if the block had made `count` drafts of which `accepted` are right, for measurements on random weights: a step as
    /// [`Session::next_tokens`] takes it.
    ///
    /// # Errors
    /// As there; [`Error::Argument`] for a model without a block.
    #[doc(hidden)]
    pub fn predict_assumed(&mut self, count: usize, accepted: usize) -> Result<Vec<u32>> {
        if !self.model().has_block() {
            return Err(no_block());
        }
        self.check_drafts(count)?;
        self.check(self.tokens.len() + 1 + count, &[])?;
        self.with_runner(|session, runner| {
            session.prepare_drafts(runner, count)?;
            let mut names = session.made(count);
            // A draft that is named by what is sampled after the row before it is always right.
            let first = session.pool.sessions();
            for (row, name) in names.iter_mut().take(accepted).enumerate() {
                *name = RowHeader::sampled(first + row);
            }
            session.verify_in(runner, &names, count)
        })
    }

    /// Guesses of the tokens that follow the one that was sampled, if there are any worth a try.
    fn guess(&mut self, most: usize) -> Option<Guess> {
        let Speculation { kind, most: asked } = self.drafter.options;
        let room = self.pool.cache().context - self.tokens.len() - 1;
        let most = most.saturating_sub(1).min(room).min(asked.unwrap_or(usize::MAX));
        let most = most.min(most_drafts(self.pool.model().config()));
        if kind == DraftKind::Off || most == 0 {
            return None;
        }
        let mut offers = Vec::with_capacity(2);
        let continuation = if kind == DraftKind::Mtp { None } else { self.look_up(most) };
        offers.extend(
            continuation.iter().map(|it| Offer { evidence: Evidence::Matched(it.matched), count: it.tokens.len() }),
        );
        if kind != DraftKind::Lookup && self.pool.model().has_block() {
            // Penalties on a row need the tokens before it, and the host does not know drafts of the block but by their places.
            let count = if self.params.penalises() { 1 } else { MOST_PREDICTED };
            offers.push(Offer { evidence: Evidence::Predicted, count: most.min(count) });
        }
        let (number, count) = self.drafter.chosen(&offers)?;
        Some(match (offers.get(number)?.evidence, continuation) {
            (Evidence::Matched(matched), Some(Continuation { tokens: mut drafts, .. })) => {
                drafts.truncate(count);
                Guess::Tokens { matched, drafts }
            }
            _ => Guess::ByBlock { count },
        })
    }

    /// What the text predicts to follow the token that was sampled.
    fn look_up(&mut self, count: usize) -> Option<Continuation> {
        let Some(sampled) = self.drafter.sampled else {
            // That token itself is not known yet, and the first one to be guessed.
            let Continuation { tokens, matched } = self.drafter.lookup.predict(&self.tokens, 1 + count)?;
            return Some(Continuation { tokens: tokens[1..].to_vec(), matched });
        };
        self.predicted_behind(sampled, count)
    }

    /// What the text predicts behind a token that is to follow the last one.
    pub(super) fn predicted_behind(&mut self, token: u32, count: usize) -> Option<Continuation> {
        let lookup = &mut self.drafter.lookup;
        self.tokens.push(token);
        let predicted = lookup.predict(&self.tokens, count);
        lookup.truncate(&self.tokens, self.tokens.len() - 1);
        self.tokens.pop();
        predicted
    }

    /// Feeds the token that was sampled after the last one, and those of `drafts` that are sampled behind it one after the
    /// other. Returns all that were fed.
    ///
    /// # Errors
    /// [`Error::Argument`] for more drafts than a step verifies; otherwise as for [`Session::next_token`].
    pub fn verify(&mut self, drafts: &[u32]) -> Result<Vec<u32>> {
        self.check_drafts(drafts.len())?;
        self.check(self.tokens.len() + 1, drafts)?;
        self.with_runner(|session, runner| session.verify_in(runner, drafts, 0))
    }

    /// An error for more drafts than a step verifies.
    pub(super) fn check_drafts(&self, count: usize) -> Result<()> {
        let most = most_drafts(self.model().config());
        if count <= most {
            return Ok(());
        }
        let (expected, found) = (format!("at most {most}"), count.to_string());
        Err(Error::Argument { argument: "drafts", expected, found })
    }

    /// As [`Session::verify`], of drafts that are tokens or name what the device holds. Meanwhile the block makes so many
    /// others.
    fn verify_in(&mut self, runner: &mut Runner, drafts: &[u32], make: usize) -> Result<Vec<u32>> {
        self.last_output(runner)?;
        self.sample_if_left(runner)?;
        self.claim_rings(runner);
        let (length, count) = (self.tokens.len(), 1 + drafts.len());
        let make = make.min(self.context() - length - count);
        self.reach(runner, count + make)?;
        if make == 0 {
            self.keep_room(runner, count, None)?;
        }
        let place = runner.submissions.place;
        // Penalties depend on the token that was sampled, so then it has to be known before.
        let mut first = self.drafter.sampled;
        if first.is_none() && self.params.penalises() {
            first = Some(self.taken_token(runner, place)?);
        }
        let named = first.unwrap_or(RowHeader::sampled(self.sequence));
        let (mut rows, mut adjustments) = (self.verified_rows(&[&[named], drafts].concat()), Vec::new());
        if self.adjusts() {
            let mut tokens = self.tokens.clone();
            for (row, token) in rows.iter_mut().zip(first.into_iter().chain(drafts.iter().copied())) {
                tokens.push(token);
                let listed = self.adjustments(&tokens, false);
                (row.first_adjustment, row.adjustments) = (adjustments.len() as u32, listed.len() as u32);
                adjustments.extend(listed);
            }
        }
        let shape = self.verified_shape(count);
        let model = self.pool.model().clone();
        runner.shared_runs += 1;
        let Runner { plans, submissions, .. } = runner;
        let ready = plans.get(&model, shape, self.options.limit, &mut || Ok(()))?;
        if self.adjusts() {
            ready.adjust_up_to(&model, adjustments.len().next_power_of_two())?;
        }
        let filters = self.sampling.filters();
        let sampled = Sampled { adjustments: self.adjusts().then_some(&adjustments), filters, mask: None };
        submissions.write(ready, &rows)?;
        let prepared = if self.adjusts() { Ok(None) } else { submissions.run_prepared(ready, filters, place ^ 1) };
        let submitted = match prepared {
            Ok(None) => submissions.run(ready, 0..ready.planned.end(), Some(sampled), place ^ 1).map(drop),
            submitted => submitted.map(drop),
        };
        self.or_rewound(runner, submitted)?;
        self.output = None; // until there is another
        if first.is_none() {
            first = Some(self.taken_token(runner, place)?);
        } else if self.pool.sessions() > 1 {
            self.take(runner, place)?; // another session's work may have left its number there
        }
        self.drafter.block.made = 0;
        if make > 0 {
            let following = |row: &RowHeader| RowHeader { next: RowHeader::sampled(row.result as usize), ..*row };
            let rows: Vec<RowHeader> = rows.iter().map(following).collect();
            self.compute_kept(runner, &rows)?;
            self.draft(runner, length, count, make)?;
            if !self.adjusts() {
                // The next step is probably one like this, and recording it takes the host almost as long as the GPU computes.
                let Runner { plans, submissions, .. } = runner;
                let ready = plans.get(&model, shape, self.options.limit, &mut || Ok(()))?;
                submissions.prepare(ready, filters, place)?;
            }
        }
        let words = self.take_all(runner, place ^ 1)?;
        let [accepted, ..] = words[self.pool.sessions() + VERIFIED_ROWS];
        let accepted = (accepted as usize).min(drafts.len());
        let behind = words[self.pool.sessions()..].iter().map(|[sampled, ..]| *sampled);
        let fed: Vec<u32> = first.into_iter().chain(behind.take(accepted)).collect();
        if fed.contains(&NO_TOKEN) {
            return Err(Error::NotANumber); // and the output is gone
        }
        self.tokens.extend_from_slice(&fed);
        self.confirm(runner);
        if make > 0 {
            self.drafter.block.computed_to(self.tokens.len());
        }
        self.output = Some(LastOutput::Row(RowOutput { shape, row: accepted, run: runner.shared_runs }));
        self.unsampled = false;
        let [sampled, ..] = words[self.sequence];
        self.drafter.sampled = known(sampled).ok();
        let stats = &mut self.drafter.stats;
        (stats.drafted, stats.accepted, stats.steps) =
            (stats.drafted + drafts.len(), stats.accepted + accepted, stats.steps + 1);
        Ok(fed)
    }

    /// The rows that verify tokens behind those of the session, without adjustments.
    pub(super) fn verified_rows(&self, tokens: &[u32]) -> Vec<RowHeader> {
        let row = |(number, token): (usize, &u32)| {
            let result = (self.pool.sessions() + number) as u32;
            RowHeader { result, ..self.row(*token, self.tokens.len() + number) }
        };
        tokens.iter().enumerate().map(row).collect()
    }

    /// The shape of the plan that verifies so many rows.
    pub(super) fn verified_shape(&self, rows: usize) -> BatchShape {
        let room = rows.next_power_of_two().max(2); // the plan of one row knows no other list of pages than its own
        BatchShape::of(room, Outputs::Verified, self.tokens.len(), self.context())
    }

    /// The token of a result at a place.
    fn taken_token(&mut self, runner: &mut Runner, place: usize) -> Result<u32> {
        let [sampled, ..] = self.take(runner, place)?;
        known(sampled).inspect_err(|_| self.output = None)
    }

    /// Tells the planner how long a step took, the result of which was just taken, and notes what it saved: one that verified
    /// so many rows, or one of a row alone.
    fn timed(&mut self, verified: Option<(Evidence, usize)>, fed: usize) {
        let (at, tokens) = (Instant::now(), self.tokens.len());
        let before = self.drafter.last.replace(TimedStep { at, tokens, verified: verified.is_some() });
        let Some(before) = before.filter(|before| before.tokens + fed == tokens) else { return };
        let Drafter { planner, stats, .. } = &mut self.drafter;
        let took = at - before.at;
        let alone = planner.alone().unwrap_or_default();
        match verified {
            // With the result of a row alone, the next such step is under way already.
            None if before.verified => {}
            None => planner.took_alone(took),
            Some((evidence, rows)) => {
                let took = if before.verified { took } else { took.saturating_sub(alone) };
                planner.took(evidence, rows, took);
                if !alone.is_zero() {
                    stats.saved_seconds += fed as f64 * alone.as_secs_f64() - took.as_secs_f64();
                }
            }
        }
    }
}
