//! Tests well-formed GGUF files whose model is invalid. For each way to break a model, the load fails soon, with an
//! error of the right kind that names the key or tensor, and without allocating as much memory as the file claims.

mod blocks;
mod keys;
mod not_numbers;
mod random;
mod refused;
pub mod small;
mod tensors;
mod text;

use crate::common::gpu::gpu;
use refused::{load, plan};
use small::{Numbers, Small, key};
use wglm::{Cancel, Error, LoadOptions, LoadStage, Model, Session};

/// The unbroken model loads and computes, so files that the tests refuse are refused for what was broken in them.
#[test]
fn the_unbroken_model_runs() {
    plan(&Small::default()).unwrap();
    let model = load(&Small::default(), &LoadOptions::default()).unwrap();
    let mut session = Session::new(&model).unwrap();
    session.feed(&[1, 2, 3]).unwrap();
    let logits = session.logits().unwrap();
    assert_eq!(logits.len(), 40);
    assert!(logits.iter().all(|l| l.is_finite()) && logits.iter().any(|l| l.abs() > 1e-3), "{logits:?}");
    assert!(session.most_likely().unwrap() < 40);
}

/// Tensors of odd sizes are padded on the GPU; their sizes still add up to the announced total.
#[test]
fn progress_ends_at_the_total() {
    let odd = Numbers { vocab: 41, width: 33, dense_width: 71, value_width: 5, expert_width: 7, ..Numbers::default() };
    for small in [Small::default(), Small::of(&odd)] {
        let mut told = Vec::new();
        let mut progress = |p| told.push(p);
        let file = small.open().unwrap();
        Model::load_with(&file, gpu(), &LoadOptions::default(), &Cancel::default(), &mut progress).unwrap();
        for stage in told.chunk_by(|a, b| a.stage == b.stage) {
            let last = stage[stage.len() - 1];
            assert!(last.stage == LoadStage::Kernels || last.done == last.total, "{stage:?}");
            assert!(stage.windows(2).all(|pair| pair[0].done <= pair[1].done), "{stage:?}");
            assert!(stage.iter().all(|told| told.done <= told.total), "{stage:?}");
        }
        assert_eq!(
            told.first().zip(told.last()).map(|(a, b)| (a.stage, b.stage)),
            Some((LoadStage::Weights, LoadStage::Check))
        );
    }
}

/// Loading onto a device gives the same errors as planning alone.
#[test]
fn extended_loading_refuses_the_same() {
    gpu();
    let cases = [keys::cases(), tensors::cases()].concat();
    let mut failures = Vec::new();
    for case in cases {
        let planned = plan(&case.small).map(drop).map_err(|e| e.to_string());
        let loaded = load(&case.small, &LoadOptions::default()).map(drop).map_err(|e| e.to_string());
        if planned.is_ok() || planned != loaded {
            failures.push(format!("{}: planned {planned:?}, loaded {loaded:?}", case.what));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_session_refuses_tokens_outside_the_vocabulary() {
    let model = load(&Small::default(), &LoadOptions::default()).unwrap();
    let mut session = Session::new(&model).unwrap();
    for tokens in [&[40][..], &[1, 2, 41, 3], &[u32::MAX]] {
        let error = session.feed(tokens).unwrap_err();
        assert!(matches!(error, Error::TokenOutOfRange { vocab: 40, .. }), "{tokens:?}: {error}");
        assert!(session.tokens().is_empty(), "{tokens:?} left {:?}", session.tokens());
    }
    session.feed(&[39]).unwrap();
}

/// A file may claim any context. Memory is only allocated when a session requests all of it.
#[test]
fn extended_a_claimed_context_costs_nothing_until_it_is_requested() {
    let mut small = Small::default();
    small.set(&key("context_length"), u32::MAX);
    let model = load(&small, &LoadOptions::default()).unwrap();
    assert_eq!(model.cache().context, 8192);
    Session::new(&model).unwrap().feed(&[1]).unwrap();

    let all = LoadOptions { context: Some(0), ..LoadOptions::default() };
    let error = load(&small, &all).and_then(|model| Session::new(&model)).map(drop).unwrap_err();
    let memory = matches!(error, Error::OutOfMemory { .. }) && error.to_string().contains("cache");
    assert!(memory || matches!(error, Error::ContextTooLarge { .. }), "{error}");
}
