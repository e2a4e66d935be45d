//! Compares prompts that are computed in chunks with prompts that are computed token by token.

use crate::common::goldens::goldens;
use crate::common::gpu::{gpu, gpu_with_matrices, gpu_without_subgroups};
use crate::common::models::{Synthetic, fable, fable_file, load, load_on, relative_l2};
use crate::hostile_models::small::Small;
use std::time::Duration;
use wglm::{
    Arithmetic, CacheShape, CacheType, Cancel, Error, Event, GenerateOptions, Generation, Gguf, LoadOptions, Model,
    PromptOptions, Session, Stop,
};

/// The bound on the relative L2 distance of logits: f32 sums in another order.
pub const EXACT: f64 = 2e-5;
/// Sizes of chunks that use one plan and several, that fill tiles and do not, and one that holds every prompt here but
/// the longest.
const CHUNKS: [usize; 6] = [512, 2, 7, 31, 8, 64];

/// A session that computes prompts in chunks of the given size.
pub fn session(model: &Model, ty: CacheType, context: usize, chunk: usize) -> Session {
    let mut session = Session::with_cache(model, CacheShape { context, ty }).unwrap();
    session.set_prompt_options(PromptOptions { chunk: Some(chunk), ..PromptOptions::default() });
    session
}

/// The logits after all of the tokens.
pub fn logits(model: &Model, tokens: &[u32], chunk: usize) -> Vec<f32> {
    let mut session = session(model, CacheType::F32, tokens.len(), chunk);
    session.feed(tokens).unwrap();
    session.logits().unwrap()
}

/// A small model with as many heads as the kernels for few rows need.
pub fn small() -> Gguf {
    Small::like_fable_with(4).open().unwrap()
}

/// The last position whose logits are compared in a long prompt: a prompt of twice the length takes four times as long.
const LONG: usize = 2048;
/// The length of the beginning that all but one combination of weights and cache compute.
const BEGINNING: usize = 40;

/// The logits of every token agree with those of other programs: each prompt in chunks of one of the sizes, and its
/// beginning in chunks of another one, and in the other precision.
#[test]
fn extended_goldens_are_met_in_chunks_of_any_size() {
    for (precision, sizes) in [("q4_0", 2), ("f16", 1)] {
        let (model, mut chunks) = (fable(precision), CHUNKS.iter().cycle());
        for golden in goldens() {
            let want = golden.logits(precision);
            for (&chunk, ty) in chunks.by_ref().take(sizes).zip([CacheType::F32, CacheType::F16]) {
                let bound = if ty == CacheType::F32 { EXACT } else { 1e-3 };
                let most = if (precision, ty) == ("q4_0", CacheType::F32) { golden.tokens.len() } else { BEGINNING };
                let tokens = &golden.tokens[..most.min(golden.tokens.len())];
                let known = golden.positions.iter().filter(|position| **position < tokens.len()).count();
                let mut session = session(model, ty, tokens.len(), chunk);
                let (mut worst, mut seen) = (0f64, 0);
                session
                    .feed_all(tokens, &mut |position, row| {
                        if let Some(index) = golden.positions.iter().position(|p| *p == position) {
                            let error = relative_l2(row, &want[index * row.len()..][..row.len()]);
                            assert!(error.is_finite(), "{precision} {} position {position}: {error}", golden.name);
                            (worst, seen) = (worst.max(error), seen + 1);
                        }
                        Ok(())
                    })
                    .unwrap();
                assert_eq!(seen, known, "{precision} {} in chunks of {chunk}", golden.name);
                println!("{precision} {} in chunks of {chunk}, {ty:?}: worst relative L2 {worst:.1e}", golden.name);
                assert!(worst < bound, "{precision} {} in chunks of {chunk}, {ty:?}: {worst:.2e}", golden.name);
            }
        }
    }
}

