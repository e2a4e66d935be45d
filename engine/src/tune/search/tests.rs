//! The search with made-up times, without a clock.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::plan::{RowRange, SplitsChoice};
use std::cell::Cell;

const TOKEN: Workload = Workload::Token { depth: 0 };
const DEEP: Workload = Workload::Token { depth: 4096 };
const PROMPT: Workload = Workload::Rows { rows: 512, depth: 0 };

/// A machine with tabulated times plus noise, whose clock is their sum.
struct MadeUp {
    /// The seconds of work with some choices.
    seconds: fn(&Choices, Workload) -> f64,
    /// The largest relative error of a measurement.
    noise: f64,
    wrong: fn(&Choices) -> bool,
    fails: fn(&Choices) -> bool,
    clock: f64,
    random: u64,
}

impl MadeUp {
    fn new(seconds: fn(&Choices, Workload) -> f64, noise: f64) -> Self {
        Self { seconds, noise, wrong: |_| false, fails: |_| false, clock: 0.0, random: 1 }
    }

    fn chance(&mut self) -> f64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl Bench for MadeUp {
    fn elapsed(&self) -> f64 {
        self.clock
    }

    fn identity(&mut self, choices: &Choices, _: Workload) -> Result<u64> {
        // One row uses 64 splits whether that was chosen or not.
        let splits = choices.splits(1).unwrap_or(64) as u64;
        Ok(splits + 1000 * choices.chunk.unwrap_or(512) as u64 + 1_000_000 * choices.few_rows.unwrap_or(32) as u64)
    }

    fn prepare(&mut self, candidates: &[Choices], _: &[Workload], check_stop: &mut StopCheck<'_>) -> Result<()> {
        self.clock += 0.01 * candidates.len() as f64;
        check_stop()
    }

    fn time(&mut self, choices: &Choices, work: Workload) -> Result<f64> {
        if (self.fails)(choices) {
            return Err(Error::OutOfMemory { doing: "measuring".to_owned(), bytes: 1 });
        }
        let seconds = (self.seconds)(choices, work) * (1.0 + self.noise * (2.0 * self.chance() - 1.0));
        self.clock += seconds;
        Ok(seconds)
    }

    fn fault(&mut self, choices: &Choices, _: &[Workload], _: &mut StopCheck<'_>) -> Result<Option<String>> {
        Ok((self.wrong)(choices).then(|| "at `x`, 1 and not 2".to_owned()))
    }
}

fn splits(splits: usize) -> Edit {
    Edit::Splits(SplitsChoice { rows: RowRange::new(1, 1), splits })
}

fn question(name: &str, works: &[Workload], candidates: Vec<Edit>) -> Question {
    Question { name: name.to_owned(), works: works.to_vec(), candidates, weight: 1.0, least: 0.0 }
}

fn all_splits(works: &[Workload]) -> Question {
    question("splits", works, [64, 48, 32, 16, 8, 4, 2, 1].map(splits).to_vec())
}

fn search(bench: &mut MadeUp, budget: f64, questions: &[Question]) -> Found {
    Search::new(bench, Choices::default(), budget, &|| false, &mut |_| {}).run(questions).unwrap()
}

/// 16 splits are best by a tenth; others lose more the further away they are.
fn sixteen(choices: &Choices, _: Workload) -> f64 {
    let splits = choices.splits(1).unwrap_or(64) as f64;
    1e-3 * (1.0 + 0.05 * (splits / 16.0).log2().abs())
}

fn outcomes(found: &Found) -> Vec<(&str, &Outcome)> {
    found.trials.iter().map(|trial| (trial.candidate.as_str(), &trial.outcome)).collect()
}

#[test]
fn the_best_is_found() {
    for noise in [0.0, 0.01] {
        let found = search(&mut MadeUp::new(sixteen, noise), 100.0, &[all_splits(&[TOKEN])]);
        assert_eq!(found.choices.splits(1), Some(16), "{noise}: {found:#?}");
        assert!(found.complete && found.comparison.len() == 1, "{found:#?}");
        assert!((found.comparison[0].gain - 0.09).abs() < 0.02, "{found:#?}");
        let kept: Vec<_> = outcomes(&found).into_iter().filter(|(_, outcome)| **outcome == Outcome::Kept).collect();
        assert_eq!(kept, [("16 splits", &Outcome::Kept)]);
        assert_eq!(found.trials.len(), 7, "all except the default: {found:#?}");
    }
}

#[test]
fn noise_is_no_gain() {
    for seed in 1..40 {
        let mut bench = MadeUp { random: seed, ..MadeUp::new(|_, _| 1e-3, 0.05) };
        let found = search(&mut bench, 100.0, &[all_splits(&[TOKEN])]);
        assert!(found.choices.is_empty() && found.comparison.is_empty(), "{seed}: {found:#?}");
        assert!(found.trials.iter().all(|trial| trial.outcome != Outcome::Kept));
    }
}

#[test]
fn what_is_wrong_or_fails_is_not_chosen() {
    let mut bench = MadeUp {
        wrong: |choices| choices.splits(1) == Some(16),
        fails: |choices| choices.splits(1) == Some(8),
        ..MadeUp::new(sixteen, 0.001)
    };
    let found = search(&mut bench, 100.0, &[all_splits(&[TOKEN])]);
    assert!(matches!(found.choices.splits(1), Some(32)), "{found:#?}");
    let outcomes = outcomes(&found);
    assert!(outcomes.contains(&("16 splits", &Outcome::Wrong("at `x`, 1 and not 2".to_owned()))), "{outcomes:?}");
    let failed = outcomes.iter().find(|(candidate, _)| *candidate == "8 splits").unwrap();
    assert!(matches!(failed.1, Outcome::Failed(reason) if reason.contains("out of GPU memory")), "{failed:?}");
}

/// A gain for one work must not slow down another one much.
#[test]
fn no_work_is_given_up_for_another() {
    let uneven = |choices: &Choices, work: Workload| match (choices.splits(1), work) {
        (Some(8), TOKEN) => 0.5e-3,
        (Some(8), _) => 1.1e-3,
        (Some(32), _) => 0.9e-3,
        _ => 1e-3,
    };
    let found = search(&mut MadeUp::new(uneven, 0.001), 100.0, &[all_splits(&[TOKEN, DEEP])]);
    assert_eq!(found.choices.splits(1), Some(32), "{found:#?}");
    assert!(outcomes(&found).contains(&("8 splits", &Outcome::Slower)), "{found:#?}");
}

#[test]
fn time_is_kept() {
    let questions = [all_splits(&[TOKEN]), question("chunk", &[PROMPT], vec![Edit::Chunk(1024), Edit::Chunk(2048)])];
    let seconds = |choices: &Choices, work: Workload| if work == PROMPT { 2.0 } else { sixteen(choices, work) };
    for budget in [0.01, 0.1, 1.0, 5.0, 20.0] {
        let mut bench = MadeUp::new(seconds, 0.01);
        let found = search(&mut bench, budget, &questions);
        // A measurement that has begun ends, and a comparison takes three turns.
        assert!(bench.clock <= budget + 6.0 * 2.02 + 0.1, "{} of {budget}", bench.clock);
        assert!(!found.complete, "{budget}: {found:#?}");
        assert_eq!(found.choices.chunk, None);
    }
    let mut bench = MadeUp::new(sixteen, 0.01);
    let found = search(&mut bench, 0.0, &questions);
    assert!(found.trials.is_empty() && found.choices.is_empty() && !found.complete);
    assert!(bench.clock < 0.01, "nothing was measured");
}

#[test]
fn a_request_to_stop_keeps_what_was_found() {
    let stop = Cell::new(false);
    let mut bench = MadeUp::new(sixteen, 0.001);
    let questions = [all_splits(&[TOKEN]), question("chunk", &[PROMPT], vec![Edit::Chunk(1024)])];
    let mut tell = |progress: &TuneProgress| stop.set(progress.doing == "chunk");
    let stopped = || stop.get();
    let found = Search::new(&mut bench, Choices::default(), 100.0, &stopped, &mut tell).run(&questions).unwrap();
    assert_eq!((found.choices.splits(1), found.complete), (Some(16), false), "{found:#?}");
    assert!(!found.comparison.is_empty() && found.trials.iter().all(|trial| trial.question == "splits"));
    let found = Search::new(&mut bench, Choices::default(), 1e9, &|| true, &mut |_| {}).run(&questions).unwrap();
    assert_eq!(found, Found::default());
}

/// If the budget is a limit, a request to stop also ends the last comparison, and nothing is chosen.
#[test]
fn a_limit_ends_the_last_comparison_too() {
    for stops in [true, false] {
        let (stop, limit) = (Cell::new(false), Cell::new(0.0));
        let mut bench = MadeUp::new(sixteen, 0.001);
        let mut limits = Vec::new();
        let mut tell = |progress: &TuneProgress| {
            limits.push(limit.get());
            stop.set(stops && progress.doing.starts_with("comparing all choices"));
        };
        let stopped = || stop.get();
        let search = Search::new(&mut bench, Choices::default(), 100.0, &stopped, &mut tell).within(Some(&limit));
        let found = search.run(&[all_splits(&[TOKEN])]).unwrap();
        assert_eq!(found.choices.is_empty(), stops, "{found:#?}");
        assert_eq!(found.comparison.is_empty(), stops, "{found:#?}");
        let kept = found.trials.iter().filter(|trial| trial.outcome == Outcome::Kept).count();
        assert_eq!(kept, usize::from(!stops), "{found:#?}");
        assert!(limits[0] < 100.0 && limits.last() == Some(&100.0), "time is left for the comparison: {limits:?}");
    }
}

/// Each gain was real when it was measured, but together they are slower: then the slower part is dropped.
#[test]
fn the_whole_decides() {
    let jealous = |choices: &Choices, work: Workload| match (choices.splits(1), choices.chunk, work) {
        (Some(32), Some(1024), PROMPT) => 1.5e-3,
        (Some(32), None, TOKEN) => 0.8e-3,
        (Some(32), _, TOKEN) => 1.3e-3,
        (_, Some(1024), _) => 0.9e-3,
        _ => 1e-3,
    };
    let chunk = question("chunk", &[Workload::Rows { rows: 128, depth: 0 }], vec![Edit::Chunk(1024)]);
    let found = search(&mut MadeUp::new(jealous, 0.0), 100.0, &[question("splits", &[TOKEN], vec![splits(32)]), chunk]);
    assert_eq!((found.choices.splits(1), found.choices.chunk), (None, Some(1024)), "{found:#?}");
    assert_eq!(outcomes(&found), [("32 splits", &Outcome::Dropped), ("1024 tokens", &Outcome::Kept)]);
    assert!(found.comparison.iter().all(|work| work.gain > -MAX_SLOWDOWN));
}

#[test]
fn a_lost_device_ends_it() {
    struct Lost;
    impl Bench for Lost {
        fn elapsed(&self) -> f64 {
            0.0
        }
        fn identity(&mut self, choices: &Choices, _: Workload) -> Result<u64> {
            Ok(choices.splits(1).unwrap_or_default() as u64)
        }
        fn prepare(&mut self, _: &[Choices], _: &[Workload], _: &mut StopCheck<'_>) -> Result<()> {
            Ok(())
        }
        fn time(&mut self, _: &Choices, _: Workload) -> Result<f64> {
            Err(Error::DeviceLost { reason: "gone".to_owned() })
        }
        fn fault(&mut self, _: &Choices, _: &[Workload], _: &mut StopCheck<'_>) -> Result<Option<String>> {
            Ok(None)
        }
    }
    let search = Search::new(&mut Lost, Choices::default(), 10.0, &|| false, &mut |_| {}).run(&[all_splits(&[TOKEN])]);
    assert!(matches!(search, Err(Error::DeviceLost { .. })));
}
