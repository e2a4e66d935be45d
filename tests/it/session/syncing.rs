//! Tests which tokens a session keeps when it is synced to others.

use super::{bits, dialogue, fresh, holds, session_of};
use std::collections::HashMap;
use wglm::{Cancel, Error, Session};

/// Syncs. Returns how many tokens were in the cache and how many were new, and counts those that were computed.
fn sync(session: &mut Session, tokens: &[u32]) -> ((usize, usize), usize) {
    let mut computed = 0;
    let reuse = session.sync_with(tokens, &Cancel::default(), &mut |_| computed += 1).unwrap();
    ((reuse.cached, reuse.new), computed)
}

/// The name of a case, the tokens before and after, how many are kept, and how many computed.
type Case<'a> = (&'a str, &'a [u32], Vec<u32>, usize, usize);

#[test]
fn extended_kept_and_computed_tokens() {
    let d = dialogue(6);
    let other = |at: usize| {
        let mut tokens = d.clone();
        tokens[at] += 1;
        tokens
    };
    let cases: [Case<'_>; 11] = [
        ("empty, to something", &[], d.clone(), 0, 6),
        ("empty, to one token", &[], d[..1].to_vec(), 0, 1),
        ("the same again", &d, d.clone(), 6, 0),
        ("one more", &d[..5], d.clone(), 5, 1),
        ("several more", &d[..2], d.clone(), 2, 4),
        ("the last token differs", &d, other(5), 5, 1),
        ("a token in the middle differs", &d, other(2), 2, 4),
        ("the first token differs", &d, other(0), 0, 6),
        ("shorter: the last token is computed again", &d, d[..4].to_vec(), 3, 1),
        ("shorter, to one token", &d, d[..1].to_vec(), 0, 1),
        ("shorter and different", &d, other(2)[..3].to_vec(), 2, 1),
    ];
    let mut logits = HashMap::new();
    for (what, before, after, cached, new) in cases {
        let mut session = session_of(64);
        session.feed(before).unwrap();
        let (reuse, computed) = sync(&mut session, &after);
        assert_eq!(reuse, (cached, new), "{what}");
        assert_eq!(computed, new, "{what}: computed");
        assert_eq!(session.tokens(), after, "{what}: the tokens");
        let expected = logits.entry(after.clone()).or_insert_with(|| fresh(&after, 64));
        assert!(bits(&mut session) == *expected, "{what}: the logits differ from a fresh session's");
    }
}

/// Tokens that do not fit, or do not exist, leave the session unchanged.
#[test]
fn refused_tokens_change_nothing() {
    let mut session = session_of(12);
    session.feed(&dialogue(8)).unwrap();
    let before = bits(&mut session);
    let long = [&dialogue(4)[..], &[1; 9]].concat();
    let unknown = [&dialogue(4)[..], &[u32::MAX]].concat();
    let mut sync = |tokens: &[u32]| session.sync(tokens).unwrap_err();
    assert!(matches!(sync(&long), Error::ContextFull { needed: 13, context: 12 }));
    assert!(matches!(sync(&unknown), Error::TokenOutOfRange { .. }));
    assert_eq!(session.tokens(), dialogue(8));
    assert!(bits(&mut session) == before);
}

#[test]
fn the_same_again_costs_nothing() {
    let tokens = dialogue(8);
    let mut session = session_of(64);
    session.feed(&tokens).unwrap();
    let before = bits(&mut session);
    for _ in 0..3 {
        assert_eq!(sync(&mut session, &tokens), ((8, 0), 0));
        assert!(bits(&mut session) == before);
    }
}

/// After a rewind there are no logits, so the last token is computed again for them.
#[test]
fn the_same_after_a_rewind() {
    let tokens = dialogue(8);
    let mut session = session_of(64);
    session.feed(&tokens).unwrap();
    session.rewind(5);
    assert_eq!(sync(&mut session, &tokens[..5]).0, (4, 1));
    holds(&mut session, &tokens[..5], "rewound");
}

#[test]
fn a_sync_to_no_tokens() {
    let mut session = session_of(64);
    assert_eq!(sync(&mut session, &[]), ((0, 0), 0));
    session.feed(&dialogue(3)).unwrap();
    assert_eq!(sync(&mut session, &[]), ((0, 0), 0));
    assert!(session.tokens().is_empty() && session.logits().is_err());
    sync(&mut session, &dialogue(3));
    holds(&mut session, &dialogue(3), "after nothing");
}

#[test]
fn extended_a_cancelled_sync_can_be_repeated() {
    let tokens = dialogue(16);
    let mut session = session_of(64);
    session.feed(&tokens[..4]).unwrap();
    let cancel = Cancel::default();
    let mut until = |done| {
        if done == 5 {
            cancel.cancel();
        }
    };
    assert!(matches!(session.sync_with(&tokens, &cancel, &mut until), Err(Error::Cancelled)));
    assert_eq!(session.tokens(), &tokens[..9]);
    assert_eq!(sync(&mut session, &tokens).0, (9, 7));
    holds(&mut session, &tokens, "taken up");
}

/// A token outside of the vocabulary is found before anything is computed.
#[test]
fn a_sync_to_impossible_tokens() {
    let tokens = dialogue(6);
    let mut session = session_of(64);
    session.feed(&tokens).unwrap();
    let wrong = [&tokens[..4], &[4096]].concat();
    let error = session.sync_with(&wrong, &Cancel::default(), &mut |_| panic!("computed")).unwrap_err();
    assert!(matches!(error, Error::TokenOutOfRange { token: 4096, .. }), "{error}");
    sync(&mut session, &tokens);
    holds(&mut session, &tokens, "after a refusal");
}
