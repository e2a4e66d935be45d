//! Tests an app that pauses wglm's submissions while it does what wgpu allows only on an idle queue.
//!
//! All tests share one device and one model, since a software driver takes seconds to compile for another device.

use super::owner::Owner;
use super::{PROMPT, file, generate, load_on};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use wglm::wgpu::{PollStatus, PollType};
use wglm::{
    Cancel, Error, Event, GenerateOptions, Generation, Gpu, LoadOptions, Model, Pause, SamplerParams, Session, Stop,
};

/// How long a test waits for something that has to happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Generates on another thread until `act` returns, and begins that after the first token.
fn while_generating<T>(session: &mut Session, act: impl FnOnce(&AtomicUsize) -> T) -> T {
    let (stop, tokens) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                generate(session, 3).unwrap();
                tokens.fetch_add(3, Ordering::Relaxed);
                session.rewind(PROMPT.len());
            }
        });
        let stopping = Stopping(&stop);
        until(|| tokens.load(Ordering::Relaxed) > 0);
        let done = act(&tokens);
        drop(stopping);
        worker.join().unwrap();
        done
    })
}

/// Stops a thread when it is dropped, so that a test that fails ends too.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a thread returns, which has to end during a pause. If it does not, the test fails and drops the pause.
fn ended<T>(worker: std::thread::ScopedJoinHandle<'_, T>) -> T {
    until(|| worker.is_finished());
    worker.join().unwrap()
}

fn until(so: impl Fn() -> bool) {
    let since = Instant::now();
    while !so() {
        assert!(since.elapsed() < PATIENCE, "it did not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until a thread, from now on, finds the GPU paused.
fn until_held_back(gpu: &Gpu) {
    let before = gpu.work().held_back;
    until(|| gpu.work().held_back > before);
}

/// Whether the queue is idle after all earlier submissions, as `Surface::configure` requires.
fn idles(owner: &Owner) -> bool {
    owner.device.poll(PollType::wait_indefinitely()).unwrap() == PollStatus::QueueEmpty
}

#[test]
fn extended_pauses() {
    let owner = Owner::new();
    let gpu = owner.lend().unwrap();
    a_load_is_stopped_during_a_pause(&gpu);
    let model = load_on(&gpu).unwrap();
    the_queue_idles_during_a_pause(&owner, &gpu, &model);
    pauses_nest(&gpu, &model);
    a_thread_does_not_wait_for_its_own_pause(&gpu, &model);
    a_cancel_is_heard_during_a_pause(&gpu, &model);
    a_snapshot_is_cancelled_during_a_pause(&gpu, &model);
}

/// The operations of `configure` succeed during every pause, at any moment. Without a pause they fail now and then.
fn the_queue_idles_during_a_pause(owner: &Owner, gpu: &Gpu, model: &Model) {
    let mut session = Session::new(model).unwrap();
    while_generating(&mut session, |tokens| {
        until(|| !idles(owner));
        for _ in 0..100 {
            let pause = gpu.pause();
            assert!(idles(owner));
            drop(pause);
            std::thread::yield_now();
        }
        let before = tokens.load(Ordering::Relaxed);
        until(|| tokens.load(Ordering::Relaxed) > before);
    });
}

/// Nothing is submitted until the last of several pauses is over.
fn pauses_nest(gpu: &Gpu, model: &Model) {
    let mut session = Session::new(model).unwrap();
    while_generating(&mut session, |_| {
        let (outer, inner) = (gpu.pause(), gpu.clone().pause());
        until_held_back(gpu);
        let before = gpu.work().submissions;
        drop(outer);
        until_held_back(gpu);
        assert_eq!(gpu.work().submissions, before);
        drop(inner);
        until(|| gpu.work().submissions > before);
    });
}

/// A thread that pauses the GPU and then computes on it gets an error, instead of waiting for itself.
fn a_thread_does_not_wait_for_its_own_pause(gpu: &Gpu, model: &Model) {
    let mut session = Session::new(model).unwrap();
    let pause = gpu.pause();
    let refused = session.feed(&[1]).unwrap_err();
    assert!(matches!(&refused, Error::Unsupported { remedy, .. } if remedy.contains("drop the `Pause`")), "{refused}");
    drop(pause);
    assert_eq!(generate(&mut session, 4).unwrap(), super::expected(4), "the session works on");
}

/// Options of a reply that only a cancellation ends soon.
fn endless() -> GenerateOptions {
    let bias = (0..2048).filter(|token| super::model().tokenizer().unwrap().is_end(*token));
    let sampling =
        SamplerParams { logit_bias: bias.map(|token| (token, f32::NEG_INFINITY)).collect(), ..Default::default() };
    GenerateOptions { sampling, ..GenerateOptions::default() }
}

/// A reply that waits for the end of a pause can be cancelled, and its session can be used afterwards.
fn a_cancel_is_heard_during_a_pause(gpu: &Gpu, model: &Model) {
    for begun in [false, true] {
        let (cancel, events) = (Cancel::default(), AtomicUsize::new(0));
        let mut session = Session::new(model).unwrap();
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                until(|| begun || gpu.is_paused());
                let reply = Generation::new(&mut session, PROMPT.to_vec(), None, endless()).unwrap();
                let mut stop = None;
                for event in reply.with_cancel(&cancel) {
                    events.fetch_add(1, Ordering::Relaxed);
                    if let Event::Done(stats) = event.unwrap() {
                        stop = Some(stats.stop);
                    }
                }
                assert_eq!(stop, Some(Stop::Cancelled));
            });
            until(|| !begun || events.load(Ordering::Relaxed) > 2);
            let pause = gpu.pause();
            let before = gpu.work().submissions;
            until_held_back(gpu);
            cancel.cancel();
            ended(worker);
            assert_eq!(gpu.work().submissions, before);
            drop(pause);
        });
        session.set_sampling(&SamplerParams::greedy()).unwrap();
        assert_eq!(generate(&mut session, 4).unwrap(), super::expected(4), "begun: {begun}");
    }
}

