//! The search: question by question, it compares candidates with the present choices, and at the end all choices with
//! the initial ones.
//!
//! Times of a GPU drift. So two choices are measured alternately, once each per turn, and a candidate is chosen only if
//! the median gain of the turns exceeds the spread of the gains. Of many candidates each is first measured a few times,
//! and only the fastest are compared alternately. A candidate must be correct to be chosen. This module uses neither a
//! GPU nor a clock directly: both are behind [`Bench`].

use super::TuneProgress;
use super::question::{Edit, Question, Workload, without};
use crate::error::{Error, Result};
use crate::model::{Comparison, Figure, Outcome, Trial};
use crate::plan::Choices;
use crate::threads::StopCheck;
use std::cell::Cell;
use std::collections::HashMap;
use std::time::Duration;

/// Measures and checks choices.
pub(super) trait Bench {
    /// The seconds since the beginning.
    fn elapsed(&self) -> f64;

    /// The final comparison begins, which a request to stop no longer ends, unless the budget is a limit.
    fn begin_last(&mut self) {}

    /// A number that is equal for choices that lead to the same steps.
    fn identity(&mut self, choices: &Choices, work: Workload) -> Result<u64>;

    /// Compiles the kernels of some candidates in parallel. A candidate that does not compile fails when it is timed.
    fn prepare(&mut self, candidates: &[Choices], works: &[Workload], check_stop: &mut StopCheck<'_>) -> Result<()>;

    /// The seconds that work takes.
    fn time(&mut self, choices: &Choices, work: Workload) -> Result<f64>;

    /// A wrong result with these choices, if there is one.
    fn fault(
        &mut self,
        choices: &Choices,
        works: &[Workload],
        check_stop: &mut StopCheck<'_>,
    ) -> Result<Option<String>>;
}

/// The minimum gain that counts, however small the spread.
const MIN_GAIN: f64 = 0.002;
/// How much slower one kind of work may become if another becomes faster.
const MAX_SLOWDOWN: f64 = 0.005;
/// How many of the fastest candidates are compared alternately.
const FINALISTS: usize = 4;
/// How often each candidate is measured before that: if that takes no longer than `BRIEF`, and otherwise.
const FIRST_MEASUREMENTS: [usize; 2] = [3, 1];
const BRIEF: f64 = 0.1;
/// The fraction of the remaining time that a question may take, however small its weight.
const MAX_TIME_SHARE: f64 = 0.2;
/// The seconds that a candidate takes besides its measurements, until that is measured.
const USUAL_MAKING: f64 = 0.02;
/// How many candidates of a question are tried at least, if it has as many.
const FEW: usize = 3;
/// Turns of a comparison: at most, and at least.
const TURNS: [usize; 2] = [9, 3];
/// The fraction of the time that is reserved for the last comparison.
const RESERVE: f64 = 0.15;
/// The fraction of a question's time for the first measurements of candidates.
const MEASURING_SHARE: f64 = 0.7;

/// The result of a search.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Found {
    pub choices: Choices,
    pub comparison: Vec<Comparison>,
    pub complete: bool,
    pub trials: Vec<Trial>,
}

/// A running search.
pub(super) struct Search<'a> {
    bench: &'a mut dyn Bench,
    /// Whether a stop was requested.
    stopped: &'a dyn Fn() -> bool,
    tell: &'a mut dyn FnMut(&TuneProgress),
    start: Choices,
    chosen: Choices,
    budget: f64,
    /// The end of the time that `stopped` compares with, if the budget is a limit.
    limit: Option<&'a Cell<f64>>,
    /// The usual seconds that a candidate takes besides its measurements, by the question's first work: for compiling
    /// and preparing it, which take many times longer for prompts than for a token.
    making: HashMap<Workload, f64>,
    /// The seconds that works take with the present choices.
    known: HashMap<Workload, f64>,
    /// All work by which questions with a chosen candidate were measured.
    touched: Vec<Workload>,
    trials: Vec<Trial>,
    /// The indices of trials whose candidates were chosen, and these candidates.
    kept: Vec<(usize, Edit)>,
    complete: bool,
}

