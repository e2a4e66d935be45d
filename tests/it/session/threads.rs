//! Tests several sessions on one model.

use super::{bits, dialogue, fresh, holds, model, session_of};
use std::sync::OnceLock;
use wglm::{CacheShape, Model, Pool, Session};

/// Three sequences of tokens, two of which have a common beginning.
fn sequences() -> [Vec<u32>; 3] {
    let tokens = dialogue(15);
    let mut other = tokens.clone();
    other[5] += 1;
    [tokens.clone(), other[..11].to_vec(), tokens.into_iter().rev().take(8).collect()]
}

/// The bits of the logits after each of them in a session alone.
fn expected() -> &'static [Vec<u32>; 3] {
    static EXPECTED: OnceLock<[Vec<u32>; 3]> = OnceLock::new();
    EXPECTED.get_or_init(|| sequences().map(|tokens| fresh(&tokens, 64)))
}

#[test]
fn interleaved_sessions_do_not_mix() {
    let sequences = sequences();
    let mut sessions = sequences.each_ref().map(|_| session_of(64));
    for at in (0..15).step_by(3) {
        for (session, tokens) in sessions.iter_mut().zip(&sequences) {
            session.feed(&tokens[at.min(tokens.len())..(at + 3).min(tokens.len())]).unwrap();
        }
    }
    for (index, (session, tokens)) in sessions.iter_mut().zip(&sequences).enumerate() {
        assert_eq!(session.tokens(), tokens, "sequence {index}");
        assert!(bits(session) == expected()[index], "sequence {index} differs when it is interleaved");
    }
}

#[test]
fn extended_sessions_on_threads_do_not_mix() {
    let alone = expected();
    let together = std::thread::scope(|scope| {
        let one = |tokens: Vec<u32>| {
            scope.spawn(move || {
                let mut session = session_of(64);
                for token in tokens {
                    session.feed(&[token]).unwrap();
                    session.most_likely().unwrap();
                }
                bits(&mut session)
            })
        };
        sequences().map(one).map(|thread| thread.join().unwrap())
    });
    for (index, (alone, together)) in alone.iter().zip(&together).enumerate() {
        assert!(alone == together, "sequence {index} differs on a thread");
    }
}

/// Sessions of a pool share buffers. What is read of a text's tokens is that session's.
#[test]
fn extended_rows_of_sessions_on_threads_do_not_mix() {
    let rows = |session: &mut Session, tokens: &[u32]| {
        let mut rows: Vec<Vec<f32>> = Vec::new();
        let mut keep = |_, row: &[f32]| {
            rows.push(row.to_vec());
            Ok(())
        };
        session.rewind(0);
        session.feed_all(tokens, &mut keep).unwrap();
        rows
    };
    let pool = Pool::new(model(), 3, CacheShape { context: 64, ..model().cache() }, 3 * 256).unwrap();
    std::thread::scope(|scope| {
        for tokens in sequences() {
            let mut session = pool.session().unwrap();
            scope.spawn(move || {
                let first = rows(&mut session_of(64), &tokens);
                (0..20).for_each(|_| assert!(rows(&mut session, &tokens) == first, "{tokens:?}"));
            });
        }
    });
}

#[test]
fn a_session_moves_to_another_thread() {
    let tokens = dialogue(12);
    let mut session = session_of(64);
    session.feed(&tokens[..6]).unwrap();
    let rest = tokens[6..].to_vec();
    let mut session = std::thread::spawn(move || {
        session.feed(&rest).unwrap();
        session
    })
    .join()
    .unwrap();
    holds(&mut session, &tokens, "moved");
}

/// A session keeps its model alive when the caller drops its clones.
#[test]
fn a_session_outlives_the_callers_model() {
    let copy: Model = model().clone();
    let mut session = Session::with_cache(&copy, CacheShape { context: 64, ..copy.cache() }).unwrap();
    drop(copy);
    session.feed(&dialogue(3)).unwrap();
    assert_eq!(session.model().config(), model().config());
    session.logits().unwrap();
}
