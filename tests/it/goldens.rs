//! Compares the demonstration model with the results of other programs.

use crate::common::goldens::{Golden, goldens};
use crate::common::gpu::{gpu, gpu_without_subgroups};
use crate::common::models::{
    fable, fable_file, fixture, load_as_on_nvidia, load_on, load_with, read_f32, relative_l2, worst_error_with,
};
use wglm::{Arithmetic, CacheShape, CacheType, DraftKind, Model, PromptOptions, Session, Speculation};
use wglm_engine::plan::Fusions;

/// The bound with an f32 cache, where only the order of f32 sums differs.
const EXACT: f64 = 2e-5;
/// The bound with an f16 cache. Rounding the cache to f16 alone moves the logits of the reference by up to 7.2e-4 at
/// the worst position.
const F16_CACHE: f64 = 1e-3;
/// The bounds with a cache in blocks, at the worst position and at the median one. Rounding only the latents moves the
/// logits of the reference by up to 7.0e-3, except at a position where it selects other experts and moves them by
/// 3.9e-2, and by up to 6.9e-4 at the median position.
const BLOCKS_CACHE: [f64; 2] = [5e-2, 1e-3];
/// A dialogue of this many tokens is a long one.
const LONG: usize = 60;

fn check_logits_with(model: &Model, ty: CacheType, precision: &str, golden: &Golden, what: &str) {
    let bound = if ty == CacheType::F32 { EXACT } else { F16_CACHE };
    let worst = worst_error_with(model, ty, &golden.tokens, &golden.positions, &golden.logits(precision));
    let case = format!("{precision} {}{what}, {ty:?} cache", golden.name);
    println!("{case}: worst relative L2 {worst:.2e}");
    assert!(worst < bound, "{case}: {worst:.2e}");
}

/// The logits after a position among those of a golden, if they are known.
fn known<'a>(golden: &Golden, logits: &'a [f32], position: usize) -> Option<&'a [f32]> {
    let index = golden.positions.iter().position(|known| *known == position)?;
    logits.chunks_exact(logits.len() / golden.positions.len()).nth(index)
}

/// With an f32 cache, token by token: the logits and the greedy continuation. Most dialogues are their own greedy
/// continuation, so one pass checks both.
fn check(model: &Model, precision: &str, golden: &Golden) {
    let cache = CacheShape { context: golden.tokens.len(), ty: CacheType::F32 };
    let mut session = Session::with_cache(model, cache).unwrap();
    let (want, greedy) = (golden.logits(precision), golden.greedy(precision));
    let continues = golden.tokens[golden.prompt..].iter().map(|token| *token as usize).eq(greedy.iter().copied());
    let case = format!("{precision} {}", golden.name);
    let (mut worst, mut seen) = (0f64, 0);
    for (position, token) in golden.tokens.iter().enumerate() {
        session.feed(&[*token]).unwrap();
        if let Some(want) = known(golden, &want, position) {
            let error = relative_l2(&session.logits().unwrap(), want);
            assert!(error.is_finite(), "{case} position {position}: {error}");
            (worst, seen) = (worst.max(error), seen + 1);
        }
        let next = (position + 1).checked_sub(golden.prompt).filter(|_| continues);
        if let Some((index, want)) = next.and_then(|index| greedy.get(index).map(|want| (index, *want))) {
            assert_eq!(session.most_likely().unwrap() as usize, want, "{case}: token {index} of the continuation");
        }
    }
    println!("{case}: worst relative L2 {worst:.2e}");
    assert!(worst < EXACT && seen == golden.positions.len(), "{case}: {worst:.2e} at {seen} positions");
    if !continues {
        golden.check_greedy(model, precision);
    }
}

fn shortest() -> Golden {
    goldens().into_iter().min_by_key(|golden| golden.tokens.len()).unwrap()
}

fn named(name: &str) -> Golden {
    goldens().into_iter().find(|golden| golden.name == name).unwrap()
}

fn unfused(precision: &str, names: &str) -> Model {
    load_with(&fable_file(precision), gpu(), Arithmetic::Float, Fusions::without(names).unwrap())
}

#[test]
fn extended_f16_logits_and_continuations() {
    let model = fable("f16");
    goldens().iter().for_each(|golden| check(model, "f16", golden));
    check_logits_with(model, CacheType::F16, "f16", &shortest(), "");
}

#[test]
fn q4_0_logits_and_continuations() {
    let model = fable("q4_0");
    for golden in goldens() {
        check(model, "q4_0", &golden);
        if golden.tokens.len() < LONG {
            check_logits_with(model, CacheType::F16, "q4_0", &golden, "");
        }
    }
}

/// The beginning of every dialogue.
#[test]
fn extended_without_subgroups() {
    let model = load_on(&fable_file("q4_0"), gpu_without_subgroups());
    for mut golden in goldens() {
        golden.positions.truncate(16);
        check_logits_with(&model, CacheType::F32, "q4_0", &golden, " without subgroups");
    }
    check_logits_with(&model, CacheType::F16, "q4_0", &shortest(), " without subgroups");
}

