//! Runs the kernels of a token of GLM-4.7-Flash, with its constants, on noise: every build computes the same. The model
//! has two layers, a dense one and one of experts. All experts except the selected ones are zeros, and most of the
//! vocabulary is left out, to limit the time on a CPU.

use crate::clang::{Build, Level, Memory, Workshop};
use crate::common::models::relative_l2;
use crate::decode::stored;
use crate::emit::Shader;
use crate::execute::{Executor, local_buffers};
use crate::shape::Shape;
use crate::translate::Text;
use crate::variants::{apple, header, shaders};
use std::collections::HashMap;
use tempfile::TempDir;
use wglm::{CacheShape, CacheType, Config};
use wglm_engine::kernels::Sampling;
use wglm_engine::model::{BatchPlan, BatchWriter, plan_token};
use wglm_engine::plan::{Plan, RowHeader, Weight};
use wglm_engine::shader::Variant;

/// The experts that every token selects, because of their bias.
const CHOSEN: [usize; 4] = [0, 17, 40, 63];
const TOKENS: [u32; 3] = [7, 500, 1000];
/// The bound on the distance of the logits of two builds, which sum in different orders.
const BOUND: f64 = 1e-4;

fn of_f32(count: usize, value: impl Fn(usize) -> f32) -> Vec<u8> {
    (0..count).flat_map(|i| value(i).to_le_bytes()).collect()
}

/// A weight's buffer: noise, with equal values for all selected experts.
fn noise(weight: &Weight) -> Vec<u8> {
    let [columns, rows, matrices] = weight.shape;
    if weight.name.ends_with("exp_probs_b.bias") {
        return of_f32(columns, |expert| if CHOSEN.contains(&expert) { 10.0 } else { 0.0 });
    }
    if weight.name.ends_with("norm.weight") {
        return of_f32(columns, |_| 1.0);
    }
    let experts = weight.name.contains("_exps.");
    let known = if experts { 1 } else { matrices };
    let rows_of_file = weight.quant.sample(columns * rows * known, weight.name.len() as u64);
    let streams = stored(weight, &rows_of_file, known);
    let mut buffer = vec![0; weight.bytes() as usize];
    for ((start, _), stream) in weight.streams().into_iter().zip(streams) {
        let places = if experts { CHOSEN.to_vec() } else { vec![0] };
        for place in places {
            buffer[start as usize + place * stream.len()..][..stream.len()].copy_from_slice(&stream);
        }
    }
    buffer
}

/// The logits that a build computes for the last token.
fn logits(shop: &Workshop, build: Build, config: &Config, planned: &BatchPlan) -> Result<Vec<f32>, String> {
    let plan = &planned.plan;
    let shaders: HashMap<Variant, Shader> = shaders([plan]);
    let texts = shaders.values().map(Text::of).collect::<Result<Vec<_>, _>>()?;
    let program = shop.program(&texts, build)?;
    let weights: Vec<Vec<u8>> = plan.weights.iter().map(noise).collect();
    let mut executor = Executor::new(&program, plan, &shaders, &weights, &local_buffers(plan))?;
    executor.write(Plan::SAMPLING, bytemuck::bytes_of(&Sampling::GREEDY))?;
    let mut writer = BatchWriter::new(config);
    for (position, token) in TOKENS.into_iter().enumerate() {
        executor.write(Plan::BATCH, writer.write(&RowHeader::consecutive(position, &[token]), plan.splits, 0))?;
        executor.submit(0..plan.steps.len())?;
    }
    Ok(bytemuck::pod_collect_to_vec(
        &executor.read(planned.head().unwrap().logits.buffer.local().unwrap(), 4 * config.vocab)?,
    ))
}

#[test]
fn extended_every_build_computes_the_same_for_glm_flash() {
    let Some(shop) = Workshop::open() else { return };
    let dir = TempDir::new().unwrap();
    let file = header(&dir, &Shape { vocab: 1024, ..Shape::glm(2) });
    let config = Config::read(&file).unwrap();
    let cache = CacheShape { context: 64, ty: CacheType::F32 };
    let planned = plan_token(&file, &config, cache, &apple()).unwrap();
    let of = |level, memory| logits(&shop, Build { level, memory }, &config, &planned).unwrap();
    let wanted = of(Level::Fast, Memory::Shared);
    assert!(wanted.iter().any(|logit| logit.abs() > 1e-3), "the logits are zeros");
    for level in Level::ALL {
        let error = relative_l2(&of(level, Memory::Noalias), &wanted);
        println!("{level:?}: relative L2 {error:.2e}");
        assert!(error < BOUND, "{level:?}: relative L2 {error:.2e}");
    }
}
