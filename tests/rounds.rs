//! Tests that sessions that are created and dropped leave no memory allocated, as in a program that runs for weeks.
//! This test has a process of its own, so that nothing else allocates memory meanwhile.

#![cfg(feature = "demo-model")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

use wglm::{
    CacheShape, CacheType, Cancel, Event, GenerateOptions, Generation, Gguf, Gpu, GpuOptions, LoadOptions, Model,
    SamplerParams, Session, Stop,
};

/// The number of sessions, after a hundred that let allocators reach their size.
const ROUNDS: usize = 300;
/// The test fails if each session leaves this many bytes.
const KEPT: u64 = 1000;

/// The memory of the process in bytes, if the system reports it.
fn resident() -> Option<u64> {
    let pages: u64 = std::fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

/// Creates a session, feeds it a token, generates one or none, cancels and drops it.
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
fn rounds_leave_memory_where_it_was() {
    let gpu = Gpu::open(&GpuOptions { checks: false, ..GpuOptions::from_env().unwrap() }).unwrap();
    let file = Gguf::from_static(wglm::DEMO_MODEL).unwrap();
    let model = Model::load(&file, &gpu, &LoadOptions::default()).unwrap();
    let held = gpu.memory().held;
    (0..100).for_each(|index| round(&model, index));
    let (before, most, reserved) = (resident(), gpu.memory().most, gpu.memory().reserved);
    let since = std::time::Instant::now();
    (0..ROUNDS).for_each(|index| round(&model, index));
    println!("{:?} for {ROUNDS} rounds", since.elapsed());
    assert_eq!((gpu.memory().held, gpu.memory().most), (held, most));
    assert_eq!(gpu.memory().reserved, reserved);
    if let (Some(before), Some(after)) = (before, resident()) {
        println!("{before} bytes resident before, {after} after");
        assert!(after < before + KEPT * ROUNDS as u64, "{before} bytes resident before, {after} after");
    }
}
