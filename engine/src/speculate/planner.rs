//! Decides how many drafts a step verifies, so as to generate more tokens per second, and never noticeably fewer.
//!
//! A step of n rows makes a token for each draft that is accepted, and one more. The time of such steps is measured on
//! this GPU as they are used; how often drafts are accepted is counted in this conversation, by the source of the
//! drafts and by their index. Both give the expected tokens per second for each number of drafts, including none, and
//! the best is chosen. If no number pays off, a single draft is tried again from time to time, at growing intervals,
//! because a text may begin to repeat itself.

use std::time::Duration;

/// The source of drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DraftSource {
    /// The text: this many tokens before the drafts occurred in it before.
    Matched(usize),
    /// The model's multi-token-prediction block.
    Predicted,
}

/// Drafts that could be verified.
#[derive(Debug, Clone, Copy)]
pub struct DraftOffer {
    pub source: DraftSource,
    /// How many there are, or can be made.
    pub count: usize,
}

/// The drafts of one of several conversations, and how likely each is to be accepted.
pub struct DraftEstimate {
    pub source: DraftSource,
    /// How likely it is that each draft is accepted.
    pub odds: Vec<f64>,
}

/// Kinds of drafts whose acceptance is counted separately: the minimum number of matching tokens for each, and the
/// fraction of first drafts that is assumed to be accepted until enough are counted. The last kind is that of the
/// block.
const KINDS: [(usize, f64); 7] = [(0, 0.3), (3, 0.4), (4, 0.55), (6, 0.7), (9, 0.8), (17, 0.9), (usize::MAX, 0.75)];
/// The kind of drafts by the block.
const PREDICTED: usize = KINDS.len() - 1;
/// The number of draft indices whose acceptance is counted separately. The last counter covers all later ones.
const DRAFT_POSITIONS: usize = 6;
/// How many observations the assumed acceptance counts as.
const PRIOR: f64 = 2.0;
/// The factor of a count at each new observation, so that old ones are forgotten.
const DECAY: f64 = 0.97;
/// Drafts are tried if they promise more than this many times the tokens per second without them.
const GAIN: f64 = 1.03;
/// How many steps without drafts separate two trials, at first and at most.
const PAUSE: [u32; 2] = [32, 1024];
/// How many steps of a single row are measured before drafts are tried, and after how many steps with drafts they are
/// measured again: the cache grows, and clocks change.
const FIRST: u32 = 3;
const REMEASURE_AFTER: u32 = 256;
/// If a further row is expected to take this fraction of the time of a single row, drafts are not tried.
const MAX_ROW_COST: f64 = 0.9;
/// A time this many times the expected one is not that of the step: the caller was busy, or a kernel was compiled.
const OUTLIER: f64 = 3.0;
/// The weight of a new time in the mean.
const EMA_WEIGHT: f64 = 0.2;

/// Times of steps, and how often drafts are accepted.
pub struct DraftPlanner {
    /// The seconds of a step of a row that verifies nothing.
    plain_time: Option<f64>,
    /// How many such steps were measured, and how many steps with drafts came since the last of them.
    plain_steps: u32,
    guessed: u32,
    /// The seconds of a step that verifies drafts, by its rows: drafts from the text, and drafts by the block, which
    /// take time to make.
    verified: [Vec<Option<f64>>; 2],
    /// The time that a further row is assumed to add until it is measured, as a fraction of the step of a single row.
    row: f64,
    accepted: [[AcceptanceCounter; DRAFT_POSITIONS]; KINDS.len()],
    /// Steps since drafts were last tried, and after how many they are tried again although they do not seem to pay
    /// off.
    silent: u32,
    pause: u32,
    /// The number of such trials, which rotate through the offers.
    trials: usize,
}

/// How often a draft was accepted when all drafts before it were.
#[derive(Clone, Copy, Default)]
struct AcceptanceCounter {
    tried: f64,
    accepted: f64,
}

impl AcceptanceCounter {
    fn add(&mut self, accepted: bool) {
        self.tried = self.tried * DECAY + 1.0;
        self.accepted = self.accepted * DECAY + f64::from(u8::from(accepted));
    }

