//! Tests more requests than there are slots, queue entries or memory.

use super::{
    all_differ, alone, begin, by_turns, model, request, rest, rest_by_turns, said, scheduler_with, small, small_alone,
    small_scheduler_with, stats, words,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wglm::{ChatState, Error, Event, Message, ScheduledReply, Scheduler, SchedulerOptions};

#[test]
fn extended_a_full_queue_refuses() {
    let scheduler = scheduler_with(SchedulerOptions { sessions: 1, queue: 2, ..SchedulerOptions::default() });
    let ask = || scheduler.chat(request("What is seven plus five?", 12));
    let mut replies: Vec<ScheduledReply> = (0..3).map(|_| ask().unwrap()).collect();
    for _ in 0..2 {
        assert!(matches!(ask(), Err(Error::Busy { most: 2, .. })));
    }
    begin(&mut replies[0]);
    assert!(matches!(ask(), Err(Error::Busy { waiting: 2, most: 2 })));
    replies.remove(1); // the waiting one
    replies.push(ask().unwrap());
    assert!(matches!(ask(), Err(Error::Busy { .. })));
    // Whatever the order of requests for events, replies are generated one after the other.
    let wanted = said(&alone(&request("What is seven plus five?", 12)));
    assert_eq!(said(&rest(&mut replies[2])), wanted);
    assert_eq!(said(&rest(&mut replies[1])), wanted);
    assert_eq!(scheduler.state().waiting, 0);
}

/// A request whose prompt nearly fills a page.
fn nearly_a_page(text: &str) -> ChatState {
    let mut request = words(text, 40);
    let long = format!("{text} {}", "An owl sat on a branch. ".repeat(60));
    let tokenizer = small().tokenizer().unwrap();
    let tokens = tokenizer.encode(&long, false).unwrap();
    request.messages.insert(0, Message::system(tokenizer.decode(&tokens[..215], false).unwrap()));
    request
}

/// Restricts the reply by a grammar, so that one also continues after its cache was computed again.
fn restrict(_request: &mut ChatState) {
    #[cfg(feature = "constrain")]
    {
        _request.options.constraint = Some(wglm::Constraint::regex("[a-z ]{400}").unwrap());
        _request.options.speculation = wglm::Speculation { kind: wglm::DraftKind::Lookup, most: Some(7) };
    }
}

/// A scheduler with memory for two pages.
fn two_pages(sessions: usize) -> Scheduler {
    small_scheduler_with(SchedulerOptions { sessions, tokens: Some(2 * 256), ..SchedulerOptions::default() })
}

/// A reply outgrows its page, but no page is free. The newer reply gives up its own page and waits, and both replies
/// are complete.
#[test]
fn extended_memory_for_fewer_conversations() {
    let (long, mut short) = (nearly_a_page("Tell me a story about an owl."), words("Tell me about the moon.", 40));
    restrict(&mut short);
    let scheduler = two_pages(2);
    let mut older = scheduler.chat(long.clone()).unwrap();
    assert!((220..250).contains(&older.prompt_tokens()), "{older:?}");
    let begun = begin(&mut older);
    let newer = scheduler.chat(short.clone()).unwrap();
    let told = rest_by_turns(&mut [older, newer]);
    let wanted = [&long, &short].map(|request| said(&small_alone(request)));
    all_differ(&wanted);
    assert_eq!([said(&[begun, told[0].clone()].concat()), said(&told[1])], wanted);
    assert_eq!((stats(&told[0]).generated, stats(&told[1]).generated), (40, 40));
    let given_up = scheduler.state().counts.given_up;
    assert!((1..80).contains(&given_up), "{given_up} tokens, of the newer one alone");
    // The caches of finished conversations are freed for others, the last of which waits.
    let small = ["Who are you?", "My name is Anna.", "What is seven plus five?"].map(|text| words(text, 8));
    let wanted = small.each_ref().map(|request| said(&small_alone(request)));
    all_differ(&wanted);
    for (want, events) in wanted.iter().zip(by_turns(&two_pages(3), &small)) {
        assert_eq!(said(&events), *want);
    }
}

/// A reply whose events are not taken for a while gives up its memory, and continues later although others arrive all
/// the time.
#[test]
fn extended_no_reply_waits_forever() {
    let scheduler = two_pages(3);
    let (story, small) = (words("Tell me a story about an owl.", 90), words("What is seven plus five?", 6));
    let mut slow = scheduler.chat(story.clone()).unwrap();
    let begun = begin(&mut slow);
    let (over, since) = (AtomicBool::new(false), Instant::now());
    let gave_up = || scheduler.state().slots.iter().any(|slot| slot.generated > 30 && slot.tokens == 0);
    let (paused, told) = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    rest(&mut scheduler.chat(small.clone()).unwrap());
                }
            });
        }
        let mut paused = false;
        while !paused && since.elapsed() < Duration::from_secs(100) {
            std::thread::sleep(Duration::from_millis(1));
            paused = gave_up();
        }
        let told: wglm::Result<Vec<Event>> = slow.by_ref().collect();
        over.store(true, Ordering::Relaxed);
        (paused, told)
    });
    assert!(paused && scheduler.state().counts.given_up > 30, "{:?}", scheduler.state());
    let wanted = [&story, &small].map(|request| said(&small_alone(request)));
    all_differ(&wanted);
    assert_eq!(said(&[begun, told.unwrap()].concat()), wanted[0]);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for options in [
        SchedulerOptions { sessions: 0, ..SchedulerOptions::default() },
        SchedulerOptions { context: Some(0), ..SchedulerOptions::default() },
        SchedulerOptions { tokens: Some(0), ..SchedulerOptions::default() },
    ] {
        assert!(matches!(Scheduler::new(model(), &options), Err(Error::Argument { .. })), "{options:?}");
    }
    let small = SchedulerOptions { tokens: Some(100), ..SchedulerOptions::default() };
    assert_eq!(scheduler_with(small).context(), 100);
}
