//! Tests loading, and what does not fit.

use super::{alone, dialogue, holds, load, model, session_of};
use crate::common::gpu::{gpu, open};
use crate::common::models::fable_file;
use std::time::{Duration, Instant};
use wglm::{
    Backend, CacheShape, CacheType, Cancel, Error, Gguf, Gpu, GpuOptions, LoadOptions, LoadProgress, LoadStage, Model,
    Session,
};
use wglm_engine::model::LoadOverrides;
use wglm_engine::plan::Fusions;

fn file() -> Gguf {
    Gguf::open(fable_file("q4_0")).unwrap()
}

/// Every stage is reported in order, from its beginning to its end, and never goes back.
#[test]
fn extended_progress_rises_to_the_total() {
    let mut told: Vec<LoadProgress> = Vec::new();
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    let mut progress = |p| {
        told.push(p);
        longest = longest.max(last.elapsed());
        last = Instant::now();
    };
    Model::load_with(&file(), &open(true), &LoadOptions::default(), &Cancel::default(), &mut progress).unwrap();
    println!("at most {longest:?} lie between two calls");
    assert!(longest < Duration::from_secs(5), "{longest:?}"); // a twentieth of a second, on a machine that is not busy
    let known = told.iter().position(|p| p.total > 0).unwrap(); // it plans first
    assert!(told.drain(..known).all(|p| (p.stage, p.done) == (LoadStage::Weights, 0)));
    let (first, last) = (told[0], *told.last().unwrap());
    println!("told {} times, the last time {last:?}", told.len());
    assert_eq!((first.stage, first.done), (LoadStage::Weights, 0));
    assert!(first.total > 4_000_000 && told.len() > 10, "{first:?}");
    assert_eq!((last.stage, last.done), (LoadStage::Check, last.total));
    assert!(last.total > 10, "{last:?}");
    // A cold check compiles before it runs steps. Each of these is counted, so the progress never stands still for
    // long.
    let check: Vec<u64> = told.iter().filter(|p| p.stage == LoadStage::Check).map(|p| p.done).collect();
    let shares = check.chunk_by(|a, b| a == b).count();
    assert!(shares > 10, "the check shows {shares} shares: {check:?}");
    let stages: Vec<&[LoadProgress]> = told.chunk_by(|a, b| a.stage == b.stage).collect();
    assert!(stages.windows(2).all(|pair| pair[0][0].stage < pair[1][0].stage), "{stages:?}");
    for stage in stages {
        let (first, last) = (stage[0], stage[stage.len() - 1]);
        assert!(stage.windows(2).all(|pair| pair[0].done <= pair[1].done), "it falls back: {stage:?}");
        assert!(first.stage == LoadStage::Check || stage.iter().all(|p| p.total == first.total), "{stage:?}");
        assert!(last.stage != LoadStage::Kernels || last.done <= last.total, "{last:?}");
    }
}

#[test]
fn extended_after_a_cancelled_load_the_next_one_succeeds() {
    // A new device: kernels stay compiled on a device, and a load that compiles nothing reports less.
    let fresh = open(true);
    for stop in [1, 5, 50] {
        let (mut told, cancel) = (0, Cancel::default());
        let mut progress = |_| {
            told += 1;
            if told == stop {
                cancel.cancel();
            }
        };
        let loaded = Model::load_with(&file(), &fresh, &LoadOptions::default(), &cancel, &mut progress);
        let error = loaded.map(drop).unwrap_err();
        assert!(matches!(error, Error::Cancelled), "{error}");
        assert_eq!(told, stop, "told again after it was stopped");
    }
    // A load can be stopped in any stage, even at the last moment: the end of the check is reported too.
    // Without fusions there are many kernels.
    let overrides = LoadOverrides { fusions: Fusions::none(), ..LoadOverrides::default() };
    let fused_less = LoadOptions { overrides, ..LoadOptions::default() };
    type Stops = fn(LoadProgress) -> bool;
    let moments: [(&str, Stops); 3] = [
        ("compiling", |now| now.stage == LoadStage::Kernels && now.done > 0),
        ("checking", |now| now.stage == LoadStage::Check && now.done > 0),
        ("at the end", |now| now.stage == LoadStage::Check && now.done == now.total),
    ];
    for (moment, stops) in moments {
        let (mut stopped, cancel) = (0, Cancel::default());
        let mut progress = |now: LoadProgress| {
            stopped += u32::from(stops(now));
            if stopped > 0 {
                cancel.cancel();
            }
        };
        let error = Model::load_with(&file(), &open(true), &fused_less, &cancel, &mut progress).map(drop).unwrap_err();
        assert!(matches!(error, Error::Cancelled), "{moment}: {error}");
        assert_eq!(stopped, 1, "{moment}: told again after it was stopped");
    }
    let model = load(&LoadOptions { prompt: alone(), ..LoadOptions::default() }).unwrap();
    let mut session = Session::with_cache(&model, CacheShape { context: 64, ty: CacheType::F32 }).unwrap();
    session.feed(&dialogue(4)).unwrap();
    holds(&mut session, &dialogue(4), "after cancelled loads");
}

