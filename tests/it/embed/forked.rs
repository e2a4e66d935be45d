//! A process that is forked after the GPU was opened.

use crate::common::gpu::open;
use std::path::Path;
use std::time::Duration;
use wglm::tune::{TuneOptions, tune};
use wglm::{
    AskError, Cancel, Chat, ChatState, Error, ErrorKind, Event, GenerateOptions, Generation, Gguf, Gpu, LoadOptions,
    Message, Model, OwnedReply, Pool, SamplerParams, ScheduledReply, Scheduler, SchedulerOptions, Session, SharedChat,
};

const NO_WAIT: i32 = 1;
const KILL: i32 = 9;

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
    fn kill(process: i32, signal: i32) -> i32;
    fn _exit(status: i32) -> !;
}

/// How a child process ends. It is killed if it hangs; `running` is a file with the name of its last call.
fn ended(child: i32, running: &Path) -> i32 {
    let mut status = -1;
    for _ in 0..1200 {
        // SAFETY: `child` is a child of this process that no one else waits for, and `status` lives until the call
        // returns.
        match unsafe { waitpid(child, &mut status, NO_WAIT) } {
            0 => std::thread::sleep(Duration::from_millis(50)),
            found => {
                assert_eq!(found, child);
                return status;
            }
        }
    }
    // SAFETY: as above. The child has not been waited for, so no other process has its number.
    unsafe {
        kill(child, KILL);
        waitpid(child, &mut status, 0);
    }
    panic!("the child hangs in {}", std::fs::read_to_string(running).unwrap_or_default());
}

fn is_forked<T>(result: Result<T, Error>) -> bool {
    // A value that was created nevertheless is not dropped, because that would call the driver.
    result
        .map(std::mem::forget)
        .is_err_and(|error| matches!(error, Error::Forked) && error.kind() == ErrorKind::DeviceLost)
}

/// Everything that exists before the process is forked.
struct Parent {
    gpu: Gpu,
    file: Gguf,
    model: Model,
    session: Session,
    pool: Pool,
    pair: [Session; 2],
    chat: Chat,
    scheduler: Scheduler,
    /// Two replies that are being generated.
    scheduled: ScheduledReply,
    owned: OwnedReply,
    shared: SharedChat,
}

/// A request whose reply continues until it is stopped.
fn endless(model: &Model) -> ChatState {
    let tokenizer = model.tokenizer().unwrap();
    let ends = (0..model.config().vocab as u32).filter(|token| tokenizer.is_end(*token));
    let sampling =
        SamplerParams { logit_bias: ends.map(|token| (token, f32::NEG_INFINITY)).collect(), ..Default::default() };
    let options = GenerateOptions { sampling, ..GenerateOptions::default() };
    ChatState { messages: vec![Message::user("A story.")], options, ..ChatState::default() }
}

impl Parent {
    fn new() -> wglm::Result<Self> {
        let (gpu, file) = (open(true), Gguf::from_static(wglm::DEMO_MODEL)?);
        let model = Model::load(&file, &gpu, &LoadOptions { context: Some(256), ..LoadOptions::default() })?;
        let mut session = Session::new(&model)?;
        session.feed(&[7])?;
        let pool = Pool::new(&model, 3, model.cache(), 768)?;
        let mut pair = [pool.session()?, pool.session()?];
        pair.iter_mut().try_for_each(|session| session.feed(&[7]))?;
        let scheduler = Scheduler::new(&model, &SchedulerOptions { sessions: 1, ..SchedulerOptions::default() })?;
        let mut scheduled = scheduler.chat(endless(&model))?;
        while scheduled.try_next().is_pending() {
            std::thread::yield_now();
        }
        let mut talk = Chat::new(&model)?;
        talk.restore(endless(&model));
        let shared = SharedChat::new(talk);
        let mut owned = shared.reply();
        while owned.try_next().is_pending() {
            std::thread::yield_now();
        }
        let mut chat = Chat::new(&model)?;
        chat.options.max_tokens = Some(1);
        Ok(Self { gpu, file, model, session, pool, pair, chat, scheduler, scheduled, owned, shared })
    }
}

