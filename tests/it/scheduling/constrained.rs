//! Tests replies that a grammar restricts, beside others.

use super::{alone, by_turns, greedy, load, model_on, request, rest_by_turns, said, scheduler, small_file, stats};
use crate::common::gpu::open;
use serde_json::json;
use wglm::{
    ChatState, Constraint, DraftKind, Event, GenerateOptions, SamplerParams, Scheduler, SchedulerOptions, Speculation,
};

fn restricted(text: &str, constraint: Constraint) -> ChatState {
    // Text that repeats itself is guessed while the reply is alone.
    let speculation = Speculation { kind: DraftKind::Lookup, most: Some(7) };
    let options = GenerateOptions { constraint: Some(constraint), speculation, ..greedy(40) };
    ChatState { options, ..request(text, 0) }
}

fn person() -> Constraint {
    let name = json!({"type": "string", "maxLength": 8});
    let age = json!({"type": "integer", "minimum": 0, "maximum": 99});
    let properties = json!({"name": name, "age": age});
    Constraint::json_schema(json!({"type": "object", "properties": properties, "required": ["name", "age"]})).unwrap()
}

/// They equal the replies of each alone, whether tokens are sampled under a mask or forced, drawn or the likeliest,
/// with log-probabilities or without. So do the other replies.
#[test]
fn extended_replies_equal_those_of_each_alone() {
    let letters = || Constraint::regex("[a-z]{9}[0-9]{4}").unwrap();
    let mut requests = [
        request("Tell me a story about an owl.", 40),
        restricted("Who are you?", letters()),
        restricted("My name is Anna.", person()),
        restricted("My name is Anna.", person()),
        request("What is seven plus five?", 20),
        restricted("What is two plus two?", Constraint::regex("(owl|fox|hen|cat| ){6}!").unwrap()),
    ];
    let drawn = SamplerParams { temperature: 1.0, seed: Some(5), repeat_penalty: 1.3, ..SamplerParams::default() };
    requests[3].options.sampling = drawn;
    requests[5].options.logprobs = Some(1);
    let scheduler = scheduler(requests.len());
    for (request, events) in requests.iter().zip(by_turns(&scheduler, &requests)) {
        let want = alone(request);
        assert_eq!(said(&events), said(&want), "{:?}", request.options);
        assert_eq!(stats(&events).stop, stats(&want).stop);
    }
}

/// No token is computed twice or in a separate pass: six replies take hardly more dispatches than two.
#[test]
fn long_replies_take_steps_together() {
    let gpu = open(true);
    let options = SchedulerOptions { sessions: 6, ..SchedulerOptions::default() };
    let scheduler = Scheduler::new(&model_on(&gpu, 1), &options).unwrap();
    let dispatches = |count: usize| {
        // With all but the last tokens of the prompts in the cache, only the replies are computed.
        let requests = vec![restricted("Who are you?", Constraint::regex("[a-z]{200}").unwrap()); count];
        let mut short = requests.clone();
        short.iter_mut().for_each(|request| request.options.max_tokens = Some(1));
        by_turns(&scheduler, &short);
        let before = gpu.work().dispatches;
        let told = by_turns(&scheduler, &requests);
        assert!(told.iter().all(|events| stats(events).generated > 8), "{told:?}");
        gpu.work().dispatches - before
    };
    let (two, six) = (dispatches(2), dispatches(6));
    assert!(six < 2 * two, "{two} and {six} dispatches");
}

/// Other replies wait for each step, so a step does not feed all tokens of a long text that a grammar forces.
#[test]
fn a_long_text_is_forced_in_several_steps() {
    let gpu = open(true);
    let scheduler = Scheduler::new(&load(&small_file(), &gpu, 8), &SchedulerOptions::default()).unwrap();
    let text = "owl fox ".repeat(200);
    let options = GenerateOptions { constraint: Some(Constraint::regex(&text).unwrap()), ..greedy(480) };
    let reply = scheduler.chat(ChatState { options, ..request("Who are you?", 0) }).unwrap();
    let mut events = Vec::new();
    let (mut before, mut steps) = (0, Vec::new());
    for event in reply {
        events.push(event.unwrap());
        let dispatches = gpu.work().dispatches;
        steps.push(dispatches - before);
        before = dispatches;
    }
    assert_eq!(said(&events), text);
    assert!(stats(&events).generated > 380, "{:?}", stats(&events));
    let longest = steps[2..].iter().max().unwrap();
    assert!(longest * 4 < steps[2..].iter().sum::<u64>() * 3, "{steps:?}");
}

/// A reply that guessed while it was alone stays the same when another one joins, at any token.
#[test]
fn long_others_join_a_reply_that_guesses() {
    let repeating = || restricted("Who are you?", Constraint::regex("((owl|fox|hen|cat),? ){40}!").unwrap());
    let other = request("What is seven plus five?", 8);
    let (want, others) = (said(&alone(&repeating())), said(&alone(&other)));
    for tokens in [3, 13] {
        let scheduler = scheduler(2);
        let mut first = scheduler.chat(repeating()).unwrap();
        let mut events: Vec<Event> = first.by_ref().map(Result::unwrap).take(tokens).collect();
        let second = scheduler.chat(other.clone()).unwrap();
        let [rest, beside]: [Vec<Event>; 2] = rest_by_turns(&mut [first, second]).try_into().unwrap();
        events.extend(rest);
        assert_eq!((said(&events), said(&beside)), (want.clone(), others.clone()), "{tokens}");
        let drafts = stats(&events).drafts;
        assert!(drafts.accepted > 0 && drafts.drafted > drafts.accepted, "{tokens}: {drafts:?}");
    }
}
