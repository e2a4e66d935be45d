//! `bench`: speed, in the table of llama-bench.

use super::args::BenchArgs;
use super::{model, output};
use std::time::Instant;
use wglm::model::CacheShape;
use wglm::{Model, Session};

/// One row: what is measured, at what depth.
struct Test {
    prompt: usize,
    generate: usize,
    depth: usize,
}

impl Test {
    fn name(&self) -> String {
        let kind = if self.generate > 0 { format!("tg{}", self.generate) } else { format!("pp{}", self.prompt) };
        if self.depth > 0 { format!("{kind} @ d{}", self.depth) } else { kind }
    }

    fn tokens(&self) -> usize {
        self.prompt + self.generate
    }
}

pub fn bench(args: BenchArgs) -> anyhow::Result<()> {
    let start = Instant::now();
    let model = model::load(&model::open(args.model.file.model.as_deref())?, &args.model)?;
    let loaded = start.elapsed();
    output::lines([
        format!("| {:<40} | {:<16} | {:>20} |", "device", "test", "t/s"),
        format!("| {:-<40} | {:-<16} | {:->20} |", "", "", ":"),
    ])?;
    for test in tests(&args) {
        let speeds = (0..args.repetitions).map(|_| measure(&model, &test)).collect::<anyhow::Result<Vec<_>>>()?;
        let (mean, deviation) = mean_and_deviation(&speeds);
        let figures = format!("{mean:.2} ± {deviation:.2}");
        output::lines([format!("| {:<40} | {:<16} | {figures:>20} |", model.gpu().report().name, test.name())])?;
    }
    output::note(format_args!("loaded in {:.2} s", loaded.as_secs_f64()));
    Ok(())
}

fn tests(args: &BenchArgs) -> Vec<Test> {
    let mut tests = Vec::new();
    for &depth in &args.n_depth {
        tests.extend(args.n_prompt.iter().map(|&prompt| Test { prompt, generate: 0, depth }));
        tests.extend(args.n_gen.iter().map(|&generate| Test { prompt: 0, generate, depth }));
    }
    tests.retain(|test| test.tokens() > 0);
    tests
}

/// Tokens per second, after the depth is filled and one token has run.
fn measure(model: &Model, test: &Test) -> anyhow::Result<f64> {
    let context = test.depth + test.tokens() + 1;
    let mut session = Session::with_cache(model, CacheShape { context, ..model.cache() })?;
    let vocab = model.config().vocab as u32;
    let tokens: Vec<u32> = (0..context as u32).map(|i| i.wrapping_mul(2_654_435_761) % vocab).collect();
    session.feed(&tokens[..test.depth + 1])?;
    session.most_likely()?;
    session.rewind(test.depth);
    let start = Instant::now();
    if test.prompt > 0 {
        session.feed(&tokens[test.depth..test.depth + test.prompt])?;
        session.most_likely()?;
    } else {
        let mut next = tokens[test.depth];
        for _ in 0..test.generate {
            session.feed(&[next])?;
            next = session.most_likely()?;
        }
    }
    Ok(test.tokens() as f64 / start.elapsed().as_secs_f64())
}

fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (mean, if values.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 })
}
