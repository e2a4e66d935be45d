//! Compares prompts that are computed in chunks with prompts that are computed token by token.

use crate::common::goldens::goldens;
use crate::common::gpu::gpu;
use crate::common::models::{fable_file, fixture, load, load_on, load_with, read_f32, read_u32, relative_l2};
use serde_json::Value;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;
use wglm::kernels::CacheType;
use wglm::model::{BatchShape, Outputs, plan_batch, plan_token};
use wglm::plan::Fusions;
use wglm::{
    Arithmetic, CacheShape, Cancel, Error, Event, GenerateOptions, Generation, Model, PromptOptions, Session, Stop,
};

/// The bound on the relative L2 distance of logits: f32 sums in another order.
const EXACT: f64 = 2e-5;
/// Sizes of chunks that use one plan and several, that fill tiles and do not, and one that holds every prompt here but
/// the longest.
const CHUNKS: [usize; 7] = [1, 2, 7, 8, 31, 64, 512];

fn session(model: &Model, ty: CacheType, context: usize, chunk: usize) -> Session {
    let mut session = Session::with_cache(model, CacheShape { context, ty }).unwrap();
    session.set_prompt_options(PromptOptions { chunk, ..PromptOptions::default() });
    session
}

/// The logits after all of the tokens.
fn logits(model: &Model, tokens: &[u32], chunk: usize) -> Vec<f32> {
    let mut session = session(model, CacheType::F32, tokens.len(), chunk);
    session.feed(tokens).unwrap();
    session.logits().unwrap()
}

/// A model of the index: its name, its file, and tokens whose logits are known.
struct Shape {
    name: String,
    file: PathBuf,
    tokens: Vec<u32>,
    positions: Vec<usize>,
    want: Vec<f32>,
}

