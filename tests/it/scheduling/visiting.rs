//! Tests what an app does with the conversation in a slot: drop it, save it, load it. Replies in other slots continue.

use super::{begin, rest, said, small_alone, small_scheduler, small_scheduler_with, stats, words};
use std::task::Poll;
use wglm::{ChatState, Error, Event, Scheduler, SchedulerOptions, Tenant};

fn tokens(scheduler: &Scheduler) -> Vec<usize> {
    scheduler.state().slots.iter().map(|slot| slot.tokens).collect()
}

/// The events of a reply.
fn replied(scheduler: &Scheduler, request: &ChatState) -> Vec<Event> {
    rest(&mut scheduler.chat(request.clone()).unwrap())
}

#[test]
fn a_saved_conversation_continues_in_another_scheduler() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slot");
    let (first, second) = (small_scheduler(2), small_scheduler(2));
    assert_eq!(first.save_slot(0, &path).unwrap(), Some(0), "nothing is in it");
    assert!(!path.exists());
    let request = words("the owl", 6);
    let events = replied(&first, &request);
    let held = tokens(&first)[0];
    assert_eq!(first.save_slot(0, &path).unwrap(), Some(held));
    let other = first.for_tenant(Tenant { cache: 1, ..Tenant::default() });
    assert_eq!((other.save_slot(0, &path).unwrap(), other.forget(0)), (Some(0), Some(0)), "it is not its own");

    assert_eq!(second.load_slot(1, &path).unwrap(), Some(held));
    assert_eq!(tokens(&second), [0, held]);
    let again = replied(&second, &request);
    assert_eq!(said(&again), said(&events));
    assert!(stats(&again).prompt.cached > 0);
    assert!(matches!(second.load_slot(2, &path), Err(Error::Argument { argument: "slot", .. })));
    let held = tokens(&second)[1];
    let other = second.for_tenant(Tenant { cache: 1, ..Tenant::default() });
    assert!(matches!(other.load_slot(1, folder.path().join("none")), Err(Error::Io { .. })));
    assert_eq!(tokens(&second), [0, held], "a file that does not exist changes nothing");
    assert_eq!(second.forget(1), Some(held));
    assert_eq!(tokens(&second), [0, 0]);
    let none = folder.path().join("none");
    assert_eq!((second.save_slot(1, &none).unwrap(), none.exists()), (Some(0), false), "the slot is empty");
}

/// A conversation from a file that does not fit beside the replies leaves the one in the slot as it was.
#[test]
fn a_slot_keeps_its_conversation_if_another_does_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slot");
    let full = small_scheduler(1);
    replied(&full, &words(&"the owl ".repeat(100), 100));
    let saved = tokens(&full)[0];
    assert!(saved > 256, "{saved} tokens fit in a page");
    assert_eq!(full.save_slot(0, &path).unwrap(), Some(saved));

    let options = SchedulerOptions { sessions: 2, tokens: Some(512), ..SchedulerOptions::default() };
    let scheduler = small_scheduler_with(options);
    replied(&scheduler, &words("the owl", 6));
    let held = tokens(&scheduler)[0];
    let mut reply = scheduler.chat(words("the fox", 6)).unwrap();
    begin(&mut reply);
    let loaded = scheduler.load_slot(0, &path);
    assert!(matches!(loaded, Err(Error::PoolFull { needed: 1, free: 0 })), "{loaded:?}");
    assert_eq!(tokens(&scheduler)[0], held);
    rest(&mut reply);
    assert_eq!(scheduler.load_slot(0, &path).unwrap(), Some(saved), "the reply has ended");
    assert_eq!(tokens(&scheduler), [saved, 0]);
}

/// Another thread drives the engine meanwhile, for replies that it waits for or that are polled.
#[test]
fn slots_are_visited_between_the_rounds_of_other_replies() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slot");
    for polled in [false, true] {
        let scheduler = small_scheduler(3);
        replied(&scheduler, &words("the owl", 6));
        let held = tokens(&scheduler)[0];
        let long = words("the fox", 120);
        let mut reply = scheduler.chat(long.clone()).unwrap();
        let events = std::thread::scope(|scope| {
            let (begun, begins) = std::sync::mpsc::channel();
            let replying = scope.spawn(move || {
                let mut events = Vec::new();
                loop {
                    let event = match polled {
                        false => reply.next(),
                        true => match reply.try_next() {
                            Poll::Ready(event) => event,
                            Poll::Pending => continue,
                        },
                    };
                    let Some(event) = event else { return events };
                    events.push(event.unwrap());
                    let _ = begun.send(());
                }
            });
            begins.recv().unwrap();
            let busy = scheduler.state().slots.iter().position(|slot| slot.busy);
            if let Some(busy) = busy {
                let saved = scheduler.save_slot(busy, &path).unwrap();
                assert!(saved.is_none() || !scheduler.state().slots[busy].busy, "{saved:?}");
            }
            assert_eq!(scheduler.save_slot(0, &path).unwrap(), Some(held));
            assert_eq!(scheduler.forget(0), Some(held));
            assert_eq!(scheduler.load_slot(2, &path).unwrap(), Some(held));
            replying.join().unwrap()
        });
        assert_eq!(said(&events), said(&small_alone(&long)));
        assert_eq!(tokens(&scheduler)[2], held);
    }
}
