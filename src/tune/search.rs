//! The search: question after question, candidates against what was chosen so far, and in the end the whole against what
//! it began with.
//!
//! Times of a GPU wander. So two choices are compared by turns, one measurement of each in every turn, and a candidate is
//! kept only if the median of what the turns gained is more than the spread of these gains. Of many candidates each is
//! first looked at a few times, and only the quickest are compared like this. A candidate that would be kept has to be
//! correct. Nothing here knows a GPU or a clock: both are behind [`Bench`].

use super::TuneProgress;
use super::question::{Edit, Question, Work, without};
use crate::error::{Error, Result};
use crate::model::{Comparison, Figure, Outcome, Trial};
use crate::plan::Choices;
use crate::threads::GoOn;
use std::cell::Cell;
use std::collections::HashMap;
use std::time::Duration;

/// What measures and checks.
pub(super) trait Bench {
    /// The seconds since the beginning.
    fn elapsed(&self) -> f64;

    /// From here on the whole is compared, for which a request to stop comes too late, unless time is limited.
    fn begin_last(&mut self) {}

    /// A number that is the same for choices with which the same would run.
    fn identity(&mut self, choices: &Choices, work: Work) -> Result<u64>;

    /// Compiles what some candidates need, as many at a time as can be. One that does not compile fails when it is timed.
    fn prepare(&mut self, candidates: &[Choices], works: &[Work], go_on: &mut GoOn<'_>) -> Result<()>;

    /// How many seconds work takes.
    fn time(&mut self, choices: &Choices, work: Work) -> Result<f64>;

    /// A result that is wrong with these choices, if there is one.
    fn fault(&mut self, choices: &Choices, works: &[Work], go_on: &mut GoOn<'_>) -> Result<Option<String>>;
}

/// The least gain that counts, however small the spread.
const LEAST: f64 = 0.002;
/// How much slower one work may become where another becomes faster.
const HARM: f64 = 0.005;
/// How many of the quickest candidates are compared by turns.
const FINALISTS: usize = 4;
/// How often each candidate is looked at before: where that takes no longer than `BRIEF`, and otherwise.
const LOOKS: [usize; 2] = [3, 1];
const BRIEF: f64 = 0.1;
/// The part of the time that is left which a question may take, however little it weighs.
const MOST: f64 = 0.2;
/// The seconds that a candidate takes beside its measurements, before anything is known.
const USUAL_MAKING: f64 = 0.02;
/// How many candidates a question is asked for at least, if it has as many.
const FEW: usize = 3;
/// Turns of a comparison: at most, and at least.
const TURNS: [usize; 2] = [9, 3];
/// The part of the time that is kept for the last comparison.
const RESERVE: f64 = 0.15;
/// The part of a question's time that candidates are looked at.
const LOOKING: f64 = 0.7;

/// What a search has found.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Found {
    pub choices: Choices,
    pub comparison: Vec<Comparison>,
    pub complete: bool,
    pub trials: Vec<Trial>,
}

/// A search under way.
pub(super) struct Search<'a> {
    bench: &'a mut dyn Bench,
    /// Whether somebody asks to stop.
    stopped: &'a dyn Fn() -> bool,
    tell: &'a mut dyn FnMut(&TuneProgress),
    start: Choices,
    chosen: Choices,
    budget: f64,
    /// Where what `stopped` takes for the end of the time stands, if the budget is a limit.
    limit: Option<&'a Cell<f64>>,
    /// The seconds that a candidate takes beside its measurements, as a rule, by the question's first work: to compile it
    /// and to make it ready, which for prompts takes many times what it takes for a token.
    making: HashMap<Work, f64>,
    /// The seconds that works take with what is chosen.
    known: HashMap<Work, f64>,
    /// All work that a question with a kept candidate was measured by.
    touched: Vec<Work>,
    trials: Vec<Trial>,
    /// The places of trials whose candidates were kept, and these candidates.
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
    looks: usize,
}