fn shapes() -> Vec<Shape> {
    let index: Value = serde_json::from_slice(&std::fs::read(fixture("models/index.json")).unwrap()).unwrap();
    let shape = |model: &Value| {
        let name = model["name"].as_str().unwrap().to_owned();
        let positions = model["positions"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
        let [file, tokens, logits] =
            ["gguf", "tokens.i32", "logits.f32"].map(|end| fixture(&format!("models/{name}.{end}")));
        Shape { name, file, tokens: read_u32(tokens), positions, want: read_f32(logits) }
    };
    index["models"].as_array().unwrap().iter().map(shape).collect()
}

/// For every shape and format, the whole prompt in one chunk and in chunks with a remainder gives the same logits.
#[test]
fn every_model_computes_chunks_as_it_computes_tokens() {
    let mut failures = Vec::new();
    for Shape { name, file, tokens, .. } in shapes() {
        let tokens = &tokens[..tokens.len().min(40)];
        let model = load(&file);
        let alone = logits(&model, tokens, 1);
        for chunk in [7, 512] {
            let error = relative_l2(&logits(&model, tokens, chunk), &alone);
            println!("{name:<16} chunks of {chunk}: relative L2 {error:.1e}");
            if error.is_nan() || error >= EXACT {
                failures.push(format!("{name} in chunks of {chunk}: {error:.2e}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Chunks of a few tokens multiply bytes as single tokens do, in different plans that share memory: no plan reads what
/// another one left there.
#[test]
fn chunks_of_bytes_are_tokens_of_bytes() {
    let mut judged = 0;
    for Shape { name, file, .. } in shapes() {
        let model = load_with(&file, gpu(), Arithmetic::Int, Fusions::all());
        if !multiplies_bytes(&model) {
            continue;
        }
        let tokens: Vec<u32> = (1..=34).map(|token| 37 * token % model.config().vocab as u32).collect();
        let mut session = session(&model, CacheType::F32, 34, 512);
        for end in [20, 23, 32, 34] {
            session.feed(&tokens[session.tokens().len()..end]).unwrap();
            let error = relative_l2(&session.logits().unwrap(), &logits(&model, &tokens[..end], 1));
            println!("{name:<16} {end} tokens: relative L2 {error:.1e}");
            assert!(error < EXACT, "{name}, {end} tokens: {error:.2e}");
        }
        judged += 1;
    }
    assert!(judged >= 4, "only {judged} models with such chunks");
}

/// Whether the model's chunks of a few tokens multiply bytes.
fn multiplies_bytes(model: &Model) -> bool {
    let (file, config, target) = (model.file(), model.config(), *model.target());
    let token = plan_token(file, config, model.cache(), target).unwrap();
    let few = plan_batch(file, config, &token, target, BatchShape::of(4, Outputs::Last, 0, 64)).unwrap();
    few.plan.variants.iter().any(|variant| variant.label.contains(".i8."))
}

/// The logits of every token agree with those of other programs.
#[test]
fn goldens_are_met_in_chunks_of_any_size() {
    for precision in ["q4_0", "f16"] {
        let model = load(&fable_file(precision));
        for golden in goldens() {
            let want = golden.logits(precision);
            for (chunk, ty) in CHUNKS.into_iter().zip([CacheType::F32, CacheType::F16].into_iter().cycle()) {
                let bound = if ty == CacheType::F32 { EXACT } else { 1e-3 };
                let mut session = session(&model, ty, golden.tokens.len(), chunk);
                let (mut worst, mut seen) = (0f64, 0);
                session
                    .feed_all(&golden.tokens, &mut |position, row| {
                        if let Some(index) = golden.positions.iter().position(|p| *p == position) {
                            let error = relative_l2(row, &want[index * row.len()..][..row.len()]);
                            assert!(error.is_finite(), "{precision} {} position {position}: {error}", golden.name);
                            (worst, seen) = (worst.max(error), seen + 1);
                        }
                        ControlFlow::Continue(())
                    })
                    .unwrap();
                assert_eq!(seen, golden.positions.len(), "{precision} {} in chunks of {chunk}", golden.name);
                println!("{precision} {} in chunks of {chunk}, {ty:?}: worst relative L2 {worst:.1e}", golden.name);
                assert!(worst < bound, "{precision} {} in chunks of {chunk}, {ty:?}: {worst:.2e}", golden.name);
            }
        }
    }
}

/// The logits after three thousand tokens agree with those of the reference program.
#[test]
fn a_long_prompt_meets_its_golden() {
    let Shape { file, tokens, positions, want, .. } = shapes().into_iter().find(|shape| shape.name == "long").unwrap();
    assert!(tokens.len() >= 3000);
    let model = load(&file);
    let vocab = model.config().vocab;
    for chunk in [64, 512] {
        let mut session = session(&model, CacheType::F32, tokens.len(), chunk);
        for (row, &position) in want.chunks_exact(vocab).zip(&positions) {
            session.feed(&tokens[session.tokens().len()..=position]).unwrap();
            let error = relative_l2(&session.logits().unwrap(), row);
            println!("chunks of {chunk}, position {position}: relative L2 {error:.1e}");
            assert!(error < EXACT, "chunks of {chunk}, position {position}: {error:.2e}");
        }
    }
}

#[test]
fn without_subgroups() {
    let model = load_on(&fable_file("q4_0"), &crate::common::gpu::open(false));
    let golden = &goldens()[1];
    let error = relative_l2(&logits(&model, &golden.tokens, 16), &logits(&model, &golden.tokens, 1));
    assert!(error < EXACT, "{error:.2e}");
}

fn bits(session: &mut Session) -> Vec<u32> {
    session.logits().unwrap().into_iter().map(f32::to_bits).collect()
}

#[test]
fn two_runs_give_the_same_bits() {
    let model = load_with(&fable_file("q4_0"), gpu(), Arithmetic::Float, Fusions::all());
    let tokens = &goldens()[0].tokens;
    let [first, second] = [(); 2].map(|()| {
        let mut session = session(&model, CacheType::F16, 256, 64);
        session.feed(tokens).unwrap();
        bits(&mut session)
    });
    assert!(first == second);
}

/// A session that is stopped between any two submissions holds whole chunks, and continues as if it had not been
/// stopped.
#[test]
fn a_prompt_is_cancelled_between_submissions() {
    let model = load(&fable_file("q4_0"));
    let tokens = &goldens()[0].tokens[..100];
    let options = PromptOptions { chunk: 40, limit: Duration::ZERO }; // as many submissions as possible
    let start = || {
        let mut session = session(&model, CacheType::F32, 128, 40);
        session.set_prompt_options(options);
        session
    };
    start().feed(tokens).unwrap(); // the kernels are compiled at first use
    let mut whole = start();
    let mut told = Vec::new();
    whole
        .feed_with(tokens, &mut |held| {
            told.push(held);
            ControlFlow::Continue(())
        })
        .unwrap();
    let whole = bits(&mut whole);
    assert!(told.len() > 30 && told.is_sorted() && told.last() == Some(&100), "{told:?}");
    assert!([0, 40, 80].iter().all(|held| told.contains(held)), "{told:?}");
    for stop in [1, told.len() / 2, told.len() - 2] {
        let (mut session, mut count) = (start(), 0);
        let mut until = |_| {
            count += 1;
            if count == stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        assert!(matches!(session.feed_with(tokens, &mut until), Err(Error::Cancelled)));
        let held = session.tokens().len();
        assert_eq!(session.tokens(), &tokens[..held]);
        assert!(held % 40 == 0 && held < 100 && session.logits().is_err(), "stopped at {stop}: {held} tokens");
        session.feed(&tokens[held..]).unwrap();
        assert!(bits(&mut session) == whole, "stopped at {stop} and fed on");
    }
}

/// The number of tokens that are computed together depends on how long they take. The results must not depend on it.
#[test]
fn parts_of_any_size_give_the_same_bits() {
    let Shape { file, tokens, .. } = shapes().into_iter().find(|shape| shape.name == "long").unwrap();
    for file in [file, fable_file("q4_0")] {
        let model = load(&file);
        let vocab = model.config().vocab as u32;
        let tokens: Vec<u32> = tokens[..512].iter().map(|token| token % vocab).collect();
        let [whole, parts] = [&[512][..], &[64, 96, 128, 224]].map(|sizes| {
            let mut session = session(&model, CacheType::F16, 512, 512);
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
fn a_cancelled_prompt_is_kept_as_far_as_it_was_told() {
    let model = load(&fable_file("q4_0"));
    let tokens = goldens()[0].tokens[..100].to_vec();
    let mut session = session(&model, CacheType::F32, 128, 32);
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
    let model = load(&fable_file("q4_0"));
    let tokens = &goldens()[0].tokens[..41];
    let mut session = session(&model, CacheType::F32, 64, 40);
    let mut told = Vec::new();
    let mut note = |held| {
        told.push(held);
        ControlFlow::Continue(())
    };
    session.feed_with(tokens, &mut note).unwrap();
    assert_eq!((session.tokens(), told.last()), (tokens, Some(&41)));
    let error = relative_l2(&session.logits().unwrap(), &logits(&model, tokens, 1));
    assert!(error < EXACT, "{error:.2e}");
}

/// Larger chunks use the same memory for activations as smaller ones; earlier results in any of it do not matter.
#[test]
fn chunks_of_one_session_grow_and_shrink() {
    let model = load(&fable_file("q4_0"));
    let tokens = &goldens()[0].tokens[..100];
    let mut session = session(&model, CacheType::F32, 128, 512);
    for count in [10, 100, 10, 40, 100] {
        session.rewind(0);
        session.feed(&tokens[..count]).unwrap();
        let error = relative_l2(&session.logits().unwrap(), &logits(&model, &tokens[..count], 1));
        assert!(error < EXACT, "{count} tokens: {error:.2e}");
    }
}

/// After a prompt a reply continues token by token with the same cache.
#[test]
fn replies_follow_prompts_in_chunks() {
    for precision in ["q4_0", "f16"] {
        let model = load(&fable_file(precision));
        goldens().iter().for_each(|golden| golden.check_greedy(&model, precision));
    }
}
