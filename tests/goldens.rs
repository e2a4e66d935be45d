//! The demonstration model against what other programs computed for it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod common;

use common::models::{fable_file, fixture, load, load_on, read_f32, read_u32, worst_error_with};
use serde_json::Value;
use wglm::kernels::CacheType;
use wglm::{Model, Session};

/// With the exact cache, f32 arithmetic in another order is all that differs.
const EXACT: f64 = 2e-5;
/// Rounding the cache to f16 alone moves the reference's logits by up to 7.2e-4 at the worst position.
const F16_CACHE: f64 = 1e-3;

fn cases() -> Vec<Value> {
    let meta: Value = serde_json::from_slice(&std::fs::read(fixture("fable/meta.json")).unwrap()).unwrap();
    meta["cases"].as_array().unwrap().clone()
}

fn numbers(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect()
}

fn check_logits(model: &Model, precision: &str) {
    for case in cases() {
        let name = case["name"].as_str().unwrap();
        let tokens = read_u32(fixture(&format!("fable/{name}.tokens.i32")));
        let want = read_f32(fixture(&format!("fable/{name}.{precision}.logits.f32")));
        for (ty, bound) in [(CacheType::F32, EXACT), (CacheType::F16, F16_CACHE)] {
            let worst = worst_error_with(model, ty, &tokens, &numbers(&case["positions"]), &want);
            println!("{precision} {name}, {ty:?} cache: worst relative L2 {worst:.2e}");
            assert!(worst < bound, "{precision} {name}, {ty:?} cache: {worst:.2e}");
        }
    }
}

fn check_greedy(model: &Model, precision: &str) {
    for case in cases() {
        let name = case["name"].as_str().unwrap();
        let tokens = read_u32(fixture(&format!("fable/{name}.tokens.i32")));
        let want = numbers(&case[format!("greedy_{precision}")]);
        let prompt = &tokens[..case["prompt_len"].as_u64().unwrap() as usize];
        let mut session = Session::new(model).unwrap();
        session.feed(prompt).unwrap();
        for (index, &want) in want.iter().enumerate() {
            let got = session.most_likely().unwrap();
            assert_eq!(got as usize, want, "{precision} {name}: token {index} of the continuation");
            session.feed(&[got]).unwrap();
        }
    }
}

#[test]
fn f16_logits_and_continuations() {
    let model = load(&fable_file("f16"));
    check_logits(&model, "f16");
    check_greedy(&model, "f16");
}

#[test]
fn q4_0_logits_and_continuations() {
    let model = load(&fable_file("q4_0"));
    check_logits(&model, "q4_0");
    check_greedy(&model, "q4_0");
}

#[test]
fn without_subgroups() {
    check_logits(&load_on(&fable_file("q4_0"), &common::gpu::open(false)), "q4_0");
}