/// The logits after two thousand tokens agree with those of the reference program.
#[test]
fn extended_a_long_prompt_meets_its_golden() {
    let Synthetic { file, tokens, positions, want, .. } = Synthetic::long();
    let model = load(&file);
    let vocab = model.config().vocab;
    let mut session = session(&model, CacheType::F32, tokens.len(), 512);
    let known = want.chunks_exact(vocab).zip(&positions).filter(|(_, position)| **position <= LONG);
    assert_eq!(known.clone().map(|(_, position)| *position).max(), Some(LONG));
    for (row, &position) in known {
        session.feed(&tokens[session.tokens().len()..=position]).unwrap();
        let error = relative_l2(&session.logits().unwrap(), row);
        println!("position {position}: relative L2 {error:.1e}");
        assert!(error < EXACT, "position {position}: {error:.2e}");
    }
}

#[test]
fn long_without_subgroups() {
    let model = load_on(&fable_file("q4_0"), gpu_without_subgroups());
    let tokens = &goldens()[1].tokens[..20];
    let error = relative_l2(&logits(&model, tokens, 16), &logits(&model, tokens, 1));
    assert!(error < EXACT, "{error:.2e}");
}

/// Cooperative matrices multiply values that are rounded to f16.
#[test]
fn extended_cooperative_matrices_are_near() {
    let Some(with_matrices) = gpu_with_matrices() else {
        println!("skipped: `{}` has no cooperative matrices", gpu().report().name);
        return;
    };
    let tokens = goldens().into_iter().max_by_key(|golden| golden.tokens.len()).unwrap().tokens;
    for (precision, ty) in [("q4_0", CacheType::F32), ("q4_0", CacheType::F16), ("f16", CacheType::F16)] {
        let with = load_on(&fable_file(precision), with_matrices);
        let [with, without] = [&with, fable(precision)].map(|model| {
            let mut session = session(model, ty, tokens.len(), 64);
            session.feed(&tokens).unwrap();
            session.logits().unwrap()
        });
        let error = relative_l2(&with, &without);
        println!("{precision}, {ty:?}: relative L2 {error:.1e}");
        assert!(error > 0.0 && error < 2e-4, "{precision}, {ty:?}: {error:.2e}");
    }
}

fn bits(session: &mut Session) -> Vec<u32> {
    session.logits().unwrap().into_iter().map(f32::to_bits).collect()
}

#[test]
fn extended_two_runs_give_the_same_bits() {
    let model = fable("q4_0");
    let tokens = &goldens()[0].tokens;
    let [first, second] = [(); 2].map(|()| {
        let mut session = session(model, CacheType::F16, 256, 64);
        session.feed(tokens).unwrap();
        bits(&mut session)
    });
    assert!(first == second);
}

/// A session that is stopped between any two submissions holds whole chunks, and continues as if it had not been
/// stopped.
#[test]
fn extended_a_prompt_is_cancelled_between_submissions() {
    let options = LoadOptions { arithmetic: Some(Arithmetic::Float), ..LoadOptions::default() };
    let model = Model::load(&small(), gpu(), &options).unwrap();
    let tokens = &goldens()[0].tokens[..50];
    let options = PromptOptions { chunk: Some(20), limit: Duration::ZERO }; // as many submissions as possible
    let start = || {
        let mut session = session(&model, CacheType::F32, 128, 20);
        session.set_prompt_options(options);
        session
    };
    start().feed(tokens).unwrap(); // the kernels are compiled at first use
    let mut whole = start();
    let mut told = Vec::new();
    whole.feed_with(tokens, &Cancel::default(), &mut |held| told.push(held)).unwrap();
    let whole = bits(&mut whole);
    assert!(told.len() > 30 && told.is_sorted() && told.last() == Some(&50), "{told:?}");
    assert!([0, 20, 40].iter().all(|held| told.contains(held)), "{told:?}");
    for stop in [1, told.len() / 2, told.len() - 2] {
        let (mut session, mut count) = (start(), 0);
        let cancel = Cancel::default();
        let mut until = |_| {
            count += 1;
            if count == stop {
                cancel.cancel();
            }
        };
        assert!(matches!(session.feed_with(tokens, &cancel, &mut until), Err(Error::Cancelled)));
        let held = session.tokens().len();
        assert_eq!(session.tokens(), &tokens[..held]);
        assert!(held % 20 == 0 && held < 50 && session.logits().is_err(), "stopped at {stop}: {held} tokens");
        session.feed(&tokens[held..]).unwrap();
        assert!(bits(&mut session) == whole, "stopped at {stop} and fed on");
    }
}

