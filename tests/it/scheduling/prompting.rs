//! Tests prompts that are computed in one batch: each reply is what it would be alone, and the batch takes about as
//! many steps as one prompt.

use super::{CONTEXT, all_differ, alone_in, greedy, model_on, request, rest_by_turns, said, session_of, stats};
use crate::common::gpu::{dropping, open};
use std::sync::atomic::{AtomicBool, Ordering};
use wglm::{
    Cancel, ChatState, Error, Event, GenerateOptions, Message, Model, SamplerParams, ScheduledReply, Scheduler,
    SchedulerOptions,
};

/// Questions whose prompts have between 33 and 128 tokens.
fn questions() -> Vec<ChatState> {
    let texts = ["Tell me a story about an owl.", "What is seven plus five?", "What is the opposite of hot?"];
    let system = "You are a kind helper. You know many stories, sums and words, and you answer with care. ";
    let ask = |text: &&str| {
        let mut asked = request(text, 8);
        asked.messages.insert(0, Message::system(system.repeat(2)));
        asked
    };
    texts.iter().map(ask).collect()
}

/// The number of dispatches until all replies have begun, and the replies' events.
fn together(scheduler: &Scheduler, requests: &[ChatState]) -> (u64, Vec<Vec<Event>>) {
    let gpu = scheduler.model().gpu();
    let mut replies: Vec<ScheduledReply> = requests.iter().map(|ask| scheduler.chat(ask.clone()).unwrap()).collect();
    let before = gpu.work().dispatches;
    let mut events: Vec<Vec<Event>> = vec![Vec::new(); replies.len()];
    for (reply, events) in replies.iter_mut().zip(&mut events) {
        let read = |event: &Event| matches!(event, Event::Prompt { done, total } if done == total);
        while !events.last().is_some_and(read) {
            events.push(reply.next().unwrap().unwrap());
        }
    }
    let count = gpu.work().dispatches - before;
    for (events, rest) in events.iter_mut().zip(rest_by_turns(&mut replies)) {
        events.extend(rest);
    }
    (count, events)
}

#[test]
fn short_prompts_are_computed_together() {
    let model = model_on(&open(true), 512);
    let requests = questions();
    let wanted: Vec<String> = requests.iter().map(|ask| said(&alone_in(session_of(&model), ask).0)).collect();
    all_differ(&wanted);
    let options = SchedulerOptions { sessions: 4, ..SchedulerOptions::default() };
    let scheduler = Scheduler::new(&model, &options).unwrap();
    let (_, first) = together(&scheduler, &requests[..1]);
    assert!((33..=128).contains(&stats(&first[0]).prompt.new), "{:?}", stats(&first[0]));
    let scheduler = Scheduler::new(&model, &options).unwrap();
    let (one, _) = together(&scheduler, &requests[..1]);
    // Two have so few rows that the batch is not abandoned, however slow the GPU is.
    let scheduler = Scheduler::new(&model, &options).unwrap();
    let (two, _) = together(&scheduler, &requests[..2]);
    println!("{one} dispatches for one prompt, {two} for two");
    assert!(2 * two < 3 * one, "{two} dispatches for two prompts, {one} for one");
    let scheduler = Scheduler::new(&model, &options).unwrap();
    let (_, events) = together(&scheduler, &requests);
    assert_eq!(events.iter().map(|events| said(events)).collect::<Vec<_>>(), wanted);
}

/// Among several prompts are one with log-probabilities, one with penalties, a long one, one with a constraint, and one
/// that is cancelled.
#[test]
fn extended_prompts_of_all_kinds_at_once() {
    let model = model_on(&open(true), 512);
    let mut requests = questions();
    let mut scored = requests[0].clone();
    scored.options = GenerateOptions { logprobs: Some(2), ..greedy(4) };
    let mut drawn = requests[1].clone();
    let sampling = SamplerParams { temperature: 1.0, seed: Some(3), ..SamplerParams::default() };
    drawn.options.sampling = SamplerParams { repeat_penalty: 1.3, presence_penalty: 0.2, ..sampling };
    let mut long = requests[2].clone();
    long.messages.insert(0, Message::system("An owl sat on a branch. ".repeat(20)));
    requests.extend([scored, drawn, long]);
    #[cfg(feature = "constrain")]
    {
        let mut ruled = requests[0].clone();
        ruled.options.constraint = Some(wglm::Constraint::regex("[a-z ]{20}").unwrap());
        requests.push(ruled);
    }
    let wanted: Vec<Vec<Event>> = requests.iter().map(|ask| alone_in(session_of(&model), ask).0).collect();
    let options = SchedulerOptions { sessions: 8, ..SchedulerOptions::default() };
    let scheduler = Scheduler::new(&model, &options).unwrap();
    let cancelled = scheduler.chat(requests[0].clone()).unwrap();
    let cancel = cancelled.cancel();
    let mut replies: Vec<ScheduledReply> = requests.iter().map(|ask| scheduler.chat(ask.clone()).unwrap()).collect();
    cancel.cancel();
    let events = rest_by_turns(&mut replies);
    drop(cancelled);
    for ((events, wanted), ask) in events.iter().zip(&wanted).zip(&requests) {
        assert_eq!(said(events), said(wanted), "{ask:?}");
        assert_eq!(stats(events).prompt.new + stats(events).prompt.cached, stats(wanted).prompt.new, "{ask:?}");
        let scored = |events: &[Event]| -> Vec<f32> {
            let of = |event: &Event| if let Event::Token(token) = event { Some(token.chosen.logprob) } else { None };
            events.iter().filter_map(of).collect()
        };
        for (got, want) in scored(events).into_iter().zip(scored(wanted)) {
            assert!((got - want).abs() < 1e-4, "{got} instead of {want}");
        }
    }
}

