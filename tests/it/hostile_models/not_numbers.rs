//! Tests weights that are NaN or infinite: the first token fails with an error.

use super::small::{F32, Small};
use crate::common::gpu::{gpu, gpu_with_matrices};
use wglm::{
    Arithmetic, CacheShape, CacheType, Error, Event, GenerateOptions, Generation, Gpu, LoadOptions, Model, Result,
    SamplerParams, Session,
};

/// The tensor that is damaged, and the value that is put into it.
const POISONED: [(&str, f32); 14] = [
    ("token_embd.weight", f32::NAN),
    ("token_embd.weight", f32::INFINITY),
    ("output_norm.weight", f32::NAN),
    ("output.weight", f32::NAN),
    ("blk.0.attn_norm.weight", f32::NAN),
    ("blk.0.attn_q_b.weight", f32::NAN),
    ("blk.0.attn_kv_a_norm.weight", f32::NAN),
    ("blk.0.attn_kv_a_norm.weight", f32::INFINITY),
    ("blk.1.attn_k_b.weight", f32::NAN),
    ("blk.1.attn_v_b.weight", f32::NAN),
    ("blk.0.ffn_down.weight", f32::NAN),
    ("blk.1.ffn_gate_exps.weight", f32::NAN),
    ("blk.1.ffn_down_exps.weight", f32::NAN),
    ("blk.1.ffn_up_shexp.weight", f32::NAN),
];

/// A bias of the router only affects which experts are selected. If it is NaN, any selection is equally good, and the
/// logits stay numbers.
const HARMLESS: &str = "blk.1.exp_probs_b.bias";

/// The small model in two formats and two arithmetics: unchanged, with the tensor in f32, and with activations rounded
/// to bytes.
const FORMS: [(Option<u32>, Arithmetic); 3] =
    [(None, Arithmetic::Float), (Some(F32), Arithmetic::Float), (None, Arithmetic::Int)];

/// How a session with a damaged tensor is fed.
#[derive(Clone, Copy)]
struct Feeding {
    gpu: &'static Gpu,
    cache: CacheType,
    /// The number of tokens, from 1 on.
    tokens: u32,
}

/// So few tokens that kernels for few rows compute them.
fn few_tokens() -> Feeding {
    Feeding { gpu: gpu(), cache: CacheType::F16, tokens: 3 }
}

/// The small model with a damaged tensor.
fn damaged(tensor: &str, value: f32, ty: Option<u32>) -> Small {
    let mut small = Small { poison: Some((tensor.into(), value)), ..Small::default() };
    if let Some(ty) = ty {
        small.tensor(tensor).ty = ty;
    }
    small
}

/// A session that was fed some tokens. The check at load does not blame kernels for passing NaN on.
fn session(small: &Small, arithmetic: Arithmetic, Feeding { gpu, cache, tokens }: Feeding) -> Session {
    let options = LoadOptions { arithmetic: Some(arithmetic), ..LoadOptions::default() };
    let model = Model::load(&small.open().unwrap(), gpu, &options).unwrap();
    let replaced = model.verdict().expect("a check").replaced();
    assert!(replaced.is_empty(), "{:?}: {replaced:?}", small.poison);
    let mut session = Session::with_cache(&model, CacheShape { context: 64, ty: cache }).unwrap();
    session.feed(&(1..=tokens).map(|token| token % 40).collect::<Vec<_>>()).unwrap();
    session
}

/// The errors of sampling a token greedily and with a temperature.
fn choose(session: &mut Session) -> [Result<()>; 2] {
    let prompt = session.tokens().to_vec();
    let options =
        GenerateOptions { sampling: SamplerParams { seed: Some(1), ..SamplerParams::default() }, ..Default::default() };
    let greedy = session.most_likely().map(drop);
    let mut generation = Generation::new(session, prompt, None, options).unwrap();
    let read = |event: &Result<Event>| matches!(event, Ok(Event::Prompt { .. }));
    let sampled = generation.find(|event| !read(event)).expect("an event").map(drop);
    assert!(generation.next().is_none(), "it goes on after {sampled:?}");
    [greedy, sampled]
}

/// Describes what is wrong with the errors of a session with a damaged tensor.
fn fault(small: &Small, arithmetic: Arithmetic, feeding: Feeding) -> Option<String> {
    let mut session = session(small, arithmetic, feeding);
    let numbers = session.logits().unwrap().iter().filter(|l| !l.is_nan()).count();
    let [greedy, sampled] = choose(&mut session);
    let refused = [&greedy, &sampled].iter().all(|choice| matches!(choice, Err(Error::NotANumber)));
    let (poison, cache) = (small.poison.as_ref().unwrap(), feeding.cache);
    let what =
        || format!("{poison:?} ({arithmetic:?}, {cache:?}): {numbers} logits are numbers; {greedy:?}; {sampled:?}");
    (numbers > 0 || !refused).then(what)
}

fn none_is_a_number(poisoned: &[(&str, f32)], forms: &[(Option<u32>, Arithmetic)], feeding: Feeding) {
    // A tensor that is in f32 anyway has no second form.
    let differs = |tensor: &str, ty: Option<u32>| ty != Some(Small::default().tensor(tensor).ty);
    let all = poisoned.iter().flat_map(|&poison| forms.iter().map(move |&form| (poison, form)));
    let all = all.filter(|((tensor, _), (ty, _))| differs(tensor, *ty));
    let of = |((tensor, value), (ty, arithmetic))| fault(&damaged(tensor, value, ty), arithmetic, feeding);
    let faults: Vec<String> = all.filter_map(of).collect();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn extended_logits_that_are_not_numbers_choose_no_token() {
    none_is_a_number(&POISONED, &FORMS, few_tokens());
}

/// Kernels for many rows, with and without matrices, which multiply f16, and caches of types with a smaller range.
#[test]
fn extended_prompts_of_many_tokens_choose_none_either() {
    let forms = [(None, Arithmetic::Float), (Some(F32), Arithmetic::Float)];
    for gpu in [Some(gpu()), gpu_with_matrices()].into_iter().flatten() {
        for cache in [CacheType::F16, CacheType::Q8_0] {
            none_is_a_number(&POISONED, &forms, Feeding { gpu, cache, tokens: 48 });
        }
    }
}

/// A token in the middle of a prompt, which all later ones attend to.
#[test]
fn extended_one_row_of_the_cache_that_is_not_a_number_is_noticed() {
    for gpu in [Some(gpu()), gpu_with_matrices()].into_iter().flatten() {
        for (cache, tokens) in [(CacheType::F16, 3), (CacheType::F16, 39), (CacheType::Q8_0, 39)] {
            let small = Small { poisoned_row: Some(2), ..damaged("token_embd.weight", f32::NAN, None) };
            let fault = fault(&small, Arithmetic::Float, Feeding { gpu, cache, tokens });
            assert_eq!(fault, None, "{tokens} tokens");
        }
    }
}

/// A damaged router must be reported, because the experts that it selects would produce plausible nonsense.
#[test]
fn extended_a_router_that_is_not_a_number_is_reported() {
    none_is_a_number(&[("blk.1.ffn_gate_inp.weight", f32::NAN)], &FORMS, few_tokens());
}

#[test]
fn a_bias_that_is_not_a_number_is_harmless() {
    let mut session = session(&damaged(HARMLESS, f32::NAN, None), Arithmetic::Float, few_tokens());
    let logits = session.logits().unwrap();
    let numbers = logits.iter().filter(|l| l.is_finite()).count();
    assert!(numbers == 0 || numbers == logits.len(), "{logits:?}");
    let _ = choose(&mut session);
}
