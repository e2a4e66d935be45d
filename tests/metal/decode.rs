//! Runs the demonstration model as Metal source, step by step, and compares it with the results of other programs.

use crate::clang::{Build, Level, Memory, Workshop};
use crate::common::covering::Extent;
use crate::common::goldens::{Golden, goldens};
use crate::common::models::relative_l2;
use crate::emit::Shader;
use crate::execute::{Executor, local_buffers};
use crate::translate::Text;
use crate::variants::{apple, fable, shaders};
use std::collections::HashMap;
use std::time::Instant;
use wglm::{CacheShape, CacheType, Config, Gguf, Matrices};
use wglm_engine::kernels::Sampling;
use wglm_engine::model::{BatchPlan, BatchWriter, plan_token};
use wglm_engine::plan::{Plan, RowHeader, Target, Weight};
use wglm_engine::quant;
use wglm_engine::shader::Variant;

/// The bounds are those for shaders on a GPU (tests/it/goldens.rs): only the order of f32 sums and the rounding of the
/// cache differ.
const EXACT: f64 = 2e-5;
const F16_CACHE: f64 = 1e-3;
/// Rounding only the latents moves the logits of the reference by up to 1.8e-3 in the shortest of the dialogues.
const BLOCKS_CACHE: f64 = 3e-3;

/// The demonstration model on the machine.
struct Model {
    executor: Executor,
    planned: BatchPlan,
    writer: BatchWriter,
    vocab: usize,
}

/// A weight's buffer, as an upload writes it. In this file every weight is a tensor; vectors may have any type.
pub fn laid_out(file: &Gguf, weight: &Weight) -> Vec<u8> {
    let tensor = file.tensor(&weight.name).unwrap_or_else(|| panic!("no tensor `{}`", weight.name));
    let data = file.read_all(tensor).unwrap();
    let same = tensor.ty.id == weight.quant.id;
    let rows = if same { data } else { decoded(tensor.ty.id, &data, weight.shape.iter().product()) };
    let mut buffer = vec![0; weight.bytes() as usize];
    for ((start, _), stream) in weight.streams().into_iter().zip(stored(weight, &rows, weight.shape[2])) {
        buffer[start as usize..][..stream.len()].copy_from_slice(&stream);
    }
    buffer
}

/// The streams of some of a weight's matrices.
pub fn stored(weight: &Weight, rows: &[u8], matrices: usize) -> Vec<Vec<u8>> {
    let blocks = weight.quant.blocks(weight.shape[0]) * weight.shape[1] * matrices;
    let mut streams: Vec<Vec<u8>> = weight.quant.streams.iter().map(|s| vec![0; s.bytes * blocks]).collect();
    let mut parts: Vec<&mut [u8]> = streams.iter_mut().map(Vec::as_mut_slice).collect();
    weight.quant.repack(rows, weight.shape[0], &mut parts).unwrap();
    streams
}

fn decoded(ty: u32, stored: &[u8], count: usize) -> Vec<u8> {
    let mut values = vec![0f32; count];
    quant::by_id(ty).unwrap().decode(stored, &mut values).unwrap();
    bytemuck::cast_slice(&values).to_vec()
}

impl Model {
    /// Compiles the kernels of a token, and loads the weights.
    fn load(shop: &Workshop, build: Build, cache: CacheShape, matrices: Matrices) -> Result<Self, String> {
        let file = fable();
        let config = Config::read(&file).unwrap();
        let planned = plan_token(&file, &config, cache, &Target { matrices, ..apple() }).unwrap();
        let by_matrices = planned.plan.steps.iter().any(|step| step.kernel == "mla_attention_matrix8");
        assert_eq!(by_matrices, matrices == Matrices::Eight && cache.ty != CacheType::F32);
        let shaders: HashMap<Variant, Shader> = shaders([&planned.plan]);
        let texts = shaders.values().map(Text::of).collect::<Result<Vec<_>, _>>()?;
        let program = shop.program(&texts, build)?;
        let weights: Vec<Vec<u8>> = planned.plan.weights.iter().map(|weight| laid_out(&file, weight)).collect();
        let mut executor = Executor::new(&program, &planned.plan, &shaders, &weights, &local_buffers(&planned.plan))?;
        executor.write(Plan::SAMPLING, bytemuck::bytes_of(&Sampling::GREEDY))?;
        Ok(Self { executor, writer: BatchWriter::new(&config), vocab: config.vocab, planned })
    }