    fn rate(&self, expected: f64) -> f64 {
        (self.accepted + PRIOR * expected) / (self.tried + PRIOR)
    }
}

impl DraftSource {
    fn kind(self) -> usize {
        match self {
            Self::Matched(tokens) => {
                KINDS[..PREDICTED].iter().rposition(|(fewest, _)| tokens >= *fewest).unwrap_or_default()
            }
            Self::Predicted => PREDICTED,
        }
    }
}

impl DraftPlanner {
    /// A planner for steps of up to `rows` rows. A further row is assumed to add `row` of the time of a single row.
    pub fn new(rows: usize, row: f64) -> Self {
        let verified = [vec![None; rows + 1], vec![None; rows + 1]];
        let [pause, _] = PAUSE;
        let accepted = Default::default();
        Self { plain_time: None, plain_steps: 0, guessed: 0, verified, row, accepted, silent: 0, pause, trials: 0 }
    }

    /// The drafts that the next step should verify: the index of the offer, and how many of its drafts.
    pub fn choose(&mut self, offers: &[DraftOffer]) -> Option<(usize, usize)> {
        let plain_time = self.ready()?;
        let (mut best, mut most) = (None, GAIN / plain_time);
        for (number, offer) in offers.iter().enumerate() {
            let drafts = self.best(1, offer.source, &self.odds(offer), &mut most);
            best = drafts.map(|drafts| (number, drafts)).or(best);
        }
        if best.is_some() {
            self.silent = 0;
            return best;
        }
        let hopeful: Vec<usize> = (0..offers.len()).filter(|number| offers[*number].count > 0).collect();
        self.trial(&hopeful).map(|number| (number, 1))
    }

    /// How many drafts of each of several conversations the next step should verify, which has a certain token of each,
    /// given how likely it is that each draft is accepted. The planner is one for steps of as many conversations.
    pub fn choose_together(&mut self, estimates: &[DraftEstimate], most_drafts: usize) -> Option<Vec<usize>> {
        let (plain, certain) = (self.ready()?, estimates.len());
        let of = |(number, estimate): (usize, &DraftEstimate)| -> Vec<(f64, usize)> {
            estimate.odds.iter().map(|likely| (*likely, number)).collect()
        };
        let mut drafts: Vec<(f64, usize)> = estimates.iter().enumerate().flat_map(of).collect();
        drafts.sort_by(|a, b| b.0.total_cmp(&a.0));
        drafts.truncate(most_drafts);
        let predicted = drafts.iter().find(|(_, number)| estimates[*number].source == DraftSource::Predicted);
        let source = predicted.map_or(DraftSource::Matched(0), |_| DraftSource::Predicted);
        let odds: Vec<f64> = drafts.iter().map(|(likely, _)| *likely).collect();
        let best = self.best(certain, source, &odds, &mut (GAIN * certain as f64 / plain));
        let mut chosen = vec![0; certain];
        if let Some(count) = best {
            self.silent = 0;
            drafts[..count].iter().for_each(|(_, number)| chosen[*number] += 1);
            return Some(chosen);
        }
        let hopeful: Vec<usize> = (0..certain).filter(|number| drafts.iter().any(|(_, of)| of == number)).collect();
        chosen[self.trial(&hopeful)?] = 1;
        Some(chosen)
    }

    /// The time of a step without drafts, once drafts may be tried.
    fn ready(&self) -> Option<f64> {
        self.plain_time.filter(|_| self.plain_steps >= FIRST && self.guessed < REMEASURE_AFTER)
    }

    /// How many drafts promise the most tokens per second in addition to the certain ones, given how likely it is that
    /// each is accepted, most likely first. `None` if that does not exceed `most`; otherwise `most` is set to it.
    fn best(&self, certain: usize, source: DraftSource, odds: &[f64], most: &mut f64) -> Option<usize> {
        let (plain_time, mut expected, mut best) = (self.plain_time?, certain as f64, None);
        for (likely, drafts) in odds.iter().zip(1..self.verified[0].len() - 1) {
            expected += likely;
            let promised = expected / self.seconds(plain_time, source, 1 + drafts);
            if promised > *most {
                (best, *most) = (Some(drafts), promised);
            }
        }
        best
    }

