//! A program that goes on for weeks: what comes and goes leaves memory where it was. Alone in its process, so that
//! nothing else takes memory meanwhile.

#![cfg(feature = "demo-model")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

use wglm::generate::{Event, GenerateOptions, Generation, Stop};
use wglm::{CacheShape, CacheType, Cancel, Gguf, Gpu, GpuOptions, LoadOptions, Model, SamplerParams, Session};

/// Bytes of the process in memory, where the system tells.
fn resident() -> Option<u64> {
    let pages: u64 = std::fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

/// A session is made, reads a token, says one or none, is cancelled and dropped.
fn round(model: &Model, index: usize) {
    let mut session = Session::with_cache(model, CacheShape { context: 64, ty: CacheType::F32 }).unwrap();
    let options = GenerateOptions { sampling: SamplerParams::greedy(), ..GenerateOptions::default() };
    let cancel = Cancel::default();
    let generation = Generation::new(&mut session, vec![300], None, options).unwrap().with_cancel(&cancel);
    let mut told = generation.filter(|event| !matches!(event, Ok(Event::Prompt { .. })));
    let said = index % 2;
    if said == 1 {
        assert!(matches!(told.next(), Some(Ok(Event::Text(_)))), "round {index}");
    }
    cancel.cancel();
    match told.next() {
        Some(Ok(Event::Done(stats))) => assert_eq!((stats.stop, stats.generated), (Stop::Cancelled, said)),
        other => panic!("round {index}: {other:?}"),
    }
}

#[test]
fn a_thousand_rounds_leave_memory_where_it_was() {
    let gpu = Gpu::open(&GpuOptions { checks: false, ..GpuOptions::default() }).unwrap();
    let file = Gguf::from_static(wglm::DEMO_MODEL).unwrap();
    let model = Model::load(&file, &gpu, &LoadOptions::default()).unwrap();
    let held = gpu.memory().held;
    (0..100).for_each(|index| round(&model, index)); // allocators find their size
    let (before, most, reserved) = (resident(), gpu.memory().most, gpu.memory().reserved);
    let since = std::time::Instant::now();
    (0..1000).for_each(|index| round(&model, index));
    println!("{:?} for a thousand rounds", since.elapsed());
    assert_eq!((gpu.memory().held, gpu.memory().most), (held, most));
    assert_eq!(gpu.memory().reserved, reserved);
    if let (Some(before), Some(after)) = (before, resident()) {
        println!("{before} bytes resident before, {after} after");
        // Of a thousand sessions that kept a kilobyte each it would be a million.
        assert!(after < before + 1_000_000, "{before} bytes resident before, {after} after");
    }
}