/// A candidate of a question.
struct Candidate {
    edit: Edit,
    choices: Choices,
    /// The shortest time of each work.
    times: Vec<f64>,
    failed: Option<String>,
    measurements: usize,
}

/// The result of comparing two choices alternately.
struct Turns {
    figures: Vec<Figure>,
    gain: f64,
    spread: f64,
    count: usize,
    /// Whether one of the works takes longer by more than its own spread.
    harms: bool,
    by_work: Vec<(f64, f64)>,
}

impl<'a> Search<'a> {
    /// A search that begins with the choices `start`, and should take at most `budget` seconds.
    pub fn new(
        bench: &'a mut dyn Bench,
        start: Choices,
        budget: f64,
        stopped: &'a dyn Fn() -> bool,
        tell: &'a mut dyn FnMut(&TuneProgress),
    ) -> Self {
        let (chosen, making, known, complete) = (start.clone(), HashMap::new(), HashMap::new(), true);
        let (touched, trials, kept) = (Vec::new(), Vec::new(), Vec::new());
        let limit = None;
        Self { bench, stopped, tell, start, chosen, budget, limit, making, known, touched, trials, kept, complete }
    }

    /// The same with a budget that is a limit: `stopped` must return true once `limit` seconds have passed. During the
    /// questions `limit` leaves time for the last comparison. If that is stopped, nothing is chosen.
    pub fn within(self, limit: Option<&'a Cell<f64>>) -> Self {
        if let Some(limit) = limit {
            limit.set(self.budget * (1.0 - RESERVE));
        }
        Self { limit, ..self }
    }

    /// Answers the questions in turn, and compares all choices with the start. After a request to stop, or when time is
    /// up, the choices so far are compared.
    ///
    /// # Errors
    /// Errors that end all work on the device, such as its loss.
    pub fn run(mut self, questions: &[Question]) -> Result<Found> {
        // Questions that were left out because they take too long for their weight are asked if time remains.
        let left_out = self.ask_all(questions.iter(), MAX_TIME_SHARE)?;
        let left_out = self.ask_all(left_out.into_iter(), 1.0)?;
        self.complete &= left_out.is_empty();
        if let Some(limit) = self.limit {
            limit.set(self.budget);
        }
        self.bench.begin_last();
        self.finish()
    }

