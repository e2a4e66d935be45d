//! Decides how many drafts a step verifies, so that more tokens come a second, and never noticeably fewer.
//!
//! A step of n rows makes a token for each draft that is accepted, and one more. How long such steps take is measured on
//! this GPU, as they are used; how often drafts are accepted is counted in this conversation, for each kind of evidence and
//! each place among the drafts. From both follow the tokens a second that each number of drafts promises, none among
//! them, and the best is taken. Where nothing pays, a single draft is tried again after a while, at longer and longer
//! intervals, because a text may come to repeat itself.

use std::time::Duration;

/// What drafts rest on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// So many tokens before them have stood in the text before.
    Matched(usize),
}

/// Kinds of evidence that acceptance is counted for separately: the fewest matching tokens of each, and the part of first
/// drafts that is expected to be accepted until it has been counted.
const MATCHES: [(usize, f64); 6] = [(0, 0.3), (3, 0.4), (4, 0.55), (6, 0.7), (9, 0.8), (17, 0.9)];
/// Places among the drafts that acceptance is counted for separately. The last one stands for all behind it.
const PLACES: usize = 4;
/// How many observations what is expected beforehand counts as.
const PRIOR: f64 = 3.0;
/// What a count is multiplied by with each new observation, so that old ones are forgotten.
const FADE: f64 = 0.97;
/// What drafts have to promise to be tried, in tokens a second, relative to none.
const GAIN: f64 = 1.03;
/// How many steps without drafts lie between two trials at first, and at most.
const PAUSE: [u32; 2] = [32, 1024];
/// A time this many times the expected one is not that of the step: the caller was busy, or a kernel was compiled.
const OUTLIER: f64 = 3.0;
/// What a new time counts in the mean.
const NEW: f64 = 0.2;

/// Times of steps, and how often drafts are accepted.
pub struct Planner {
    /// The seconds of a step of so many rows; of one row, of a step that does not verify.
    seconds: Vec<Option<f64>>,
    /// What a further row is expected to add to a step until it is measured, as a part of the step of a row alone.
    row: f64,
    accepted: [[Counted; PLACES]; MATCHES.len()],
    /// Steps since drafts were tried, and after how many they are tried again although they do not seem to pay.
    silent: u32,
    pause: u32,
}

/// How often a draft was accepted after all those before it were.
#[derive(Clone, Copy, Default)]
struct Counted {
    tried: f64,
    accepted: f64,
}

impl Counted {
    fn add(&mut self, accepted: bool) {
        *self = Self { tried: self.tried * FADE + 1.0, accepted: self.accepted * FADE + f64::from(u8::from(accepted)) };
    }

    fn rate(&self, expected: f64) -> f64 {
        (self.accepted + PRIOR * expected) / (self.tried + PRIOR)
    }
}

impl Evidence {
    fn kind(self) -> usize {
        let Self::Matched(tokens) = self;
        MATCHES.iter().rposition(|(fewest, _)| tokens >= *fewest).unwrap_or_default()
    }
}

impl Planner {
    /// For steps of up to `rows` rows. A further row is expected to add `row` of the time of a row alone.
    pub fn new(rows: usize, row: f64) -> Self {
        let [pause, _] = PAUSE;
        Self { seconds: vec![None; rows + 1], row, accepted: Default::default(), silent: 0, pause }
    }

    /// How many of `count` drafts the next step should verify.
    pub fn choose(&mut self, evidence: Evidence, count: usize) -> usize {
        let Some(alone) = self.seconds(1) else { return 0 };
        let (mut best, mut most) = (0, GAIN / alone);
        let (mut expected, mut all) = (1.0, 1.0);
        for drafts in 1..=count.min(self.seconds.len() - 2) {
            all *= self.rate(evidence, drafts - 1);
            expected += all;
            let promised = expected / self.expected_seconds(alone, 1 + drafts);
            if promised > most {
                (best, most) = (drafts, promised);
            }
        }
        if best > 0 {
            return best;
        }
        self.silent += 1;
        let hopeless = 2.0 * alone <= GAIN * self.expected_seconds(alone, 2);
        if self.silent < self.pause || hopeless || count == 0 {
            return 0;
        }
        self.silent = 0;
        self.pause = (2 * self.pause).min(PAUSE[1]);
        1
    }

    /// Takes notice of how many of some drafts were accepted.
    pub fn verified(&mut self, evidence: Evidence, drafts: usize, accepted: usize) {
        for draft in 0..drafts.min(accepted + 1) {
            self.accepted[evidence.kind()][draft.min(PLACES - 1)].add(draft < accepted);
        }
        if accepted > 0 {
            [self.pause, _] = PAUSE;
        }
    }

    /// Takes notice of how long a step of so many rows took.
    pub fn took(&mut self, rows: usize, time: Duration) {
        let seconds = time.as_secs_f64();
        let known =
            if rows > 1 { self.seconds(1).map(|alone| self.expected_seconds(alone, rows)) } else { self.seconds(1) };
        if known.is_some_and(|known| seconds > OUTLIER * known) && self.seconds(rows).is_some() {
            return;
        }
        if let Some(mean) = self.seconds.get_mut(rows) {
            *mean = Some(mean.map_or(seconds, |mean| mean + NEW * (seconds.min(OUTLIER * mean) - mean)));
        }
    }

