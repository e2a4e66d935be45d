//! An app draws frames on the device that wglm computes on.

use super::load_on;
use super::owner::Owner;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wglm::{GpuOptions, Session};

/// What a frame needs: its turn on the GPU, and the device's locks, shared to submit, and exclusively to release a
/// buffer or a texture, as `present` does.
fn frame(owner: &Owner) -> Duration {
    let buffer = owner.buffer(1024);
    let mut encoder = owner.device.create_command_encoder(&Default::default());
    encoder.clear_buffer(&buffer, 0, None);
    let commands = encoder.finish();
    let since = Instant::now();
    owner.queue.submit([commands]);
    buffer.destroy();
    since.elapsed()
}

/// Draws frames while `work` runs again and again for at least half a second, and returns their durations, shortest
/// first.
fn frames(owner: &Owner, mut work: impl FnMut()) -> Vec<Duration> {
    let stop = AtomicBool::new(false);
    let mut frames = std::thread::scope(|scope| {
        let app = scope.spawn(|| {
            let mut frames = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                frames.push(frame(owner));
                std::thread::sleep(Duration::from_millis(4));
            }
            frames
        });
        let since = Instant::now();
        work();
        while since.elapsed() < Duration::from_millis(500) {
            work();
        }
        stop.store(true, Ordering::Relaxed);
        app.join().unwrap()
    });
    frames.sort();
    frames
}

#[track_caller]
fn within(frames: &[Duration], bound: Duration, what: &str) {
    let (count, most) = (frames.len(), frames[frames.len() - 1]);
    let late = frames[count * 95 / 100];
    println!("{what}: {count} frames, half {:?}, 95 of 100 {late:?}, all {most:?}", frames[count / 2]);
    assert!(count >= 10, "{what}: {count} frames");
    assert!(late < bound, "{what}: one frame in twenty waits {late:?} or longer");
}

/// A software driver computes during the call that submits, so a frame waits for the work under way. On a GPU that is a
/// token and the one after it, or two submissions of a prompt; here it is less, and never the work that wglm itself
/// waits for.
#[test]
fn a_frame_waits_for_two_tokens_at_most() {
    let owner = Owner::new();
    let options = GpuOptions { checks: false, ..GpuOptions::default() }; // as in an app
    let model = load_on(&owner.lend_with(&options).unwrap()).unwrap();
    let mut session = Session::new(&model).unwrap();
    let prompt: Vec<u32> = (0..450).map(|token| token + 20).collect();
    session.feed(&prompt).unwrap(); // plans exist, and the length of submissions is known
    let (mut longest, mut part) = (Duration::ZERO, Duration::ZERO);
    let reading = frames(&owner, || {
        session.rewind(0);
        let mut since = Instant::now();
        let mut note = |_| {
            part = part.max(since.elapsed());
            since = Instant::now();
            ControlFlow::Continue(())
        };
        session.feed_with(&prompt, &mut note).unwrap();
    });
    let writing = frames(&owner, || {
        session.rewind(449);
        session.feed(&[20]).unwrap();
        for _ in 0..50 {
            let since = Instant::now();
            session.feed_chosen().unwrap();
            longest = longest.max(since.elapsed());
        }
    });
    println!("the longest token took {longest:?}, the longest part of a prompt {part:?}");
    within(&writing, 3 * longest, "while it writes");
    within(&reading, 3 * part, "while it reads");
}

/// The callback of the owner is called before each submission, and nothing continues until it returns.
#[test]
fn work_waits_for_its_owner() {
    let owner = Owner::new();
    let gpu = owner.lend().unwrap();
    let model = load_on(&gpu).unwrap();
    let mut session = Session::new(&model).unwrap();
    session.feed(&[1]).unwrap();
    let asked = Arc::new(AtomicU64::new(0));
    let count = asked.clone();
    gpu.before_submissions(move || {
        std::thread::sleep(Duration::from_millis(1));
        count.fetch_add(1, Ordering::Relaxed);
    });
    let (before, start) = (gpu.work().submissions, Instant::now());
    session.feed(&[2]).unwrap();
    let submissions = gpu.work().submissions - before;
    assert!(submissions > 0 && start.elapsed() >= Duration::from_millis(submissions));
    assert_eq!(asked.load(Ordering::Relaxed), submissions);
}
