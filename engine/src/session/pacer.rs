//! Decides how many steps of a prompt's plan form a submission, so that no submission takes the GPU much longer than it
//! should.

use crate::error::Result;
use crate::gpu::{Gpu, Submission};
use crate::plan::{Plan, StepLimit};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

/// The maximum number of running submissions: the GPU runs one while the next one waits.
const AHEAD: usize = 2;
/// If a submission takes this many times as long as it should, which happens only if a single step is that long,
/// submissions run one at a time; the GPU idles between them, but briefly compared with such a step, and other users of
/// the GPU get their turns.
const LONG: u32 = 5;
/// If the GPU is idle, the first submission has about this many steps, so that it starts soon. Each following one has
/// this many times more, because steps take longer to run than to record.
const FIRST: usize = 16;
const MORE: f64 = 3.0;
/// The seconds that even the smallest step takes.
const DISPATCH: f64 = 5e-6;

/// Divides a plan's steps into submissions of about the same time. The time of a submission is measured from the end of
/// the previous one to its own end.
///
/// The weight of a step is its time in seconds on the slow GPU whose limits decided into how many parts steps are
/// divided. How much weight this GPU computes in the time of a submission is learned from measurements.
pub struct SubmissionPacer {
    limit: Duration,
    /// The weight that a submission should have.
    weight: f64,
    /// The most weight of a submission while an idle GPU waits for the first ones.
    ramp: f64,
    /// The most weight of a submission, so that there are several to measure in each part of a prompt.
    most: f64,
    /// The weight of all steps before each step, and at the end the weight of all steps.
    before: Vec<f64>,
    /// The submissions that the GPU may not have finished yet, with their weights. Work that was submitted before the
    /// part has the weight 0.
    running: VecDeque<(Submission, f64)>,
    /// The end of the last submission that was waited for.
    since: Instant,
    /// When the GPU began with the part of the prompt.
    begun: Instant,
    /// The weight of the part that it has computed.
    done: f64,
    /// How many submissions may run before the oldest one is waited for.
    ahead: usize,
}

impl SubmissionPacer {
    /// A pacer of submissions that should take `limit`. Before the first measurement the GPU is assumed to be the slow
    /// one.
    pub fn new(limit: Duration) -> Self {
        let (running, since) = (VecDeque::with_capacity(AHEAD + 1), Instant::now());
        let weight = limit.as_secs_f64();
        let (ramp, most) = (f64::MAX, f64::MAX);
        Self { limit, weight, ramp, most, before: vec![0.0], running, since, begun: since, done: 0.0, ahead: AHEAD }
    }

    /// From now on submissions should take `limit`.
    pub fn aim_at(&mut self, limit: Duration) {
        if limit != self.limit {
            *self = Self::new(limit);
        }
    }

    /// Begins a part of a prompt with `cached` tokens in the cache. It runs after the newest submission before it, if
    /// there is one. `idle` says that the GPU has nothing else to do.
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

    /// The weight of all steps of the plan.
    fn whole(&self) -> f64 {
        self.before.last().copied().unwrap_or_default()
    }

    /// The steps of the next submission, from `first` on: at least one.
    pub fn next(&self, first: usize) -> Range<usize> {
        let most = self.before[first] + self.weight.min(self.ramp).min(self.most) * (1.0 + 1e-9);
        let fit = self.before.partition_point(|before| *before <= most).saturating_sub(1);
        first..fit.max(first + 1).min(self.before.len() - 1)
    }

    /// Records a submission, and waits if too many are running.
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

    /// Records the end of the oldest submission, which had this weight.
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

    /// How long the part has taken so far, and how long it will take in total at this speed. `None` before any of it is
    /// done.
    pub fn so_far(&self) -> Option<(Duration, Duration)> {
        let so_far = self.since - self.begun;
        let expected = Duration::try_from_secs_f64(so_far.as_secs_f64() * self.whole() / self.done);
        expected.ok().filter(|_| self.done > 0.0).map(|expected| (so_far, expected))
    }

    /// Learns from the time that a submission took. Submissions become shorter at once, and longer step by step.
    fn learn(&mut self, took: Duration, weight: f64) {
        let fit = self.limit.as_secs_f64() * weight / took.as_secs_f64().max(1e-9);
        self.weight = fit.min(2.0 * self.weight.max(DISPATCH)).min(self.most);
        self.ahead = if took > self.limit.saturating_mul(LONG) { 0 } else { AHEAD };
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, SubmissionPacer};

    const LIMIT: Duration = Duration::from_millis(10);

    /// The numbers of steps of a plan's submissions on a GPU that takes `took` seconds for a second of weight.
    fn submissions(pacer: &mut SubmissionPacer, took: f64) -> Vec<usize> {
        let (mut first, mut counts) = (0, Vec::new());
        while first + 1 < pacer.before.len() {
            let steps = pacer.next(first);
            let weight = pacer.before[steps.end] - pacer.before[first];
            pacer.learn(Duration::from_secs_f64(weight * took), weight);
            counts.push(steps.len());
            first = steps.end;
        }
        counts
    }

    fn pacer(weights: &[f64]) -> SubmissionPacer {
        let mut pacer = SubmissionPacer::new(LIMIT);
        pacer.weigh(weights.iter().copied());
        pacer
    }

    #[test]
    fn submissions_come_to_take_what_they_should() {
        let mut pacer = pacer(&[1e-3; 430]);
        let counts = submissions(&mut pacer, 0.25);
        assert_eq!(counts[..4], [10, 20, 40, 40], "each a quarter of a millisecond");
        pacer.learn(Duration::from_secs(1), 4e-4);
        assert_eq!(pacer.next(0), 0..1, "one step may take longer than all should");
        pacer.learn(Duration::ZERO, 1e-3);
        assert_eq!(pacer.next(3), 3..4);
    }

    /// With many tokens in the cache, a plan has many long steps after many short ones.
    #[test]
    fn long_steps_are_not_submitted_like_short_ones() {
        let mut weights = vec![1e-4; 300];
        weights.extend([46e-3; 40]);
        let counts = submissions(&mut pacer(&weights), 1.0);
        assert!(counts[0] >= 99 && counts.iter().sum::<usize>() == 340, "{counts:?}");
        assert_eq!(counts[counts.len() - 40..], [1; 40]);
    }

    /// The third submission waits for the first.
    #[test]
    fn every_part_has_three_submissions_if_it_can() {
        for (steps, first) in [(430, 143), (10, 3), (1, 1)] {
            let mut pacer = pacer(&vec![1e-3; steps]);
            (0..20).for_each(|_| pacer.learn(Duration::ZERO, 1e-3));
            assert_eq!(pacer.next(0), 0..first, "of {steps}");
        }
    }
}