/// A call in a forked process, and whether it returns the error for one.
type Call = (&'static str, fn(&mut Parent) -> bool);

fn nothing(_: usize, _: &[f32]) -> wglm::Result<()> {
    Ok(())
}

/// The error of a reply that is waited for.
fn first(mut events: impl Iterator<Item = wglm::Result<Event>>) -> wglm::Result<Option<Event>> {
    events.next().transpose()
}

const CALLS: &[Call] = &[
    ("Gpu::check", |p| is_forked(p.gpu.check())),
    ("Gpu::reopen", |p| is_forked(p.gpu.reopen())),
    ("Model::load", |p| is_forked(Model::load(&p.file, &p.gpu, &LoadOptions::default()))),
    ("tune", |p| is_forked(tune(&p.model, &TuneOptions::default(), &Cancel::default(), &mut |_| ()))),
    ("Session::new", |p| is_forked(Session::new(&p.model))),
    ("Session::move_to", |p| is_forked(p.session.move_to(&p.model))),
    ("Session::logits", |p| is_forked(p.session.logits())),
    ("Session::hidden", |p| is_forked(p.session.hidden())),
    ("Session::most_likely", |p| is_forked(p.session.most_likely())),
    ("Session::sampled_token", |p| is_forked(p.session.sampled_token())),
    ("Session::sample_masked", |p| is_forked(p.session.sample_masked(&vec![u32::MAX; p.model.config().vocab / 32]))),
    ("Session::set_sampling", |p| is_forked(p.session.set_sampling(&SamplerParams::default()))),
    ("Session::wait", |p| is_forked(p.session.wait())),
    ("Session::snapshot", |p| is_forked(p.session.snapshot())),
    ("Session::restore", |p| is_forked(p.session.restore(&[]))),
    ("Session::save_snapshot", |p| is_forked(p.session.save_snapshot(std::env::temp_dir().join("wglm-forked")))),
    ("Session::next_token", |p| is_forked(p.session.next_token())),
    ("Session::next_tokens", |p| is_forked(p.session.next_tokens(2))),
    ("Session::verify", |p| is_forked(p.session.verify(&[8]))),
    ("Session::feed", |p| is_forked(p.session.feed(&[8]))),
    ("Session::feed_with", |p| is_forked(p.session.feed_with(&[8], &Cancel::default(), &mut |_| ()))),
    ("Session::feed_all", |p| is_forked(p.session.feed_all(&[8], &mut nothing))),
    ("Session::feed_hidden", |p| is_forked(p.session.feed_hidden(&[8], &mut nothing))),
    ("Session::embed", |p| is_forked(p.session.embed("An owl."))),
    ("Session::sync, of what is there", |p| is_forked(p.session.sync(&[7]))),
    ("Session::sync", |p| is_forked(p.session.sync(&[7, 8]))),
    ("Generation", |p| {
        is_forked(Generation::new(&mut p.session, vec![7, 8], None, GenerateOptions::default()).and_then(first))
    }),
    ("Pool::new", |p| is_forked(Pool::new(&p.model, 1, p.model.cache(), 256))),
    ("Pool::session", |p| is_forked(p.pool.session())),
    ("Pool::next_token_of_each", |p| is_forked(p.pool.next_token_of_each(&mut p.pair.each_mut()))),
    ("Chat::new", |p| is_forked(Chat::new(&p.model))),
    ("Chat::send", |p| is_forked(p.chat.send("Hi.").and_then(first))),
    ("Chat::ask", |p| {
        let asked = p.chat.ask_value("Hi.", &true.into(), &Cancel::default());
        asked.is_err_and(|error| matches!(error, AskError::Failed(Error::Forked)))
    }),
    ("SharedChat::reply", |p| is_forked(first(p.shared.reply()))),
    ("OwnedReply::next, begun before", |p| is_forked(first(&mut p.owned)) && p.owned.next().is_none()),
    ("Scheduler::new", |p| is_forked(Scheduler::new(&p.model, &SchedulerOptions::default()))),
    ("Scheduler::chat", |p| is_forked(p.scheduler.chat(ChatState::default()))),
    ("Scheduler::generate", |p| is_forked(p.scheduler.generate(vec![7], GenerateOptions::default()))),
    ("ScheduledReply::next, begun before", |p| is_forked(first(&mut p.scheduled)) && p.scheduled.next().is_none()),
    // These return no error, and must not wait for a thread that only the parent has.
    ("Gpu::memory", |p| p.gpu.memory().reserved.is_none()),
    ("Gpu::pause", |p| {
        drop(p.gpu.pause());
        true
    }),
    ("Session::rewind", |p| {
        p.session.rewind(0);
        true
    }),
    ("Gpu::close", |p| {
        p.gpu.close(); // leaves the parent's device alone
        true
    }),
];

/// In the child every call returns the error instead of hanging in the driver, and the parent continues.
#[test]
fn a_forked_process_gets_errors() {
    let mut parent = Parent::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let running = folder.path().join("running");
    // SAFETY: the child calls nothing but this thread's code and leaves without running destructors.
    let child = unsafe { fork() };
    if child == 0 {
        let fails = |(name, call): &Call| std::fs::write(&running, name).is_err() || !call(&mut parent);
        let first = CALLS.iter().position(fails).map_or(0, |index| index as i32 + 1);
        // SAFETY: as above.
        unsafe { _exit(first) }
    }
    let status = ended(child, &running);
    let first = (status >> 8).checked_sub(1).and_then(|index| CALLS.get(index as usize));
    assert_eq!(status, 0, "the first call that did not find out is {:?}", first.map(|(name, _)| name));
    drop((parent.scheduled, parent.owned));
    assert!(parent.gpu.check().is_ok() && parent.session.feed(&[8]).is_ok());
    assert!(Model::load(&parent.file, &parent.gpu, &LoadOptions::default()).is_ok());
}
