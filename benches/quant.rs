//! Measures how fast the CPU repacks weights for the GPU, which limits the speed of loading, and decodes them: bytes of
//! the file per second on one core.
//!
//! `cargo bench --bench quant -- repack`

#![allow(missing_docs)] // on what the macros below generate

use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime};
use std::hint::black_box;
use std::time::Duration;
use wglm_engine::quant::{QUANTS, Quant};

/// Rows as long as those of GLM-4.7-Flash, as many as stay in a core's cache, which is what loading repacks at a time.
const COLUMNS: usize = 2048;
const BYTES: usize = 64 << 10;

/// Rows of noise.
fn rows(quant: &Quant) -> Vec<u8> {
    let count = BYTES / (COLUMNS / quant.values * quant.bytes);
    quant.sample(count.max(1) * COLUMNS, 0)
}

fn group<'a>(c: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = c.benchmark_group(name);
    group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    group
}

fn repack(c: &mut Criterion) {
    let mut group = group(c, "repack");
    for quant in QUANTS {
        let rows = rows(quant);
        let blocks = rows.len() / quant.bytes;
        let mut streams: Vec<Vec<u8>> = quant.streams.iter().map(|stream| vec![0; stream.bytes * blocks]).collect();
        group.throughput(Throughput::Bytes(rows.len() as u64));
        group.bench_function(quant.name, |b| {
            b.iter(|| {
                let mut out: Vec<&mut [u8]> = streams.iter_mut().map(Vec::as_mut_slice).collect();
                quant.repack(black_box(&rows), COLUMNS, &mut out)
            });
        });
    }
}

fn decode(c: &mut Criterion) {
    let mut group = group(c, "decode");
    for quant in QUANTS {
        let rows = rows(quant);
        let mut values = vec![0f32; rows.len() / quant.bytes * quant.values];
        group.throughput(Throughput::Bytes(rows.len() as u64));
        group.bench_function(quant.name, |b| b.iter(|| quant.decode(black_box(&rows), &mut values)));
    }
}

criterion_group!(benches, repack, decode);
criterion_main!(benches);
