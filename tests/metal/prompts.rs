//! Runs prompts of the demonstration model as Metal source and compares the logits of every token with those of other
//! programs: in chunks that use a token's steps and in chunks that use tiles, with matrices of 8 x 8 and without, over
//! latents and over expanded keys and values.

use crate::clang::{Build, Level, Memory, Workshop};
use crate::common::goldens::{Golden, goldens};
use crate::common::models::relative_l2;
use crate::decode::laid_out;
use crate::emit::Shader;
use crate::execute::{Executor, local_buffers};
use crate::translate::Text;
use crate::variants::{apple, fable, shaders};
use std::collections::HashMap;
use wglm::tune::Choices;
use wglm::{CacheShape, CacheType, Config, Matrices};
use wglm_engine::model::{BatchPlan, BatchShape, BatchWriter, Outputs, plan_batch, plan_token};
use wglm_engine::plan::{Plan, RowHeader, Target};
use wglm_engine::shader::Variant;

/// The bounds are those on a GPU: for f32 sums in another order, for the rounding of the cache, and for f16 operands.
const EXACT: f64 = 2e-5;
const F16_CACHE: f64 = 1e-3;
const HALVES: f64 = 2e-3;
/// Rounding only the latents moves the logits of the reference by up to 7.0e-3.
const BLOCKS_CACHE: f64 = 1e-2;

/// Runs a golden's tokens in chunks of up to `chunk` tokens, and returns the worst error of known logits.
fn worst(
    shop: &Workshop,
    build: Build,
    (matrices, ty, expanded): (Matrices, CacheType, bool),
    chunk: usize,
    golden: &Golden,
) -> Result<f64, String> {
    let choices = Choices { expanded_rows: expanded.then_some(chunk), ..Choices::default() }.into();
    let (file, target) = (fable(), &Target { matrices, choices, ..apple() });
    let config = Config::read(&file).unwrap();
    let cache = CacheShape { context: golden.tokens.len().next_multiple_of(chunk), ty };
    let token = plan_token(&file, &config, cache, target).unwrap();
    let shape = BatchShape::of(chunk, Outputs::All, 0, cache.context);
    let BatchPlan { plan, head, .. } = plan_batch(&config, &token, target, shape).unwrap();
    let logits = head.unwrap().logits;
    let stride = logits.pitch;
    let by_matrices = plan.steps.iter().any(|step| step.kernel == "mla_attention_matrix8");
    assert_eq!(by_matrices, matrices == Matrices::Eight && ty != CacheType::F32);
    assert_eq!(plan.steps.iter().any(|step| step.kernel.starts_with("expand_kv")), expanded);

    let shaders: HashMap<Variant, Shader> = shaders([&plan]);
    let texts = shaders.values().map(Text::of).collect::<Result<Vec<_>, _>>()?;
    let program = shop.program(&texts, build)?;
    let weights: Vec<Vec<u8>> = plan.weights.iter().map(|weight| laid_out(&file, weight)).collect();
    let mut executor = Executor::new(&program, &plan, &shaders, &weights, &local_buffers(&plan))?;

    let (mut writer, mut worst) = (BatchWriter::new(&config), 0f64);
    let wanted = golden.logits("q4_0");
    let mut rows = golden.positions.iter().zip(wanted.chunks_exact(config.vocab)).peekable();
    for (index, tokens) in golden.tokens.chunks(chunk).enumerate() {
        let first = index * chunk;
        executor.write(Plan::BATCH, writer.write(&RowHeader::consecutive(first, tokens), plan.splits, 0))?;
        executor.submit(0..plan.steps.len())?;
        let bytes = executor.read(logits.buffer.local().unwrap(), 4 * stride * tokens.len())?;
        let computed: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
        while let Some((position, row)) = rows.next_if(|(position, _)| **position < first + tokens.len()) {
            let error = relative_l2(&computed[stride * (position - first)..][..config.vocab], row);
            assert!(error.is_finite(), "position {position}: {error}");
            worst = worst.max(error);
        }
    }
    assert!(rows.next().is_none(), "positions beyond the tokens");
    Ok(worst)
}

#[test]
fn extended_prompts_of_the_demonstration_model_compute_what_others_do() {
    let Some(shop) = Workshop::open() else { return };
    let mut goldens = goldens();
    goldens.sort_by_key(|golden| golden.tokens.len());
    let (shortest, longest) = (&goldens[0], &goldens[goldens.len() - 1]);
    let build = |level, memory| Build { level, memory };
    let (shared, noalias) = (build(Level::Fast, Memory::Shared), build(Level::Fast, Memory::Noalias));
    let plain = build(Level::Plain, Memory::Noalias);
    let (exact, half) = (CacheType::F32, CacheType::F16);
    let runs = [
        (noalias, (Matrices::None, exact, false), 16, shortest, EXACT),
        (noalias, (Matrices::None, exact, false), 64, longest, EXACT),
        (noalias, (Matrices::Eight, exact, false), 64, longest, HALVES),
        (plain, (Matrices::Eight, exact, false), 64, shortest, HALVES),
        (shared, (Matrices::Eight, exact, false), 64, shortest, HALVES),
        (noalias, (Matrices::Eight, half, false), 16, shortest, F16_CACHE), // f32 except for the cache
        (noalias, (Matrices::Eight, half, false), 64, longest, HALVES),
        (noalias, (Matrices::Eight, half, true), 64, longest, HALVES),
        (noalias, (Matrices::None, half, true), 64, longest, HALVES),
        (noalias, (Matrices::None, CacheType::Q8_0, false), 64, shortest, BLOCKS_CACHE),
        (noalias, (Matrices::Eight, CacheType::Q8_0, false), 64, longest, BLOCKS_CACHE),
        (noalias, (Matrices::Eight, CacheType::Q8_0, true), 64, longest, BLOCKS_CACHE),
    ];
    for (build, how, chunk, golden, bound) in runs {
        let about = format!("{} in chunks of {chunk} ({build:?}, {how:?})", golden.name);
        let told = worst(&shop, build, how, chunk, golden);
        let worst = told.unwrap_or_else(|fault| panic!("{about}: {fault}"));
        println!("{about}: worst relative L2 {worst:.2e}");
        assert!(worst < bound, "{about}: worst relative L2 {worst:.2e}");
    }
}