/// The number of tokens that are computed together depends on how long they take. The results must not depend on it.
#[test]
fn extended_parts_of_any_size_give_the_same_bits() {
    let Synthetic { file, tokens, .. } = Synthetic::long();
    for file in [file, fable_file("q4_0")] {
        let model = load(&file);
        let vocab = model.config().vocab as u32;
        let tokens: Vec<u32> = tokens[..160].iter().map(|token| token % vocab).collect();
        let [whole, parts] = [&[160][..], &[64, 96]].map(|sizes| {
            let mut session = session(&model, CacheType::F16, 256, 256);
            for size in sizes {
                session.feed(&tokens[session.tokens().len()..][..*size]).unwrap();
            }
            bits(&mut session)
        });
        assert!(whole == parts, "{}", file.display());
    }
}

/// The part of a prompt that was computed before a cancellation need not be computed again.
#[test]
fn extended_the_computed_part_of_a_cancelled_prompt_stays() {
    let model = fable("q4_0");
    let tokens = goldens()[0].tokens[..100].to_vec();
    let mut session = session(model, CacheType::F32, 128, 32);
    let mut told = Vec::new();
    for round in 0..4 {
        let cancel = Cancel::default();
        let options = GenerateOptions { max_tokens: Some(1), ..GenerateOptions::default() };
        let events = Generation::new(&mut session, tokens.clone(), None, options).unwrap();
        let mut events = events.with_cancel(&cancel);
        let Some(Ok(Event::Prompt { done, total: 100 })) = events.next() else { panic!("round {round}") };
        assert_eq!(done, 32 * round, "told first");
        let Some(Ok(Event::Prompt { done, .. })) = events.next() else { panic!("round {round}") };
        told.push(done);
        cancel.cancel();
        let Some(Ok(Event::Done(stats))) = events.last() else { panic!("round {round}") };
        assert_eq!((stats.stop, stats.prompt.cached), (Stop::Cancelled, 32 * round));
    }
    assert_eq!(told, [32, 64, 96, 100]);
}

/// A remainder of one token is computed like a token of a reply.
#[test]
fn a_single_token_follows_a_chunk() {
    let model = fable("q4_0");
    let tokens = &goldens()[0].tokens[..41];
    let mut session = session(model, CacheType::F32, 64, 40);
    let mut told = Vec::new();
    session.feed_with(tokens, &Cancel::default(), &mut |held| told.push(held)).unwrap();
    assert_eq!((session.tokens(), told.last()), (tokens, Some(&41)));
    let error = relative_l2(&session.logits().unwrap(), &logits(model, tokens, 1));
    assert!(error < EXACT, "{error:.2e}");
}

/// Larger chunks use the same memory for activations as smaller ones; earlier results in any of it do not matter.
#[test]
fn extended_chunks_of_one_session_grow_and_shrink() {
    let model = fable("q4_0");
    let tokens = &goldens()[0].tokens[..70];
    let mut alone = session(model, CacheType::F32, 128, 1);
    let wanted = [10, 40, 70].map(|count| {
        alone.feed(&tokens[alone.tokens().len()..count]).unwrap();
        (count, alone.logits().unwrap())
    });
    let [few, more, most] = &wanted;
    let mut session = session(model, CacheType::F32, 128, 512);
    for (count, wanted) in [few, most, few, more, most] {
        session.rewind(0);
        session.feed(&tokens[..*count]).unwrap();
        let error = relative_l2(&session.logits().unwrap(), wanted);
        assert!(error < EXACT, "{count} tokens: {error:.2e}");
    }
}
