//! Measures how long it takes to sample a token from the logits of a full vocabulary: with the sampler on the host, and
//! with the kernels on the GPU.
//!
//! `cargo bench --bench sampling -- host`

#![allow(missing_docs)] // on what the macros below generate

use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime};
use std::time::Duration;
use wglm::sample::{Sampler, SamplerParams};
use wglm::{Gpu, GpuOptions};
use wglm_engine::kernels::Sampling;
use wglm_engine::plan::{BatchHeader, BufferRef, Builder, Executor, Plan, Target};
use wglm_engine::shader::Pipelines;

/// The size of GLM's vocabulary.
const VOCAB: u32 = 154_880;

/// Roughly the distribution of a model, a few likely tokens above many unlikely ones; and all tokens equally likely.
fn distributions() -> [(&'static str, Vec<f32>); 2] {
    let noise = |n: u32| (n.wrapping_mul(2_654_435_761) >> 8) as f32 / 1e6 - 8.0;
    let peaked = (0..VOCAB).map(|n| noise(n) + if n % 9973 == 0 { 16.0 } else { 0.0 }).collect();
    [("peaked", peaked), ("flat", vec![0.0; VOCAB as usize])]
}

fn params() -> [(&'static str, SamplerParams); 6] {
    let open =
        SamplerParams { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: Some(7), ..SamplerParams::default() };
    [
        ("all", open.clone()),
        ("min-p 0.05", SamplerParams { min_p: 0.05, ..open.clone() }),
        ("top-p 0.95", SamplerParams { top_p: 0.95, ..open.clone() }),
        ("top-k 40", SamplerParams { top_k: 40, ..open.clone() }),
        ("top-k 40, top-p 0.95, min-p 0.05", SamplerParams { top_k: 40, top_p: 0.95, min_p: 0.05, ..open }),
        ("greedy", SamplerParams::greedy()),
    ]
}

fn group<'a>(c: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = c.benchmark_group(name);
    group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    group
}

fn host(c: &mut Criterion) {
    let mut group = group(c, "host");
    for (shape, logits) in distributions() {
        for (name, params) in params() {
            let Ok(mut sampler) = Sampler::new(params) else { continue };
            group.bench_function(format!("{shape}, {name}"), |b| b.iter(|| sampler.sample(&logits)));
        }
    }
}

/// The time of the kernels by the GPU's timestamps. Nothing is measured on an adapter without timestamps.
fn gpu(c: &mut Criterion) {
    let Ok(gpu) = Gpu::open(&GpuOptions { checks: false, ..GpuOptions::from_env().unwrap_or_default() }) else {
        return;
    };
    if !gpu.report().timestamps {
        return;
    }
    let mut group = group(c, "gpu");
    for (shape, logits) in distributions() {
        for (name, params) in params() {
            let Ok(executor) = sampling(&gpu, &logits, &params) else { continue };
            group.bench_function(format!("{shape}, {name}"), |b| {
                b.iter_custom(|runs| {
                    let run = |_| executor.time(&[&[0], &[1], &[2]]).unwrap_or_default().iter().sum::<f64>();
                    Duration::from_nanos((0..runs).map(run).sum::<f64>() as u64)
                });
            });
        }
    }
}

/// The three steps that sample a token, with logits and parameters in place.
fn sampling(gpu: &Gpu, logits: &[f32], params: &SamplerParams) -> wglm::Result<Executor> {
    let mut plan = Builder::new(&Target::default(), 1);
    let tensor = plan.tensor("logits", [logits.len(), 1]);
    let slices = plan.slice_max("slices", &tensor)?;
    plan.histogram("histogram", &tensor, &slices)?;
    plan.sample("sample", &tensor, &slices)?;
    let executor = Executor::new(&Pipelines::new(gpu), &plan.finish(), &[])?;
    if let BufferRef::Local(local) = tensor.buffer {
        gpu.write(executor.local(local), 0, bytemuck::cast_slice(logits))?;
    }
    let SamplerParams { temperature, top_k, top_p, min_p, seed, .. } = *params;
    let drawn = Sampling::draw(temperature, top_k, top_p, min_p, seed.unwrap_or_default());
    gpu.write(executor.local(Plan::SAMPLING), 0, bytemuck::bytes_of(&drawn))?;
    gpu.write(executor.local(Plan::BATCH), 0, bytemuck::bytes_of(&BatchHeader { count: 1, ..BatchHeader::default() }))?;
    Ok(executor)
}

criterion_group!(benches, host, gpu);
criterion_main!(benches);
