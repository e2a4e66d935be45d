//! Tests log-probabilities of prompts: they are those of the model's logits, whatever the cache holds and whoever else
//! needs its memory.

use super::{CONTEXT, greedy, load, rest, said, small_file, stats};
use crate::common::gpu::gpu;
use std::sync::OnceLock;
use wglm::sample::logprobs;
use wglm::{
    CacheShape, Event, GenerateOptions, Logprob, Model, PromptLogprobs, Scheduler, SchedulerOptions, Session, Stop,
    TokenLogprobs,
};

const TOP: usize = 3;

/// A small model whose prompts are computed in batches.
fn model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| load(&small_file(), gpu(), 64))
}

fn scheduler(options: SchedulerOptions) -> Scheduler {
    Scheduler::new(model(), &options).unwrap()
}

/// A prompt of this many tokens, which ends with a text.
fn prompt(tokens: usize, end: &str) -> Vec<u32> {
    let encode = |text: &str| model().tokenizer().unwrap().encode(text, false).unwrap();
    let (story, end) = (encode(&"An owl sat on a branch and looked at a hill. ".repeat(50)), encode(end));
    [&story[..tokens - end.len()], &end].concat()
}

fn scored(from: usize, max_tokens: usize) -> GenerateOptions {
    GenerateOptions { prompt_logprobs: Some(PromptLogprobs { from, top: TOP }), ..greedy(max_tokens) }
}

fn prompt_tokens(events: &[Event]) -> Vec<&TokenLogprobs> {
    events.iter().filter_map(|event| if let Event::PromptToken(token) = event { Some(token) } else { None }).collect()
}

type Scored = (Logprob, Vec<Logprob>);

/// The log-probabilities of all tokens of a prompt but the first one, by the logits of a session.
fn wanted(prompt: &[u32]) -> Vec<Scored> {
    let mut session = Session::with_cache(model(), CacheShape { context: CONTEXT, ..model().cache() }).unwrap();
    let mut wanted = Vec::new();
    let mut visit = |place: usize, row: &[f32]| {
        wanted.push(logprobs(row, prompt[place + 1], TOP));
        Ok(())
    };
    session.feed_all(&prompt[..prompt.len() - 1], &mut visit).unwrap();
    wanted
}

/// Compares the tokens that were reported with the last ones that are wanted.
#[track_caller]
fn are_right(events: &[Event], wanted: &[Scored]) {
    let tokens = prompt_tokens(events);
    assert_eq!(tokens.len(), wanted.len());
    for (token, (chosen, top)) in tokens.iter().zip(wanted) {
        assert_eq!(token.chosen.token, chosen.token);
        assert!((token.chosen.logprob - chosen.logprob).abs() < 2e-3, "{token:?}, expected {chosen:?}");
        assert_eq!(token.bytes, model().tokenizer().unwrap().token_bytes(chosen.token).unwrap());
        let near = token.top.iter().zip(top).all(|(got, want)| (got.logprob - want.logprob).abs() < 2e-3);
        assert!(token.top.len() == TOP && near, "{token:?}, expected {top:?}");
    }
}

#[test]
fn tokens_of_a_prompt_have_their_log_probabilities() {
    let scheduler = scheduler(SchedulerOptions { sessions: 1, ..SchedulerOptions::default() });
    let prompt = prompt(80, " The fox");
    let ask = |options| rest(&mut scheduler.generate(prompt.clone(), options).unwrap());
    let (plain, wanted) = (ask(greedy(8)), wanted(&prompt));
    for (from, cached) in [(0, 0), (1, 0), (50, 48)] {
        let events = ask(scored(from, 8));
        are_right(&events, &wanted[from.max(1) - 1..]);
        assert_eq!((said(&events), stats(&events).prompt.cached), (said(&plain), cached), "from {from}");
    }
    for (from, tokens) in [(79, 1), (80, 0), (1000, 0)] {
        let events = ask(scored(from, 0));
        assert_eq!((prompt_tokens(&events).len(), stats(&events).stop), (tokens, Stop::Length));
    }
}

/// What another prompt has computed of the same beginning is not used where its logits are needed.
#[test]
fn extended_a_shared_beginning_is_scored_as_well() {
    let scheduler = scheduler(SchedulerOptions { sessions: 2, ..SchedulerOptions::default() });
    let ask = |prompt: &[u32], options| rest(&mut scheduler.generate(prompt.to_vec(), options).unwrap());
    ask(&prompt(300, " The fox ran."), greedy(1));
    let prompt = prompt(300, " The hen slept.");
    let (events, wanted) = (ask(&prompt, scored(0, 1)), wanted(&prompt));
    are_right(&events, &wanted);
    assert_eq!(stats(&events).prompt.new, 300);
    let events = ask(&prompt, scored(280, 1));
    are_right(&events, &wanted[279..]);
    assert!(stats(&events).prompt.cached >= 256, "{events:?}");
}

/// Prompts that do not fit together take turns, and each of their tokens is reported once.
#[test]
fn extended_prompts_that_share_too_little_memory_are_scored() {
    let scheduler = scheduler(SchedulerOptions { sessions: 2, tokens: Some(256), ..SchedulerOptions::default() });
    let prompts = [" The fox ran.", " The hen slept."].map(|end| prompt(100, end));
    let mut replies = prompts.each_ref().map(|prompt| scheduler.generate(prompt.clone(), scored(0, 2)).unwrap());
    let all = super::rest_by_turns(&mut replies);
    for (events, prompt) in all.iter().zip(&prompts) {
        are_right(events, &wanted(prompt));
    }
    assert!(scheduler.state().counts.given_up > 0, "one had to wait");
}

#[test]
fn extended_a_prompt_that_is_scored_can_be_cancelled() {
    let scheduler = scheduler(SchedulerOptions { sessions: 1, ..SchedulerOptions::default() });
    let prompt = prompt(200, " The fox");
    let mut reply = scheduler.generate(prompt, scored(0, 1)).unwrap();
    let first = reply.find(|event| matches!(event, Ok(Event::PromptToken(_))));
    assert!(first.is_some());
    reply.cancel().cancel();
    let events = rest(&mut reply);
    assert_eq!(stats(&events).stop, Stop::Cancelled);
    assert!(prompt_tokens(&events).len() < 199);
}
