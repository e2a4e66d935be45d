//! Tests what is compiled, and when.

use super::{begin, greedy, model_on, request, rest, said};
use crate::common::gpu::open;
use wglm::{ChatState, GenerateOptions, SamplerParams, Scheduler, SchedulerOptions, Speculation};

/// If everything is compiled when the scheduler is made, no step of any number of conversations compiles anything, with
/// penalties and filters or without.
#[test]
fn extended_nothing_is_compiled_between_tokens() {
    let gpu = open(true);
    let model = model_on(&gpu, 1);
    let options = SchedulerOptions { sessions: 3, compile_all: Some(true), ..SchedulerOptions::default() };
    let scheduler = Scheduler::new(&model, &options).unwrap();
    let before = gpu.work().pipelines;
    let filtered = SamplerParams { temperature: 0.7, top_k: 40, top_p: 0.9, seed: Some(1), ..SamplerParams::default() };
    let penalised = SamplerParams { repeat_penalty: 1.2, logit_bias: vec![(7, 1.0)], ..filtered.clone() };
    // A single row has its own kernels for penalties, which the load compiles on request.
    let asked = |sampling: &SamplerParams| {
        let options = GenerateOptions { sampling: sampling.clone(), speculation: Speculation::OFF, ..greedy(12) };
        ChatState { options, ..request("Tell me a story about an owl.", 0) }
    };
    let (mut replies, mut begun) = (Vec::new(), Vec::new());
    for sampling in [&SamplerParams::greedy(), &filtered, &filtered] {
        let mut reply = scheduler.chat(asked(sampling)).unwrap();
        begun.push(begin(&mut reply));
        replies.push(reply);
    }
    for (reply, begun) in replies.iter_mut().zip(begun) {
        assert!(!said(&[begun, rest(reply)].concat()).is_empty());
    }
    assert_eq!(gpu.work().pipelines, before, "without penalties");
    let mut alone = scheduler.chat(asked(&penalised)).unwrap();
    begin(&mut alone);
    let before = gpu.work().pipelines;
    let mut others = [asked(&penalised), asked(&filtered)].map(|request| scheduler.chat(request).unwrap());
    for reply in &mut others {
        begin(reply);
    }
    rest(&mut alone);
    assert_eq!(gpu.work().pipelines, before, "with penalties");
}
