//! The plans of batches: every step binds what its shader declares, inside buffers that exist, and uses only the
//! weights and caches of the token's plan.

use super::plans::{buffers, grids, mismatch, models, planned, repeated, targets};
use std::sync::Arc;
use wglm::{CacheType, Config, Gguf, Matrices, PromptOptions};
use wglm_engine::model::{BatchPlan, BatchShape, Outputs, plan_batch};
use wglm_engine::plan::{LocalId, Purpose, Target, Team};
use wglm_engine::shader::reflect;

const SHAPES: [BatchShape; 6] = [
    BatchShape { rows: 8, outputs: Outputs::Sequences, depth: 0 },
    BatchShape { rows: 16, outputs: Outputs::All, depth: 0 },
    BatchShape { rows: 512, outputs: Outputs::Last, depth: 0 },
    BatchShape { rows: 512, outputs: Outputs::LastOfEach { each: 128 }, depth: 0 },
    BatchShape { rows: 512, outputs: Outputs::Last, depth: 16 << 10 },
    BatchShape { rows: PromptOptions::MAX_CHUNK, outputs: Outputs::Last, depth: 200_000 },
];

fn batch(file: &Gguf, token: &BatchPlan, target: &Target, shape: BatchShape) -> BatchPlan {
    plan_batch(&Config::read(file).unwrap(), token, target, shape).unwrap()
}

/// Every model's plans, for every target and shape, each with the plan of a token. The type of cache varies, so that
/// each one occurs for every model, and for every target and shape.
fn plans() -> Vec<(String, Arc<BatchPlan>, BatchPlan)> {
    let mut plans = Vec::new();
    for (model, (name, file)) in models().into_iter().enumerate() {
        let matrices = [Matrices::Eight, Matrices::Sixteen].map(|matrices| Target { matrices, ..Target::default() });
        for (index, target) in [targets(), matrices.to_vec()].concat().iter().enumerate() {
            let rank = Config::read(&file).unwrap().latent_rank;
            let types: Vec<CacheType> = CacheType::ALL.into_iter().filter(|ty| ty.holds(rank)).collect();
            let ty = types[(model + index) % types.len()];
            let token = Arc::new(planned(&file, target, ty));
            for shape in SHAPES {
                let batch = batch(&file, &token, target, shape);
                plans.push((format!("{name} ({target:?}, {ty:?}, {shape:?})"), token.clone(), batch));
            }
        }
    }
    plans
}

#[test]
fn extended_batches_and_tokens_share_weights_and_caches() {
    for (name, token, batch) in plans() {
        let (shared, plan) = (batch.shared(&token), &batch.plan);
        assert!(Arc::ptr_eq(&plan.weights, &token.plan.weights), "{name}: weights of its own");
        let caches: Vec<LocalId> = plan.caches().collect();
        let others = if batch.last.is_some() { 4 } else { 3 };
        assert_eq!(
            shared.len(),
            caches.len() + others,
            "{name}: the caches, the lists of their pages, what is sampled, how, and what the head reads"
        );
        assert!(caches.iter().all(|cache| shared.iter().any(|(here, _)| here == cache)), "{name}: a cache of its own");
        for (here, there) in shared {
            let (here, there) = (plan.local(here), token.plan.local(there));
            assert_eq!(
                (here.bytes, here.purpose),
                (there.bytes, there.purpose),
                "{name}: {} {}",
                here.name,
                there.name
            );
        }
    }
}

