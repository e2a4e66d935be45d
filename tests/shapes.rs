//! Synthetic models of many shapes and formats against the reference program's logits (tests/reference).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod common;

use common::models::{fixture, load, read_f32, read_u32, worst_error};
use serde_json::Value;

#[test]
fn logits_agree_with_the_reference() {
    let index: Value = serde_json::from_slice(&std::fs::read(fixture("models/index.json")).unwrap()).unwrap();
    let mut failures = Vec::new();
    for model in index["models"].as_array().unwrap() {
        let name = model["name"].as_str().unwrap();
        let positions: Vec<usize> =
            model["positions"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
        let tokens = read_u32(fixture(&format!("models/{name}.tokens.i32")));
        let want = read_f32(fixture(&format!("models/{name}.logits.f32")));
        let worst = worst_error(&load(&fixture(&format!("models/{name}.gguf"))), &tokens, &positions, &want);
        println!("{name:<16} {} tokens: worst relative L2 {worst:.1e}", tokens.len());
        if worst.is_nan() || worst >= 2e-5 {
            failures.push(format!("{name}: {worst:.2e}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
