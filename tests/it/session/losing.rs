//! Tests a device whose queue is dead: it reports all work as done and does none of it, as Metal does after an error.

use super::{dialogue, nothing_came};
use crate::common::gpu::{dropping, open};
use crate::common::models::{fable_file, load_on};
use wglm::{
    CacheShape, CacheType, Cancel, Check, Error, GenerateOptions, Gguf, LoadOptions, LoadStage, Model, SamplerParams,
    Scheduler, SchedulerOptions, Session,
};
use wglm_engine::gpu::MISSING;

/// All submissions from this one on.
const FOR_EVER: u64 = u64::MAX;

#[track_caller]
fn lost<T>(outcome: wglm::Result<T>) {
    match outcome {
        Err(Error::DeviceLost { .. }) => {}
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("a lost device does work"),
    }
}

/// One missing result is an error after which the session continues, and so are two in a row. Three are a loss.
#[test]
fn extended_a_queue_that_returns_nothing_three_times_in_a_row_is_lost() {
    let model = load_on(&fable_file("q4_0"), &open(true));
    let gpu = model.gpu();
    let mut session = Session::new(&model).unwrap();
    session.feed(&dialogue(5)).unwrap();
    let chosen = session.sampled_token().unwrap();
    session.rewind(4);
    let mut read_in_vain = |missing: u64| {
        // The submission of the token is the first, and probes follow.
        let read = dropping(gpu, 1..1 + missing, || {
            session.feed(&dialogue(5)[4..])?;
            session.sampled_token()
        });
        (read, session.tokens().len())
    };
    // Results that arrive in between reset the count.
    for missing in [1, 2, 1, 2, 1].map(|missing: u32| missing.min(MISSING - 1)) {
        let (read, tokens) = read_in_vain(missing.into());
        nothing_came(read);
        assert_eq!(tokens, 4, "what an earlier result vouches for");
    }
    assert_eq!(read_in_vain(0).0.unwrap(), chosen, "the device works");
    session.rewind(4);
    lost(dropping(gpu, 1..1 + u64::from(MISSING), || {
        session.feed(&dialogue(5)[4..])?;
        session.sampled_token()
    }));
    let error = gpu.check().unwrap_err();
    assert!(error.to_string().contains("the last 3 submissions to it returned nothing"), "{error}");
    // The queue works again by now, but the device may have other faults.
    lost(session.sampled_token());
}

/// Later calls on the device get the error, even on other sessions.
#[test]
fn extended_all_callers_get_the_error() {
    type Use = fn(&mut Session) -> wglm::Result<()>;
    let uses: [(&str, Use); 4] = [
        ("logits", |session| session.logits().map(drop)),
        ("embeddings", |session| session.embed("An owl.").map(drop)),
        ("a snapshot", |session| session.snapshot().map(drop)),
        // The token before is known already, so the next call is the first one that misses something.
        ("tokens", |session| session.next_token().and_then(|_| session.next_token()).map(drop)),
    ];
    let gpu = open(true);
    for (name, use_it) in uses {
        let model = load_on(&fable_file("q4_0"), &gpu.reopen().unwrap());
        let mut sessions = [Session::new(&model).unwrap(), Session::new(&model).unwrap()];
        sessions.iter_mut().for_each(|session| session.feed(&dialogue(3)).unwrap());
        sessions.iter_mut().for_each(|session| assert!(session.sampled_token().is_ok()));
        println!("{name}");
        dropping(model.gpu(), 1..FOR_EVER, || lost(use_it(&mut sessions[0])));
        lost(model.gpu().check());
        lost(sessions[1].feed(&[1]));
        lost(sessions[1].set_sampling(&SamplerParams::default()));
        lost(Session::with_cache(&model, CacheShape { context: 64, ty: CacheType::F32 }));
        lost(Model::load(model.file(), model.gpu(), &LoadOptions::default()));
    }
}

/// All replies side by side get the error, whichever thread does the work, and so does the next request.
#[test]
fn extended_replies_side_by_side_get_the_error() {
    let model = load_on(&fable_file("q4_0"), &open(true));
    let options = SchedulerOptions { sessions: 2, context: Some(256), ..SchedulerOptions::default() };
    let scheduler = Scheduler::new(&model, &options).unwrap();
    let ask = || scheduler.generate(dialogue(5), GenerateOptions::default());
    let mut replies = [ask().unwrap(), ask().unwrap(), ask().unwrap()];
    for reply in &mut replies[..2] {
        reply.take(3).for_each(|event| drop(event.unwrap()));
    }
    dropping(model.gpu(), 1..FOR_EVER, || {
        for mut reply in replies {
            lost(reply.find(Result::is_err).expect("an error"));
            assert!(reply.next().is_none());
        }
    });
    lost(ask().unwrap().last().expect("an error"));
}

/// A session continues on another device, but only with the same file.
#[test]
fn extended_a_session_moves_to_a_new_device() {
    let (first, file) = (load_on(&fable_file("q4_0"), &open(true)), fable_file("f16"));
    let cache = CacheShape { context: 64, ty: CacheType::F32 };
    let mut session = Session::with_cache(&first, cache).unwrap();
    session.feed(&dialogue(5)).unwrap();
    let logits = session.logits().unwrap();
    dropping(first.gpu(), 1..FOR_EVER, || lost(session.logits()));
    let gpu = first.gpu().reopen().unwrap();
    let other = Model::load(&Gguf::open(file).unwrap(), &gpu, &LoadOptions::default()).unwrap();
    let refused = session.move_to(&other).unwrap_err();
    assert!(matches!(refused, Error::Argument { argument: "model", .. }), "{refused}");
    let tokens = session.tokens().to_vec();
    session.move_to(&load_on(&fable_file("q4_0"), &gpu)).unwrap();
    assert_eq!((tokens.as_slice(), session.tokens(), session.context()), (&dialogue(5)[..], &[][..], 64));
    let reuse = session.sync(&tokens).unwrap();
    assert_eq!((reuse.cached, reuse.new), (0, 5));
    assert!(session.logits().unwrap() == logits);
    lost(first.gpu().check());
}

/// A device that was closed is like one that was lost, and can be opened again.
#[test]
fn a_closed_device_can_be_opened_again() {
    let gpu = open(true);
    let model = load_on(&fable_file("q4_0"), &gpu);
    let mut session = Session::new(&model).unwrap();
    session.feed(&dialogue(3)).unwrap();
    gpu.close();
    lost(session.sampled_token());
    lost(gpu.check());
    let next = gpu.reopen().unwrap();
    assert_eq!((&next.report().name, next.memory().held), (&gpu.report().name, 0));
    next.check().unwrap();
}

/// Closing the device while a model is loaded is no fault of the kernel that is being checked.
#[test]
fn extended_closed_in_mid_load() {
    let file = Gguf::open(fable_file("q4_0")).unwrap();
    // A driver that has compiled the kernels before is done with all of them at the first report.
    for (wait, count) in [(LoadStage::Weights, 3), (LoadStage::Kernels, 1), (LoadStage::Check, 3)] {
        let gpu = open(true);
        let options = LoadOptions { check: Check::Always, ..LoadOptions::default() };
        let mut steps = 0;
        let outcome = Model::load_with(&file, &gpu, &options, &Cancel::default(), &mut |progress| {
            steps += usize::from(progress.stage == wait);
            if steps == count {
                gpu.close();
            }
        });
        assert!(steps >= count, "{wait:?}: {steps}");
        lost(outcome);
        lost(gpu.check());
        assert_eq!(gpu.memory().held, 0);
    }
}
