//! What the steps of GLM-4.7-Flash's plans cost, and how long the longest of them keeps a slow GPU.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs, dead_code)]

mod common;
#[path = "common/hole.rs"]
mod hole;
#[path = "../examples/synth/shape.rs"]
mod shape;

use common::gguf_writer;
use hole::full;
use shape::Shape;
use tempfile::TempDir;
use wglm::model::plan_token;
use wglm::plan::Target;
use wglm::{CacheShape, CacheType, Config};

/// The longest context of the full shape.
const CONTEXT: usize = 202_752;

/// Multiplications of a token, from the shapes that docs of the model tell: those with weights, and those for each token
/// in the cache, of every head's query with its key and of its weight with the value.
fn multiplications(s: &Shape) -> (u64, u64) {
    let attention = s.width * s.query_rank
        + s.query_rank * s.heads * (s.nope + s.rotary)
        + s.width * (s.latent_rank + s.rotary)
        + s.heads * s.nope * s.latent_rank
        + s.heads * s.latent_rank * s.value_width
        + s.heads * s.value_width * s.width;
    let dense = 3 * s.width * s.dense_width;
    let experts = s.width * s.experts + (4 + 1) * 3 * s.width * s.expert_width;
    let all = s.layers * attention + dense + (s.layers - 1) * experts + s.width * s.vocab;
    (all, s.layers * s.heads * (2 * s.latent_rank + s.rotary))
}

#[test]
fn a_token_costs_what_its_multiplications_say() {
    let dir = TempDir::new().unwrap();
    let file = full(&dir);
    let config = Config::read(&file).unwrap();
    let cache = CacheShape { context: CONTEXT, ty: CacheType::F16 };
    let cost = plan_token(&file, &config, cache, Target::default()).unwrap().plan.cost();
    let (weights, cached) = multiplications(&Shape::glm(47));
    assert_eq!((cost.flops, cost.cache_flops), (2 * weights, 2 * cached));
    assert!((3_000_000_000..4_000_000_000).contains(&weights), "about 3.6 billion active weights: {weights}");
    assert_eq!(cost.cache, 47 * 576 * 2, "each layer's line once, of f16");
    // With 32,768 tokens in the cache, attention is what takes longest.
    assert!((65e9..68e9).contains(&(cost.cache_flops as f64 * 32_768.0)), "{}", cost.cache_flops);
}
