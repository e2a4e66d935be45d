//! Tests the estimate of the memory that a model needs.

use super::file;
use super::owner::Owner;
use crate::common::gpu::{open, options};
use crate::common::models::fixture;
use wglm::offers::Fit;
use wglm::{
    CacheShape, CacheType, Cancel, DraftKind, Error, Gguf, Gpu, GpuOptions, LoadOptions, Model, PromptOptions, Session,
    Speculation,
};

fn with_limit(limit: u64) -> Gpu {
    Gpu::open(&GpuOptions { memory_limit: Some(limit), ..options() }).unwrap()
}

/// Once every plan of a session has been used, the held memory equals the estimate, apart from small buffers.
#[test]
fn long_the_estimate_is_the_memory_that_is_held() {
    for (speculation, (chunk, lengths)) in [DraftKind::Off, DraftKind::Auto].into_iter().flat_map(|kind| {
        [(1, &[3][..]), (64, &[5, 20, 100, 5]), (256, &[5, 20, 100, 256, 5])].map(|prompts| (kind, prompts))
    }) {
        let prompt = PromptOptions { chunk: Some(chunk), ..PromptOptions::default() };
        let options = LoadOptions { context: Some(1600), prompt, speculation, ..LoadOptions::default() };
        let gpu = open(true);
        let said = Model::estimate(&file(), &options, Some(&gpu)).unwrap();
        assert_eq!((gpu.memory().held, gpu.memory().most), (0, 0), "an estimate allocates");
        let model = Model::load(&file(), &gpu, &options).unwrap();
        let loaded = gpu.memory();
        assert_eq!(loaded.held, said.weights);
        assert!(loaded.most <= said.weights + said.staging, "{loaded:?}, {said:?}");
        let mut session = Session::new(&model).unwrap();
        let kind = if speculation == DraftKind::Off { DraftKind::Off } else { DraftKind::Mtp };
        session.set_speculation(&Speculation { kind, most: None }).unwrap();
        let small = gpu.memory().held;
        let mut largest = 0;
        for length in lengths {
            let mut before = 0;
            let mut note = |held| {
                largest = largest.max(held - before);
                before = held;
            };
            session.feed_with(&vec![7; *length], &Cancel::default(), &mut note).unwrap();
        }
        session.rewind(64);
        session.feed(&[7; 30]).unwrap();
        if speculation != DraftKind::Off {
            for drafts in [1, 3, 7, 15] {
                session.verify(&vec![7; drafts]).unwrap();
                session.draft_logits(7, 2).unwrap();
            }
        }
        let held = gpu.memory().held - loaded.held;
        println!("{held} held in {said:?}, {} before a prompt", small - loaded.held);
        assert!(held <= said.cache + said.scratch, "{held} held, {said:?}");
        // A slow machine splits chunks of more than 64 tokens, and makes no plan for the largest.
        assert!(largest == chunk || largest >= 64, "{largest} tokens at once");
        // Not every plan of the multi-token-prediction block has been used.
        let least = if speculation == DraftKind::Off { 99 } else { 90 };
        assert!(largest < chunk || held * 100 >= (said.cache + said.scratch) * least, "{held} held, {said:?}");
    }
}

/// A budget as large as the estimate suffices, and a budget that does not suffice was predicted not to.
#[test]
fn extended_predicted_fits_are_right() {
    let options = LoadOptions { context: Some(512), ..LoadOptions::default() };
    let most = Model::estimate(&file(), &options, Some(&open(true))).unwrap().most();
    let gpu = with_limit(most);
    let said = Model::estimate(&file(), &options, Some(&gpu)).unwrap();
    assert_eq!((said.fit.clone(), said.most()), (Fit::Fits, most));
    let mut session = Session::new(&Model::load(&file(), &gpu, &options).unwrap()).unwrap();
    session.feed(&[7; 300]).unwrap();
    let again = Model::estimate(&file(), &options, Some(&gpu)).unwrap().fit;
    assert_eq!(again, Fit::Memory { needed: most, available: most - gpu.memory().held }, "beside the first");

    let said = Model::estimate(&file(), &options, Some(&with_limit(most - 1))).unwrap();
    assert_eq!(said.fit, Fit::Memory { needed: most, available: most - 1 });
}

#[test]
fn a_buffer_that_is_too_large_is_named() {
    let options = LoadOptions { context: Some(16), ..LoadOptions::default() };
    let owner = Owner::open(|descriptor| descriptor.required_limits.max_storage_buffer_binding_size = 100_000);
    let said = Model::estimate(&file(), &options, Some(&owner.lend().unwrap())).unwrap();
    assert!(
        matches!(&said.fit, Fit::Piece { limit: "max_storage_buffer_binding_size", allowed: 100_000, .. }),
        "{:?}",
        said.fit
    );
    let owner = Owner::open(|descriptor| descriptor.required_limits.max_buffer_size = 100_000);
    let said = Model::estimate(&file(), &options, Some(&owner.lend().unwrap())).unwrap();
    assert!(matches!(&said.fit, Fit::Piece { limit: "max_buffer_size", .. }), "{:?}", said.fit);
}

/// The context that an error suggests fits, and one more token does not.
#[test]
fn extended_the_error_for_a_large_context_says_what_fits() {
    let owner = Owner::open(|descriptor| descriptor.required_limits.max_storage_buffer_binding_size = 1 << 20);
    let gpu = owner.lend().unwrap();
    for cache in CacheType::ALL {
        // Prompts that are computed token by token need little scratch memory.
        let prompt = PromptOptions { chunk: Some(1), ..PromptOptions::default() };
        let options =
            |context| LoadOptions { context: Some(context), cache: Some(cache), prompt, ..LoadOptions::default() };
        let Fit::Context { bytes, allowed, most } = Model::estimate(&file(), &options(8192), Some(&gpu)).unwrap().fit
        else {
            panic!("8192 tokens fit");
        };
        assert!(bytes > allowed && allowed == 1 << 20 && most < 8192, "{bytes}, {most}");
        let fit = |context| Model::estimate(&file(), &options(context), Some(&gpu)).unwrap().fit;
        assert!(!matches!(fit(most), Fit::Context { .. } | Fit::Piece { .. }), "{most}: {:?}", fit(most));
        assert_eq!(most, most_of(fit(most + 1)));
        let error = Model::load(&file(), &gpu, &options(most + 1)).map(drop).unwrap_err();
        assert!(matches!(error, Error::ContextTooLarge { most: told, .. } if told == most), "{error}");
        let model = Model::load(&file(), &gpu, &options(most)).unwrap();
        let larger = CacheShape { context: most + 1, ..model.cache() };
        let error = Session::with_cache(&model, larger).map(drop).unwrap_err();
        assert!(matches!(error, Error::ContextTooLarge { most: told, .. } if told == most), "{error}");
        Session::new(&model).unwrap().feed(&[7; 3]).unwrap();
    }
}

fn most_of(fit: Fit) -> usize {
    match fit {
        Fit::Context { most, .. } => most,
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_a_device() {
    let options = LoadOptions { context: Some(0), cache: Some(CacheType::F16), ..LoadOptions::default() };
    let said = Model::estimate(&file(), &options, None).unwrap();
    assert_eq!(said.fit, Fit::Unknown);
    let config = wglm::Config::read(&file()).unwrap();
    assert_eq!(said.shape, CacheShape { context: config.context, ty: CacheType::F16 });
    let broken = Gguf::open(fixture("models/long.gguf")).unwrap();
    Model::estimate(&broken, &LoadOptions::default(), None).unwrap();
}
