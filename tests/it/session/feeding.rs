//! Tests feeding and rewinding.

use super::{bits, dialogue, fresh, holds, session, session_of};
use crate::common::gpu::gpu;
use wglm::{Cancel, Error, Session};

#[test]
fn extended_at_once_or_in_parts() {
    let tokens = dialogue(24);
    let whole = fresh(&tokens, 64);
    for part in [1, 2, 5, 7, 23] {
        let mut session = session_of(64);
        tokens.chunks(part).for_each(|part| session.feed(part).unwrap());
        assert!(bits(&mut session) == whole, "{part} tokens at a time");
    }
}

/// Reading logits in between changes nothing, and neither does reading them twice.
#[test]
fn extended_reading_changes_nothing() {
    let tokens = dialogue(12);
    let mut session = session_of(64);
    for (index, token) in tokens.iter().enumerate() {
        session.feed(&[*token]).unwrap();
        let first = bits(&mut session);
        assert!(first == bits(&mut session), "token {index}: read twice");
        let best = session
            .logits()
            .unwrap()
            .iter()
            .enumerate()
            .fold((0, f32::MIN), |best, (i, &l)| if l > best.1 { (i, l) } else { best });
        assert_eq!(session.most_likely().unwrap() as usize, best.0, "token {index}");
    }
    assert!(bits(&mut session) == fresh(&tokens, 64));
}

#[test]
fn extended_rewinding_and_feeding_again() {
    let tokens = dialogue(20);
    let mut session = session_of(64);
    session.feed(&tokens).unwrap();
    let whole = bits(&mut session);
    for length in [0, 1, 10, 19] {
        session.rewind(length);
        assert_eq!(session.tokens(), &tokens[..length]);
        no_logits(&mut session, &format!("rewound to {length}"));
        session.feed(&tokens[length..]).unwrap();
        assert!(bits(&mut session) == whole, "rewound to {length}");
    }
    for length in [20, 21, usize::MAX] {
        session.rewind(length);
        assert!(session.tokens() == tokens && bits(&mut session) == whole, "rewound to {length}, past the end");
    }
}

/// A profile runs steps out of order, and leaves nothing of that in the cache.
#[test]
fn extended_a_profiled_token_is_a_token() {
    if !gpu().report().timestamps {
        println!("skipped: `{}` has no timestamps", gpu().report().name);
        return;
    }
    let tokens = dialogue(20);
    let mut session = session_of(64);
    session.feed(&tokens[..12]).unwrap();
    let profile = session.profile(tokens[12]).unwrap();
    assert_eq!(profile.kinds.len(), session.plan().kinds().len());
    assert!(profile.pass > 0.0 && profile.kinds.iter().all(|time| *time > 0.0), "{profile:?}");
    no_logits(&mut session, "profiled");
    session.feed(&tokens[13..]).unwrap();
    holds(&mut session, &tokens, "after a profile");
}

/// After a rewind, later contents of the cache have no effect.
#[test]
fn rewinding_and_feeding_something_else() {
    let tokens = dialogue(20);
    let mut session = session_of(64);
    session.feed(&tokens).unwrap();
    session.rewind(8);
    let other = [&tokens[..8], &[900, 901, 902]].concat();
    session.feed(&other[8..]).unwrap();
    holds(&mut session, &other, "another end");
}

#[track_caller]
fn no_logits(session: &mut Session, what: &str) {
    let argument = |e: &Error| matches!(e, Error::Argument { argument: "session", .. });
    assert!(argument(&session.logits().map(drop).unwrap_err()), "{what}: logits");
    assert!(argument(&session.most_likely().unwrap_err()), "{what}: most likely");
}

#[test]
fn nothing_fed_means_no_logits() {
    let mut session = session();
    no_logits(&mut session, "new");
    session.feed(&[]).unwrap();
    no_logits(&mut session, "fed nothing");
    session.rewind(0);
    no_logits(&mut session, "rewound");
}