    /// Asks questions in turn, each for its share of the time, and returns those that were left out, because a few
    /// candidates would take more than the share, and more than `most` of the remaining time.
    fn ask_all<'q>(
        &mut self,
        questions: impl Iterator<Item = &'q Question> + Clone,
        most: f64,
    ) -> Result<Vec<&'q Question>> {
        let mut weight: f64 = questions.clone().map(|question| question.weight).sum();
        let mut left_out = Vec::new();
        for question in questions {
            if (self.stopped)() {
                self.complete = false;
                break;
            }
            let part = (question.weight / weight.max(f64::MIN_POSITIVE)).min(1.0);
            weight -= question.weight;
            if self.few(question, self.known(question)) > self.left() * part.max(most) {
                left_out.push(question);
                continue;
            }
            match self.ask(question, part, most) {
                Err(Error::Cancelled) => self.complete = false,
                Err(error) if !is_fatal(&error) => {
                    self.note(question, "all candidates", Vec::new(), Outcome::Failed(error.to_string()));
                }
                answered => answered?,
            }
        }
        Ok(left_out)
    }

    /// The known seconds of a question's work.
    fn known(&self, question: &Question) -> f64 {
        question.works.iter().filter_map(|work| self.known.get(work)).sum()
    }

    /// The seconds that one of its candidates takes besides its measurements.
    fn making(&self, question: &Question) -> f64 {
        question.works.first().and_then(|work| self.making.get(work)).copied().unwrap_or(USUAL_MAKING)
    }

    /// An error if a stop was requested.
    fn going(&self) -> Result<()> {
        if (self.stopped)() { Err(Error::Cancelled) } else { Ok(()) }
    }

    fn tell(&mut self, doing: &str) {
        let kept = self.trials.iter().filter(|trial| trial.outcome == Outcome::Kept).count();
        let (spent, budget) = (self.bench.elapsed(), self.budget);
        (self.tell)(&TuneProgress {
            doing: doing.to_owned(),
            spent: Duration::try_from_secs_f64(spent).unwrap_or_default(),
            budget: Duration::try_from_secs_f64(budget).unwrap_or(Duration::MAX),
            trials: self.trials.len(),
            kept,
        });
    }

    /// The remaining seconds for questions.
    fn left(&self) -> f64 {
        self.budget * (1.0 - RESERVE) - self.bench.elapsed()
    }

    /// Tries the candidates of a question for this fraction of the remaining time, or for as long as a few of them
    /// take.
    fn ask(&mut self, question: &Question, part: f64, most: f64) -> Result<()> {
        let works = &question.works;
        self.tell(&question.name);
        let stopped = self.stopped;
        let mut check_stop = || if stopped() { Err(Error::Cancelled) } else { Ok(()) };
        self.bench.prepare(std::slice::from_ref(&self.chosen), works, &mut check_stop)?;
        let took = match self.measure(&self.chosen.clone(), works) {
            Err(error) if !is_fatal(&error) => {
                self.note(question, "the present choices", Vec::new(), Outcome::Failed(error.to_string()));
                return Ok(());
            }
            times => {
                let times = times?;
                self.known.extend(works.iter().copied().zip(times.iter().copied()));
                times.iter().sum::<f64>()
            }
        };
        let allotted = (self.left() * part).max(self.few(question, took).min(self.left() * most));
        let (measurements, until) = (measurements(took), self.bench.elapsed() + allotted);
        let fit = (allotted * MEASURING_SHARE / (took * measurements as f64 + self.making(question))).max(0.0) as usize;
        let since = self.bench.elapsed();
        let mut candidates = self.candidates(question, fit)?;
        if candidates.is_empty() {
            return Ok(());
        }
        self.make(&candidates, works)?;
        let usual = self.measure_candidates(question, &mut candidates, measurements, until)?;
        let each = (self.bench.elapsed() - since) / candidates.len() as f64;
        let making = 0.5 * (self.making(question) + (each - took * measurements as f64).max(0.0));
        self.making.extend(works.first().map(|work| (*work, making)));
        self.compare_quickest(question, candidates, &usual, until)
    }

    /// The seconds for measuring a few candidates and comparing one, if one measurement takes `took`.
    fn few(&self, question: &Question, took: f64) -> f64 {
        (took * (FEW * measurements(took) + 2 * TURNS[1]) as f64 + FEW as f64 * self.making(question)) / MEASURING_SHARE
    }

    /// The first candidates whose steps differ from those of the present choices and from each other's.
    fn candidates(&mut self, question: &Question, most: usize) -> Result<Vec<Candidate>> {
        let identity = |bench: &mut dyn Bench, choices: &Choices| -> Result<Vec<u64>> {
            question.works.iter().map(|work| bench.identity(choices, *work)).collect()
        };
        let mut seen = vec![identity(self.bench, &self.chosen)?];
        let mut candidates = Vec::new();
        for edit in &question.candidates {
            self.going()?;
            if candidates.len() == most {
                self.complete = false;
                break;
            }
            let choices = edit.of(&self.chosen);
            match identity(self.bench, &choices) {
                Ok(known) if seen.contains(&known) => {}
                Ok(new) => {
                    seen.push(new);
                    let times = vec![f64::INFINITY; question.works.len()];
                    candidates.push(Candidate { edit: edit.clone(), choices, times, failed: None, measurements: 0 });
                }
                Err(error) if is_fatal(&error) => return Err(error),
                Err(error) => {
                    self.note(question, &edit.to_string(), Vec::new(), Outcome::Failed(error.to_string()));
                }
            }
        }
        Ok(candidates)
    }

    /// Prepares candidates.
    fn make(&mut self, candidates: &[Candidate], works: &[Workload]) -> Result<()> {
        let choices: Vec<Choices> = candidates.iter().map(|candidate| candidate.choices.clone()).collect();
        let stopped = self.stopped;
        let mut check_stop = || if stopped() { Err(Error::Cancelled) } else { Ok(()) };
        self.bench.prepare(&choices, works, &mut check_stop)
    }

    /// The time of each work.
    fn measure(&mut self, choices: &Choices, works: &[Workload]) -> Result<Vec<f64>> {
        works.iter().map(|work| self.bench.time(choices, *work)).collect()
    }

    /// Measures all candidates as often as time allows, and returns the shortest times of the present choices.
    fn measure_candidates(
        &mut self,
        question: &Question,
        candidates: &mut [Candidate],
        measurements: usize,
        until: f64,
    ) -> Result<Vec<f64>> {
        let mut usual = vec![f64::INFINITY; question.works.len()];
        let chosen = self.chosen.clone();
        for _ in 0..measurements {
            shorten(&mut usual, &self.measure(&chosen, &question.works)?);
            for candidate in candidates.iter_mut().filter(|candidate| candidate.failed.is_none()) {
                self.going()?;
                if self.bench.elapsed() > until {
                    self.complete = false;
                    return Ok(usual);
                }
                match self.measure(&candidate.choices, &question.works) {
                    Ok(times) => {
                        shorten(&mut candidate.times, &times);
                        candidate.measurements += 1;
                    }
                    Err(error) if is_fatal(&error) => return Err(error),
                    Err(error) => candidate.failed = Some(error.to_string()),
                }
            }
        }
        Ok(usual)
    }

    /// Compares the fastest candidates with the present choices, one by one, and records the outcome of all of them.
    fn compare_quickest(
        &mut self,
        question: &Question,
        mut candidates: Vec<Candidate>,
        usual: &[f64],
        until: f64,
    ) -> Result<()> {
        let ratio = |candidate: &Candidate| mean_ratio(usual, &candidate.times);
        candidates.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
        let mut compared = 0;
        for candidate in candidates {
            let name = candidate.edit.to_string();
            let measured = || figures(&question.works, usual, &candidate.times);
            if let Some(reason) = candidate.failed.clone() {
                self.note(question, &name, Vec::new(), Outcome::Failed(reason));
                continue;
            }
            if candidate.measurements == 0 {
                self.complete = false;
                continue;
            }
            let promising = ratio(&candidate) < 0.0;
            let late = (self.stopped)() || self.bench.elapsed() > until;
            if !promising || late || compared == FINALISTS {
                let outcome = match (promising, compared) {
                    (false, _) => Outcome::Slower,
                    (true, FINALISTS) => Outcome::Surpassed,
                    (true, _) => Outcome::OutOfTime,
                };
                self.complete &= outcome != Outcome::OutOfTime;
                self.record_trial(question, &name, measured(), ratio(&candidate), outcome);
                continue;
            }
            compared += 1;
            self.tell(&question.name);
            self.compare_one(question, &candidate, until)?;
        }
        Ok(())
    }

    /// Compares a candidate with the present choices, and chooses it if it is faster and correct.
    fn compare_one(&mut self, question: &Question, candidate: &Candidate, until: f64) -> Result<()> {
        let took: f64 = candidate.times.iter().sum();
        let count = turns_in(until - self.bench.elapsed(), took);
        let turns = self.turns(&self.chosen.clone(), &candidate.choices, &question.works, count, true)?;
        let gains = turns.gain > turns.spread.max(MIN_GAIN).max(question.least);
        let outcome = if gains && !turns.harms {
            let stopped = self.stopped;
            let mut check_stop = || if stopped() { Err(Error::Cancelled) } else { Ok(()) };
            match self.bench.fault(&candidate.choices, &question.works, &mut check_stop) {
                Ok(None) => Outcome::Kept,
                Ok(Some(place)) => Outcome::Wrong(place),
                Err(error) if is_fatal(&error) => return Err(error),
                Err(error) => Outcome::Failed(error.to_string()),
            }
        } else if turns.gain > 0.0 && !turns.harms {
            Outcome::WithinSpread
        } else {
            Outcome::Slower
        };
        if outcome == Outcome::Kept {
            let before = self.trials.iter_mut().filter(|trial| trial.question == question.name);
            before.filter(|trial| trial.outcome == Outcome::Kept).for_each(|trial| trial.outcome = Outcome::Surpassed);
            self.kept.push((self.trials.len(), candidate.edit.clone()));
            self.chosen = candidate.edit.of(&self.chosen);
            let new = question.works.iter().filter(|work| !self.touched.contains(work));
            self.touched.extend(new.copied().collect::<Vec<_>>());
        }
        self.trials.push(Trial {
            question: question.name.clone(),
            candidate: candidate.edit.to_string(),
            figures: turns.figures,
            gain: rounded(turns.gain),
            spread: rounded(turns.spread),
            turns: turns.count,
            outcome,
        });
        Ok(())
    }

    /// Compares two choices alternately by one kind of work, for as long as there is time.
    pub fn by_turns(mut self, choices: [&Choices; 2], work: Workload) -> Result<Comparison> {
        let took = choices.map(|choices| self.bench.time(choices, work));
        let took = took.into_iter().collect::<Result<Vec<f64>>>()?.iter().sum::<f64>() / 2.0;
        let count = turns_in(self.budget - self.bench.elapsed(), took);
        let Turns { figures, gain, spread, .. } = self.turns(choices[0], choices[1], &[work], count, true)?;
        let figure = figures.into_iter().next().unwrap_or(Figure { work: work.to_string(), before: 0.0, after: 0.0 });
        Ok(Comparison { figure, gain, spread })
    }

    /// Compares two choices alternately. If it may be stopped, it checks for a request between two turns.
    fn turns(
        &mut self,
        before: &Choices,
        after: &Choices,
        works: &[Workload],
        count: usize,
        may_stop: bool,
    ) -> Result<Turns> {
        let mut times = vec![(Vec::new(), Vec::new()); works.len()];
        for turn in 0..count {
            for (work, (befores, afters)) in works.iter().zip(&mut times) {
                if may_stop {
                    self.going()?;
                }
                // The first of two may find a different clock or cache, so the order alternates.
                if turn % 2 == 0 {
                    befores.push(self.bench.time(before, *work)?);
                    afters.push(self.bench.time(after, *work)?);
                } else {
                    afters.push(self.bench.time(after, *work)?);
                    befores.push(self.bench.time(before, *work)?);
                }
            }
        }
        Ok(Turns::of(works, &times))
    }

    /// Compares all choices with the start, and drops those that are not faster: first the parts whose work takes
    /// longer, then everything.
    fn finish(mut self) -> Result<Found> {
        let mut comparison = Vec::new();
        while self.chosen != self.start {
            self.tell("comparing all choices with the initial ones");
            let works = self.touched.clone();
            let (start, chosen) = (self.start.clone(), self.chosen.clone());
            let turns = match self.last_turns(&start, &chosen, &works) {
                Err(error) if !is_fatal(&error) || matches!(error, Error::Cancelled) => {
                    self.chosen = start; // choices that cannot be compared are dropped
                    self.drop_trials();
                    break;
                }
                turns => turns?,
            };
            let slower = works.iter().zip(&turns.by_work).find(|(_, (gain, spread))| *gain < -spread.max(MAX_SLOWDOWN));
            let gains = turns.gain > turns.spread.max(MIN_GAIN);
            if gains && slower.is_none() {
                let results = turns.figures.into_iter().zip(turns.by_work);
                let result =
                    |(figure, (gain, spread))| Comparison { figure, gain: rounded(gain), spread: rounded(spread) };
                comparison = results.map(result).collect();
                break;
            }
            let without = slower.map(|(work, _)| without(&chosen, work.part(), &start));
            self.chosen = without.filter(|fewer| *fewer != chosen).unwrap_or_else(|| start.clone());
            self.drop_trials();
        }
        let Self { chosen, complete, trials, .. } = self;
        Ok(Found { choices: chosen, comparison, complete, trials })
    }

    /// Compares all choices with the start, as thoroughly as time allows.
    fn last_turns(&mut self, start: &Choices, chosen: &Choices, works: &[Workload]) -> Result<Turns> {
        let took = self.measure(chosen, works)?.iter().sum();
        let count = turns_in(self.budget - self.bench.elapsed(), took);
        self.turns(start, chosen, works, count, self.limit.is_some())
    }

    /// Marks trials whose candidates were chosen but have been dropped.
    fn drop_trials(&mut self) {
        for (place, edit) in &self.kept {
            let trial = self.trials.get_mut(*place).filter(|trial| trial.outcome == Outcome::Kept);
            if let Some(trial) = trial.filter(|_| !edit.is_in(&self.chosen)) {
                trial.outcome = Outcome::Dropped;
            }
        }
    }

    fn note(&mut self, question: &Question, candidate: &str, figures: Vec<Figure>, outcome: Outcome) {
        self.record_trial(question, candidate, figures, 0.0, outcome);
    }

    fn record_trial(
        &mut self,
        question: &Question,
        candidate: &str,
        figures: Vec<Figure>,
        ratio: f64,
        outcome: Outcome,
    ) {
        let (question, candidate, gain) = (question.name.clone(), candidate.to_owned(), rounded(-ratio.exp_m1()));
        self.trials.push(Trial { question, candidate, figures, gain, spread: 0.0, turns: 0, outcome });
    }
}