    /// How likely it is that each draft of an offer is accepted.
    pub fn odds(&self, offer: &DraftOffer) -> Vec<f64> {
        let mut all = 1.0;
        let likely = |draft| {
            all *= self.rate(offer.source, draft);
            all
        };
        (0..offer.count).map(likely).collect()
    }

    /// Which of those that do not seem to pay off is tried in this step, if any.
    fn trial(&mut self, hopeful: &[usize]) -> Option<usize> {
        self.silent += 1;
        if self.silent < self.pause || hopeful.is_empty() || self.row >= MAX_ROW_COST {
            return None;
        }
        let trial = hopeful[self.trials % hopeful.len()];
        self.trials += 1;
        self.silent = 0;
        self.pause = (2 * self.pause).min(PAUSE[1]);
        Some(trial)
    }

    /// Records how many of some drafts were accepted.
    pub fn record_acceptance(&mut self, source: DraftSource, drafts: usize, accepted: usize) {
        for draft in 0..drafts.min(accepted + 1) {
            self.accepted[source.kind()][draft.min(DRAFT_POSITIONS - 1)].add(draft < accepted);
        }
        if accepted > 0 {
            [self.pause, _] = PAUSE;
        }
    }

    /// Records the time of a step of a single row, without drafts.
    pub fn record_plain_step(&mut self, time: Duration) {
        self.plain_time = Some(mean(self.plain_time, self.plain_time, time));
        (self.plain_steps, self.guessed) = (self.plain_steps.saturating_add(1), 0);
    }

    /// Records the time of a step that verified drafts in `rows` rows.
    pub fn record_drafted_step(&mut self, source: DraftSource, rows: usize, time: Duration) {
        let expected = self.plain_time.map(|plain_time| self.seconds(plain_time, source, rows));
        self.guessed += 1;
        if let Some(known) = self.verified[usize::from(source == DraftSource::Predicted)].get_mut(rows) {
            *known = Some(mean(*known, expected, time));
        }
    }

    /// The time of a step without drafts, once it is measured.
    pub fn plain_time(&self) -> Option<Duration> {
        self.plain_time.map(Duration::from_secs_f64)
    }

    /// The measured time, or an extrapolation from the nearest number of rows that was measured.
    fn seconds(&self, plain_time: f64, source: DraftSource, rows: usize) -> f64 {
        let times = self.verified[usize::from(source == DraftSource::Predicted)].iter().enumerate();
        let known = times.filter_map(|(rows, seconds)| Some((rows, (*seconds)?)));
        let nearest = known.min_by_key(|(other, _)| other.abs_diff(rows));
        let (other, seconds) = nearest.unwrap_or((1, plain_time));
        (seconds + (rows as f64 - other as f64) * self.row * plain_time).max(plain_time)
    }

    fn rate(&self, source: DraftSource, place: usize) -> f64 {
        let (kind, place) = (source.kind(), place.min(DRAFT_POSITIONS - 1));
        // Until it is counted, a draft after accepted ones is assumed to be accepted as often as the one before it.
        let (_, first) = KINDS[kind];
        let expected = if place == 0 { first } else { self.rate(source, place - 1) };
        self.accepted[kind][place].rate(expected)
    }
}

/// The mean with a new time, which is limited to a plausible value.
fn mean(known: Option<f64>, expected: Option<f64>, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    match (known, expected) {
        (Some(mean), _) => mean + EMA_WEIGHT * (seconds.min(OUTLIER * mean) - mean),
        // The first measurement includes making the step's plan.
        (None, Some(expected)) => seconds.min(expected),
        (None, None) => seconds,
    }
}

#[cfg(test)]
mod tests {
    use super::{DraftEstimate, DraftOffer, DraftPlanner, DraftSource, KINDS};
    use std::time::Duration;

    const ROWS: usize = 16;
    const ALONE: f64 = 3.0;
    const MATCHED: DraftOffer = DraftOffer { source: DraftSource::Matched(2), count: 15 };

