//! Compares logit bias and penalties on the GPU with the sampler on the host.

use super::model;
use wglm::{CacheShape, CacheType, Error, PromptOptions, Sampler, SamplerParams, Session};

/// A session that computes prompts token by token, so that bits can be compared.
fn session(prompt: &[u32], params: &SamplerParams) -> Session {
    let mut session = Session::with_cache(model(), CacheShape { context: 128, ty: CacheType::F32 }).unwrap();
    session.set_prompt_options(PromptOptions { chunk: Some(1), ..PromptOptions::default() });
    session.set_sampling(params).unwrap();
    session.feed(prompt).unwrap();
    session
}

fn prompt() -> Vec<u32> {
    model()
        .tokenizer()
        .unwrap()
        .encode("[gMASK]<sop><|user|>Tell me a story about an owl.<|assistant|></think>", true)
        .unwrap()
}

/// Parameters that all change the story, given how it begins without them.
fn ways(plain: &[u32]) -> Vec<SamplerParams> {
    let greedy = SamplerParams::greedy;
    vec![
        SamplerParams { repeat_penalty: 1.3, ..greedy() },
        SamplerParams { presence_penalty: 4.0, repeat_last_n: 5, ..greedy() },
        SamplerParams { frequency_penalty: 1.5, repeat_last_n: usize::MAX, ..greedy() },
        // The cases where only the newest token counts, where a token counts once more each time, and where one leaves
        // the window at a time.
        SamplerParams { logit_bias: vec![(plain[1], 500.0)], presence_penalty: 900.0, repeat_last_n: 1, ..greedy() },
        SamplerParams { logit_bias: vec![(plain[1], 500.0)], frequency_penalty: 90.0, ..greedy() },
        SamplerParams { logit_bias: vec![(plain[1], 500.0)], presence_penalty: 900.0, repeat_last_n: 3, ..greedy() },
        SamplerParams {
            logit_bias: vec![(plain[0], f32::NEG_INFINITY), (plain[3], -3.5), (plain[3], -3.5)],
            ..greedy()
        },
        SamplerParams { logit_bias: vec![(plain[2], 8.0)], repeat_penalty: 1.2, frequency_penalty: -0.5, ..greedy() },
        // Penalties without a window are off.
        SamplerParams { logit_bias: vec![(plain[2], 8.0)], repeat_penalty: 9.0, repeat_last_n: 0, ..greedy() },
    ]
}

fn on_gpu(params: &SamplerParams, count: usize) -> Vec<u32> {
    generated(&mut session(&prompt(), params), count)
}

fn generated(session: &mut Session, count: usize) -> Vec<u32> {
    (0..count).map(|_| session.next_token().unwrap()).collect()
}

/// The same tokens by a sampler on the host, from a session without adjustments.
fn on_host(session: &mut Session, params: &SamplerParams, count: usize) -> Vec<u32> {
    session.sync(&prompt()).unwrap();
    let mut sampler = Sampler::new(params.clone()).unwrap();
    prompt().iter().for_each(|token| sampler.accept(*token));
    let next = |_| {
        let token = sampler.sample(&session.logits().unwrap()).unwrap();
        sampler.accept(token);
        session.feed(&[token]).unwrap();
        token
    };
    (0..count).map(next).collect()
}

#[test]
fn extended_the_gpu_chooses_as_the_host() {
    let [mut gpu, mut host] = [(); 2].map(|()| session(&prompt(), &SamplerParams::greedy()));
    let plain = generated(&mut gpu, 30);
    for params in ways(&plain) {
        gpu.set_sampling(&params).unwrap();
        gpu.sync(&prompt()).unwrap();
        let chosen = generated(&mut gpu, 30);
        assert_eq!(chosen, on_host(&mut host, &params, 30), "{params:?}");
        assert_ne!(chosen, plain, "{params:?} changes nothing");
    }
}

/// Sampled tokens are penalised too: with a penalty that outweighs all logits no token occurs twice.
#[test]
fn extended_penalised_tokens_do_not_occur_again() {
    let params = SamplerParams {
        temperature: 1.5,
        top_p: 0.9,
        top_k: 50,
        seed: Some(3),
        presence_penalty: 1000.0,
        repeat_last_n: usize::MAX,
        ..SamplerParams::default()
    };
    let chosen = on_gpu(&params, 40);
    let all: std::collections::HashSet<u32> = chosen.iter().chain(&prompt()).copied().collect();
    let before: std::collections::HashSet<u32> = prompt().into_iter().collect();
    assert_eq!(all.len(), before.len() + chosen.len(), "{chosen:?}");
    assert_eq!(on_gpu(&params, 40), chosen, "the seed does not decide");
}