    /// The seconds of a step of a row that verifies nothing, once it is measured.
    pub fn alone(&self) -> Option<Duration> {
        self.seconds(1).map(Duration::from_secs_f64)
    }

    fn seconds(&self, rows: usize) -> Option<f64> {
        self.seconds.get(rows).copied().flatten()
    }

    /// As measured, or by the nearest number of rows that was.
    fn expected_seconds(&self, alone: f64, rows: usize) -> f64 {
        let apart = |other: &usize| other.abs_diff(rows);
        let nearest = (1..self.seconds.len()).filter(|other| self.seconds(*other).is_some()).min_by_key(apart);
        let (other, seconds) = nearest.and_then(|other| Some((other, self.seconds(other)?))).unwrap_or((1, alone));
        seconds + (rows as f64 - other as f64) * self.row * alone
    }

    fn rate(&self, evidence: Evidence, place: usize) -> f64 {
        let (kind, place) = (evidence.kind(), place.min(PLACES - 1));
        // A draft whose predecessors were right is right more often than the first one.
        let (_, first) = MATCHES[kind];
        let expected = if place == 0 { first } else { 0.5 + 0.5 * first };
        self.accepted[kind][place].rate(expected)
    }
}

#[cfg(test)]
mod tests {
    use super::{Evidence, MATCHES, Planner};
    use std::time::Duration;

    const ROWS: usize = 16;
    const ALONE: f64 = 3.0;

    /// A GPU whose steps take 3 ms, and 0.5 ms more for each row.
    fn milliseconds(rows: usize, slope: f64) -> f64 {
        ALONE + slope * (rows - 1) as f64
    }

    /// Generates tokens with drafts of which a part is right, by turns. Returns milliseconds a token, and drafts a step.
    fn generate(planner: &mut Planner, tokens: usize, slope: f64, right: impl Fn(usize) -> usize) -> (f64, f64) {
        let (mut made, mut time, mut drafted, mut steps) = (0, 0.0, 0, 0);
        while made < tokens {
            let drafts = planner.choose(Evidence::Matched(2), 15);
            let took = milliseconds(1 + drafts, slope);
            planner.took(1 + drafts, Duration::from_secs_f64(1e-3 * took));
            let accepted = right(steps).min(drafts);
            if drafts > 0 {
                planner.verified(Evidence::Matched(2), drafts, accepted);
            }
            (made, time, drafted, steps) = (made + 1 + accepted, time + took, drafted + drafts, steps + 1);
        }
        (time / made as f64, drafted as f64 / steps as f64)
    }

    #[test]
    fn nothing_is_drafted_before_a_step_was_measured() {
        assert_eq!(Planner::new(ROWS, 0.2).choose(Evidence::Matched(30), 15), 0);
    }

    #[test]
    fn right_drafts_are_used_to_the_full() {
        let (each, drafts) = generate(&mut Planner::new(ROWS, 0.2), 1000, 0.5, |_| 15);
        assert!(each < 0.25 * ALONE && drafts > 10.0, "{each} ms a token, {drafts} drafts a step");
    }

    #[test]
    fn wrong_drafts_cost_little() {
        let mut planner = Planner::new(ROWS, 0.2);
        generate(&mut planner, 200, 0.5, |_| 0);
        let (each, _) = generate(&mut planner, 1000, 0.5, |_| 0);
        assert!(each < 1.003 * ALONE, "{each} ms a token");
    }

    /// Half of the first drafts are right, and nothing behind them.
    #[test]
    fn as_many_drafts_as_pay() {
        let mut planner = Planner::new(ROWS, 0.2);
        generate(&mut planner, 200, 0.5, |step| step % 2);
        let (each, drafts) = generate(&mut planner, 1000, 0.5, |step| step % 2);
        assert!(each < 0.85 * ALONE && (0.9..1.6).contains(&drafts), "{each} ms a token, {drafts} drafts a step");
    }

    /// Where rows cost as much as steps, even right drafts gain nothing, and none are tried.
    #[test]
    fn drafts_that_cannot_pay_are_not_tried() {
        let (each, drafts) = generate(&mut Planner::new(ROWS, 1.0), 1000, ALONE, |_| 15);
        assert!(each == ALONE && drafts == 0.0, "{each} ms a token, {drafts} drafts a step");
    }

    #[test]
    fn a_text_that_comes_to_repeat_itself_is_noticed() {
        let mut planner = Planner::new(ROWS, 0.2);
        generate(&mut planner, 2000, 0.5, |_| 0);
        generate(&mut planner, 1200, 0.5, |_| 15);
        let (each, _) = generate(&mut planner, 500, 0.5, |_| 15);
        assert!(each < 0.3 * ALONE, "{each} ms a token");
    }

    #[test]
    fn a_slow_caller_does_not_make_steps_slow() {
        let mut planner = Planner::new(ROWS, 0.2);
        (0..10).for_each(|_| planner.took(1, Duration::from_millis(3)));
        planner.took(1, Duration::from_secs(5));
        assert_eq!(planner.alone(), Some(Duration::from_millis(3)));
    }

    #[test]
    fn longer_matches_are_other_evidence() {
        let kinds: Vec<usize> = [2, 3, 5, 8, 9, 16, 17, 100].map(|tokens| Evidence::Matched(tokens).kind()).to_vec();
        assert_eq!(kinds, [0, 1, 2, 3, 4, 4, 5, 5]);
        assert!(MATCHES.is_sorted());
    }
}