impl Turns {
    /// Evaluates the times of each work, before and after, of all turns.
    fn of(works: &[Workload], times: &[(Vec<f64>, Vec<f64>)]) -> Self {
        let count = times.first().map_or(0, |(befores, _)| befores.len());
        let logarithm = |(before, after): (&f64, &f64)| (after / before).ln();
        let by_turn: Vec<Vec<f64>> =
            times.iter().map(|(befores, afters)| befores.iter().zip(afters).map(logarithm).collect()).collect();
        let gain_and_spread = |logarithms: &[f64]| {
            let middle = median(logarithms);
            let off: Vec<f64> = logarithms.iter().map(|it| (it - middle).abs()).collect();
            (-middle.exp_m1(), 1.4826 * median(&off)) // for a normal distribution this is the standard deviation
        };
        let whole: Vec<f64> = (0..count)
            .map(|turn| by_turn.iter().map(|of_work| of_work[turn]).sum::<f64>() / works.len().max(1) as f64)
            .collect();
        let (gain, spread) = gain_and_spread(&whole);
        let by_work: Vec<(f64, f64)> = by_turn.iter().map(|of_work| gain_and_spread(of_work)).collect();
        let harms = by_work.iter().any(|(gain, spread)| *gain < -spread.max(MAX_SLOWDOWN));
        let (befores, afters): (Vec<f64>, Vec<f64>) =
            times.iter().map(|(befores, afters)| (median(befores), median(afters))).unzip();
        let figures = figures(works, &befores, &afters);
        Self { figures, gain, spread, count, harms, by_work }
    }
}

