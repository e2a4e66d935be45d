//! Several tokens a step: drafts are guessed, and verified together with the token that is certain.

use super::pool::{JointRow, Runner};
use super::run::known;
use super::submissions::Sampled;
use super::{LastOutput, Session};
use crate::error::{Error, Result};
use crate::kernels::VERIFIED_ROWS;
use crate::model::{BatchShape, Outputs, most_drafts};
use crate::plan::RowHeader;
use crate::speculate::{DraftKind, DraftStats, Evidence, Lookup, Planner, Prediction, Speculation};
use std::time::Instant;

/// What a further row of a step is expected to cost until it is measured, as a part of what a row alone costs: on a GPU,
/// which reads weights for all rows once, and on the CPU, which has to multiply.
const ROW: [f64; 2] = [0.2, 1.0];

/// Guesses tokens for a session.
pub struct Drafter {
    options: Speculation,
    lookup: Lookup,
    planner: Planner,
    stats: DraftStats,
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

impl Drafter {
    pub fn new(is_software: bool) -> Self {
        Self {
            options: Speculation::OFF,
            lookup: Lookup::default(),
            planner: Planner::new(VERIFIED_ROWS, ROW[usize::from(is_software)]),
            stats: DraftStats::default(),
            sampled: None,
            last: None,
        }
    }

    /// Forgets what no longer holds of a sequence that is cut to its first tokens.
    pub fn truncate(&mut self, tokens: &[u32], length: usize) {
        self.lookup.truncate(tokens, length);
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
        if let Some((drafts, evidence)) = self.drafts(most) {
            match self.verify(&drafts) {
                Err(Error::PoolFull { .. }) => {} // there may be room for the token that is certain
                fed => {
                    let fed = fed?;
                    self.drafter.planner.verified(evidence, drafts.len(), fed.len() - 1);
                    self.timed(1 + drafts.len(), fed.len());
                    return Ok(fed);
                }
            }
        }
        let token = self.next_token()?;
        self.drafter.sampled = None;
        self.timed(1, 1);
        Ok(vec![token])
    }

    /// Guesses of the tokens that follow the one that was sampled, if there are any worth a try.
    fn drafts(&mut self, most: usize) -> Option<(Vec<u32>, Evidence)> {
        let Drafter { options, lookup, planner, sampled, .. } = &mut self.drafter;
        if options.kind == DraftKind::Off {
            return None;
        }
        let room = self.pool.cache().context - self.tokens.len() - 1;
        let most = most.saturating_sub(1).min(room).min(options.most.unwrap_or(usize::MAX));
        let most = most.min(most_drafts(self.pool.model().config()));
        if most == 0 {
            return None;
        }
        // The token that was sampled is a part of the text if it is known, and otherwise the first one to be guessed.
        let predicted = match *sampled {
            Some(sampled) => {
                self.tokens.push(sampled);
                let predicted = lookup.predict(&self.tokens, most);
                lookup.truncate(&self.tokens, self.tokens.len() - 1);
                self.tokens.pop();
                predicted
            }
            None => lookup.predict(&self.tokens, 1 + most).map(|Prediction { mut tokens, matched }| {
                tokens.remove(0);
                Prediction { tokens, matched }
            }),
        };
        let Prediction { mut tokens, matched } = predicted?;
        let evidence = Evidence::Matched(matched);
        if options.kind == DraftKind::Auto {
            tokens.truncate(planner.choose(evidence, tokens.len()));
        }
        (!tokens.is_empty()).then_some((tokens, evidence))
    }

    /// Feeds the token that was sampled after the last one, and those of `drafts` that are sampled behind it one after the
    /// other. Returns all that were fed.
    ///
    /// # Errors
    /// [`Error::Argument`] for more drafts than a step verifies; otherwise as for [`Session::next_token`].
    pub fn verify(&mut self, drafts: &[u32]) -> Result<Vec<u32>> {
        let most = most_drafts(self.model().config());
        if drafts.len() > most {
            let (expected, found) = (format!("at most {most}"), drafts.len().to_string());
            return Err(Error::Argument { argument: "drafts", expected, found });
        }
        self.check(self.tokens.len() + 1, drafts)?;
        self.with_runner(|session, runner| session.verify_in(runner, drafts))
    }

