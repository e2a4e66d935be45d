//! Compares synthetic models of many shapes and formats with the logits of the reference program (tests/reference).

use crate::common::gpu::gpu;
use crate::common::models::{fixture, load, load_with, read_f32, read_u32, worst_error};
use serde_json::Value;
use std::path::PathBuf;
use wglm::model::plan_token;
use wglm::plan::Fusions;
use wglm::{Arithmetic, Model};

/// A model of the index.
struct Shape {
    name: String,
    file: PathBuf,
    positions: Vec<usize>,
    tokens: Vec<u32>,
    want: Vec<f32>,
}

fn shapes() -> Vec<Shape> {
    let index: Value = serde_json::from_slice(&std::fs::read(fixture("models/index.json")).unwrap()).unwrap();
    index["models"].as_array().unwrap().iter().map(Shape::of).collect()
}

impl Shape {
    fn of(model: &Value) -> Self {
        let name = model["name"].as_str().unwrap().to_owned();
        let positions = model["positions"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
        let [file, tokens, logits] =
            ["gguf", "tokens.i32", "logits.f32"].map(|end| fixture(&format!("models/{name}.{end}")));
        Self { name, file, positions, tokens: read_u32(tokens), want: read_f32(logits) }
    }
}

#[test]
fn logits_agree_with_the_reference() {
    let mut failures = Vec::new();
    for Shape { name, file, positions, tokens, want } in shapes() {
        let worst = worst_error(&load(&file), &tokens, &positions, &want);
        println!("{name:<16} {} tokens: worst relative L2 {worst:.1e}", tokens.len());
        if worst.is_nan() || worst >= 2e-5 {
            failures.push(format!("{name}: {worst:.2e}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The bound with rounded activations. Rounding moves these logits further than those of the demonstration model:
/// weights and activations are noise, over rows so short that errors do not average out. An error in which bytes are
/// multiplied or how they are scaled is far larger.
#[test]
fn products_of_bytes_are_near() {
    let mut judged = 0;
    for Shape { name, file, positions, tokens, want } in shapes() {
        let model = load_with(&file, gpu(), Arithmetic::Int, Fusions::all());
        if !multiplies_bytes(&model) {
            continue; // tested above
        }
        let worst = worst_error(&model, &tokens, &positions, &want);
        println!("{name:<16} products of bytes: worst relative L2 {worst:.1e}");
        assert!(worst > 1e-4 && worst < 1e-1, "{name}: {worst:.2e}");
        judged += 1;
    }
    assert!(judged > 5, "only {judged} models with such products");
}

fn multiplies_bytes(model: &Model) -> bool {
    let plan = plan_token(model.file(), model.config(), model.cache(), *model.target()).unwrap();
    plan.plan.variants.iter().any(|variant| variant.label.contains(".i8."))
}
