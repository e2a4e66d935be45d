//! Tunings: how a load uses them, and what tuning returns. Nothing here depends on a clock: the decisions of the search
//! are tested in its module, with made-up times.

use crate::common::gpu::gpu;
use crate::common::models::relative_l2;
use crate::hostile_models::small::Small;
use std::time::Duration;
use wglm::tune::{Choices, Outcome, TuneOptions, Tuning, TuningSubject, tune};
use wglm::{Arithmetic, Cancel, Gguf, LoadOptions, Model, PromptOptions, Session};
use wglm_engine::plan::Tilings;

fn demo() -> Gguf {
    Gguf::from_static(wglm::DEMO_MODEL).unwrap()
}

fn subject() -> TuningSubject {
    TuningSubject::of(gpu(), &demo()).unwrap()
}

fn tuning(choices: Choices) -> Tuning {
    Tuning::new(subject(), choices)
}

/// A choice of every kind. The arithmetic is f32, because rounded to bytes, results would depend on how many tokens are
/// computed together.
fn otherwise() -> Choices {
    let tilings = ["moe.down=8x2x64", "attn_q@1=4x1x128", "attn_output@4-7=8x1x64x4"];
    Choices {
        table: Some(Tilings::Nvidia), // not those of a software driver
        tilings: tilings.map(|text| text.parse().unwrap()).to_vec(),
        splits: vec!["1=8".parse().unwrap(), "2-32=4".parse().unwrap()],
        tiles: ["moe.down@33-4096=64x2", "attn_output=16x4"].map(|text| text.parse().unwrap()).to_vec(),
        few_rows: Some(8),
        arithmetic: Some(Arithmetic::Float),
        chunk: Some(64),
        ..Choices::default()
    }
}

fn options(tuning: Tuning) -> LoadOptions {
    LoadOptions { tuning: Some(tuning), context: Some(512), ..LoadOptions::default() }
}

fn load(options: &LoadOptions) -> Model {
    Model::load(&demo(), gpu(), options).unwrap()
}

fn logits(model: &Model) -> Vec<f32> {
    let mut session = Session::new(model).unwrap();
    let tokens: Vec<u32> = (0..150).map(|i| i * 13 % 2048).collect();
    // A prompt of several parts, then a few more rows, then a single token.
    for part in [&tokens[..140], &tokens[140..144], &tokens[144..149], &tokens[149..]] {
        session.feed(part).unwrap();
    }
    session.logits().unwrap().to_vec()
}

/// With a tuning, other kernels compute the same results.
#[test]
fn extended_a_tuned_model_computes_the_same() {
    let arithmetic = otherwise().arithmetic;
    let usual = load(&LoadOptions { context: Some(512), arithmetic, ..LoadOptions::default() });
    let tuned = load(&options(tuning(otherwise())));
    assert_eq!(tuned.tuning().unwrap().choices, otherwise(), "{:?}", tuned.config().notices);
    assert_eq!((usual.tuning(), tuned.prompt_options().chunk), (None, Some(64)));
    let variants = |model: &Model| -> Vec<String> {
        let session = Session::new(model).unwrap();
        session.plan().variants.iter().map(|variant| variant.label.clone()).collect()
    };
    assert_ne!(variants(&usual), variants(&tuned));
    let off = relative_l2(&logits(&tuned), &logits(&usual));
    assert!(off < 2e-5, "{off}");
}

/// A tuning for something else is ignored, and a notice says why.
#[test]
fn extended_a_foreign_tuning_is_ignored() {
    let with = |change: fn(&mut TuningSubject)| {
        let mut tuning = tuning(otherwise());
        change(&mut tuning.subject);
        tuning
    };
    let usual = load(&LoadOptions { tuning: None, ..options(tuning(otherwise())) }).prompt_options();
    let unknown = Choices { tilings: vec!["moe.sideways=8x1x64".parse().unwrap()], ..Choices::default() };
    for (tuning, words) in [
        (with(|subject| subject.wglm = "0.0.9".into()), "it was made for wglm `0.0.9`, and this is"),
        (with(|subject| subject.adapter = "Another".into()), "it was made for the GPU `Another`"),
        (with(|subject| subject.driver.push('7')), "it was made for the driver"),
        (with(|subject| subject.model.push('7')), "it was made for the model"),
        (tuning(unknown), "found `moe.sideways`"),
    ] {
        let model = load(&options(tuning));
        let notices = &model.config().notices;
        assert!(model.tuning().is_none() && model.prompt_options() == usual, "{words}");
        assert!(
            notices.iter().any(|it| it.starts_with("the tuning is not used: ") && it.contains(words)),
            "{notices:?}"
        );
    }
}

