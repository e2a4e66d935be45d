//! Tests the costs of the steps in GLM-4.7-Flash's plans, and the time that the longest of them takes on a slow GPU.

use crate::chunks::small;
use crate::common::gpu::gpu;
use crate::common::models::fable_file;
use crate::hole::full;
use crate::shape::Shape;
use std::collections::HashSet;
use std::time::Duration;
use tempfile::TempDir;
use wglm::{Arithmetic, CacheShape, CacheType, Config, Gguf, LoadOptions, Matrices, Model, PromptOptions, Session};
use wglm_engine::model::{BatchShape, LoadOverrides, Outputs, plan_batch, plan_token};
use wglm_engine::plan::{Plan, StepLimit, Target, Team};

/// The longest context of the full shape.
const CONTEXT: usize = 202_752;
/// The depths at which the bound is tested.
const DEPTHS: [usize; 4] = [0, 16 << 10, 64 << 10, 200_000];
/// A GPU so slow that every workgroup becomes a dispatch of its own, one on which a step is split into a few, and one
/// on which no step is split.
const SLOWEST: StepLimit = StepLimit { flops: 1, bandwidth: 1, time: Duration::from_secs(1) };
const SLOW: StepLimit = StepLimit { flops: 1_000_000_000, bandwidth: 1_000_000_000, time: Duration::from_millis(1) };
const UNCUT: StepLimit = StepLimit { flops: u64::MAX, bandwidth: u64::MAX, time: Duration::from_secs(1) };

/// The multiplications of a token, from the documented shapes of the model: those with weights, and for each token in
/// the cache those of every head's query with the key and of its weight with the value.
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
fn a_token_costs_its_multiplications() {
    let dir = TempDir::new().unwrap();
    let file = full(&dir);
    let config = Config::read(&file).unwrap();
    let cache = CacheShape { context: CONTEXT, ty: CacheType::F16 };
    let cost = plan_token(&file, &config, cache, &Target::default()).unwrap().plan.cost();
    let (weights, cached) = multiplications(&Shape::glm(47));
    assert_eq!((cost.flops, cost.cache_flops), (2 * weights, 2 * cached));
    assert!((3_000_000_000..4_000_000_000).contains(&weights), "about 3.6 billion active weights: {weights}");
    assert_eq!(cost.cache, 47 * 576 * 2, "each layer's line once, of f16");
    // With 32,768 tokens in the cache attention takes longest.
    assert!((65e9..68e9).contains(&(cost.cache_flops as f64 * 32_768.0)), "{}", cost.cache_flops);
}

/// The targets of plans, as far as they make a difference for steps.
fn targets() -> Vec<Target> {
    let matrices = [Matrices::None, Matrices::Eight, Matrices::Sixteen];
    let arithmetics = [Arithmetic::Float, Arithmetic::Int];
    let by_subgroups = matrices
        .into_iter()
        .flat_map(|matrices| arithmetics.map(|arithmetic| Target { matrices, arithmetic, ..Target::default() }));
    by_subgroups.chain([Target { team: Team::Workgroup, ..Target::default() }]).collect()
}

/// The batches of the full shape for which the bound is tested, and those for which the logits of every token are
/// wanted: as many tokens as have space for their logits.
fn batches() -> Vec<(usize, Outputs)> {
    let last = [2, 4, 8, 16, 32, 128, 512, PromptOptions::MAX_CHUNK].map(|tokens| (tokens, Outputs::Last));
    last.into_iter().chain([(32, Outputs::All), (128, Outputs::All)]).collect()
}

/// Whether a plan has steps that were split.
fn is_cut(plan: &Plan) -> bool {
    plan.steps.iter().any(|step| step.label.contains(" 1/"))
}

#[test]
fn extended_no_step_of_the_full_shape_takes_too_long() {
    let dir = TempDir::new().unwrap();
    let file = full(&dir);
    let config = Config::read(&file).unwrap();
    let cache = CacheShape { context: CONTEXT, ty: CacheType::F16 };
    for target in &targets() {
        let token = plan_token(&file, &config, cache, target).unwrap();
        let most = target.limit.time.as_secs_f64();
        let bounded = |what: &str, plan: &Plan, cached: usize| {
            let (step, seconds) = plan.largest_step(&target.limit, cached as u64).unwrap();
            let Target { team, matrices, arithmetic, .. } = target;
            let ms = seconds * 1e3;
            println!(
                "{team:?} {matrices:?} {arithmetic:?}, {what}: {ms:.1} ms, {} of {}",
                step.label,
                plan.steps.len()
            );
            assert!(seconds <= most, "{target:?}, {what}: {ms} ms, {step:?}");
        };
        bounded("a token", &token.plan, CONTEXT);
        for (tokens, outputs) in batches() {
            for depth in DEPTHS {
                let shape = BatchShape { rows: tokens, outputs, depth };
                let plan = plan_batch(&config, &token, target, shape).unwrap().plan;
                bounded(&format!("{shape:?}"), &plan, shape.cached(CONTEXT));
            }
        }
    }
}