#[test]
fn an_adapter_that_is_not_there() {
    let there = gpu().report().name.clone();
    let wanted = Some("an adapter nobody makes".to_owned());
    let error = Gpu::open(&GpuOptions { adapter: wanted, ..GpuOptions::default() }).map(drop).unwrap_err();
    assert!(matches!(error, Error::NoAdapter { .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains("an adapter nobody makes") && message.contains(&there), "{message}");

    let error = Backend::list("vulkan, no such backend").unwrap_err();
    assert!(matches!(error, Error::Argument { argument: "backend", .. }), "{error}");
    assert_eq!(Backend::list("VK,metal").unwrap(), [Backend::Vulkan, Backend::Metal]);
    assert!(error.to_string().contains("no such backend"), "{error}");
}

/// A part of the adapter's name suffices, in upper or lower case.
#[test]
fn an_adapter_by_part_of_its_name() {
    let name = gpu().report().name.clone();
    let part: String = name.chars().take(4).collect::<String>().to_uppercase();
    let opened = Gpu::open(&GpuOptions { adapter: Some(part.clone()), ..GpuOptions::default() }).unwrap();
    assert!(opened.report().name.to_uppercase().contains(&part), "{part}: {}", opened.report().name);
}

#[track_caller]
fn names_the_cache(error: &Error) {
    let memory = matches!(error, Error::OutOfMemory { .. }) && error.to_string().contains("cache");
    assert!(memory || matches!(error, Error::ContextTooLarge { .. }), "{error}");
}

#[test]
fn an_impossible_cache() {
    for context in [500_000_000, 4_000_000_000] {
        for ty in CacheType::ALL {
            names_the_cache(&Session::with_cache(model(), CacheShape { context, ty }).map(drop).unwrap_err());
        }
        let options = LoadOptions { context: Some(context), ..LoadOptions::default() };
        names_the_cache(&load(&options).and_then(|model| Session::new(&model)).map(drop).unwrap_err());
    }
    let mut session = session_of(64);
    session.feed(&dialogue(4)).unwrap();
    holds(&mut session, &dialogue(4), "after caches that cannot be");
}

/// A model whose latents are not whole blocks cannot have a cache in blocks.
#[test]
fn a_cache_in_blocks_needs_latents_of_whole_blocks() {
    let load = |options: &LoadOptions| {
        let file = Gguf::open(crate::common::models::fixture("models/no-shared.gguf")).unwrap();
        Model::load(&file, gpu(), options)
    };
    let expect = |error: Error| {
        let told = error.cause().to_string();
        assert!(matches!(error.cause(), Error::Unsupported { .. }), "{told}");
        assert!(
            told.contains("type q8_0") && told.contains("latents have 20 values") && told.contains("use f16"),
            "{told}"
        );
    };
    expect(load(&LoadOptions { cache: Some(CacheType::Q8_0), ..LoadOptions::default() }).map(drop).unwrap_err());
    let model = load(&LoadOptions::default()).unwrap();
    let cache = CacheShape { context: 64, ty: CacheType::Q8_0 };
    expect(Session::with_cache(&model, cache).map(drop).unwrap_err());
}

/// Tests contexts whose bytes no integer can count, or whose positions the GPU cannot count.
#[test]
fn a_cache_beyond_counting() {
    for context in [u32::MAX as usize + 1, usize::MAX / 640, usize::MAX / 256, usize::MAX] {
        for ty in CacheType::ALL {
            let error = Session::with_cache(model(), CacheShape { context, ty }).map(drop).unwrap_err();
            assert!(matches!(error, Error::Argument { argument: "context", .. }), "{context}: {error}");
            assert!(error.to_string().contains(&context.to_string()), "{error}");
        }
    }
}

#[test]
fn the_requested_context() {
    let made_for = model().config().context;
    for (asked, context) in [(None, made_for.min(8192)), (Some(0), made_for), (Some(100), 100)] {
        let options = LoadOptions { context: asked, ..LoadOptions::default() };
        assert_eq!(options.cache_for(model().config()).context, context, "{asked:?}");
    }
}

/// The memory of a model and a session is reported; staging memory is released after the load, and everything at the
/// end.
#[test]
fn extended_memory_is_counted_and_released() {
    let gpu = open(true);
    let model = Model::load(&file(), &gpu, &LoadOptions::default()).unwrap();
    let (weights, loaded) = (3_000_000..8_000_000, gpu.memory());
    assert!(weights.contains(&loaded.held), "{loaded:?}");
    assert!(loaded.most > loaded.held && loaded.most < loaded.held + (200 << 20), "{loaded:?}");
    let session = Session::with_cache(&model, CacheShape { context: 4096, ty: CacheType::F32 }).unwrap();
    let cache = 5 * 4096 * 160 * 4; // four layers and the multi-token-prediction block
    let held = gpu.memory().held;
    assert!((cache..cache + (1 << 20)).contains(&(held - loaded.held)), "{held} after {loaded:?}");
    drop(session);
    assert_eq!(gpu.memory().held, loaded.held);
    drop(model);
    assert_eq!((gpu.memory().held, gpu.memory().most), (0, held.max(loaded.most)));
}

#[test]
fn extended_a_synthetic_depth_takes_no_time() {
    for ty in CacheType::ALL {
        let mut session = Session::with_cache(model(), CacheShape { context: 300, ty }).unwrap();
        session.feed(&dialogue(4)).unwrap();
        session.set_synthetic_depth(299).unwrap();
        assert_eq!(session.tokens().len(), 299);
        assert!(session.logits().is_err(), "logits of a token that was never fed");
        session.feed(&[1]).unwrap();
        let first = session.logits().unwrap();
        assert!(first.iter().all(|logit| logit.is_finite()), "{first:?}");
        session.set_synthetic_depth(299).unwrap();
        session.feed(&[1]).unwrap();
        assert!(session.logits().unwrap() == first, "another noise");
        assert!(matches!(session.set_synthetic_depth(301), Err(Error::ContextFull { needed: 301, context: 300 })));
        session.set_synthetic_depth(0).unwrap();
        session.feed(&dialogue(4)).unwrap();
        let mut fresh = Session::with_cache(model(), CacheShape { context: 300, ty }).unwrap();
        fresh.feed(&dialogue(4)).unwrap();
        assert!(session.logits().unwrap() == fresh.logits().unwrap(), "noise is left over");
    }
}
