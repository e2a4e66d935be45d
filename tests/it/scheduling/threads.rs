//! Tests replies on many threads, none of which is the scheduler's.

use super::{alone, request, rest, said, scheduler};
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
    let scheduler = scheduler(4);
    let texts = ["What is seven plus five?", "My name is Anna.", "Who are you?", "What is two plus two?"];
    let requests: Vec<ChatState> = texts.iter().map(|text| request(text, 10)).collect();
    let wanted: Vec<String> = requests.iter().map(|request| said(&alone(request))).collect();
    std::thread::scope(|scope| {
        for number in 0..32 {
            let (scheduler, request, want) = (scheduler.clone(), requests[number % 4].clone(), &wanted[number % 4]);
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
                        std::thread::spawn(move || {
                            std::thread::sleep(Duration::from_millis(number as u64 * 9));
                            cancel.cancel();
                        });
                        let events = rest(&mut reply);
                        let Some(Event::Done(stats)) = events.last() else { panic!("{events:?}") };
                        assert!(want.starts_with(&said(&events)), "{stats:?}");
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
