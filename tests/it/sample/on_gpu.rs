//! Tests sampling on the GPU: the filters keep what those of the sampler on the host keep, and the draws follow the
//! distribution.

use super::{draws, logits, open};
use crate::common::gpu::gpu;
use std::collections::BTreeSet;
use wglm::Gpu;
use wglm::sample::SamplerParams;
use wglm_engine::gpu::{Readback, ReadbackCopy};
use wglm_engine::kernels::Sampling;
use wglm_engine::plan::{BatchHeader, BufferRef, Builder, Executor, Plan, RowHeader, Target};
use wglm_engine::shader::Pipelines;

/// The steps that sample a token, with logits to sample from.
struct Chooser {
    gpu: Gpu,
    executor: Executor,
    token: Readback,
}

impl Chooser {
    fn new(logits: &[f32]) -> Self {
        let gpu = gpu();
        let mut plan = Builder::new(&Target::default(), 1);
        let tensor = plan.tensor("logits", [logits.len(), 1]);
        let slices = plan.slice_max("slices", &tensor).unwrap();
        plan.histogram("histogram", &tensor, &slices).unwrap();
        plan.sample("sample", &tensor, &slices).unwrap();
        let executor = Executor::new(&Pipelines::of(gpu), &plan.finish(), &[]).unwrap();
        let BufferRef::Local(local) = tensor.buffer else { panic!("logits are no activations") };
        let bytes: Vec<u8> = logits.iter().flat_map(|l| l.to_le_bytes()).collect();
        gpu.write(executor.local(local), 0, &bytes).unwrap();
        Self { gpu: gpu.clone(), executor, token: gpu.readback("token", 4).unwrap() }
    }

    fn set(&self, params: &SamplerParams) {
        let SamplerParams { temperature, top_k, top_p, min_p, seed, .. } = *params;
        let sampling = Sampling::draw(temperature, top_k, top_p, min_p, seed.unwrap());
        self.gpu.write(self.executor.local(Plan::SAMPLING), 0, bytemuck::bytes_of(&sampling)).unwrap();
    }

    fn at(&self, position: u32) -> u32 {
        let batch = BatchHeader { count: 1, ..BatchHeader::default() };
        let row = RowHeader { position, ..RowHeader::default() };
        let bytes = [bytemuck::bytes_of(&batch), bytemuck::bytes_of(&row)].concat();
        self.gpu.write(self.executor.local(Plan::BATCH), 0, &bytes).unwrap();
        let copy =
            ReadbackCopy { from: self.executor.local(Plan::SAMPLED), offset: 0, bytes: 4, to: &self.token, at: 0 };
        let done = self.executor.submit(0..3, &[copy]).unwrap();
        let mut bytes = [0; 4];
        self.gpu.read_into(&self.token, &mut bytes, &done).unwrap();
        u32::from_le_bytes(bytes)
    }
}

/// The tokens that are drawn at the first positions.
fn drawn(params: &SamplerParams, logits: &[f32], count: u32) -> Vec<u32> {
    let chooser = Chooser::new(logits);
    chooser.set(params);
    (0..count).map(|position| chooser.at(position)).collect()
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
    let by_position = indices(drawn(&open(), &flat, 3200));
    let by_seed = (0..3200).map(|seed| {
        chooser.set(&SamplerParams { seed: Some(seed), ..open() });
        chooser.at(5)
    });
    for (what, drawn) in [("positions", by_position), ("seeds", indices(by_seed.collect()))] {
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
            chooser.set(&params);
            let kept: BTreeSet<u32> = (0..700).map(|position| chooser.at(position)).collect();
            let want: BTreeSet<u32> = draws(params.clone(), &logits, 3000).into_iter().collect();
            assert_eq!(kept, want, "{name}, {params:?}");
        }
    }
}