#[test]
fn feeding_nothing_changes_nothing() {
    let tokens = dialogue(5);
    let mut session = session_of(64);
    session.feed(&tokens).unwrap();
    session.feed(&[]).unwrap();
    holds(&mut session, &tokens, "fed nothing");
}

fn is_full(error: &Error, needed: usize, context: usize) -> bool {
    matches!(error, Error::ContextFull { needed: n, context: c } if (*n, *c) == (needed, context))
}

#[test]
fn extended_a_full_context_is_refused_and_survived() {
    let tokens = dialogue(12);
    let mut session = session_of(8);
    let refused = |session: &mut Session, more: &[u32], needed| {
        let error = session.feed(more).unwrap_err();
        assert!(is_full(&error, needed, 8), "{error}");
    };
    refused(&mut session, &tokens[..9], 9);
    assert!(session.tokens().is_empty());
    session.feed(&tokens[..8]).unwrap();
    refused(&mut session, &tokens[8..9], 9);
    holds(&mut session, &tokens[..8], "full");
    refused(&mut session, &tokens[8..], 12);
    session.rewind(4);
    refused(&mut session, &tokens[4..9], 9);
    session.feed(&tokens[4..8]).unwrap();
    holds(&mut session, &tokens[..8], "full again");
    let error = session.sync(&tokens).unwrap_err();
    assert!(is_full(&error, 12, 8), "{error}");
    session.sync(&tokens[..8]).unwrap();
    holds(&mut session, &tokens[..8], "after a sync that was too long");
}

#[test]
fn a_context_of_one_token() {
    let mut session = session_of(1);
    assert_eq!(session.context(), 1);
    session.feed(&[5]).unwrap();
    session.most_likely().unwrap();
    assert!(is_full(&session.feed(&[6]).unwrap_err(), 2, 1));
}

#[test]
fn a_token_out_of_range_feeds_nothing() {
    let tokens = dialogue(6);
    let mut session = session_of(64);
    session.feed(&tokens[..3]).unwrap();
    for wrong in [2048, 2049, u32::MAX] {
        let error = session.feed(&[tokens[3], wrong, tokens[4]]).unwrap_err();
        assert!(matches!(error, Error::TokenOutOfRange { token, vocab: 2048 } if token == wrong), "{error}");
        holds(&mut session, &tokens[..3], "after a token out of range");
    }
    session.feed(&tokens[3..]).unwrap();
    holds(&mut session, &tokens, "fed on");
}

#[test]
fn progress_counts_every_token() {
    let mut told = Vec::new();
    let mut session = session_of(64);
    session.feed_with(&dialogue(9), &Cancel::default(), &mut |done| told.push(done)).unwrap();
    assert_eq!(told, (1..=9).collect::<Vec<_>>());
}

/// Earlier logits belong to another token: they are no longer available once a token is fed.
#[test]
fn extended_a_session_continues_after_any_cancellation() {
    let tokens = dialogue(10);
    let whole = fresh(&tokens, 64);
    let (before, rest) = tokens.split_at(2);
    for stop in [1, 2, 4, 7, 8] {
        let mut session = session_of(64);
        session.feed(before).unwrap();
        session.most_likely().unwrap();
        let cancel = Cancel::default();
        let mut until = |done| {
            if done == stop {
                cancel.cancel();
            }
        };
        let error = session.feed_with(rest, &cancel, &mut until).unwrap_err();
        assert!(matches!(error, Error::Cancelled), "stopped at {stop}: {error}");
        assert_eq!(session.tokens(), &tokens[..2 + stop], "stopped at {stop}");
        if stop < rest.len() {
            no_logits(&mut session, &format!("stopped at {stop}"));
            session.feed(&rest[stop..]).unwrap();
        } else {
            session.sync(&tokens).unwrap();
        }
        assert!(session.tokens() == tokens && bits(&mut session) == whole, "stopped at {stop} and fed on");
    }
}
