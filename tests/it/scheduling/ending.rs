//! Tests replies that end early: cancelled, dropped, by an error or in a loop.

use super::{alone, begin, greedy, model_on, request, rest, said, scheduler, small_file, stats};
use crate::common::gpu::{gpu, open};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wglm::{
    Cancel, ChatState, DraftKind, Error, Event, GenerateOptions, LoadOptions, Message, Model, SamplerParams, Scheduler,
    SchedulerOptions, Speculation, Stop,
};

const OWL: &str = "Tell me a story about an owl.";

/// In the queue, in the prompt and between tokens, each time beside another reply that continues.
#[test]
fn extended_cancelled_anywhere() {
    let scheduler = scheduler(2);
    let mut other = scheduler.chat(request(OWL, 60)).unwrap();
    let mut told = begin(&mut other);
    // Between tokens.
    let mut second = scheduler.chat(request("Tell me about the moon.", 60)).unwrap();
    let begun = begin(&mut second);
    let cancel = Cancel::default();
    let mut waiting = scheduler.chat(request(OWL, 60)).unwrap().with_cancel(&cancel);
    assert_eq!(scheduler.state().waiting, 1);
    cancel.cancel();
    let end = stats(&rest(&mut waiting));
    assert_eq!((end.stop, end.generated, end.prompt.new), (Stop::Cancelled, 0, 0));
    second.cancel().cancel();
    let end = rest(&mut second);
    assert_eq!(stats(&end).stop, Stop::Cancelled);
    assert!(said(&alone(&request("Tell me about the moon.", 60))).starts_with(&said(&[begun, end].concat())));
    // In a prompt.
    let mut long = request(OWL, 60);
    long.messages.insert(0, Message::system("An owl sat on a branch and looked at a hill. ".repeat(16)));
    let mut third = scheduler.chat(long).unwrap();
    assert!(matches!(third.next(), Some(Ok(Event::Prompt { .. }))));
    third.cancel().cancel();
    let end = rest(&mut third);
    let (got, total) = (stats(&end), third.prompt_tokens());
    assert!(got.stop == Stop::Cancelled && got.prompt.new < total && got.generated == 0, "{got:?}");
    assert!(third.next().is_none());
    told.extend(rest(&mut other));
    assert_eq!(said(&told), said(&alone(&request(OWL, 60))));
}

/// A dropped reply frees its slot or its queue entry, even if no thread waits for an event.
#[test]
fn dropped_anywhere() {
    let scheduler = scheduler(1);
    let mut first = scheduler.chat(request(OWL, 60)).unwrap();
    begin(&mut first);
    let waiting = scheduler.chat(request(OWL, 60)).unwrap();
    let last = request("What is seven plus five?", 20);
    let mut reply = scheduler.chat(last.clone()).unwrap();
    assert_eq!(scheduler.state().waiting, 2);
    drop(waiting);
    drop(first);
    let state = scheduler.state();
    assert!(state.waiting == 1 && !state.slots[0].busy, "{state:?}");
    assert_eq!(said(&rest(&mut reply)), said(&alone(&last)));
    let asleep = scheduler.chat(last).unwrap();
    drop((scheduler, reply));
    assert_eq!(stats(&asleep.map(Result::unwrap).collect::<Vec<_>>()).stop, Stop::End);
}

/// An impossible request fails without affecting others.
#[test]
fn extended_an_error_ends_only_one_reply() {
    let scheduler = scheduler(3);
    let story = request(OWL, 40);
    let mut other = scheduler.chat(story.clone()).unwrap();
    let begun = begin(&mut other);
    let with = |sampling| ChatState { options: GenerateOptions { sampling, ..greedy(9) }, ..story.clone() };
    let late = SamplerParams { logit_bias: vec![(u32::MAX, 1.0)], ..SamplerParams::greedy() };
    let mut failing = scheduler.chat(with(late)).unwrap();
    assert!(matches!(failing.next(), Some(Err(Error::TokenOutOfRange { .. }))));
    assert!(failing.next().is_none());
    let early = SamplerParams { temperature: -1.0, ..SamplerParams::greedy() };
    assert!(matches!(scheduler.chat(with(early)), Err(Error::Argument { .. })));
    let odd = ChatState { messages: vec![Message { role: "owl".into(), ..Message::user("Hoo") }], ..story.clone() };
    assert!(matches!(scheduler.chat(odd), Err(Error::Message { .. })));
    assert!(matches!(scheduler.generate(vec![], greedy(1)), Err(Error::Argument { argument: "prompt", .. })));
    assert!(matches!(scheduler.generate(vec![u32::MAX], greedy(1)), Err(Error::TokenOutOfRange { .. })));
    assert!(matches!(scheduler.generate(vec![0; 1000], greedy(1)), Err(Error::ContextFull { .. })));
    assert_eq!(said(&[begun, rest(&mut other)].concat()), said(&alone(&story)));
    assert!(scheduler.state().slots.iter().all(|slot| !slot.busy));
}

/// A panic, here in an app's callback during a prompt, ends that reply. Others continue, and its slot serves the next
/// one.
#[test]
fn extended_a_panic_ends_only_one_reply() {
    let gpu = open(true);
    let options = SchedulerOptions { sessions: 2, ..SchedulerOptions::default() };
    let scheduler = Scheduler::new(&model_on(&gpu, 1), &options).unwrap();
    let story = request(OWL, 30);
    let mut other = scheduler.chat(story.clone()).unwrap();
    let begun = begin(&mut other);
    let armed = Arc::new(AtomicBool::new(true));
    gpu.before_submissions(move || assert!(!armed.swap(false, Ordering::Relaxed), "on purpose"));
    let asked = request("What is seven plus five?", 12);
    let mut failing = scheduler.chat(asked.clone()).unwrap();
    assert!(matches!(failing.next(), Some(Ok(Event::Prompt { done: 0, .. }))));
    assert!(matches!(failing.next(), Some(Err(Error::Worker { .. }))));
    assert!(failing.next().is_none());
    let mut next = scheduler.chat(asked.clone()).unwrap();
    assert_eq!(said(&rest(&mut next)), said(&alone(&asked)));
    assert_eq!(said(&[begun, rest(&mut other)].concat()), said(&alone(&story)));
    assert!(scheduler.state().slots.iter().all(|slot| !slot.busy));
}

/// A reply that repeats itself ends if its options say so, even amid tokens that were guessed.
#[test]
fn extended_a_loop_ends() {
    let options = LoadOptions { context: Some(600), ..LoadOptions::default() };
    let model = Model::load(&small_file(), gpu(), &options).unwrap();
    let token = model.tokenizer().unwrap().encode(" owl", false).unwrap().pop().unwrap();
    let sampling = SamplerParams { logit_bias: vec![(token, 1000.0)], ..SamplerParams::greedy() };
    let mut session = wglm::Session::new(&model).unwrap();
    let speculation = Speculation { kind: DraftKind::Lookup, most: Some(7) };
    for (stop_loops, stop, generated) in [(true, Stop::Loop, 512), (false, Stop::Length, 530)] {
        let options = GenerateOptions { sampling: sampling.clone(), stop_loops, speculation, ..greedy(530) };
        let reply = wglm::Generation::new(&mut session, vec![1, 2, 3], None, options).unwrap();
        let end = stats(&reply.map(Result::unwrap).collect::<Vec<_>>());
        assert_eq!((end.stop, end.generated), (stop, generated));
        assert!(end.drafts.accepted > 0, "{end:?}");
    }
}