/// So can other calls that take a `Cancel`.
fn a_snapshot_is_cancelled_during_a_pause(gpu: &Gpu, model: &Model) {
    let mut session = Session::new(model).unwrap();
    session.feed(PROMPT).unwrap();
    type Act = fn(&mut Session, &Cancel) -> wglm::Result<()>;
    let acts: [Act; 3] = [
        |session, cancel| session.snapshot_with(cancel).map(drop),
        |session, cancel| session.embed_with("An owl.", cancel).map(drop),
        |session, cancel| session.feed_with(PROMPT, cancel, &mut |_| ()),
    ];
    for act in acts {
        let cancel = Cancel::default();
        std::thread::scope(|scope| {
            let pause = gpu.pause();
            let worker = scope.spawn(|| act(&mut session, &cancel));
            until_held_back(gpu);
            cancel.cancel();
            assert!(matches!(ended(worker), Err(Error::Cancelled)));
            drop(pause);
        });
    }
    assert_eq!(generate(&mut session, 4).unwrap(), super::expected(4));
}

/// A load that waits for the end of a pause can be stopped, and calls its callback throughout.
fn a_load_is_stopped_during_a_pause(gpu: &Gpu) {
    let (sender, pause) = std::sync::mpsc::channel::<Pause>();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.send(gpu.pause()).unwrap()).join().unwrap();
        let (cancel, mut calls) = (Cancel::default(), 0);
        let stopped = Model::load_with(&file(), gpu, &LoadOptions::default(), &cancel, &mut |_| {
            calls += 1;
            if calls == 10 {
                cancel.cancel();
            }
        });
        assert!(matches!(stopped.unwrap_err().cause(), Error::Cancelled));
    });
    drop(pause.recv().unwrap());
}

/// A device that is lost during a pause is reported.
#[test]
fn a_loss_is_reported_during_a_pause() {
    let gpu = crate::common::gpu::open(true);
    let _pause = gpu.pause();
    let lost = std::thread::scope(|scope| {
        let worker = scope.spawn(|| gpu.zero(&[]).map(drop));
        until_held_back(&gpu);
        gpu.close();
        ended(worker)
    });
    assert!(matches!(lost, Err(Error::DeviceLost { .. })), "{lost:?}");
}
