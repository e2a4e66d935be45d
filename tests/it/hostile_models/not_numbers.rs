//! Tests weights that are NaN or infinite: the first token fails with an error.

use super::refused::load;
use super::small::{F32, Small};
use wglm::{Arithmetic, Error, Event, GenerateOptions, Generation, LoadOptions, Result, SamplerParams, Session};

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

/// A session that was fed some tokens. The check at load does not blame kernels for passing NaN on.
fn session(tensor: &str, value: f32, (ty, arithmetic): (Option<u32>, Arithmetic)) -> Session {
    let mut small = Small { poison: Some((tensor.into(), value)), ..Small::default() };
    if let Some(ty) = ty {
        small.tensor(tensor).ty = ty;
    }
    let options = LoadOptions { arithmetic: Some(arithmetic), ..LoadOptions::default() };
    let model = load(&small, &options).unwrap();
    let replaced = model.verdict().expect("a check").replaced();
    assert!(replaced.is_empty(), "{value} in {tensor} ({ty:?}, {arithmetic:?}): {replaced:?}");
    let mut session = Session::new(&model).unwrap();
    session.feed(&[1, 2, 3]).unwrap();
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
fn fault(tensor: &str, value: f32, form: (Option<u32>, Arithmetic)) -> Option<String> {
    let mut session = session(tensor, value, form);
    let numbers = session.logits().unwrap().iter().filter(|l| !l.is_nan()).count();
    let [greedy, sampled] = choose(&mut session);
    let refused = [&greedy, &sampled].iter().all(|choice| matches!(choice, Err(Error::NotANumber)));
    let what = || format!("{value} in {tensor} ({form:?}): {numbers} logits are numbers; {greedy:?}; {sampled:?}");
    (numbers > 0 || !refused).then(what)
}

fn none_is_a_number(poisoned: &[(&str, f32)]) {
    // A tensor that is in f32 anyway has no second form.
    let differs = |tensor: &str, ty: Option<u32>| ty != Some(Small::default().tensor(tensor).ty);
    let all = poisoned.iter().flat_map(|&poison| FORMS.map(|form| (poison, form)));
    let all = all.filter(|((tensor, _), (ty, _))| differs(tensor, *ty));
    let faults: Vec<String> = all.filter_map(|((tensor, value), form)| fault(tensor, value, form)).collect();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn extended_logits_that_are_not_numbers_choose_no_token() {
    none_is_a_number(&POISONED);
}

/// A damaged router must be reported, because the experts that it selects would produce plausible nonsense.
#[test]
fn extended_a_router_that_is_not_a_number_is_reported() {
    none_is_a_number(&[("blk.1.ffn_gate_inp.weight", f32::NAN)]);
}

#[test]
fn a_bias_that_is_not_a_number_is_harmless() {
    let mut session = session(HARMLESS, f32::NAN, FORMS[0]);
    let logits = session.logits().unwrap();
    let numbers = logits.iter().filter(|l| l.is_finite()).count();
    assert!(numbers == 0 || numbers == logits.len(), "{logits:?}");
    let _ = choose(&mut session);
}