    /// A GPU whose steps take 3 ms, and 0.5 ms more for each row.
    fn milliseconds(rows: usize, slope: f64) -> f64 {
        ALONE + slope * (rows - 1) as f64
    }

    /// Generates tokens with drafts, some of which are right, in turn. Returns milliseconds per token, and drafts per
    /// step.
    fn generate(planner: &mut DraftPlanner, tokens: usize, slope: f64, right: impl Fn(usize) -> usize) -> (f64, f64) {
        let (mut made, mut time, mut drafted, mut steps) = (0, 0.0, 0, 0);
        while made < tokens {
            let drafts = planner.choose(&[MATCHED]).map_or(0, |(_, drafts)| drafts);
            let took = milliseconds(1 + drafts, slope);
            let spent = Duration::from_secs_f64(1e-3 * took);
            let accepted = right(steps).min(drafts);
            if drafts > 0 {
                planner.record_drafted_step(MATCHED.source, 1 + drafts, spent);
                planner.record_acceptance(MATCHED.source, drafts, accepted);
            } else {
                planner.record_plain_step(spent);
            }
            (made, time, drafted, steps) = (made + 1 + accepted, time + took, drafted + drafts, steps + 1);
        }
        (time / made as f64, drafted as f64 / steps as f64)
    }

    #[test]
    fn nothing_is_drafted_before_a_step_was_measured() {
        assert_eq!(
            DraftPlanner::new(ROWS, 0.2).choose(&[DraftOffer { source: DraftSource::Matched(30), count: 15 }]),
            None
        );
    }

    #[test]
    fn right_drafts_are_used_to_the_full() {
        let mut planner = DraftPlanner::new(ROWS, 0.2);
        generate(&mut planner, 300, 0.5, |_| 15);
        let (each, drafts) = generate(&mut planner, 1000, 0.5, |_| 15);
        assert!(each < 0.25 * ALONE && drafts > 10.0, "{each} ms a token, {drafts} drafts a step");
    }

    #[test]
    fn wrong_drafts_cost_little() {
        let mut planner = DraftPlanner::new(ROWS, 0.2);
        generate(&mut planner, 200, 0.5, |_| 0);
        let (each, _) = generate(&mut planner, 1000, 0.5, |_| 0);
        assert!(each < 1.003 * ALONE, "{each} ms a token");
    }

    /// Half of the first drafts are right, and none after them.
    #[test]
    fn as_many_drafts_as_pay() {
        let mut planner = DraftPlanner::new(ROWS, 0.2);
        generate(&mut planner, 200, 0.5, |step| step % 2);
        let (each, drafts) = generate(&mut planner, 1000, 0.5, |step| step % 2);
        assert!(each < 0.85 * ALONE && (0.9..1.6).contains(&drafts), "{each} ms a token, {drafts} drafts a step");
    }

    /// Where rows cost as much as steps, even right drafts gain nothing, and none are tried.
    #[test]
    fn drafts_that_cannot_pay_are_not_tried() {
        let (each, drafts) = generate(&mut DraftPlanner::new(ROWS, 1.0), 1000, ALONE, |_| 15);
        assert!(each == ALONE && drafts == 0.0, "{each} ms a token, {drafts} drafts a step");
    }

    #[test]
    fn a_text_that_comes_to_repeat_itself_is_noticed() {
        let mut planner = DraftPlanner::new(ROWS, 0.2);
        generate(&mut planner, 2000, 0.5, |_| 0);
        generate(&mut planner, 1200, 0.5, |_| 15);
        let (each, _) = generate(&mut planner, 500, 0.5, |_| 15);
        assert!(each < 0.3 * ALONE, "{each} ms a token");
    }

    #[test]
    fn a_slow_caller_does_not_make_steps_slow() {
        let mut planner = DraftPlanner::new(ROWS, 0.2);
        (0..10).for_each(|_| planner.record_plain_step(Duration::from_millis(3)));
        planner.record_plain_step(Duration::from_secs(5));
        let once = planner.plain_time().unwrap_or_default();
        (0..10).for_each(|_| planner.record_plain_step(Duration::from_millis(3)));
        let later = planner.plain_time().unwrap_or_default();
        assert!(once < Duration::from_millis(5) && later < Duration::from_micros(3200), "{once:?}, {later:?}");
    }