    fn verify_in(&mut self, runner: &mut Runner, drafts: &[u32]) -> Result<Vec<u32>> {
        self.last_output(runner)?;
        let (place, length, count) = (runner.submissions.place, self.tokens.len(), 1 + drafts.len());
        self.reach(runner, count)?;
        // Penalties depend on the token that was sampled, so then it has to be known before.
        let penalises = self.params.penalises();
        let mut first = if penalises { Some(self.taken_token(runner, place)?) } else { None };
        let (mut rows, mut adjustments) = (Vec::with_capacity(count), Vec::new());
        let mut tokens = if self.adjusts() { self.tokens.clone() } else { Vec::new() };
        for row in 0..count {
            let token = if row == 0 { first } else { Some(drafts[row - 1]) };
            let named = token.unwrap_or(RowHeader::sampled(self.sequence));
            let header = self.row(named, length + row);
            let first_adjustment = adjustments.len();
            if self.adjusts() {
                tokens.extend(token);
                adjustments.extend(self.adjustments(&tokens, false));
            }
            let result = (self.pool.sessions() + row) as u32;
            let (first_adjustment, end) = (first_adjustment as u32, adjustments.len() as u32);
            rows.push(RowHeader { result, first_adjustment, adjustments: end - first_adjustment, ..header });
        }
        let shape = BatchShape::of(count.next_power_of_two(), Outputs::Verified, length, self.context());
        let model = self.pool.model().clone();
        let ready = runner.plans.get(&model, shape, self.options.limit, &mut || Ok(()))?;
        if self.adjusts() {
            ready.adjust_up_to(&model, adjustments.len())?;
        }
        let filters = self.sampling.filters();
        let sampled = Sampled { adjustments: self.adjusts().then_some(&adjustments), filters };
        runner.shared_runs += 1;
        runner.submissions.write(ready, &rows)?;
        let submitted = runner.submissions.run(ready, 0..ready.planned.end(), Some(sampled), place ^ 1).map(drop);
        self.or_rewound(runner, submitted)?;
        self.output = None; // until there is another
        if first.is_none() {
            first = Some(self.taken_token(runner, place)?);
        }
        let words = self.take_all(runner, place ^ 1)?;
        let [accepted, ..] = words[self.pool.sessions() + VERIFIED_ROWS];
        let accepted = (accepted as usize).min(drafts.len());
        let fed: Vec<u32> = first.into_iter().chain(drafts[..accepted].iter().copied()).collect();
        self.tokens.extend_from_slice(&fed);
        self.confirm(runner);
        self.output = Some(LastOutput::Joint(JointRow { shape, row: accepted, run: runner.shared_runs }));
        let [sampled, ..] = words[self.sequence];
        self.drafter.sampled = known(sampled).ok();
        let stats = &mut self.drafter.stats;
        (stats.drafted, stats.accepted, stats.steps) =
            (stats.drafted + drafts.len(), stats.accepted + accepted, stats.steps + 1);
        Ok(fed)
    }

    /// The token of a result at a place.
    fn taken_token(&mut self, runner: &mut Runner, place: usize) -> Result<u32> {
        let [sampled, ..] = self.take(runner, place)?;
        known(sampled).inspect_err(|_| self.output = None)
    }

    /// Tells the planner how long a step of so many rows took, the result of which was just taken, and notes what it saved.
    fn timed(&mut self, rows: usize, fed: usize) {
        let (at, tokens, verified) = (Instant::now(), self.tokens.len(), rows > 1);
        let before = self.drafter.last.replace(TimedStep { at, tokens, verified });
        // With the first token of a step that verified nothing the next such step is under way already.
        let Some(before) = before.filter(|before| before.tokens < tokens && tokens - before.tokens <= rows) else {
            return;
        };
        let Drafter { planner, stats, .. } = &mut self.drafter;
        let alone = planner.alone().unwrap_or_default();
        let took = match (before.verified, verified) {
            (true, false) => return, // its result was there before
            (false, true) => (at - before.at).saturating_sub(alone),
            _ => at - before.at,
        };
        planner.took(rows, took);
        if verified && !alone.is_zero() {
            stats.saved_seconds += fed as f64 * alone.as_secs_f64() - took.as_secs_f64();
        }
    }
}
