//! Tests an app that draws frames on the device on which wglm computes.

use super::load_on;
use super::owner::Owner;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wglm::{Gpu, Session};

/// The least number of frames.
const FRAMES: usize = 60;

/// Draws a frame, and returns how many submissions wglm made meanwhile. A frame needs a turn on the GPU and the
/// device's locks: shared to submit, and exclusively to release a buffer or a texture, as `present` does.
fn frame(owner: &Owner, gpu: &Gpu) -> u64 {
    let buffer = owner.buffer(1024);
    let mut encoder = owner.device.create_command_encoder(&Default::default());
    encoder.clear_buffer(&buffer, 0, None);
    let commands = encoder.finish();
    let before = gpu.work().submissions;
    owner.queue.submit([commands]);
    buffer.destroy();
    gpu.work().submissions - before
}

/// Draws frames while `work` runs repeatedly, until there are enough of them. Returns the number of submissions that 95
/// % of the frames waited for at most.
fn waited_for(what: &str, owner: &Owner, gpu: &Gpu, mut work: impl FnMut()) -> u64 {
    let (stop, drawn) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut waited = std::thread::scope(|scope| {
        let app = scope.spawn(|| {
            let mut waited = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                waited.push(frame(owner, gpu));
                drawn.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(4));
            }
            waited
        });
        while drawn.load(Ordering::Relaxed) < FRAMES {
            work();
        }
        stop.store(true, Ordering::Relaxed);
        app.join().unwrap()
    });
    waited.sort();
    let (count, most) = (waited.len(), waited[waited.len() - 1]);
    let late = waited[count * 95 / 100];
    println!("{what}: {count} frames; half wait for {} submissions, 95 of 100 {late}, all {most}", waited[count / 2]);
    late
}

/// A software driver computes during the call that submits, and wglm submits each dispatch separately there, so a frame
/// waits for a few of them. On a GPU it waits for the work under way: a token and the one after it, or two submissions
/// of a prompt.
#[test]
fn long_a_frame_waits_for_less_than_a_token() {
    let owner = Owner::new();
    let gpu = owner.lend().unwrap();
    let mut session = Session::new(&load_on(&gpu).unwrap()).unwrap();
    let prompt: Vec<u32> = (0..150).map(|token| token + 20).collect();
    session.feed(&prompt).unwrap(); // plans exist, and the length of submissions is known
    let before = gpu.work().submissions;
    session.next_token().unwrap();
    let token = gpu.work().submissions - before;
    let reading = waited_for("while it reads", &owner, &gpu, || {
        session.rewind(0);
        session.feed(&prompt).unwrap();
    });
    let writing = waited_for("while it writes", &owner, &gpu, || {
        session.rewind(149);
        session.feed(&[20]).unwrap();
        for _ in 0..50 {
            session.next_token().unwrap();
        }
    });
    let most = reading.max(writing);
    let allowed = match gpu.report().is_software() {
        true => {
            assert!(token > 10, "a token takes {token} submissions");
            token - 1
        }
        false => 2,
    };
    assert!(most <= allowed, "one frame in twenty waits for {most} submissions or more, a token is {token}");
}

/// The app's callback is called before each submission, and nothing continues until it returns.
#[test]
fn work_waits_for_its_owner() {
    let owner = Owner::new();
    let gpu = owner.lend().unwrap();
    let model = load_on(&gpu).unwrap();
    let mut session = Session::new(&model).unwrap();
    session.feed(&[1]).unwrap();
    let (before, asked) = (gpu.work().submissions, Arc::new(Mutex::new(Vec::new())));
    let (there, note) = (gpu.clone(), asked.clone());
    gpu.before_submissions(move || {
        std::thread::sleep(Duration::from_millis(1));
        note.lock().unwrap().push(there.work().submissions - before);
    });
    session.feed(&[2]).unwrap();
    let submissions = gpu.work().submissions - before;
    assert!(submissions > 0);
    assert_eq!(*asked.lock().unwrap(), (0..submissions).collect::<Vec<_>>(), "submissions before each answer");
}
