//! Tests tenants: none can find out from the cache what another has sent, and none waits for all requests of another.

use super::{begin, request, rest, said, scheduler, small_scheduler, stats, words};
use wglm::{ChatState, Message, Scheduler, Tenant};

fn tenant(scheduler: &Scheduler, turns: u64, cache: u64) -> Scheduler {
    scheduler.for_tenant(Tenant { turns, cache })
}

/// Whether the cache had all of a prompt except its last token; otherwise it had nothing of it.
#[track_caller]
fn is_cached(scheduler: &Scheduler) -> bool {
    let mut reply = scheduler.chat(request("An owl sat on a branch. What did it see?", 2)).unwrap();
    let reuse = stats(&rest(&mut reply)).prompt;
    assert!(reuse.cached == 0 || reuse.new == 1, "{reuse:?}");
    reuse.cached > 0
}

/// The cache of a slot serves its tenant and those who share its cache. Others who take over the slot find nothing.
#[test]
fn extended_a_slot_is_emptied_for_another_tenant() {
    for sessions in [1, 2] {
        let scheduler = small_scheduler(sessions);
        let (anna, ben, bea) = (tenant(&scheduler, 1, 1), tenant(&scheduler, 2, 2), tenant(&scheduler, 3, 2));
        let found = [&anna, &anna, &ben, &bea, &anna].map(is_cached);
        assert_eq!(found, [false, true, false, true, sessions == 2], "{sessions} slots");
    }
}

/// Pages of a running reply are shared only among tenants that share a cache; the text of others is the same anyway.
#[test]
fn extended_pages_are_their_tenants_own() {
    let long = || -> ChatState {
        let mut request = words("What did the owl see?", 24);
        request.messages.insert(0, Message::system("An owl sat on a branch and looked at a hill. ".repeat(13)));
        request
    };
    let scheduler = small_scheduler(3);
    let (anna, ben, bea) = (tenant(&scheduler, 1, 1), tenant(&scheduler, 2, 2), tenant(&scheduler, 3, 1));
    let mut first = anna.chat(long()).unwrap();
    assert!((258..480).contains(&first.prompt_tokens()), "{}", first.prompt_tokens());
    let begun = begin(&mut first);
    let mut sharing = bea.chat(long()).unwrap();
    let shared = rest(&mut sharing);
    assert_eq!(stats(&shared).prompt.cached, 256, "of one who shares the cache");
    let told = rest(&mut ben.chat(long()).unwrap());
    assert_eq!(stats(&told).prompt.cached, 0, "of another one");
    assert_eq!((said(&[begun, rest(&mut first)].concat()), said(&shared)), (said(&told), said(&told)));
}

/// A tenant with many requests delays only its own.
#[test]
fn tenants_take_turns() {
    let scheduler = scheduler(1);
    let (anna, ben) = (tenant(&scheduler, 1, 0), tenant(&scheduler, 2, 0));
    let ask = |scheduler: &Scheduler| scheduler.chat(request("What is seven plus five?", 6)).unwrap();
    let mut many: Vec<_> = (0..6).map(|_| ask(&anna)).collect();
    let mut one = ask(&ben);
    rest(&mut one);
    let state = scheduler.state();
    assert!(state.waiting >= 4, "only the first of the other tenant's came before: {state:?}");
    many.iter_mut().for_each(|reply| assert!(stats(&rest(reply)).generated > 0));
}