/// A cache in blocks, with tokens one by one, a few at a time and in large chunks, with subgroups and without.
#[test]
fn long_latents_in_blocks() {
    let without = load_on(&fable_file("q4_0"), gpu_without_subgroups());
    let models = [(fable("q4_0"), "q4_0"), (fable("f16"), "f16"), (&without, "q4_0")];
    for (index, (model, precision)) in models.into_iter().enumerate() {
        // The long dialogue with the first model only.
        let cases = goldens().into_iter().zip([1, 8, 64]);
        for (golden, together) in cases.filter(|(golden, _)| index == 0 || golden.tokens.len() < LONG) {
            let cache = CacheShape { context: golden.tokens.len(), ty: CacheType::Q8_0 };
            let mut session = Session::with_cache(model, cache).unwrap();
            session.set_prompt_options(PromptOptions { chunk: Some(together), ..PromptOptions::default() });
            let (want, mut errors) = (golden.logits(precision), Vec::new());
            let mut look = |position, row: &[f32]| {
                errors.extend(known(&golden, &want, position).map(|want| relative_l2(row, want)));
                Ok(())
            };
            session.feed_all(&golden.tokens, &mut look).unwrap();
            errors.sort_by(f64::total_cmp);
            let (worst, median) = (errors[errors.len() - 1], errors[errors.len() / 2]);
            let what = format!("{precision} {}, {together} together: {worst:.1e}, median {median:.1e}", golden.name);
            println!("{what}");
            assert_eq!(errors.len(), golden.positions.len(), "{what}");
            assert!(worst < BLOCKS_CACHE[0] && median < BLOCKS_CACHE[1] && median > 1e-5, "{what}");
        }
    }
}

#[test]
fn the_tilings_for_nvidia() {
    let model = load_as_on_nvidia(&fable_file("q4_0"), Arithmetic::Float);
    for ty in [CacheType::F32, CacheType::F16] {
        check_logits_with(&model, ty, "q4_0", &shortest(), " with the tilings for NVIDIA's GPUs");
    }
}

/// Each fusion is turned off in turn.
#[test]
fn extended_without_any_fusion() {
    let golden = shortest();
    for precision in ["q4_0", "f16"] {
        let model = unfused(precision, "all");
        check_logits_with(&model, CacheType::F32, precision, &golden, " unfused");
    }
}

/// The shortest dialogue suffices to detect a step that computes something else; the steps themselves are tested above.
#[test]
fn long_without_each_fusion() {
    let golden = shortest();
    for name in Fusions::NAMES {
        check_logits_with(&unfused("q4_0", name), CacheType::F32, "q4_0", &golden, &format!(" without `{name}`"));
    }
}

/// The multi-token-prediction block, after single tokens, and after parts of a prompt.
#[test]
fn extended_predictions_of_the_second_token() {
    // One by one; a few tokens after others; from the first token on, by tiles.
    for (name, ty, bound, together) in [
        ("dialog1", CacheType::F32, EXACT, 1),
        ("dialog2", CacheType::F16, F16_CACHE, 8),
        ("dialog2", CacheType::F32, EXACT, 512),
    ] {
        let golden = named(name);
        let (positions, logits) = golden.mtp_logits();
        let vocab = logits.len() / positions.len();
        let cache = CacheShape { context: golden.tokens.len() + 8, ty };
        let mut session = Session::with_cache(fable("f16"), cache).unwrap();
        session.set_prompt_options(PromptOptions { chunk: Some(together), ..PromptOptions::default() });
        session.set_speculation(&Speculation { kind: DraftKind::Mtp, most: None }).unwrap();
        let mut worst = 0f64;
        // Those by tiles start again for each position, so only some positions are tested.
        let some = if together == 512 { 6 } else { 1 };
        for (position, want) in positions.iter().zip(logits.chunks(vocab)).step_by(some) {
            let next = golden.tokens[position + 1];
            if together == 512 {
                session.rewind(0);
            }
            session.sync(&golden.tokens[..=*position]).unwrap();
            let got = session.draft_logits(next, 1).unwrap();
            worst = worst.max(relative_l2(&got[0], want));
        }
        println!("{name} {ty:?}, {together} together: {worst:.1e}");
        assert!(worst < bound, "{name} {ty:?}, {together} together: {worst:.1e}");
    }
}

/// Consecutive drafts, each made from the one before it, compared with the reference (`--mtp --drafts 3`).
#[test]
fn extended_predictions_after_predictions() {
    const POSITIONS: [usize; 4] = [3, 10, 17, 24];
    let golden = named("dialog1");
    let want = read_f32(fixture("fable/dialog1.f16.mtp_drafts.f32"));
    let vocab = want.len() / (3 * POSITIONS.len());
    for together in [1, 512] {
        let cache = CacheShape { context: golden.tokens.len() + 8, ty: CacheType::F32 };
        let mut session = Session::with_cache(fable("f16"), cache).unwrap();
        session.set_prompt_options(PromptOptions { chunk: Some(together), ..PromptOptions::default() });
        session.set_speculation(&Speculation { kind: DraftKind::Mtp, most: None }).unwrap();
        for (position, want) in POSITIONS.iter().zip(want.chunks(3 * vocab)) {
            session.rewind(0);
            session.feed(&golden.tokens[..=*position]).unwrap();
            let got = session.draft_logits(golden.tokens[position + 1], 3).unwrap();
            for (draft, (got, want)) in got.iter().zip(want.chunks(vocab)).enumerate() {
                let error = relative_l2(got, want);
                println!("{position}, {together} together, draft {draft}: {error:.1e}");
                assert!(error < EXACT, "{position}, {together} together, draft {draft}: {error:.1e}");
            }
        }
    }
}
