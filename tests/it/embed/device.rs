//! Tests models on an app's own device.

use super::owner::Owner;
use super::{expected, file, generate, load_on, model};
use crate::common::models::fixture;
use crate::hostile_models::small::{Numbers, Small};
use wglm::{Arithmetic, Error, Gguf, Gpu, GpuOptions, LoadOptions, Model, PromptOptions, Session, wgpu};
use wglm_engine::model::LoadOverrides;
use wglm_engine::plan::Fusions;

/// Its shaders check every index, as in debug builds, and those of the other device check none.
#[test]
fn extended_an_apps_device_generates_the_same_text() {
    let owner = Owner::new();
    let gpu = owner.lend_with(&GpuOptions { checks: true, ..GpuOptions::default() }).unwrap();
    let own = model().gpu();
    assert_eq!(format!("{:?}", gpu.capabilities()), format!("{:?}", own.capabilities()));
    let loaded = load_on(&gpu).unwrap();
    assert_eq!(generate(&mut Session::new(&loaded).unwrap(), 12).unwrap(), expected(12));
}

/// Without features, and with each limit at its accepted minimum, other kernels run with other rounding, and the text
/// is the same.
#[test]
fn extended_a_device_with_no_features_and_the_least_limits() {
    let owner = Owner::open(|descriptor| {
        descriptor.required_features = wgpu::Features::empty();
        descriptor.required_limits = wgpu::Limits::default();
        descriptor.required_limits.max_storage_buffers_per_shader_stage = 14;
    });
    let gpu = owner.lend().unwrap();
    assert!(!gpu.capabilities().subgroups);
    let loaded = load_on(&gpu).unwrap();
    assert_eq!(generate(&mut Session::new(&loaded).unwrap(), 12).unwrap(), expected(12));
    assert!(matches!(gpu.time(&[]), Err(Error::Unsupported { .. })), "timestamps on a device without");
    // K-quants are the formats with the most buffers.
    for path in ["models/k-quants.gguf", "models/k-quants-down.gguf"] {
        for fusions in [Fusions::all(), Fusions::none()] {
            let overrides = LoadOverrides { fusions, ..LoadOverrides::default() };
            let options = LoadOptions { overrides, ..LoadOptions::default() };
            Model::load(&Gguf::open(fixture(path)).unwrap(), &gpu, &options).unwrap();
        }
    }
}

/// With products of bytes, and with the formats that have the most buffers.
#[test]
fn extended_a_device_with_few_storage_buffers() {
    let owner = Owner::open(|descriptor| descriptor.required_limits.max_storage_buffers_per_shader_stage = 14);
    let gpu = owner.lend().unwrap();
    let wide = Numbers { width: 256, query_rank: 256, latent_rank: 256, expert_width: 256, ..Numbers::default() };
    for ty in [11, 21] {
        let file = Small::of(&Numbers { ty, value_width: 128, ..wide }).open().unwrap();
        let arithmetic = Some(Arithmetic::Int);
        let options = LoadOptions { arithmetic, compile_all: Some(true), ..LoadOptions::default() };
        let model = Model::load(&file, &gpu, &options).unwrap();
        let mut session = Session::new(&model).unwrap();
        session.feed(&[1, 2, 3, 4, 5]).unwrap();
        assert_eq!(session.logits().unwrap().len(), 40);
    }
}

#[test]
fn a_limit_that_is_too_small_is_named() {
    type Lower = fn(&mut wgpu::Limits);
    let lowered: [(&str, Lower, u64); 3] = [
        ("max_storage_buffers_per_shader_stage", |l| l.max_storage_buffers_per_shader_stage = 12, 12),
        ("max_compute_workgroup_storage_size", |l| l.max_compute_workgroup_storage_size = 16_000, 16_000),
        ("max_compute_workgroup_size_x", |l| l.max_compute_workgroup_size_x = 128, 128),
    ];
    for (name, lower, value) in lowered {
        let owner = Owner::open(|descriptor| lower(&mut descriptor.required_limits));
        match owner.lend().map(drop).unwrap_err() {
            Error::Limit { limit, found, expected, .. } => {
                assert_eq!((limit, found), (name, value));
                assert!(expected > found, "{name}: {expected}");
            }
            other => panic!("{name}: {other}"),
        }
    }
}

/// If a binding or a buffer is too small for the model, loading the model fails, and opening the device does not.
#[test]
fn a_model_too_large_for_the_device() {
    let owner = Owner::open(|descriptor| descriptor.required_limits.max_storage_buffer_binding_size = 100_000);
    let error = load_on(&owner.lend().unwrap()).map(drop).unwrap_err();
    assert!(matches!(error, Error::TooLarge { limit: "max_storage_buffer_binding_size", allowed: 100_000, .. }));
}