/// The result does not depend on how the session got there: with the prompt in chunks, parameters that were set
/// afterwards, a rewind, or logits that were read on the way.
#[test]
fn extended_earlier_operations_do_not_matter() {
    let params = SamplerParams { repeat_penalty: 1.4, frequency_penalty: 0.3, ..SamplerParams::greedy() };
    let want = on_gpu(&params, 30);
    let mut late = session(&prompt(), &SamplerParams::greedy());
    late.next_token().unwrap();
    late.sync(&prompt()).unwrap();
    late.set_sampling(&params).unwrap();
    for (index, token) in want.iter().enumerate() {
        assert_eq!(late.sampled_token().unwrap(), *token, "token {index}");
        late.logits().unwrap();
        assert_eq!(late.next_token().unwrap(), *token, "token {index}");
    }
    let known = [&prompt()[..], &want].concat();
    let middle = prompt().len() + 9;
    late.sync(&known[..middle]).unwrap();
    assert_eq!(late.next_token().unwrap(), known[middle], "rewound");
    let mut chunks = Session::with_cache(model(), CacheShape { context: 128, ty: CacheType::F32 }).unwrap();
    chunks.set_sampling(&params).unwrap();
    chunks.feed(&known[..middle]).unwrap();
    assert_eq!(chunks.next_token().unwrap(), known[middle], "in chunks");
    // Then other adjustments, more than there was space for, and none.
    let all = SamplerParams { logit_bias: (0..500).map(|token| (token, -1.0)).collect(), ..params };
    chunks.set_sampling(&all).unwrap();
    assert_eq!(chunks.sampled_token().unwrap(), on_host_after(&all, chunks.tokens()));
    chunks.set_sampling(&SamplerParams::greedy()).unwrap();
    assert_eq!(chunks.sampled_token().unwrap(), on_host_after(&SamplerParams::greedy(), chunks.tokens()));
}

fn on_host_after(params: &SamplerParams, tokens: &[u32]) -> u32 {
    let mut sampler = Sampler::new(params.clone()).unwrap();
    tokens.iter().for_each(|token| sampler.accept(*token));
    sampler.sample(&session(tokens, &SamplerParams::greedy()).logits().unwrap()).unwrap()
}

/// The logits that a session returns are never changed by bias or penalties.
#[test]
fn extended_logits_are_not_changed() {
    let bits = |session: &mut Session| session.logits().unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>();
    let plain = bits(&mut session(&prompt(), &SamplerParams::greedy()));
    for params in ways(&on_gpu(&SamplerParams::greedy(), 4)) {
        assert!(bits(&mut session(&prompt(), &params)) == plain, "{params:?}");
    }
}

/// Penalties add two dispatches to each token, in the same pass and submission; without them nothing is added.
#[test]
fn extended_work_of_a_token() {
    let device = crate::common::gpu::open(true);
    let file = wglm::Gguf::open(crate::common::models::fable_file("q4_0")).unwrap();
    let options = wglm::LoadOptions { context: Some(64), ..wglm::LoadOptions::default() };
    let model = wglm::Model::load(&file, &device, &options).unwrap();
    let mut session = Session::new(&model).unwrap();
    session.feed(&prompt()).unwrap();
    let mut work = |params: &SamplerParams| {
        session.set_sampling(params).unwrap();
        session.next_token().unwrap();
        let before = device.work();
        session.next_token().unwrap();
        let after = device.work();
        (after.submissions - before.submissions, after.passes - before.passes, after.dispatches - before.dispatches)
    };
    let plain = work(&SamplerParams::greedy());
    assert_eq!((plain.0, plain.1), (1, 1));
    let penalties = work(&SamplerParams { repeat_penalty: 1.1, ..SamplerParams::greedy() });
    assert_eq!(penalties, (1, 1, plain.2 + 2));
    assert_eq!(work(&SamplerParams::greedy()), plain, "after penalties");
}

#[test]
fn a_bias_on_no_token_is_refused() {
    let mut session = session(&prompt(), &SamplerParams::greedy());
    let vocab = model().config().vocab;
    let params = SamplerParams { logit_bias: vec![(vocab as u32, 1.0)], ..SamplerParams::greedy() };
    let error = session.set_sampling(&params).unwrap_err();
    assert!(matches!(error, Error::TokenOutOfRange { .. }), "{error}");
    let banned = SamplerParams { logit_bias: (0..vocab as u32).map(|t| (t, f32::NEG_INFINITY)).collect(), ..params };
    // An error of the caller's does not blame the file, and leaves sampling as it was.
    let error = session.set_sampling(&banned).unwrap_err();
    assert!(matches!(error, Error::Argument { argument: "logit_bias", .. }), "{error}");
    session.set_sampling(&SamplerParams::greedy()).unwrap();
    assert!(session.next_token().is_ok());
}
