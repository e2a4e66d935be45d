//! Tests the sampler: what each filter keeps, the distribution of draws, and what is refused.

mod adjusting;
mod on_gpu;

use proptest::prelude::*;
use std::collections::BTreeSet;
use wglm::Error;
use wglm::sample::{Sampler, SamplerParams};

/// Parameters without filters, with a fixed seed.
fn open() -> SamplerParams {
    SamplerParams { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: Some(7), ..SamplerParams::default() }
}

fn draws(params: SamplerParams, logits: &[f32], count: usize) -> Vec<u32> {
    let mut sampler = Sampler::new(params).unwrap();
    (0..count).map(|_| sampler.sample(logits).unwrap()).collect()
}

/// All tokens that a sampler ever draws. The temperature is high, so that every kept token is drawn.
fn kept(params: SamplerParams, logits: &[f32]) -> Vec<u32> {
    let hot = SamplerParams { temperature: 1e6, ..params };
    draws(hot, logits, 2000).into_iter().collect::<BTreeSet<_>>().into_iter().collect()
}

/// Logits that give these probabilities at temperature 1.
fn logits(probabilities: &[f32]) -> Vec<f32> {
    probabilities.iter().map(|p| p.ln()).collect()
}

#[test]
fn greedy_takes_the_likeliest_and_of_equals_the_first() {
    let mut sampler = Sampler::new(SamplerParams::greedy()).unwrap();
    assert_eq!(sampler.sample(&[1.0, 3.0, 2.0]).unwrap(), 1);
    assert_eq!(sampler.sample(&[3.0, 1.0, 3.0]).unwrap(), 0);
    assert_eq!(sampler.sample(&[f32::NAN, -5.0, f32::NAN, -4.0]).unwrap(), 3);
    assert_eq!(sampler.sample(&[0.0, f32::INFINITY, f32::INFINITY]).unwrap(), 1);
}

/// Pearson's chi-square of 100,000 draws at the temperature against softmax(logits).
fn chi_square(temperature: f32, seed: u64, drawn_from: &[f32], logits: &[f32]) -> f64 {
    let count = 100_000;
    let weights: Vec<f64> = logits.iter().map(|&logit| f64::from(logit).exp()).collect();
    let mass: f64 = weights.iter().sum();
    let mut seen = vec![0.0; logits.len()];
    for token in draws(SamplerParams { temperature, seed: Some(seed), ..open() }, drawn_from, count) {
        seen[token as usize] += 1.0;
    }
    let expected = weights.iter().map(|weight| weight / mass * count as f64);
    seen.iter().zip(expected).map(|(seen, want)| (seen - want) * (seen - want) / want).sum()
}

#[test]
fn extended_draws_follow_the_distribution() {
    let logits: Vec<f32> = (0..20).map(|n| (n as f32 * 1.7).sin() * 2.0).collect();
    for temperature in [0.5, 1.0, 2.0] {
        let tempered: Vec<f32> = logits.iter().map(|logit| logit / temperature).collect();
        let mean = |wrong: f32| {
            let wanted: Vec<f32> = tempered.iter().map(|logit| logit * wrong).collect();
            (0..10).map(|seed| chi_square(temperature, seed, &logits, &wanted)).sum::<f64>() / 10.0
        };
        println!("{temperature}: {} {}", mean(1.0), mean(1.02));
        // With 19 degrees of freedom the mean of ten is 19 ± 2. A temperature that is two percent off must be detected.
        assert!((13.0..25.0).contains(&mean(1.0)), "{} at temperature {temperature}", mean(1.0));
        assert!(mean(1.02) > 25.0, "{} at temperature {temperature}", mean(1.02));
    }
}

#[test]
fn top_k_keeps_the_likeliest() {
    let logits = [1.0, 5.0, 3.0, 5.0, 4.0, f32::NAN, 4.0];
    for (top_k, want) in
        [(1, vec![1]), (2, vec![1, 3]), (3, vec![1, 3, 4]), (4, vec![1, 3, 4, 6]), (99, vec![0, 1, 2, 3, 4, 6])]
    {
        assert_eq!(kept(SamplerParams { top_k, ..open() }, &logits), want, "top_k {top_k}");
    }
    assert_eq!(kept(open(), &logits), [0, 1, 2, 3, 4, 6]);
}

#[test]
fn top_p_keeps_the_fewest_that_reach_it() {
    let logits = logits(&[0.1, 0.4, 0.2, 0.3]);
    for (top_p, want) in [
        (0.0, vec![1]),
        (0.39, vec![1]),
        (0.41, vec![1, 3]),
        (0.69, vec![1, 3]),
        (0.71, vec![1, 2, 3]),
        (0.91, vec![0, 1, 2, 3]),
    ] {
        assert_eq!(kept(SamplerParams { top_p, ..open() }, &logits), want, "top_p {top_p}");
    }
}

#[test]
fn top_p_counts_after_top_k_and_before_the_temperature() {
    // Of 0.4 and 0.3 the first has a share of 0.571.
    let logits = logits(&[0.1, 0.4, 0.2, 0.3]);
    assert_eq!(kept(SamplerParams { top_k: 2, top_p: 0.57, ..open() }, &logits), [1]);
    assert_eq!(kept(SamplerParams { top_k: 2, top_p: 0.58, ..open() }, &logits), [1, 3]);
}