/// Explicit options take precedence over a tuning.
#[test]
fn extended_options_take_precedence_over_a_tuning() {
    let chunk = PromptOptions { chunk: Some(128), ..PromptOptions::default() };
    let model = load(&LoadOptions { prompt: chunk, ..options(tuning(otherwise())) });
    assert_eq!(model.prompt_options().chunk, Some(128));
    let other = Choices { arithmetic: Some(Arithmetic::Int), ..Choices::default() };
    let model = load(&options(tuning(other.clone())));
    assert_eq!(model.target().arithmetic, Arithmetic::Int, "{:?}", model.config().notices);
    let model = load(&LoadOptions { arithmetic: Some(Arithmetic::Float), ..options(tuning(other)) });
    let notices = &model.config().notices;
    assert_eq!(model.target().arithmetic, Arithmetic::Float);
    assert!(notices.iter().any(|it| it.contains("made for int arithmetic, and float is requested")), "{notices:?}");
}

/// A tuning may be ended at any point, by its budget or from outside: the result is complete anyway.
#[test]
fn extended_tuning_ends_and_is_never_slower_by_its_own_measure() {
    let model = small(None);
    for (budget, most_reports) in [(Some(Duration::ZERO), usize::MAX), (None, 4)] {
        let (cancel, mut reports) = (Cancel::default(), 0);
        let tuning = tune(&model, &TuneOptions { budget, ..TuneOptions::default() }, &cancel, &mut |progress| {
            assert!((0.0..=1.0).contains(&progress.share()) && progress.kept <= progress.trials);
            reports += 1;
            if reports == most_reports {
                cancel.cancel();
            }
        });
        let tuning = tuning.unwrap();
        sound(&model, &tuning);
        assert!(!tuning.complete && (budget.is_some() || reports >= most_reports), "{reports}: {tuning:?}");
        assert_eq!(tuning.to_string().parse::<Tuning>().unwrap(), tuning);
        let again = small(Some(tuning));
        assert!(again.tuning().is_some());
        assert_eq!(again.config().notices, model.config().notices);
    }
}

/// A small model, which takes little time to tune.
fn small(tuning: Option<Tuning>) -> Model {
    let options = LoadOptions { tuning, ..LoadOptions::default() };
    Model::load(&Small::with_short_context().open().unwrap(), gpu(), &options).unwrap()
}

/// All choices together were faster in the last comparison; otherwise none is left.
fn sound(model: &Model, tuning: &Tuning) {
    assert_eq!(tuning.subject, TuningSubject::of(gpu(), model.file()).unwrap());
    assert_eq!(tuning.choices.is_empty(), tuning.comparison.is_empty(), "{tuning:?}");
    let gain: f64 = tuning.comparison.iter().map(|work| work.gain).sum();
    assert!(tuning.comparison.is_empty() || gain > 0.0, "{tuning:?}");
    let kept = tuning.trials.iter().filter(|trial| trial.outcome == Outcome::Kept).count();
    assert_eq!(kept == 0, tuning.choices.is_empty(), "{tuning:?}");
    let compared = tuning.trials.iter().filter(|trial| trial.outcome == Outcome::Kept);
    compared.for_each(|trial| assert!(trial.turns >= 3 && trial.gain > trial.spread, "{trial:?}"));
}

#[test]
fn a_cancelled_tuning_returns_its_results() {
    let model = small(None);
    let cancel = Cancel::default();
    cancel.cancel();
    for strict in [false, true] {
        let tuning = tune(&model, &TuneOptions { strict, ..TuneOptions::default() }, &cancel, &mut |_| {}).unwrap();
        assert!(tuning.trials.is_empty() && !tuning.complete);
        sound(&model, &tuning);
    }
}

/// A strict tuning returns during its setup or after the next measurement, and chooses nothing that it has not
/// compared.
#[test]
fn extended_a_strict_tuning_ends_at_once() {
    let model = small(None);
    let options = |seconds| TuneOptions { budget: Some(Duration::from_secs(seconds)), strict: true };
    let tuning = tune(&model, &options(0), &Cancel::default(), &mut |_| panic!("there is no time")).unwrap();
    assert!(tuning.trials.is_empty() && !tuning.complete);
    let (cancel, mut told) = (Cancel::default(), 0);
    let tuning = tune(&model, &options(3600), &cancel, &mut |_| {
        cancel.cancel();
        told += 1;
    });
    let tuning = tuning.unwrap();
    sound(&model, &tuning);
    assert!(told <= 2 && tuning.choices.is_empty(), "{told}: {tuning:?}");
    assert_eq!(wglm::tune::first_tuning(&model), None, "a small model, and a software driver");
}