/// Whether an error affects more than one candidate.
fn is_fatal(error: &Error) -> bool {
    matches!(error, Error::Cancelled | Error::DeviceLost { .. } | Error::File { .. } | Error::Io { .. })
}

/// How often candidates are first measured, if one measurement takes `took` seconds.
fn measurements(took: f64) -> usize {
    if took <= BRIEF { FIRST_MEASUREMENTS[0] } else { FIRST_MEASUREMENTS[1] }
}

/// An odd number of turns that fit into `seconds`, if one measurement takes `took`.
fn turns_in(seconds: f64, took: f64) -> usize {
    let fit = (seconds / (2.0 * took).max(f64::MIN_POSITIVE)) as usize;
    fit.clamp(TURNS[1], TURNS[0]) | 1
}

fn shorten(times: &mut [f64], others: &[f64]) {
    times.iter_mut().zip(others).for_each(|(time, other)| *time = time.min(*other));
}

/// The mean logarithm of the ratio of the second times to the first.
fn mean_ratio(before: &[f64], after: &[f64]) -> f64 {
    let sum: f64 = before.iter().zip(after).map(|(before, after)| (after / before).ln()).sum();
    sum / before.len().max(1) as f64
}

fn figures(works: &[Workload], before: &[f64], after: &[f64]) -> Vec<Figure> {
    let figure = |((work, before), after): ((&Workload, &f64), &f64)| {
        let nanoseconds = |seconds: f64| (seconds * 1e9).round() / 1e9;
        Figure { work: work.to_string(), before: nanoseconds(*before), after: nanoseconds(*after) }
    };
    works.iter().zip(before).zip(after).map(figure).collect()
}

fn rounded(part: f64) -> f64 {
    (part * 1e5).round() / 1e5
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests;
