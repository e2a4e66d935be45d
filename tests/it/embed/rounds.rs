//! Tests that many threads and many loads leave nothing behind.

use super::owner::Owner;
use super::{load_on, model};
use std::sync::Barrier;
use wglm::{Cancel, Chat, Estimate, Gguf, Gpu, Model, SamplerParams, Session};

/// Every other load is stopped before its end.
#[test]
fn extended_loads_release_everything() {
    let gpu = crate::common::gpu::open(true);
    for round in 0..6 {
        let (mut told, cancel) = (0, Cancel::default());
        let loaded = Model::load_with(&super::file(), &gpu, &Default::default(), &cancel, &mut |_| {
            told += 1;
            if told == 5 && round % 2 == 0 {
                cancel.cancel();
            }
        });
        assert_eq!(loaded.is_ok(), round % 2 == 1);
        drop(loaded);
        assert_eq!(gpu.memory().held, 0);
    }
}

/// The tokens that a session draws with a seed, after its own prompt.
fn say(model: &Model, seed: u64) -> Vec<u32> {
    let mut session = Session::new(model).unwrap();
    session.set_sampling(&SamplerParams { seed: Some(seed), ..SamplerParams::default() }).unwrap();
    let prompt: Vec<u32> = (0..10 + 7 * seed as u32).map(|token| 20 + token * 3).collect();
    session.feed(&prompt).unwrap();
    (0..15).map(|_| session.next_token().unwrap()).collect()
}

/// Four sessions that draw on four threads at once generate what each generates alone, on wglm's device and on an
/// app's.
#[test]
fn extended_sessions_on_threads_do_not_mix() {
    let shared = load_on(&Owner::new().lend().unwrap()).unwrap();
    let alone: Vec<Vec<u32>> = (0..4).map(|seed| say(model(), seed)).collect();
    assert!(alone.windows(2).all(|pair| pair[0] != pair[1]), "all say the same: {alone:?}");
    for model in [model(), &shared] {
        let start = Barrier::new(4);
        let together: Vec<Vec<u32>> = std::thread::scope(|scope| {
            let one = |seed| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    say(model, seed)
                })
            };
            let threads: Vec<_> = (0..4).map(one).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(together, alone);
    }
}

/// The types that an app may send between threads and share.
#[test]
fn handles_can_be_sent_and_shared() {
    fn anywhere<T: Send + Sync + Clone + 'static>() {}
    fn moves<T: Send + 'static>() {}
    anywhere::<Gpu>();
    anywhere::<Model>();
    anywhere::<Gguf>();
    anywhere::<Cancel>();
    anywhere::<Estimate>();
    moves::<Session>();
    moves::<Chat>();
    moves::<wglm::Error>();
}