#[test]
fn extended_every_step_of_a_batch_fits() {
    let mut complaints = Vec::new();
    let mut known = std::collections::HashMap::new();
    for (name, _, BatchPlan { plan, .. }) in plans() {
        assert_eq!(repeated(plan.steps.iter().map(|s| s.label.as_str())), [""; 0], "{name}: steps");
        assert_eq!(repeated(plan.variants.iter().map(|v| v.label.as_str())), [""; 0], "{name}: variants");
        for step in &plan.steps {
            let variant = &plan.variants[step.variant];
            let mut of_step = [grids(&plan, step), buffers(&plan, step)].concat();
            match known.entry(variant.clone()).or_insert_with(|| reflect(variant)) {
                Ok(reflected) => of_step.extend(mismatch(step, reflected)),
                Err(error) => of_step.push(error.to_string()),
            }
            complaints.extend(of_step.iter().map(|c| format!("{name} {}: {c}", step.label)));
        }
    }
    println!("{} shaders", known.len());
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

/// Rows of different sequences have different KV rows, so plans for them have no kernel whose workgroups share the KV
/// rows of several rows.
#[test]
fn rows_of_different_sequences_share_no_kv_rows() {
    let (_, file) = models().into_iter().find(|(name, _)| name == "fable").unwrap();
    for matrices in [Matrices::None, Matrices::Eight, Matrices::Sixteen] {
        let target = &Target { matrices, ..Target::default() };
        let token = planned(&file, target, CacheType::F16);
        let kernels = |outputs| -> Vec<&str> {
            let plan = batch(&file, &token, target, BatchShape { rows: 8, outputs, depth: 0 }).plan;
            plan.steps.iter().map(|step| step.kernel).filter(|kernel| kernel.starts_with("mla_attention")).collect()
        };
        let apart = kernels(Outputs::Sequences);
        assert!(apart.iter().all(|kernel| ["mla_attention", "mla_attention_matrix"].contains(kernel)), "{apart:?}");
        let together = kernels(Outputs::Last);
        assert_eq!(together.contains(&"mla_attention_matrix8"), matrices == Matrices::Eight, "{together:?}");
    }
}

/// Plans for several prompts need no kernels besides those of plans for one prompt, and divide attention as these do.
#[test]
fn several_prompts_need_no_kernels_of_their_own() {
    let (_, file) = models().into_iter().find(|(name, _)| name == "fable").unwrap();
    let matrices = [Matrices::Eight, Matrices::Sixteen].map(|matrices| Target { matrices, ..Target::default() });
    for target in [targets(), matrices.to_vec()].concat() {
        let token = planned(&file, &target, CacheType::F16);
        for (each, rows) in [(32, 128), (128, 128), (128, 256), (128, 512), (256, 512)] {
            for depth in [0, 16 << 10] {
                let of = |rows| BatchShape { rows, outputs: Outputs::Last, depth };
                let [alone, large] = [each, rows].map(|rows| batch(&file, &token, &target, of(rows)).plan);
                let together = batch(&file, &token, &target, of(each).of_prompts(rows)).plan;
                if alone.aligned == 0 {
                    assert!(each < 128, "{target:?}, {each}: a plan of few rows");
                    continue;
                }
                let known = |variant| alone.variants.contains(variant) || large.variants.contains(variant);
                let others: Vec<_> = together.variants.iter().filter(|variant| !known(variant)).collect();
                assert!(others.is_empty(), "{target:?}, {each} of {rows}, {depth}: {others:?}");
                assert_eq!((together.splits, together.aligned), (alone.splits, alone.aligned), "{target:?}, {each}");
            }
        }
    }
}

/// All layers share activations. tests/it/synth.rs tests their size for the full shape.
#[test]
fn layers_share_activations() {
    let (_, file) = models().into_iter().find(|(name, _)| name == "fable").unwrap();
    let target = &Target { team: Team::Subgroup, ..Target::default() };
    let token = planned(&file, target, CacheType::F16);
    let scratch = |tokens| {
        let shape = BatchShape { rows: tokens, outputs: Outputs::Last, depth: 0 };
        batch(&file, &token, target, shape).plan.local_memory(Purpose::Scratch)
    };
    assert!(scratch(512) < 64 << 20, "{} bytes", scratch(512));
    assert!(scratch(512) < 9 * scratch(64), "{} and {} bytes", scratch(512), scratch(64));
}