    #[test]
    fn longer_matches_are_counted_apart() {
        let kinds: Vec<usize> = [2, 3, 5, 8, 9, 16, 17, 100].map(|tokens| DraftSource::Matched(tokens).kind()).to_vec();
        assert_eq!(kinds, [0, 1, 2, 3, 4, 4, 5, 5]);
        assert!(KINDS.iter().map(|(fewest, _)| fewest).is_sorted());
    }

    /// If neither of two kinds pays off, both are still tried.
    #[test]
    fn what_is_offered_is_tried_in_turn() {
        let mut planner = DraftPlanner::new(ROWS, 0.2);
        (0..10).for_each(|_| planner.record_plain_step(Duration::from_millis(3)));
        let offers = [MATCHED, DraftOffer { source: DraftSource::Predicted, count: 4 }];
        let mut taken = [0, 0];
        for _ in 0..4000 {
            match planner.choose(&offers) {
                None => planner.record_plain_step(Duration::from_millis(3)),
                Some((number, drafts)) => {
                    planner.record_acceptance(offers[number].source, drafts, 0);
                    taken[number] += 1;
                }
            }
        }
        assert!(taken.iter().all(|trials| (4..40).contains(trials)), "{taken:?}");
    }

    /// Four conversations whose steps take 5 ms, and a tenth of that more for each draft: those whose drafts are right
    /// have some verified, and others none. Where a draft costs as much as a token, nobody has.
    #[test]
    fn the_likeliest_drafts_of_several_conversations_are_taken() {
        let estimate = |likely: f64| DraftEstimate {
            source: DraftSource::Matched(3),
            odds: (1..5).map(|n| likely.powi(n)).collect(),
        };
        let estimates = [0.95, 0.1, 0.9, 0.2].map(estimate);
        for (slope, pays) in [(0.5, true), (1.25, false)] {
            let mut planner = DraftPlanner::new(ROWS, 0.05);
            let mut last = vec![0; estimates.len()];
            for step in 0..400 {
                let chosen = planner.choose_together(&estimates, 12);
                let drafts: usize = chosen.iter().flatten().sum();
                let took = Duration::from_secs_f64(1e-3 * (5.0 + slope * drafts as f64));
                if drafts == 0 {
                    planner.record_plain_step(took)
                } else {
                    planner.record_drafted_step(MATCHED.source, 1 + drafts, took)
                }
                if step >= 350 {
                    last.iter_mut().zip(chosen.unwrap_or_default()).for_each(|(all, drafts)| *all += drafts);
                }
            }
            assert!(last[1] + last[3] < 4 && (last[0] > 90 && last[2] > 90) == pays, "{slope}: {last:?}");
        }
        let mut planner = DraftPlanner::new(ROWS, 0.05);
        (0..5).for_each(|_| planner.record_plain_step(Duration::from_millis(5)));
        let few = planner.choose_together(&estimates, 3).unwrap_or_default();
        assert_eq!(few, [2, 0, 1, 0], "no more than fit");
    }

    /// Two kinds are offered, of which one is right more often.
    #[test]
    fn the_better_offer_is_taken() {
        let mut planner = DraftPlanner::new(ROWS, 0.2);
        (0..10).for_each(|_| planner.record_plain_step(Duration::from_millis(3)));
        let offers = [MATCHED, DraftOffer { source: DraftSource::Predicted, count: 4 }];
        for right in [0, 1] {
            let mut taken = [0, 0];
            for step in 0..300 {
                let Some((number, drafts)) = planner.choose(&offers) else {
                    planner.record_plain_step(Duration::from_millis(3));
                    continue;
                };
                let accepted = if number == right { drafts } else { 0 };
                planner.record_drafted_step(offers[number].source, 1 + drafts, Duration::from_millis(4));
                planner.record_acceptance(offers[number].source, drafts, accepted);
                // Until then what was right before is forgotten.
                taken[number] += u32::from(step >= 150);
            }
            assert!(taken[right] > 130, "{taken:?}, right is {right}");
        }
    }
}
