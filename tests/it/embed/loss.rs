//! Tests the loss of the device.

use super::owner::Owner;
use super::{PROMPT, expected, generate, load_on};
use std::time::Duration;
use wglm::{CacheShape, CacheType, Error, GenerateOptions, Gpu, SamplerParams, Scheduler, SchedulerOptions, Session};

#[track_caller]
fn lost<T>(outcome: wglm::Result<T>) {
    match outcome {
        Err(Error::DeviceLost { .. }) => {}
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("a lost device goes on"),
    }
}

/// The owner destroys the device at many moments while a reply is generated.
#[test]
fn extended_destroyed_in_mid_generation() {
    for wait in [0, 1, 7, 20, 60] {
        let owner = Owner::new();
        let errors = owner.errors();
        let gpu = owner.lend().unwrap();
        let model = load_on(&gpu).unwrap();
        let mut session = Session::new(&model).unwrap();
        generate(&mut session, 1).unwrap();
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(wait));
                owner.device.destroy();
            });
            generate(&mut session, 400)
        });
        lost(outcome);

        lost(gpu.check());
        lost(session.feed(&[1]));
        lost(session.feed(&[1; 40]));
        lost(session.sync(PROMPT));
        lost(session.set_sampling(&SamplerParams::default()));
        lost(Session::new(&model));
        lost(load_on(&gpu));
        lost(owner.lend());
        drop((session, model));
        assert_eq!(gpu.memory().held, 0);
        assert_eq!(errors.try_iter().collect::<Vec<_>>(), Vec::<String>::new(), "after {wait} ms");
    }
    let model = load_on(&Owner::new().lend().unwrap()).unwrap();
    assert_eq!(generate(&mut Session::new(&model).unwrap(), 4).unwrap(), expected(4), "on the next device");
}

/// Replies side by side all end with the error, whichever thread does the work.
#[test]
fn extended_all_replies_end() {
    let owner = Owner::new();
    let model = load_on(&owner.lend().unwrap()).unwrap();
    let options = SchedulerOptions { sessions: 2, context: Some(256), ..SchedulerOptions::default() };
    let scheduler = Scheduler::new(&model, &options).unwrap();
    let options = GenerateOptions { ignore_eos: true, ..GenerateOptions::default() };
    let ask = || scheduler.generate(PROMPT.to_vec(), options.clone());
    let mut replies = [ask().unwrap(), ask().unwrap(), ask().unwrap()];
    for reply in &mut replies[..2] {
        reply.take(2).for_each(|event| drop(event.unwrap()));
    }
    owner.device.destroy();
    for mut reply in replies {
        let last = reply.find(Result::is_err).expect("an error");
        lost(last);
        assert!(reply.next().is_none());
    }
    lost(ask().unwrap().last().expect("an error"));
}

/// The loss was not noticed yet: whichever function is called first reports it.
#[test]
fn extended_whatever_is_called_first_notices() {
    type Call = fn(&Gpu, &mut Session) -> wglm::Result<()>;
    let calls: [(&str, Call); 8] = [
        ("check", |gpu, _| gpu.check()),
        ("feed", |_, session| session.feed(&[1])),
        ("a chunk", |_, session| session.feed(&[1; 20])),
        ("next_token", |_, session| session.next_token().map(drop)),
        ("logits", |_, session| session.logits().map(drop)),
        ("set_sampling", |_, session| session.set_sampling(&SamplerParams::default()).map(drop)),
        ("a session", |_, session| {
            Session::with_cache(session.model(), CacheShape { context: 64, ty: CacheType::F32 }).map(drop)
        }),
        ("a load", |gpu, _| load_on(gpu).map(drop)),
    ];
    for (name, call) in calls {
        let owner = Owner::new();
        let gpu = owner.lend().unwrap();
        let model = load_on(&gpu).unwrap();
        let mut session = Session::new(&model).unwrap();
        session.feed(&[1]).unwrap();
        owner.device.destroy();
        println!("{name}");
        lost(call(&gpu, &mut session));
    }
}

/// Threads stage weights and compile kernels, and each of them can fail in its own way.
#[test]
fn extended_destroyed_in_mid_load() {
    for wait in [0, 10, 50, 150, 400] {
        let owner = Owner::new();
        let errors = owner.errors();
        let gpu = owner.lend().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(wait));
                owner.device.destroy();
            });
            // A load that ends before the loss succeeds.
            match load_on(&gpu) {
                Err(Error::DeviceLost { .. }) => {}
                Err(other) => panic!("after {wait} ms: {other}"),
                Ok(model) => println!("loaded within {wait} ms: {}", model.weights_in_place()),
            }
        });
        lost(load_on(&gpu));
        assert_eq!(gpu.memory().held, 0);
        assert_eq!(errors.try_iter().collect::<Vec<_>>(), Vec::<String>::new(), "after {wait} ms");
    }
}

/// Only the app closes and reopens its device.
#[test]
fn wglm_does_not_reopen_an_apps_device() {
    let owner = Owner::new();
    let gpu = owner.lend().unwrap();
    gpu.close();
    gpu.check().unwrap();
    let refused = gpu.reopen().unwrap_err();
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    assert!(refused.to_string().contains("Gpu::from_wgpu"), "{refused}");
    gpu.check().unwrap();
}