/// What turns of two choices showed.
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
    /// A search that begins with the choices `start`, and should take no longer than `budget` seconds.
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

    /// The same with a budget that is a limit: `stopped` is to say so once `limit` seconds are over. While questions are
    /// asked that leaves time for the last comparison. If that is stopped, nothing is chosen.
    pub fn within(self, limit: Option<&'a Cell<f64>>) -> Self {
        if let Some(limit) = limit {
            limit.set(self.budget * (1.0 - RESERVE));
        }
        Self { limit, ..self }
    }

    /// Answers the questions in turn, and compares the whole with the start. After a request to stop, or when time is up,
    /// what was found so far is compared.
    ///
    /// # Errors
    /// What ends all work on the device, such as its loss.
    pub fn run(mut self, questions: &[Question]) -> Result<Found> {
        // Questions that were worth too little for what they take come again when the others have left time.
        let left_out = self.ask_all(questions.iter(), MOST)?;
        let left_out = self.ask_all(left_out.into_iter(), 1.0)?;
        self.complete &= left_out.is_empty();
        if let Some(limit) = self.limit {
            limit.set(self.budget);
        }
        self.bench.begin_last();
        self.finish()
    }

    /// Asks questions in turn, each for its part of the time, and returns those that were left out: for which a few
    /// candidates take more than that, and more than `most` of the time that is left.
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

    /// The seconds that a question's work takes, as far as they are known.
    fn known(&self, question: &Question) -> f64 {
        question.works.iter().filter_map(|work| self.known.get(work)).sum()
    }

    /// The seconds that one of its candidates takes beside its measurements.
    fn making(&self, question: &Question) -> f64 {
        question.works.first().and_then(|work| self.making.get(work)).copied().unwrap_or(USUAL_MAKING)
    }

    /// Whether to go on: an error if somebody asks to stop.
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

    /// The seconds that are left for questions.
    fn left(&self) -> f64 {
        self.budget * (1.0 - RESERVE) - self.bench.elapsed()
    }

    /// Tries the candidates of a question, for such a part of the time that is left, or for as long as a few of them take.
    fn ask(&mut self, question: &Question, part: f64, most: f64) -> Result<()> {
        let works = &question.works;
        self.tell(&question.name);
        let stopped = self.stopped;
        let mut go_on = || if stopped() { Err(Error::Cancelled) } else { Ok(()) };
        self.bench.prepare(std::slice::from_ref(&self.chosen), works, &mut go_on)?;
        let took = match self.look(&self.chosen.clone(), works) {
            Err(error) if !is_fatal(&error) => {
                self.note(question, "what there is", Vec::new(), Outcome::Failed(error.to_string()));
                return Ok(());
            }
            times => {
                let times = times?;
                self.known.extend(works.iter().copied().zip(times.iter().copied()));
                times.iter().sum::<f64>()
            }
        };
        let allotted = (self.left() * part).max(self.few(question, took).min(self.left() * most));
        let (looks, until) = (looks(took), self.bench.elapsed() + allotted);
        let fit = (allotted * LOOKING / (took * looks as f64 + self.making(question))).max(0.0) as usize;
        let since = self.bench.elapsed();
        let mut candidates = self.candidates(question, fit)?;
        if candidates.is_empty() {
            return Ok(());
        }
        self.make(&candidates, works)?;
        let usual = self.look_at(question, &mut candidates, looks, until)?;
        let each = (self.bench.elapsed() - since) / candidates.len() as f64;
        let making = 0.5 * (self.making(question) + (each - took * looks as f64).max(0.0));
        self.making.extend(works.first().map(|work| (*work, making)));
        self.compare_quickest(question, candidates, &usual, until)
    }

    /// The seconds that it takes to look at a few candidates and to compare one, where one measurement takes `took`.
    fn few(&self, question: &Question, took: f64) -> f64 {
        (took * (FEW * looks(took) + 2 * TURNS[1]) as f64 + FEW as f64 * self.making(question)) / LOOKING
    }

    /// The first candidates with which something else would run than with what is chosen, or than with each other.
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
                    candidates.push(Candidate { edit: edit.clone(), choices, times, failed: None, looks: 0 });
                }
                Err(error) if is_fatal(&error) => return Err(error),
                Err(error) => {
                    self.note(question, &edit.to_string(), Vec::new(), Outcome::Failed(error.to_string()));
                }
            }
        }
        Ok(candidates)
    }

    /// Makes candidates ready.
    fn make(&mut self, candidates: &[Candidate], works: &[Work]) -> Result<()> {
        let choices: Vec<Choices> = candidates.iter().map(|candidate| candidate.choices.clone()).collect();
        let stopped = self.stopped;
        let mut go_on = || if stopped() { Err(Error::Cancelled) } else { Ok(()) };
        self.bench.prepare(&choices, works, &mut go_on)
    }

    /// The time of each work.
    fn look(&mut self, choices: &Choices, works: &[Work]) -> Result<Vec<f64>> {
        works.iter().map(|work| self.bench.time(choices, *work)).collect()
    }

    /// Looks at all candidates as often as time allows, and returns the shortest times of what is chosen.
    fn look_at(
        &mut self,
        question: &Question,
        candidates: &mut [Candidate],
        looks: usize,
        until: f64,
    ) -> Result<Vec<f64>> {
        let mut usual = vec![f64::INFINITY; question.works.len()];
        let chosen = self.chosen.clone();
        for _ in 0..looks {
            shorten(&mut usual, &self.look(&chosen, &question.works)?);
            for candidate in candidates.iter_mut().filter(|candidate| candidate.failed.is_none()) {
                self.going()?;
                if self.bench.elapsed() > until {
                    self.complete = false;
                    return Ok(usual);
                }
                match self.look(&candidate.choices, &question.works) {
                    Ok(times) => {
                        shorten(&mut candidate.times, &times);
                        candidate.looks += 1;
                    }
                    Err(error) if is_fatal(&error) => return Err(error),
                    Err(error) => candidate.failed = Some(error.to_string()),
                }
            }
        }
        Ok(usual)
    }

    /// Compares the quickest candidates with what is chosen, one after the other, and notes what came of all of them.
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
            let looked = || figures(&question.works, usual, &candidate.times);
            if let Some(reason) = candidate.failed.clone() {
                self.note(question, &name, Vec::new(), Outcome::Failed(reason));
                continue;
            }
            if candidate.looks == 0 {
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
                self.note_looks(question, &name, looked(), ratio(&candidate), outcome);
                continue;
            }
            compared += 1;
            self.tell(&question.name);
            self.compare_one(question, &candidate, until)?;
        }
        Ok(())
    }

    /// Compares a candidate with what is chosen, and keeps it if it is faster and correct.
    fn compare_one(&mut self, question: &Question, candidate: &Candidate, until: f64) -> Result<()> {
        let took: f64 = candidate.times.iter().sum();
        let count = turns_in(until - self.bench.elapsed(), took);
        let turns = self.turns(&self.chosen.clone(), &candidate.choices, &question.works, count, true)?;
        let gains = turns.gain > turns.spread.max(LEAST).max(question.least);
        let outcome = if gains && !turns.harms {
            let stopped = self.stopped;
            let mut go_on = || if stopped() { Err(Error::Cancelled) } else { Ok(()) };
            match self.bench.fault(&candidate.choices, &question.works, &mut go_on) {
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

    /// Compares two choices by turns in one kind of work, for as long as there is time.
    pub fn by_turns(mut self, choices: [&Choices; 2], work: Work) -> Result<Comparison> {
        let took = choices.map(|choices| self.bench.time(choices, work));
        let took = took.into_iter().collect::<Result<Vec<f64>>>()?.iter().sum::<f64>() / 2.0;
        let count = turns_in(self.budget - self.bench.elapsed(), took);
        let Turns { figures, gain, spread, .. } = self.turns(choices[0], choices[1], &[work], count, true)?;
        let figure = figures.into_iter().next().unwrap_or(Figure { work: work.to_string(), before: 0.0, after: 0.0 });
        Ok(Comparison { figure, gain, spread })
    }

    /// Compares two choices by turns. If it may be stopped, it looks between two whether it should be.
    fn turns(
        &mut self,
        before: &Choices,
        after: &Choices,
        works: &[Work],
        count: usize,
        may_stop: bool,
    ) -> Result<Turns> {
        let mut times = vec![(Vec::new(), Vec::new()); works.len()];
        for turn in 0..count {
            for (work, (befores, afters)) in works.iter().zip(&mut times) {
                if may_stop {
                    self.going()?;
                }
                // What comes first may find another clock or cache, so both come first by turns.
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

    /// Compares the whole with the start, and drops what is not faster: first the parts whose work takes longer, then
    /// everything.
    fn finish(mut self) -> Result<Found> {
        let mut comparison = Vec::new();
        while self.chosen != self.start {
            self.tell("comparing the whole with what was there before");
            let works = self.touched.clone();
            let (start, chosen) = (self.start.clone(), self.chosen.clone());
            let turns = match self.last_turns(&start, &chosen, &works) {
                Err(error) if !is_fatal(&error) || matches!(error, Error::Cancelled) => {
                    self.chosen = start; // what cannot be compared is not kept
                    self.drop_trials();
                    break;
                }
                turns => turns?,
            };
            let slower = works.iter().zip(&turns.by_work).find(|(_, (gain, spread))| *gain < -spread.max(HARM));
            let gains = turns.gain > turns.spread.max(LEAST);
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

    /// Compares all that was chosen with the start, as thoroughly as there is time.
    fn last_turns(&mut self, start: &Choices, chosen: &Choices, works: &[Work]) -> Result<Turns> {
        let took = self.look(chosen, works)?.iter().sum();
        let count = turns_in(self.budget - self.bench.elapsed(), took);
        self.turns(start, chosen, works, count, self.limit.is_some())
    }

    /// Marks trials that were kept and whose candidates are chosen no more.
    fn drop_trials(&mut self) {
        for (place, edit) in &self.kept {
            let trial = self.trials.get_mut(*place).filter(|trial| trial.outcome == Outcome::Kept);
            if let Some(trial) = trial.filter(|_| !edit.is_in(&self.chosen)) {
                trial.outcome = Outcome::Dropped;
            }
        }
    }

    fn note(&mut self, question: &Question, candidate: &str, figures: Vec<Figure>, outcome: Outcome) {
        self.note_looks(question, candidate, figures, 0.0, outcome);
    }

    fn note_looks(&mut self, question: &Question, candidate: &str, figures: Vec<Figure>, ratio: f64, outcome: Outcome) {
        let (question, candidate, gain) = (question.name.clone(), candidate.to_owned(), rounded(-ratio.exp_m1()));
        self.trials.push(Trial { question, candidate, figures, gain, spread: 0.0, turns: 0, outcome });
    }
}

impl Turns {
    /// What the times of each work, before and after, turn by turn, say.
    fn of(works: &[Work], times: &[(Vec<f64>, Vec<f64>)]) -> Self {
        let count = times.first().map_or(0, |(befores, _)| befores.len());
        let logarithm = |(before, after): (&f64, &f64)| (after / before).ln();
        let by_turn: Vec<Vec<f64>> =
            times.iter().map(|(befores, afters)| befores.iter().zip(afters).map(logarithm).collect()).collect();
        let gain_and_spread = |logarithms: &[f64]| {
            let middle = median(logarithms);
            let off: Vec<f64> = logarithms.iter().map(|it| (it - middle).abs()).collect();
            (-middle.exp_m1(), 1.4826 * median(&off)) // of a normal distribution that is its deviation
        };
        let whole: Vec<f64> = (0..count)
            .map(|turn| by_turn.iter().map(|of_work| of_work[turn]).sum::<f64>() / works.len().max(1) as f64)
            .collect();
        let (gain, spread) = gain_and_spread(&whole);
        let by_work: Vec<(f64, f64)> = by_turn.iter().map(|of_work| gain_and_spread(of_work)).collect();
        let harms = by_work.iter().any(|(gain, spread)| *gain < -spread.max(HARM));
        let (befores, afters): (Vec<f64>, Vec<f64>) =
            times.iter().map(|(befores, afters)| (median(befores), median(afters))).unzip();
        let figures = figures(works, &befores, &afters);
        Self { figures, gain, spread, count, harms, by_work }
    }
}

/// Whether an error is about more than a candidate.
fn is_fatal(error: &Error) -> bool {
    matches!(error, Error::Cancelled | Error::DeviceLost { .. } | Error::File { .. } | Error::Io { .. })
}

/// How often candidates are looked at, where one measurement takes `took` seconds.
fn looks(took: f64) -> usize {
    if took <= BRIEF { LOOKS[0] } else { LOOKS[1] }
}

/// An odd number of turns that fit so many seconds, if one measurement takes `took`.
fn turns_in(seconds: f64, took: f64) -> usize {
    let fit = (seconds / (2.0 * took).max(f64::MIN_POSITIVE)) as usize;
    fit.clamp(TURNS[1], TURNS[0]) | 1
}

fn shorten(times: &mut [f64], others: &[f64]) {
    times.iter_mut().zip(others).for_each(|(time, other)| *time = time.min(*other));
}

/// The mean logarithm of how much longer the second times are.
fn mean_ratio(before: &[f64], after: &[f64]) -> f64 {
    let sum: f64 = before.iter().zip(after).map(|(before, after)| (after / before).ln()).sum();
    sum / before.len().max(1) as f64
}

fn figures(works: &[Work], before: &[f64], after: &[f64]) -> Vec<Figure> {
    let figure = |((work, before), after): ((&Work, &f64), &f64)| {
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
