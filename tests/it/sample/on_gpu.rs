//! Tests sampling on the GPU: the filters keep what those of the sampler on the host keep, and the draws follow the
//! distribution.

use super::{draws, logits, open};
use crate::common::gpu::gpu;
use std::collections::BTreeSet;
use wglm::Gpu;
use wglm::sample::SamplerParams;
use wglm_engine::gpu::{Readback, ReadbackCopy};
use wglm_engine::kernels::Sampling;
use wglm_engine::plan::{BatchHeader, BufferRef, Builder, Executor, LocalId, Plan, RowHeader, Target, row_bytes};
use wglm_engine::shader::Pipelines;

/// The rows of a batch, each of which draws a token.
const ROWS: usize = 50;
/// The bytes of a row's result, which begins with the token.
const ENTRY: usize = 4 * Plan::SAMPLED_WORDS;

/// The steps that sample tokens, with logits to sample from, the same in each row.
struct Chooser {
    gpu: Gpu,
    executor: Executor,
    /// The step that draws. Those before it depend on the logits only.
    draw: usize,
    sampled: Readback,
}

impl Chooser {
    fn new(logits: &[f32]) -> Self {
        let gpu = gpu();
        let mut plan = Builder::for_rows(&Target::default(), 1, ROWS);
        plan.room_for_sequences(ROWS);
        let tensor = plan.tensor("logits", [logits.len(), ROWS]);
        let slices = plan.slice_max("slices", &tensor).unwrap();
        plan.histogram("histogram", &tensor, &slices).unwrap();
        let draw = plan.steps();
        plan.sample("sample", &tensor, &slices).unwrap();
        let executor = Executor::new(&Pipelines::of(gpu), &plan.finish(), &[]).unwrap();
        let BufferRef::Local(local) = tensor.buffer else { panic!("logits are no activations") };
        let row: Vec<f32> = logits.iter().copied().chain(std::iter::repeat(0.0)).take(tensor.stride).collect();
        gpu.write(executor.local(local), 0, bytemuck::cast_slice(&row.repeat(ROWS))).unwrap();
        let sampled = gpu.readback("sampled", (ROWS * ENTRY) as u64).unwrap();
        executor.submit(0..draw, &[]).unwrap();
        Self { gpu: gpu.clone(), executor, draw, sampled }
    }

    fn write(&self, local: LocalId, bytes: &[u8]) {
        self.gpu.write(self.executor.local(local), 0, bytes).unwrap();
    }

    /// The tokens that are drawn at these positions, each with a seed.
    fn drawn(&self, params: &SamplerParams, places: &[(u32, u64)]) -> Vec<u32> {
        places.chunks(ROWS).flat_map(|places| self.batch(params, places)).collect()
    }

    /// At most as many of them as there are rows.
    fn batch(&self, params: &SamplerParams, places: &[(u32, u64)]) -> Vec<u32> {
        let SamplerParams { temperature, top_k, top_p, min_p, .. } = *params;
        let mut batch =
            bytemuck::bytes_of(&BatchHeader { count: places.len() as u32, ..BatchHeader::default() }).to_vec();
        let mut sampling = Vec::new();
        for (index, &(position, seed)) in (0..).zip(places) {
            let row = RowHeader { position, sequence: index, result: index, ..RowHeader::default() };
            batch.extend_from_slice(bytemuck::bytes_of(&row));
            batch.resize(batch.len() + row_bytes(1) - size_of::<RowHeader>(), 0);
            sampling.push(Sampling::draw(temperature, top_k, top_p, min_p, seed));
        }
        self.write(Plan::BATCH, &batch);
        self.write(Plan::SAMPLING, bytemuck::cast_slice(&sampling));
        let mut bytes = vec![0; places.len() * ENTRY];
        let from = self.executor.local(Plan::SAMPLED);
        let copy = ReadbackCopy { from, offset: 0, bytes: bytes.len() as u64, to: &self.sampled, at: 0 };
        let done = self.executor.submit([self.draw], &[copy]).unwrap();
        self.gpu.read_into(&self.sampled, &mut bytes, &done).unwrap();
        let token = |entry: &[u8]| u32::from_le_bytes(entry[..4].try_into().unwrap());
        bytes.chunks_exact(ENTRY).map(token).collect()
    }

    /// The tokens that are drawn at the first positions.
    fn first(&self, params: &SamplerParams, count: u32) -> Vec<u32> {
        let places: Vec<(u32, u64)> = (0..count).map(|position| (position, params.seed.unwrap())).collect();
        self.drawn(params, &places)
    }
}

/// The tokens that are drawn at the first positions.
fn drawn(params: &SamplerParams, logits: &[f32], count: u32) -> Vec<u32> {
    Chooser::new(logits).first(params, count)
}

/// Pearson's chi-square of the draws against weights.
fn chi_square(drawn: &[usize], weights: &[f64]) -> f64 {
    let mut seen = vec![0.0; weights.len()];
    drawn.iter().for_each(|&token| seen[token] += 1.0);
    let mass: f64 = weights.iter().sum();
    let expected = weights.iter().map(|weight| weight / mass * drawn.len() as f64);
    seen.iter().zip(expected).map(|(seen, want)| (seen - want) * (seen - want) / want.max(1e-300)).sum()
}

fn indices(drawn: Vec<u32>) -> Vec<usize> {
    drawn.into_iter().map(|token| token as usize).collect()
}

