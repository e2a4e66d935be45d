//! Tests that no reply waits long for others.

use super::{PART, alone, alone_in, begin, by_turns, model_on, request, rest, said, scheduler, session_of};
use crate::common::gpu::gpu;
use wglm::{ChatState, Message, Scheduler, SchedulerOptions, SlotState};

/// A request with a long prompt.
fn long() -> ChatState {
    let mut request = request("What does the story tell us?", 4);
    request.messages.insert(0, Message::system("An owl sat on a branch and looked at a hill. ".repeat(8)));
    request
}

/// The slot that computes a long prompt.
fn reading(scheduler: &Scheduler) -> SlotState {
    *scheduler.state().slots.iter().max_by_key(|slot| slot.prompt_total).unwrap()
}

/// While a long prompt is computed, others get a token after each part.
#[test]
fn extended_a_long_prompt_delays_no_reply() {
    let scheduler = scheduler(3);
    let story = request("Tell me a story about an owl.", 60);
    let mut others = [scheduler.chat(story.clone()).unwrap(), scheduler.chat(story.clone()).unwrap()];
    let mut begun = others.each_mut().map(begin);
    let slow = scheduler.chat(long()).unwrap();
    assert!(slow.prompt_tokens() > 8 * PART, "{}", slow.prompt_tokens());
    let generated = |scheduler: &Scheduler| -> usize { scheduler.state().slots.iter().map(|it| it.generated).sum() };
    let (mut done, mut before, mut parts) = (0, generated(&scheduler), 0);
    while done < slow.prompt_tokens() - 1 {
        for (reply, events) in others.iter_mut().zip(&mut begun) {
            events.push(reply.next().expect("the others go on").unwrap());
        }
        let now = reading(&scheduler).prompt_done;
        let tokens = generated(&scheduler);
        let rounds = (now - done).div_ceil(PART);
        assert!(tokens - before >= 2 * rounds, "{rounds} parts, and {} tokens of two others", tokens - before);
        parts += rounds;
        (done, before) = (now, tokens);
    }
    assert!(parts >= 8, "{parts}");
    drop(slow);
    for (reply, events) in others.iter_mut().zip(begun) {
        assert_eq!(said(&[events, rest(reply)].concat()), said(&alone(&story)));
    }
}

/// Two long prompts are computed in turns.
#[test]
fn extended_prompts_take_turns() {
    let scheduler = scheduler(2);
    let mut replies = [scheduler.chat(long()).unwrap(), scheduler.chat(long()).unwrap()];
    let [first, second] = &mut replies;
    let _ = first.next();
    for _ in 0..4 {
        let _ = first.next();
        let done: Vec<usize> = scheduler.state().slots.iter().map(|slot| slot.prompt_done).collect();
        assert!(done[0].abs_diff(done[1]) <= 2 * PART, "{done:?}");
    }
    assert_eq!(said(&rest(second)), said(&alone(&long())));
}

/// Prompts that are computed in chunks, between which other replies continue, get the same reply as alone.
#[test]
fn extended_prompts_in_chunks() {
    let model = model_on(gpu(), 32);
    let options = SchedulerOptions { sessions: 3, ..SchedulerOptions::default() };
    let scheduler = Scheduler::new(&model, &options).unwrap();
    let requests = [request("Tell me a story about an owl.", 24), long(), request("Tell me about the moon.", 12)];
    for (request, events) in requests.iter().zip(by_turns(&scheduler, &requests)) {
        let (wanted, _) = alone_in(session_of(&model), request);
        assert_eq!(said(&events), said(&wanted));
    }
}

/// A reply whose events are not taken pauses, and continues unchanged later. It does not delay others.
#[test]
fn extended_a_slow_reader_delays_no_reply() {
    let scheduler = scheduler(2);
    let story = request("Tell me a story about an owl.", 200);
    let mut slow = scheduler.chat(story.clone()).unwrap();
    let begun = begin(&mut slow);
    for _ in 0..4 {
        let asked = request("What is seven plus five?", 40);
        let answer = rest(&mut scheduler.chat(asked.clone()).unwrap());
        assert_eq!(said(&answer), said(&alone(&asked)));
    }
    let state = scheduler.state();
    let held = state.slots.iter().find(|slot| slot.busy).unwrap();
    assert!(held.generated > 8 && held.generated < 140, "{state:?}");
    assert_eq!(said(&[begun, rest(&mut slow)].concat()), said(&alone(&story)));
}
