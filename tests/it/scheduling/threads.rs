//! Tests replies on many threads, none of which is the scheduler's.

use super::{all_differ, begin, rest, said, small_alone, small_scheduler, stats, words};
use std::time::Duration;
use wglm::{Cancel, ChatState, Event, ScheduledReply, Scheduler, Stop};

/// Replies can be sent to other threads.
#[test]
fn replies_can_be_sent() {
    fn sent<T: Send + 'static>() {}
    fn shared<T: Clone + Send + Sync + 'static>() {}
    sent::<ScheduledReply>();
    shared::<Scheduler>();
}

/// Thirty-two at once, some of which drop their reply, sleep, or are cancelled by others.
#[test]
fn extended_thirty_two_threads() {
    let scheduler = small_scheduler(4);
    let texts = ["What is seven plus five?", "My name is Anna.", "Who are you?", "What is two plus two?"];
    let mut requests: Vec<ChatState> = texts.iter().map(|text| words(text, 10)).collect();
    // The reply to be cancelled has more tokens than a reply may be ahead of the events that were taken, so it cannot
    // be complete before that.
    requests.push(words("Tell me a story about an owl.", 90));
    let wanted: Vec<String> = requests.iter().map(|request| said(&small_alone(request))).collect();
    all_differ(&wanted);
    std::thread::scope(|scope| {
        for number in 0..32 {
            let asked = if number % 8 == 3 { texts.len() } else { number % texts.len() };
            let (scheduler, request, want) = (scheduler.clone(), requests[asked].clone(), &wanted[asked]);
            scope.spawn(move || {
                let cancel = Cancel::default();
                let mut reply = scheduler.chat(request).unwrap().with_cancel(&cancel);
                match number % 8 {
                    1 => drop(reply),
                    2 => {
                        reply.by_ref().take(3).for_each(drop);
                        drop(reply);
                    }
                    3 => {
                        let begun = begin(&mut reply);
                        std::thread::spawn(move || cancel.cancel()).join().unwrap();
                        let events = [begun, rest(&mut reply)].concat();
                        assert_eq!(stats(&events).stop, Stop::Cancelled);
                        assert!(want.starts_with(&said(&events)), "{events:?}");
                    }
                    4 => {
                        std::thread::sleep(Duration::from_millis(50));
                        assert_eq!(said(&rest(&mut reply)), *want);
                    }
                    _ => {
                        let events = rest(&mut reply);
                        assert_eq!(said(&events), *want);
                        assert!(!matches!(events.last(), Some(Event::Done(stats)) if stats.stop == Stop::Cancelled));
                    }
                }
            });
        }
    });
    let state = scheduler.state();
    assert!(state.waiting == 0 && state.slots.iter().all(|slot| !slot.busy), "{state:?}");
    assert_eq!(state.counts.requests, 32);
}
