//! How many steps go into a submission, so that none takes the GPU much longer than wanted.

use crate::error::Result;
use crate::gpu::{Gpu, Submission};
use crate::plan::{Plan, StepLimit};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Submissions under way at a time: one runs while the next waits its turn.
const AHEAD: usize = 2;
/// Where single steps take so many times what a submission should, none waits: the GPU's wait for the next one is nothing
/// beside what it takes, and work of others comes between any two.
const LONG: u32 = 5;
/// Steps of the first submission, about: of a plan of which nothing is known yet, and where the GPU has nothing to do
/// until it comes. Then there are so many times more, for they take longer to run than to record.
const FIRST: usize = 16;
const MORE: f64 = 3.0;
/// Seconds that a step takes however little it does.
const DISPATCH: f64 = 5e-6;

/// The pace of a plan's submissions. What one takes is the time between the end of the one before and its own.
///
/// Steps are weighed by what they cost: in seconds on the slow GPU that the plan's steps were cut for. How much of that
/// this GPU does in the time that a submission should take is learned.
pub struct Pace {
    limit: Duration,
    /// Weight of a submission: of any, while the GPU waits for the first ones, and at most, so that every chunk has one
    /// to learn from.
    weight: f64,
    ramp: f64,
    most: f64,
    /// What the steps before each one weigh together, and all of them.
    before: Vec<f64>,
    /// What the GPU may not have finished yet, and the weight of each; none of what others have submitted.
    running: VecDeque<(Submission, f64)>,
    since: Instant,
    /// When the GPU began with the chunk, and the weight of what it has done of it.
    begun: Instant,
    done: f64,
    /// Submissions under way before the oldest one is waited for.
    ahead: usize,
}

impl Pace {
    /// Of submissions that take so long. Before anything is known, the GPU is taken for the slow one.
    pub fn new(limit: Duration) -> Self {
        let (running, since) = (VecDeque::with_capacity(AHEAD + 1), Instant::now());
        let weight = limit.as_secs_f64();
        let (ramp, most) = (f64::MAX, f64::MAX);
        Self { limit, weight, ramp, most, before: vec![0.0], running, since, begun: since, done: 0.0, ahead: AHEAD }
    }

    /// Begins a chunk with so many tokens in the cache, which runs when the newest submission before it is done, if there
    /// is one. `idle` says that the GPU has nothing to do.
    pub fn start(&mut self, plan: &Plan, slow: &StepLimit, cached: usize, newest: Option<Submission>, idle: bool) {
        let weights = plan.steps.iter().map(|step| DISPATCH + slow.seconds(&step.cost, cached as u64));
        self.weigh(weights);
        let steps = plan.steps.len().max(1) as f64;
        self.ramp = if idle { self.whole() * FIRST as f64 / steps } else { f64::MAX };
        self.running.clear();
        self.running.extend(newest.map(|submission| (submission, 0.0)));
        self.since = Instant::now();
        (self.begun, self.done) = (self.since, 0.0);
    }

    fn weigh(&mut self, weights: impl Iterator<Item = f64>) {
        self.before.truncate(1);
        self.before.extend(weights.scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        }));
        self.most = self.whole() / (AHEAD + 1) as f64;
    }

    /// The weight of all steps.
    fn whole(&self) -> f64 {
        self.before.last().copied().unwrap_or_default()
    }

    /// The steps of the next submission, from `first` on: at least one.
    pub fn next(&self, first: usize) -> Range<usize> {
        let most = self.before[first] + self.weight.min(self.ramp).min(self.most) * (1.0 + 1e-9);
        let fit = self.before.partition_point(|before| *before <= most).saturating_sub(1);
        first..fit.max(first + 1).min(self.before.len() - 1)
    }

    /// Notes a submission, and waits if the GPU is too far behind.
    pub fn submitted(&mut self, gpu: &Gpu, submission: Submission, steps: Range<usize>) -> Result<()> {
        self.running.push_back((submission, self.before[steps.end] - self.before[steps.start]));
        self.ramp *= MORE;
        while self.running.len() > self.ahead {
            let Some((oldest, weight)) = self.running.pop_front() else { break };
            gpu.wait(&oldest)?;
            self.ended(weight);
        }
        Ok(())
    }

    /// A submission of some weight, the oldest, has ended.
    fn ended(&mut self, weight: f64) {
        let (now, before) = (Instant::now(), self.since);
        self.since = now;
        if weight > 0.0 {
            self.learn(now - before, weight);
            self.done += weight;
        } else {
            self.begun = now;
        }
    }

    /// How long the chunk has taken so far, and what it will take in all if it goes on so. None before any of it is done.
    pub fn so_far(&self) -> Option<(Duration, Duration)> {
        let so_far = self.since - self.begun;
        let expected = Duration::try_from_secs_f64(so_far.as_secs_f64() * self.whole() / self.done);
        expected.ok().filter(|_| self.done > 0.0).map(|expected| (so_far, expected))
    }

    /// From what a submission took. It is shortened at once, and lengthened little by little.
    fn learn(&mut self, took: Duration, weight: f64) {
        let fit = self.limit.as_secs_f64() * weight / took.as_secs_f64().max(1e-9);
        self.weight = fit.min(2.0 * self.weight.max(DISPATCH)).min(self.most);
        self.ahead = if took > self.limit * LONG { 0 } else { AHEAD };
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Pace};

    const LIMIT: Duration = Duration::from_millis(10);

    /// Steps of submissions, one after the other, of a plan on a GPU that takes `took` for a second of weight.
    fn submissions(pace: &mut Pace, took: f64) -> Vec<usize> {
        let (mut first, mut counts) = (0, Vec::new());
        while first + 1 < pace.before.len() {
            let steps = pace.next(first);
            let weight = pace.before[steps.end] - pace.before[first];
            pace.learn(Duration::from_secs_f64(weight * took), weight);
            counts.push(steps.len());
            first = steps.end;
        }
        counts
    }

    fn pace(weights: &[f64]) -> Pace {
        let mut pace = Pace::new(LIMIT);
        pace.weigh(weights.iter().copied());
        pace
    }

    #[test]
    fn submissions_come_to_take_what_they_should() {
        let mut pace = pace(&[1e-3; 430]);
        let counts = submissions(&mut pace, 0.25);
        assert_eq!(counts[..4], [10, 20, 40, 40], "each a quarter of a millisecond");
        pace.learn(Duration::from_secs(1), 4e-4);
        assert_eq!(pace.next(0), 0..1, "one step may take longer than all should");
        pace.learn(Duration::ZERO, 1e-3);
        assert_eq!(pace.next(3), 3..4);
    }

    /// A chunk deep in the cache has many steps that are long beside many that are short.
    #[test]
    fn long_steps_are_not_submitted_like_short_ones() {
        let mut weights = vec![1e-4; 300];
        weights.extend([46e-3; 40]);
        let counts = submissions(&mut pace(&weights), 1.0);
        assert!(counts[0] >= 99 && counts.iter().sum::<usize>() == 340, "{counts:?}");
        assert_eq!(counts[counts.len() - 40..], [1; 40]);
    }

    /// The third submission waits for the first.
    #[test]
    fn every_chunk_has_three_submissions_if_it_can() {
        for (steps, first) in [(430, 143), (10, 3), (1, 1)] {
            let mut pace = pace(&vec![1e-3; steps]);
            (0..20).for_each(|_| pace.learn(Duration::ZERO, 1e-3));
            assert_eq!(pace.next(0), 0..first, "of {steps}");
        }
    }
}