#[test]
fn extended_draws_follow_the_distribution() {
    let logits: Vec<f32> = (0..20).map(|n| (n as f32 * 1.7).sin() * 2.0).collect();
    for temperature in [0.5, 2.0] {
        let drawn = indices(drawn(&SamplerParams { temperature, ..open() }, &logits, 10_000));
        let weights = |wrong: f64| -> Vec<f64> {
            logits.iter().map(|&l| (f64::from(l) / f64::from(temperature) * wrong).exp()).collect()
        };
        let (right, wrong) = (chi_square(&drawn, &weights(1.0)), chi_square(&drawn, &weights(1.1)));
        println!("temperature {temperature}: {right:.1}, as if it were ten percent off {wrong:.1}");
        // With 19 degrees of freedom the value exceeds 43.8 once in a thousand cases.
        assert!(right < 43.8 && wrong > 43.8, "{right} and {wrong} at temperature {temperature}");
    }
}

/// The distribution of the kept tokens is not changed by the filters.
#[test]
fn extended_filters_do_not_change_the_distribution() {
    let logits = logits(&[0.05, 0.3, 0.02, 0.25, 0.2, 0.08, 0.1]);
    // Of the five likeliest tokens (0.93 in all) those that reach 0.8 (0.744 in all) are kept, and of these all that
    // are at least a third as likely as the likeliest.
    let params = SamplerParams { top_k: 5, top_p: 0.8, min_p: 0.3, temperature: 2.0, ..open() };
    let drawn = indices(drawn(&params, &logits, 6000));
    assert_eq!(drawn.iter().copied().collect::<BTreeSet<_>>(), BTreeSet::from([1, 3, 4]));
    let weights = [0.0, 0.3f64.sqrt(), 0.0, 0.25f64.sqrt(), 0.2f64.sqrt(), 0.0, 0.0];
    let distance = chi_square(&drawn, &weights);
    println!("{distance:.1}");
    assert!(distance < 13.8, "{distance} with 2 degrees of freedom"); // once in a thousand
}

/// Draws at neighbouring positions, with neighbouring seeds or of neighbouring tokens are independent.
#[test]
fn extended_draws_are_independent() {
    let flat = [0.0; 8];
    let chooser = Chooser::new(&flat);
    let seeds: Vec<(u32, u64)> = (0..3200).map(|seed| (5, seed)).collect();
    let (by_position, by_seed) = (chooser.first(&open(), 3200), chooser.drawn(&open(), &seeds));
    for (what, drawn) in [("positions", indices(by_position)), ("seeds", indices(by_seed))] {
        for apart in [1, 2, 4] {
            let pairs: Vec<usize> = drawn.iter().zip(&drawn[apart..]).map(|(a, b)| 8 * a + b).collect();
            let distance = chi_square(&pairs, &[1.0; 64]);
            println!("{what} {apart} apart: {distance:.1}");
            assert!(distance < 103.4, "{what} {apart} apart: {distance}"); // 63 degrees of freedom, once in a thousand
        }
    }
}

/// In a large vocabulary of equally likely tokens no part is preferred.
#[test]
fn extended_draws_reach_all_of_a_large_vocabulary() {
    let drawn = indices(drawn(&open(), &vec![0.25; 50_000], 3200));
    let parts: Vec<usize> = drawn.iter().map(|token| token * 32 / 50_000).collect();
    let weights: Vec<f64> =
        (0..32).map(|part| (0..50_000).filter(|token| token * 32 / 50_000 == part).count() as f64).collect();
    let distance = chi_square(&parts, &weights);
    let places = chi_square(&drawn.iter().map(|token| token % 4).collect::<Vec<_>>(), &[1.0; 4]);
    println!("{distance:.1}, of the four that are read together {places:.1}");
    assert!(distance < 61.1 && places < 16.3, "{distance} {places}"); // once in a thousand
}

#[test]
fn extended_filters_keep_the_same_as_on_the_host() {
    let nan = f32::NAN;
    let spread: Vec<f32> = (0..40).map(|n| (n as f32 * 2.3).sin() * 4.0).collect();
    let peaked: Vec<f32> = (0..40).map(|n| if n == 23 { 20.0 } else { (n as f32 * 0.7).cos() }).collect();
    let tied: Vec<f32> = (0..40).map(|n| ((n * n) % 7) as f32 * 0.5).collect();
    let holes: Vec<f32> = (0..40).map(|n| if n % 3 == 0 { nan } else { n as f32 * 0.1 }).collect();
    let ways = [
        (0, 1.0, 0.0),
        (5, 1.0, 0.0),
        (0, 0.81, 0.0),
        (12, 0.9, 0.2),
        (0, 0.999, 0.02),
        (3, 0.0, 0.0),
        (100, 1.0, 1.0),
    ];
    for (name, logits) in
        [("spread", spread), ("peaked", peaked), ("flat", vec![-1.5; 40]), ("tied", tied), ("holes", holes)]
    {
        let chooser = Chooser::new(&logits);
        for (top_k, top_p, min_p) in ways {
            let params = SamplerParams { temperature: 1e6, top_k, top_p, min_p, ..open() };
            let kept: BTreeSet<u32> = chooser.first(&params, 700).into_iter().collect();
            let want: BTreeSet<u32> = draws(params.clone(), &logits, 3000).into_iter().collect();
            assert_eq!(kept, want, "{name}, {params:?}");
        }
    }
}