/// The parts of a step use one shader at every depth, and together cost as much as the whole step. If a few tokens use
/// the attention shader of a single token, their parts use one more shader.
#[test]
fn extended_parts_add_up_and_share_shaders() {
    let dir = TempDir::new().unwrap();
    let file = full(&dir);
    let config = Config::read(&file).unwrap();
    let cache = CacheShape { context: CONTEXT, ty: CacheType::F16 };
    for target in &targets() {
        let token = plan_token(&file, &config, cache, target).unwrap();
        for tokens in [32, 512, PromptOptions::MAX_CHUNK] {
            let plan = |limit, depth| {
                let shape = BatchShape { rows: tokens, outputs: Outputs::Last, depth };
                plan_batch(&config, &token, &Target { limit, ..target.clone() }, shape).unwrap().plan
            };
            let (cut, whole) = (plan(target.limit, CONTEXT), plan(UNCUT, CONTEXT));
            assert!(is_cut(&cut) && !is_cut(&whole), "{tokens}: {} and {} steps", cut.steps.len(), whole.steps.len());
            assert_eq!(cut.cost(), whole.cost(), "{target:?}, {tokens}");
            let variants = |plan: &Plan| plan.variants.iter().cloned().collect::<HashSet<_>>();
            let (own, deep, shallow) = (variants(&whole), variants(&cut), variants(&plan(target.limit, 16 << 10)));
            assert_eq!(own, shallow, "{target:?}, {tokens}");
            let more: Vec<&str> = deep.difference(&own).map(|variant| variant.label.as_str()).collect();
            let of_attention = tokens == 32 && more.len() == 1 && more[0].starts_with("mla_attention");
            assert!(more.is_empty() || of_attention, "{target:?}, {tokens}: {more:?}");
            assert_eq!(deep.len(), own.len(), "{target:?}, {tokens}");
            let kinds = |plan: &Plan| plan.kinds().iter().map(|kind| kind.name.to_owned()).collect::<Vec<_>>();
            assert_eq!(kinds(&cut), kinds(&whole), "{target:?}, {tokens}");
        }
    }
}

fn loaded(file: &Gguf, limit: StepLimit, arithmetic: Arithmetic) -> Model {
    let overrides = LoadOverrides { limit: Some(limit), ..LoadOverrides::default() };
    let options = LoadOptions { overrides, arithmetic: Some(arithmetic), ..LoadOptions::default() };
    Model::load(file, gpu(), &options).unwrap()
}

/// The bits of the logits after each token if `all`, and otherwise of the last.
fn bits(model: &Model, tokens: &[u32], chunk: usize, all: bool) -> Vec<u32> {
    let mut session = Session::with_cache(model, CacheShape { context: 1200, ty: CacheType::F16 }).unwrap();
    session.set_prompt_options(PromptOptions { chunk: Some(chunk), ..PromptOptions::default() });
    let mut bits = Vec::new();
    if all {
        let mut keep = |_: usize, row: &[f32]| {
            bits.extend(row.iter().map(|logit| logit.to_bits()));
            Ok(())
        };
        session.feed_all(tokens, &mut keep).unwrap();
    } else {
        session.feed(tokens).unwrap();
    }
    bits.extend(session.logits().unwrap().iter().map(|logit| logit.to_bits()));
    bits
}

/// Prompts with every step split that can be: of a small model into the second depth that plans are made for, and of
/// the demonstration model few tokens and many, in both arithmetics.
#[test]
fn extended_parts_compute_the_same_bits_as_the_whole() {
    let tokens: Vec<u32> = (0..1050).map(|i| 1 + 37 * i % 2000).collect();
    let (small, fable) = (small(), Gguf::open(fable_file("q4_0")).unwrap());
    for (file, arithmetic, limit, prompts) in [
        (&small, Arithmetic::Float, SLOW, &[(1050, 512, false)][..]),
        (&fable, Arithmetic::Float, SLOWEST, &[(40, 64, false), (14, 7, true)]),
        (&fable, Arithmetic::Int, SLOWEST, &[(7, 7, true)]),
    ] {
        let [whole, cut] = [UNCUT, limit].map(|limit| loaded(file, limit, arithmetic));
        for &(count, chunk, all) in prompts {
            let [one, other] = [&whole, &cut].map(|model| bits(model, &tokens[..count], chunk, all));
            assert!(one == other, "{arithmetic:?}, {limit:?}, {count} tokens in chunks of {chunk}");
            let [one, other] = [&whole, &cut].map(|model| steps(model, chunk));
            assert!(other > one + 10, "{limit:?}, chunks of {chunk}: {one} and {other} steps");
        }
    }
}

fn steps(model: &Model, chunk: usize) -> usize {
    let (file, config, target) = (model.file(), model.config(), model.target());
    let cache = CacheShape { context: 1200, ty: CacheType::F16 };
    let token = plan_token(file, config, cache, target).unwrap();
    let shape = BatchShape::of(chunk, Outputs::Last, 0, cache.context);
    plan_batch(config, &token, target, shape).unwrap().plan.steps.len()
}