#[test]
fn extended_top_p_may_keep_half_of_a_large_vocabulary() {
    // Uniform over 5000 tokens: the half with the lowest ids is kept, whatever the number of tokens that are sorted
    // first.
    let logits = vec![0.25; 5000];
    let seen = draws(SamplerParams { top_p: 0.5, ..open() }, &logits, 5000);
    assert!((2450..2500).contains(seen.iter().max().unwrap()), "{:?}", seen.iter().max());
}

#[test]
fn min_p_is_relative_to_the_likeliest() {
    let logits = logits(&[0.5, 0.26, 0.14, 0.1]);
    for (min_p, want) in [(1.0, vec![0]), (0.51, vec![0, 1]), (0.27, vec![0, 1, 2]), (0.19, vec![0, 1, 2, 3])] {
        let want: Vec<u32> =
            want.into_iter().filter(|&token| token == 0 || min_p <= [1.0, 0.52, 0.28, 0.2][token as usize]).collect();
        assert_eq!(kept(SamplerParams { min_p, ..open() }, &logits), want, "min_p {min_p}");
    }
    assert_eq!(kept(SamplerParams { min_p: 1.0, ..open() }, &[2.0, 1.0, 2.0]), [0, 2]);
}

#[test]
fn impossible_logits_are_never_chosen() {
    let low = f32::NEG_INFINITY;
    assert_eq!(kept(open(), &[low, f32::NAN, -3e38, low, 3e38]), [4]);
    assert_eq!(kept(open(), &[low, f32::NAN, 1.0, low, 1.0]), [2, 4]);
    assert_eq!(kept(open(), &[1.0, f32::INFINITY, f32::INFINITY]), [1, 2]);
    for params in [open(), SamplerParams::greedy()] {
        for logits in [&[][..], &[f32::NAN; 3], &[low, f32::NAN]] {
            let error = Sampler::new(params.clone()).unwrap().sample(logits).unwrap_err();
            assert!(matches!(error, Error::Argument { argument: "logits", .. }), "{error}");
        }
    }
}

#[test]
fn extreme_temperatures() {
    assert_eq!(draws(SamplerParams { temperature: f32::MIN_POSITIVE, ..open() }, &[1.0, 1.1, 0.9], 50), [1; 50]);
    assert_eq!(kept(SamplerParams { temperature: f32::MAX, ..open() }, &[1.0, 2.0, -2.0]), [0, 1, 2]);
}

#[test]
fn a_seed_determines_the_draws() {
    let logits: Vec<f32> = (0..1000).map(|n| (n as f32 * 0.37).sin() * 3.0).collect();
    let params = |seed| SamplerParams { seed, ..SamplerParams::default() };
    assert_eq!(draws(params(Some(1)), &logits, 200), draws(params(Some(1)), &logits, 200));
    assert_ne!(draws(params(Some(1)), &logits, 200), draws(params(Some(2)), &logits, 200));
    assert_ne!(draws(params(None), &logits, 200), draws(params(None), &logits, 200));
    // The generated seed can be read and used again.
    let mut sampler = Sampler::new(params(None)).unwrap();
    let first: Vec<_> = (0..200).map(|_| sampler.sample(&logits).unwrap()).collect();
    assert_eq!(draws(params(Some(sampler.seed())), &logits, 200), first);
    // A change of the generator, the order or the rounding would be detected here.
    assert_eq!(draws(params(Some(42)), &logits, 8), [734, 667, 991, 105, 347, 22, 819, 345]);
}

#[test]
fn parameters_out_of_range_are_refused_by_name() {
    let nan = f32::NAN;
    for (params, name) in [
        (SamplerParams { temperature: -0.1, ..open() }, "temperature"),
        (SamplerParams { temperature: nan, ..open() }, "temperature"),
        (SamplerParams { temperature: f32::INFINITY, ..open() }, "temperature"),
        (SamplerParams { top_p: 1.01, ..open() }, "top_p"),
        (SamplerParams { top_p: nan, ..open() }, "top_p"),
        (SamplerParams { min_p: -0.01, ..open() }, "min_p"),
        (SamplerParams { min_p: nan, ..open() }, "min_p"),
    ] {
        let error = Sampler::new(params).unwrap_err();
        assert!(matches!(error, Error::Argument { argument, .. } if argument == name), "{error}");
    }
}

fn any_logit() -> impl Strategy<Value = f32> {
    let not_finite = prop_oneof![Just(f32::NAN), Just(f32::NEG_INFINITY), Just(f32::INFINITY)];
    prop_oneof![8 => -20f32..20.0, 1 => any::<f32>(), 3 => not_finite]
}

proptest! {
    #[test]
    fn any_logits_give_a_possible_token_or_an_error(
        logits in prop::collection::vec(any_logit(), 0..300),
        temperature in prop_oneof![Just(0.0f32), 0.0f32..3.0, Just(f32::MAX), Just(1e-40)],
        top_k in 0..320usize,
        top_p in prop_oneof![Just(1.0f32), 0.0f32..=1.0],
        min_p in prop_oneof![Just(0.0f32), 0.0f32..=1.0],
        seed: u64,
    ) {
        let params = SamplerParams { temperature, top_k, top_p, min_p, seed: Some(seed), ..open() };
        let mut sampler = Sampler::new(params).unwrap();
        for _ in 0..3 {
            match sampler.sample(&logits) {
                Ok(token) => {
                    let logit = logits[token as usize];
                    prop_assert!(logit > f32::NEG_INFINITY);
                    if top_k > 0 {
                        prop_assert!(logits.iter().filter(|&&other| other > logit).count() < top_k);
                    }
                }
                Err(_) => prop_assert!(!logits.iter().any(|&logit| logit > f32::NEG_INFINITY)),
            }
        }
    }
}