/// The app's errors reach its own handler, also while wglm works on another thread, and are not taken for wglm's.
#[test]
fn extended_the_apps_errors_reach_only_the_app() {
    let owner = Owner::new();
    let errors = owner.errors();
    let model = load_on(&owner.lend().unwrap()).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let made = std::thread::scope(|scope| {
        let app = scope.spawn(|| {
            let mut made = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                owner.err();
                made += 1;
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            made
        });
        let said = generate(&mut Session::new(&model).unwrap(), 12);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(said.unwrap(), expected(12));
        app.join().unwrap()
    });
    assert!(made > 3, "{made}");
    assert_eq!(errors.try_iter().count(), made);
}

/// Errors of wglm's calls are returned by these calls and do not reach the app's handler.
#[test]
fn our_errors_do_not_reach_the_app() {
    let owner = Owner::new();
    let errors = owner.errors();
    let gpu = owner.lend().unwrap();
    let buffer = gpu.buffer("ours", 16, wglm_engine::gpu::BufferUse::Storage).unwrap();
    assert!(matches!(gpu.write(&buffer, 12, &[0; 8]), Err(Error::Gpu { .. })));
    assert_eq!(errors.try_iter().count(), 0);
    gpu.write(&buffer, 8, &[0; 8]).unwrap();
}

#[test]
fn options_can_request_less() {
    let owner = Owner::new();
    let options = GpuOptions { subgroups: false, ..GpuOptions::default() };
    let gpu = owner.lend_with(&options).unwrap();
    assert!(!gpu.capabilities().subgroups);
}

/// The budget includes staging memory, so a load that does not fit is refused before anything is read, and releases
/// what it had allocated.
#[test]
fn extended_a_budget_is_kept() {
    let open = |limit| {
        let options = GpuOptions { memory_limit: Some(limit), checks: false, ..GpuOptions::default() };
        Gpu::open(&options).unwrap()
    };
    let needed = load_on(&open(u64::MAX)).unwrap().gpu().memory();
    for share in [0.01, 0.5, 0.9] {
        let gpu = open((needed.held as f64 * share) as u64);
        let error = load_on(&gpu).map(drop).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { bytes, .. } if bytes > 0), "{error}");
        assert_eq!(gpu.memory().held, 0, "after {error}");
    }
    let limit = needed.most.max(needed.held + (20 << 20));
    let gpu = open(limit);
    let model = load_on(&gpu).unwrap();
    let mut sessions = Vec::new();
    let error = loop {
        match Session::new(&model) {
            Ok(session) => sessions.push(session),
            Err(error) => break error,
        }
        assert!(sessions.len() < 1000, "no budget is kept");
    };
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    assert!(gpu.memory().held <= limit);
    sessions.truncate(1);
    assert_eq!(generate(&mut sessions[0], 4).unwrap(), expected(4), "beside a session that did not fit");
    drop((sessions, model));
    assert_eq!(gpu.memory().held, 0);
    Model::load(&file(), &gpu, &LoadOptions::default()).unwrap();
}

/// The plans for chunks of prompts are created when they are first needed. If they do not fit, the session keeps its
/// contents and computes the prompt token by token.
#[test]
fn extended_a_prompt_that_does_not_fit_leaves_the_session() {
    let options = LoadOptions { context: Some(512), ..LoadOptions::default() };
    let alone = LoadOptions { prompt: PromptOptions { chunk: Some(1), ..PromptOptions::default() }, ..options.clone() };
    let least = Model::estimate(&file(), &alone, Some(model().gpu())).unwrap();
    let open = GpuOptions { memory_limit: Some(least.most() + (1 << 20)), checks: true, ..GpuOptions::default() };
    let gpu = Gpu::open(&open).unwrap();
    let model = Model::load(&file(), &gpu, &options).unwrap();
    let mut session = Session::new(&model).unwrap();
    session.feed(&[1]).unwrap(); // a single token needs no plan for chunks
    session.feed(&[300]).unwrap();
    let held = gpu.memory().held;
    for _ in 0..3 {
        let error = session.feed(&[7; 400]).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
        assert_eq!((session.tokens(), gpu.memory().held), (&[1, 300][..], held));
    }
    session.set_prompt_options(alone.prompt);
    assert_eq!(generate(&mut session, 4).unwrap(), expected(4));
}