/// The second of two prompts with a long common beginning waits for the first, and reuses it, although a short prompt
/// is computed before both.
#[test]
fn a_common_beginning_is_computed_once() {
    let model = model_on(&open(true), 512);
    let system = "An owl sat on a branch and looked at the moon. ".repeat(20);
    let ask = |text: &str| {
        let mut asked = request(text, 4);
        asked.messages.insert(0, Message::system(system.as_str()));
        asked
    };
    let [first, second] = ["Who are you?", "What is seven plus five?"].map(ask);
    let scheduler = Scheduler::new(&model, &SchedulerOptions { sessions: 3, ..SchedulerOptions::default() }).unwrap();
    let (_, events) = together(&scheduler, &[questions().remove(0), first, second]);
    let (first, second) = (stats(&events[1]).prompt, stats(&events[2]).prompt);
    assert!(first.new > 256 && first.new < CONTEXT - 4, "{first:?}");
    assert_eq!((first.cached, second.cached), (0, 256), "{second:?}");
}

/// A scheduler for the questions, and what each reply says alone.
fn asked(model: &Model, options: &SchedulerOptions) -> (Scheduler, Vec<ChatState>, Vec<String>) {
    let requests = questions();
    let wanted = requests.iter().map(|ask| said(&alone_in(session_of(model), ask).0)).collect();
    (Scheduler::new(model, options).unwrap(), requests, wanted)
}

/// There is memory for two of three prompts. The third waits, and all replies are complete.
#[test]
fn a_prompt_without_memory_waits() {
    let model = model_on(&open(true), 512);
    let options = SchedulerOptions { sessions: 3, tokens: Some(2 * 256), ..SchedulerOptions::default() };
    let (scheduler, requests, wanted) = asked(&model, &options);
    let mut replies: Vec<ScheduledReply> = requests.iter().map(|ask| scheduler.chat(ask.clone()).unwrap()).collect();
    let events = rest_by_turns(&mut replies);
    assert_eq!(events.iter().map(|events| said(events)).collect::<Vec<_>>(), wanted);
}

/// The first submission of a batch cancels one of its replies, or all of them. The others are not affected.
#[test]
fn extended_replies_are_cancelled_while_a_batch_is_computed() {
    let gpu = open(true);
    let model = model_on(&gpu, 512);
    let options = SchedulerOptions { sessions: 3, ..SchedulerOptions::default() };
    for count in [1, 3] {
        let (scheduler, requests, wanted) = asked(&model, &options);
        let mut replies: Vec<ScheduledReply> =
            requests.iter().map(|ask| scheduler.chat(ask.clone()).unwrap()).collect();
        let cancels: Vec<Cancel> = replies.iter().take(count).map(ScheduledReply::cancel).collect();
        let done = AtomicBool::new(false);
        gpu.before_submissions(move || {
            if !done.swap(true, Ordering::Relaxed) {
                cancels.iter().for_each(Cancel::cancel);
            }
        });
        let events = rest_by_turns(&mut replies);
        gpu.before_submissions(|| ());
        for (index, (events, wanted)) in events.iter().zip(&wanted).enumerate() {
            let want = if index < count { "" } else { wanted };
            assert_eq!(said(events), want, "reply {index}, {count} cancelled");
        }
        drop(replies);
        let mut again = scheduler.chat(requests[0].clone()).unwrap();
        assert_eq!(said(&super::rest(&mut again)), wanted[0]);
    }
}

/// If the work of a batch is lost, its replies fail, and the next ones do not.
#[test]
fn extended_a_batch_is_lost() {
    let gpu = open(true);
    let model = model_on(&gpu, 512);
    let options = SchedulerOptions { sessions: 3, ..SchedulerOptions::default() };
    let (scheduler, requests, wanted) = asked(&model, &options);
    let mut replies: Vec<ScheduledReply> = requests.iter().map(|ask| scheduler.chat(ask.clone()).unwrap()).collect();
    let errors: Vec<Error> =
        dropping(&gpu, 1..3, || replies.iter_mut().filter_map(|reply| reply.find_map(Result::err)).collect());
    assert!(!errors.is_empty() && errors.iter().all(|error| matches!(error, Error::NoResult)), "{errors:?}");
    drop(replies);
    let mut replies: Vec<ScheduledReply> = requests.iter().map(|ask| scheduler.chat(ask.clone()).unwrap()).collect();
    let events = rest_by_turns(&mut replies);
    assert_eq!(events.iter().map(|events| said(events)).collect::<Vec<_>>(), wanted);
}
