//! Tests logit bias, penalties and log-probabilities on the host.

use super::open;
use std::collections::BTreeSet;
use wglm::Error;
use wglm::sample::{Sampler, SamplerParams, logprobs};

/// A sampler that has accepted these tokens.
fn after(params: SamplerParams, tokens: &[u32]) -> Sampler {
    let mut sampler = Sampler::new(params).unwrap();
    tokens.iter().for_each(|token| sampler.accept(*token));
    sampler
}

fn greedy(params: SamplerParams) -> SamplerParams {
    SamplerParams { temperature: 0.0, ..params }
}

/// A token's logit after bias and penalties, to a hundredth, found by comparing it with other logits in greedy
/// sampling.
fn adjusted(params: &SamplerParams, tokens: &[u32], logit: f32) -> f32 {
    let beaten = |rival: f32| after(greedy(params.clone()), tokens).sample(&[logit, rival, -1e6]).unwrap() == 0;
    let (mut low, mut high) = (-100.0, 100.0);
    assert!(beaten(low) && !beaten(high));
    while high - low > 0.001 {
        let middle = 0.5 * (low + high);
        if beaten(middle) { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

#[test]
fn logits_change_as_in_llama_cpp() {
    let none = open();
    let repeat = SamplerParams { repeat_penalty: 2.0, ..open() };
    let both = SamplerParams { presence_penalty: 0.5, frequency_penalty: 0.25, ..open() };
    let all = SamplerParams { logit_bias: vec![(0, 1.0), (0, 2.0)], repeat_penalty: 2.0, ..both.clone() };
    for (params, tokens, logit, want) in [
        (&none, &[0, 0][..], 3.0, 3.0),
        (&repeat, &[2, 0], 3.0, 1.5),
        (&repeat, &[0, 0, 0], -3.0, -6.0),
        (&repeat, &[2], 3.0, 3.0),
        (&both, &[0], 3.0, 2.25),
        (&both, &[0, 2, 0, 0], 3.0, 1.75),
        (&both, &[], 3.0, 3.0),
        (&all, &[], 1.0, 4.0),
        (&all, &[0, 0], 1.0, 1.0),
        (&all, &[0, 0], -5.0, -5.0),
    ] {
        let got = adjusted(params, tokens, logit);
        assert!((got - want).abs() < 0.01, "{logit} after {tokens:?} became {got}, expected {want}: {params:?}");
    }
}

#[test]
fn only_the_last_tokens_count() {
    let params = |repeat_last_n| SamplerParams { presence_penalty: 1.0, repeat_last_n, ..open() };
    for (last, tokens, penalised) in
        [(0, &[0][..], false), (1, &[0], true), (1, &[0, 2], false), (3, &[0, 2, 2], true), (3, &[0, 2, 2, 2], false)]
    {
        let got = adjusted(&params(last), tokens, 5.0);
        assert_eq!(got < 4.5, penalised, "the last {last} of {tokens:?}: {got}");
    }
    let long: Vec<u32> = std::iter::once(0).chain([2; 1000]).collect();
    assert!(adjusted(&params(usize::MAX), &long, 5.0) < 4.5);
}

#[test]
fn a_banned_token_is_never_chosen() {
    let params = SamplerParams { logit_bias: vec![(1, f32::NEG_INFINITY), (3, 100.0)], ..open() };
    let mut sampler = Sampler::new(params.clone()).unwrap();
    let seen: BTreeSet<u32> = (0..200).map(|_| sampler.sample(&[0.0, 50.0, 1.0, -99.0]).unwrap()).collect();
    assert!(!seen.contains(&1) && seen.contains(&3), "{seen:?}");
    assert_eq!(after(greedy(params), &[]).sample(&[0.0, 50.0, 1.0, -200.0]).unwrap(), 2);
    let all = SamplerParams { logit_bias: vec![(0, f32::NEG_INFINITY)], ..open() };
    assert!(matches!(Sampler::new(all).unwrap().sample(&[1.0]), Err(Error::Argument { argument: "logits", .. })));
}

#[test]
fn impossible_parameters_are_refused() {
    let (nan, infinity) = (f32::NAN, f32::INFINITY);
    for (params, name) in [
        (SamplerParams { repeat_penalty: 0.0, ..open() }, "repeat_penalty"),
        (SamplerParams { repeat_penalty: nan, ..open() }, "repeat_penalty"),
        (SamplerParams { presence_penalty: infinity, ..open() }, "presence_penalty"),
        (SamplerParams { frequency_penalty: nan, ..open() }, "frequency_penalty"),
        (SamplerParams { logit_bias: vec![(0, 1.0), (0, nan)], ..open() }, "logit_bias"),
        (SamplerParams { logit_bias: vec![(0, infinity)], ..open() }, "logit_bias"),
    ] {
        let Err(Error::Argument { argument, .. }) = Sampler::new(params).map(drop) else {
            panic!("{name} is accepted")
        };
        assert_eq!(argument, name);
    }
    let outside = SamplerParams { logit_bias: vec![(4, 1.0)], ..open() };
    let error = Sampler::new(outside).unwrap().sample(&[0.0; 4]).unwrap_err();
    assert!(matches!(error, Error::TokenOutOfRange { token: 4, vocab: 4 }), "{error}");
}

#[test]
fn logprobs_are_logarithms_of_probabilities() {
    let probabilities = [0.1f32, 0.4, 0.2, 0.2, 0.1];
    let logits: Vec<f32> = probabilities.iter().map(|p| p.ln() + 7.0).collect();
    let (chosen, top) = logprobs(&logits, 4, 3);
    assert_eq!(chosen.token, 4);
    assert!((chosen.logprob - 0.1f32.ln()).abs() < 1e-5, "{chosen:?}");
    assert_eq!(top.iter().map(|t| t.token).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(top.iter().all(|t| (t.logprob - probabilities[t.token as usize].ln()).abs() < 1e-5), "{top:?}");
    let (_, all) = logprobs(&[f32::NAN, 1.0, f32::NEG_INFINITY], 1, 9);
    assert_eq!(all.iter().map(|t| (t.token, t.logprob)).collect::<Vec<_>>(), [(1, 0.0)]);
    assert_eq!(logprobs(&[f32::NAN, 1.0], 0, 0).0.logprob, f32::NEG_INFINITY);
}