    /// Computes a token at a position, and its logits if `output`.
    fn feed(&mut self, position: usize, token: u32, output: bool) -> Result<(), String> {
        let plan = &self.planned.plan;
        let row = RowHeader::consecutive(position, &[token]);
        self.executor.write(Plan::BATCH, self.writer.write(&row, plan.splits, 0))?;
        let end = if output { plan.steps.len() } else { plan.head };
        self.executor.submit(0..end)
    }

    fn logits(&mut self) -> Result<Vec<f32>, String> {
        let bytes = self.executor.read(self.planned.head().unwrap().logits.buffer.local().unwrap(), 4 * self.vocab)?;
        Ok(bytemuck::pod_collect_to_vec(&bytes))
    }

    fn chosen(&mut self) -> Result<u32, String> {
        Ok(bytemuck::pod_read_unaligned(&self.executor.read(Plan::SAMPLED, 4)?))
    }
}

/// The logits at all known positions of a golden.
fn check_logits(model: &mut Model, golden: &Golden) -> Result<f64, String> {
    let wanted = golden.logits("q4_0");
    let mut rows = golden.positions.iter().zip(wanted.chunks_exact(model.vocab)).peekable();
    let mut worst = 0f64;
    for (position, token) in golden.tokens.iter().enumerate() {
        let known = rows.next_if(|(known, _)| **known == position);
        model.feed(position, *token, known.is_some())?;
        if let Some((_, row)) = known {
            let error = relative_l2(&model.logits()?, row);
            assert!(error.is_finite(), "position {position}: {error}");
            worst = worst.max(error);
        }
    }
    assert!(rows.next().is_none(), "positions beyond the tokens");
    Ok(worst)
}

/// The greedy continuation of the prompt.
fn check_continuation(model: &mut Model, golden: &Golden) -> Result<(), String> {
    for (position, token) in golden.tokens[..golden.prompt].iter().enumerate() {
        model.feed(position, *token, position + 1 == golden.prompt)?;
    }
    for (index, want) in golden.greedy("q4_0").into_iter().enumerate() {
        assert_eq!(model.chosen()? as usize, want, "{}: token {index} of the continuation", golden.name);
        model.feed(golden.prompt + index, RowHeader::SAMPLED, true)?;
    }
    Ok(())
}

/// Compares logits and, with the exact cache, the continuation.
fn check(shop: &Workshop, build: Build, ty: CacheType, matrices: Matrices, golden: &Golden) -> Result<(), String> {
    let (start, exact) = (Instant::now(), ty == CacheType::F32);
    let context = golden.tokens.len().max(golden.prompt + golden.greedy("q4_0").len());
    let mut model = Model::load(shop, build, CacheShape { context, ty }, matrices)?;
    let worst = check_logits(&mut model, golden)?;
    let bound = match ty {
        CacheType::Q8_0 => BLOCKS_CACHE,
        _ if exact => EXACT,
        _ => F16_CACHE,
    };
    assert!(worst < bound, "worst relative L2 {worst:.2e}");
    if exact {
        check_continuation(&mut model, golden)?;
    }
    let (count, seconds) = (golden.tokens.len(), start.elapsed().as_secs_f32());
    println!(
        "{} ({build:?}, {ty:?} cache, {matrices:?}): {count} tokens, worst relative L2 {worst:.2e}, {seconds:.1} s",
        golden.name
    );
    Ok(())
}

#[test]
fn the_demonstration_model_computes_what_others_do() {
    let Some(shop) = Workshop::open() else { return };
    let mut goldens = goldens();
    goldens.sort_by_key(|golden| golden.tokens.len());
    let fast = Build { level: Level::Fast, memory: Memory::Noalias };
    let (exact, half, shortest) = (CacheType::F32, CacheType::F16, &goldens[0]);
    let runs = if Extent::asked() == Extent::FEW {
        vec![(fast, exact, Matrices::None, shortest), (fast, half, Matrices::Eight, shortest)]
    } else {
        let mut runs: Vec<_> = goldens.iter().map(|golden| (fast, exact, Matrices::None, golden)).collect();
        let others = Build::ALL.into_iter().filter(|build| *build != fast);
        runs.extend(others.map(|build| (build, exact, Matrices::None, shortest)));
        for ty in [half, CacheType::Q8_0] {
            runs.extend([Matrices::None, Matrices::Eight].map(|matrices| (fast, ty, matrices, shortest)));
        }
        runs
    };
    for (build, ty, matrices, golden) in runs {
        let fault = |fault| panic!("{} ({build:?}, {ty:?} cache, {matrices:?}): {fault}", golden.name);
        check(&shop, build, ty, matrices, golden).unwrap_or_else(fault);
    }
}
