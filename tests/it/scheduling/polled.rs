//! Tests replies that are polled: no thread waits for them, and the scheduler's own thread generates them.

use super::{alone, by_turns, request, rest, said, scheduler, scheduler_with, stats};
use crate::common::chats::take_events;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use wglm::{
    Cancel, ChatState, Chooser, Error, ErrorKind, Event, Result, ScheduledReply, Scheduler, SchedulerOptions, Stop,
};

const OWL: &str = "Tell me a story about an owl.";
const SUM: &str = "What is seven plus five?";

/// All events, by polling repeatedly.
fn looked(reply: &mut ScheduledReply) -> Vec<Event> {
    let mut events = Vec::new();
    loop {
        match reply.try_next() {
            Poll::Ready(Some(event)) => events.push(event.unwrap()),
            Poll::Ready(None) => return events,
            Poll::Pending => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// A waker that sends a message to a channel.
struct Bell(SyncSender<()>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let _ = self.0.try_send(());
    }
}

fn bell() -> (Waker, Receiver<()>) {
    let (sender, rung) = sync_channel(1);
    (Arc::new(Bell(sender)).into(), rung)
}

/// Runs something with a time limit. It would hang if it held a lock that another thread, or the same one, waits for.
fn in_time(does: impl FnOnce() + Send + 'static) {
    let (done, is_done) = sync_channel(1);
    std::thread::spawn(move || {
        does();
        let _ = done.send(());
    });
    is_done.recv_timeout(Duration::from_secs(120)).expect("neither a deadlock nor a panic");
}

#[test]
fn polling_gets_every_event() {
    let scheduler = scheduler(2);
    let wanted = request(SUM, 12);
    let mut reply = scheduler.chat(wanted.clone()).unwrap();
    let events = looked(&mut reply);
    assert_eq!(said(&events), said(&alone(&wanted)));
    assert!(matches!(reply.try_next(), Poll::Ready(None)) && reply.next().is_none(), "an event after the end");
}

/// Several polled replies in one thread, beside one that another thread waits for.
#[test]
fn extended_polled_and_waited_for_side_by_side() {
    let scheduler = scheduler(3);
    let requests = [request(OWL, 16), request(SUM, 12), request("Who are you?", 12)];
    let wanted: Vec<String> = requests.iter().map(|request| said(&alone(request))).collect();
    let [owl, sum, who] = &requests;
    std::thread::scope(|scope| {
        let waited = scope.spawn(|| said(&rest(&mut scheduler.chat(owl.clone()).unwrap())));
        let mut polled = [sum, who].map(|request| (scheduler.chat(request.clone()).unwrap(), Vec::new(), false));
        while polled.iter().any(|(_, _, over)| !over) {
            for (reply, events, over) in &mut polled {
                match reply.try_next() {
                    Poll::Ready(Some(event)) => events.push(event.unwrap()),
                    Poll::Ready(None) => *over = true,
                    Poll::Pending => std::thread::sleep(Duration::from_millis(1)),
                }
            }
        }
        let texts: Vec<String> = polled.iter().map(|(_, events, _)| said(events)).collect();
        assert_eq!(texts, wanted[1..]);
        assert_eq!(waited.join().unwrap(), wanted[0]);
    });
}

/// The task sleeps until its waker is called, for every event.
#[test]
fn a_task_is_woken() {
    let wanted = request(SUM, 12);
    let mut reply = scheduler(1).chat(wanted.clone()).unwrap();
    let (waker, rung) = bell();
    let mut events = Vec::new();
    loop {
        match reply.poll_next(&mut Context::from_waker(&waker)) {
            Poll::Ready(Some(event)) => events.push(event.unwrap()),
            Poll::Ready(None) => break,
            Poll::Pending => rung.recv_timeout(Duration::from_secs(120)).expect("a waker's call"),
        }
    }
    assert_eq!(said(&events), said(&alone(&wanted)));
}

/// As a stream, on a runtime that does not know wglm.
#[cfg(feature = "stream")]
#[test]
fn a_stream_of_a_scheduler() {
    use std::future::poll_fn;
    use std::pin::Pin;
    use wglm::Stream;
    let wanted = request(SUM, 12);
    let mut stream = scheduler(1).chat(wanted.clone()).unwrap().into_stream();
    let mut events = Vec::new();
    pollster::block_on(async {
        while let Some(event) = poll_fn(|context| Pin::new(&mut stream).poll_next(context)).await {
            events.push(event.unwrap());
        }
    });
    assert_eq!(said(&events), said(&alone(&wanted)));
    assert_eq!(stream.reply().prompt_tokens(), stream.into_reply().prompt_tokens());
}

/// Dropping a polled reply cancels it, a `Cancel` ends it, and the next request gets the slot.
#[test]
fn extended_a_dropped_or_cancelled_reply_stops() {
    let scheduler = scheduler(1);
    let mut reply = scheduler.chat(request(OWL, 400)).unwrap();
    while !matches!(reply.try_next(), Poll::Ready(Some(_))) {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(reply);
    let cancel = Cancel::default();
    let mut reply = scheduler.chat(request(OWL, 400)).unwrap().with_cancel(&cancel);
    take_events(|| reply.try_next());
    cancel.cancel();
    assert_eq!(stats(&looked(&mut reply)).stop, Stop::Cancelled);
    let wanted = request(SUM, 12);
    assert_eq!(said(&by_turns(&scheduler, std::slice::from_ref(&wanted))[0]), said(&alone(&wanted)));
    assert!(scheduler.state().slots.iter().all(|slot| !slot.busy));
}

/// Reports which thread does the work.
#[cfg(target_os = "linux")]
struct TellsThread(SyncSender<std::path::PathBuf>);

#[cfg(target_os = "linux")]
impl Chooser for TellsThread {
    fn accept(&mut self, _: u32) -> Result<()> {
        let _ = self.0.try_send(std::path::Path::new("/proc").join(std::fs::read_link("/proc/thread-self").unwrap()));
        Ok(())
    }
}

/// The thread ends when the scheduler and all of its replies are dropped: here the last one is a reply whose events are
/// not taken.
#[cfg(target_os = "linux")]
#[test]
fn no_thread_outlives_its_scheduler() {
    let scheduler = scheduler(1);
    let prepared = scheduler.prepare(request(OWL, 400)).unwrap();
    let (sender, told) = sync_channel(1);
    let mut reply = scheduler.reply_with_chooser(&prepared, None, TellsThread(sender)).unwrap();
    take_events(|| reply.try_next());
    let thread = told.recv_timeout(Duration::from_secs(120)).unwrap();
    let name = std::fs::read_to_string(thread.join("comm")).unwrap();
    assert_eq!(name.trim(), "wglm scheduler");
    drop(scheduler);
    drop(reply); // waits for the thread, which the system removes a moment later
    let is_gone = |_: &i32| {
        std::thread::sleep(Duration::from_millis(10));
        !thread.exists()
    };
    assert!((0..1000).any(|wait| is_gone(&wait)), "{thread:?} is left");
}

/// A waker may do anything with the scheduler, and may even drop it, on the scheduler's own thread.
#[test]
fn a_waker_may_use_the_scheduler() {
    struct Task(Mutex<Option<(Scheduler, ScheduledReply)>>, SyncSender<usize>);
    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            let held = self.0.lock().unwrap().take();
            let waiting = held.as_ref().map_or(0, |(scheduler, _)| scheduler.state().slots.len());
            drop(held);
            let _ = self.1.try_send(waiting);
        }
    }
    let (sender, rung) = sync_channel(1);
    let scheduler = scheduler(2);
    let reply = scheduler.chat(request(OWL, 400)).unwrap();
    let task = Arc::new(Task(Mutex::new(Some((scheduler, reply))), sender));
    let waker = Waker::from(task.clone());
    let mut held = task.0.lock().unwrap();
    let (_, reply) = held.as_mut().unwrap();
    take_events(|| reply.poll_next(&mut Context::from_waker(&waker)));
    drop(held);
    assert_eq!(rung.recv_timeout(Duration::from_secs(120)).unwrap(), 2);
}

/// An app may drop the scheduler while it holds the lock that a waker waits for.
#[test]
fn a_scheduler_is_dropped_under_the_lock_of_a_waker() {
    struct View(Mutex<Option<ScheduledReply>>, SyncSender<()>);
    impl Wake for View {
        fn wake(self: Arc<Self>) {
            let _ = self.1.try_send(());
            drop(self.0.lock());
        }
    }
    in_time(|| {
        let (sender, waits) = sync_channel(1);
        let view = Arc::new(View(Mutex::new(Some(scheduler(1).chat(request(OWL, 400)).unwrap())), sender));
        let waker = Waker::from(view.clone());
        let mut held = view.0.lock().unwrap();
        let reply = held.as_mut().unwrap();
        take_events(|| reply.poll_next(&mut Context::from_waker(&waker)));
        waits.recv().unwrap();
        *held = None;
    });
}

/// A waker and a chooser that owns another reply, which is dropped with it.
struct Holds(#[expect(dead_code, reason = "it is dropped")] Option<ScheduledReply>);

impl Wake for Holds {
    fn wake(self: Arc<Self>) {
        drop(self);
    }
}

impl Chooser for Holds {
    fn accept(&mut self, _: u32) -> Result<()> {
        Ok(())
    }
}

/// Values of the app that the scheduler drops may use the scheduler: wakers that are replaced or left over, and
/// choosers of replies that wait or are refused.
#[test]
fn what_is_dropped_may_use_the_scheduler() {
    in_time(|| {
        let scheduler = scheduler_with(SchedulerOptions { sessions: 1, queue: 9, ..SchedulerOptions::default() });
        let mut runs = scheduler.chat(request(OWL, 400)).unwrap();
        assert!(runs.next().is_some()); // and has the slot
        let held = || Holds(Some(scheduler.chat(request(SUM, 4)).unwrap()));
        let mut waits = scheduler.chat(request(SUM, 4)).unwrap();
        for _ in 0..2 {
            let waker = Waker::from(Arc::new(held()));
            assert!(waits.poll_next(&mut Context::from_waker(&waker)).is_pending());
        }
        drop(waits); // with the second waker
        let prepared = scheduler.prepare(request(SUM, 4)).unwrap();
        drop(scheduler.reply_with_chooser(&prepared, None, held()).unwrap());
        let chooser = held();
        let others: Vec<_> = (0..8).map(|_| scheduler.chat(request(SUM, 4)).unwrap()).collect();
        let refused = scheduler.reply_with_chooser(&prepared, None, chooser);
        assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
        assert_eq!(scheduler.state().waiting, others.len());
        drop((others, runs));
    });
}

/// A waker and a chooser that waits for the events of another reply until there is an error.
struct Waits(Mutex<ScheduledReply>, SyncSender<Error>);

impl Waits {
    fn wait(&self) {
        let error = self.0.lock().unwrap().find_map(Result::err);
        error.into_iter().for_each(|error| drop(self.1.try_send(error)));
    }
}

impl Wake for Waits {
    fn wake(self: Arc<Self>) {
        self.wait();
    }
}

impl Chooser for Waits {
    fn accept(&mut self, _: u32) -> Result<()> {
        self.wait();
        Ok(())
    }
}

/// The thread that calls a waker or a chooser generates the replies, so it would wait for itself.
#[test]
fn a_waker_or_a_chooser_that_waits_gets_an_error() {
    in_time(|| {
        let scheduler = scheduler(2);
        for by_waker in [true, false] {
            let (sender, told) = sync_channel(1);
            let waits = Waits(Mutex::new(scheduler.chat(request(OWL, 400)).unwrap()), sender);
            let prepared = scheduler.prepare(request(SUM, 4)).unwrap();
            let mut reply;
            if by_waker {
                reply = scheduler.reply(&prepared, None).unwrap();
                let waker = Waker::from(Arc::new(waits));
                take_events(|| reply.poll_next(&mut Context::from_waker(&waker)));
            } else {
                reply = scheduler.reply_with_chooser(&prepared, None, waits).unwrap();
            }
            assert_eq!(stats(&rest(&mut reply)).generated, 4, "the reply continues");
            let error = told.recv_timeout(Duration::from_secs(60)).unwrap();
            assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.contains("inside a waker or a chooser") && text.contains("try_next"), "{text}");
        }
    });
}

/// A panic of a waker, which is an error of the app, ends no reply.
#[test]
fn replies_outlive_a_panic_of_a_waker() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("on purpose");
        }
    }
    let wanted = request(SUM, 12);
    let mut reply = scheduler(1).chat(wanted.clone()).unwrap();
    let waker = Waker::from(Arc::new(Panics));
    let first = match reply.poll_next(&mut Context::from_waker(&waker)) {
        Poll::Ready(event) => event,
        Poll::Pending => reply.next(),
    };
    let events: Vec<Event> = first.into_iter().chain(&mut reply).map(Result::unwrap).collect();
    assert_eq!(said(&events), said(&alone(&wanted)));
}

/// Lets this many tokens pass, and then fails with an error of the app.
struct Fails(usize);

#[derive(Debug, PartialEq, thiserror::Error)]
#[error("the budget of {0} tokens is spent")]
struct Spent(usize);

impl Chooser for Fails {
    fn accept(&mut self, _: u32) -> Result<()> {
        self.0 = self.0.checked_sub(1).ok_or_else(|| Error::app(Spent(3)))?;
        Ok(())
    }
}

/// A chooser takes part in one reply. Its error arrives unchanged, and other replies are not affected.
#[test]
fn extended_a_chooser_of_one_reply() {
    let scheduler = scheduler(2);
    let (steered, other) = (request(OWL, 12), request(SUM, 12));
    let prepared = scheduler.prepare(steered.clone()).unwrap();
    let mut watched = scheduler.reply_with_chooser(&prepared, Some(1), Fails(usize::MAX)).unwrap();
    let mut failing = scheduler.reply_with_chooser(&prepared, Some(1), Fails(3)).unwrap();
    let mut beside = scheduler.chat(other.clone()).unwrap();
    assert_eq!(said(&rest(&mut beside)), said(&alone(&other)));
    assert_eq!(said(&rest(&mut watched)), said(&alone(&steered)));
    let error = failing.find_map(Result::err).unwrap();
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::App, "the budget of 3 tokens is spent"));
    let Error::App(inner) = &error else { panic!("{error:?}") };
    assert_eq!(inner.downcast_ref(), Some(&Spent(3)));
    assert!(failing.next().is_none());
}

/// A value of a type, and one of a schema that is known only at run time.
#[cfg(feature = "schema")]
#[test]
fn extended_a_scheduler_is_asked_for_values() {
    use wglm::serde_json::json;
    use wglm::{AskError, GenerateOptions};
    #[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
    struct Sum {
        #[schemars(range(min = 0, max = 99))]
        sum: u32,
    }
    let (scheduler, cancel) = (scheduler(2), Cancel::default());
    let asked = |text: &str| -> ChatState { request(text, 60) };
    let Sum { sum } = scheduler.ask(asked(SUM), &cancel).unwrap();
    assert!(sum <= 99);
    let schema = json!({"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 3}, "minItems": 2, "maxItems": 2});
    let value = scheduler.ask_value(asked(SUM), &schema, &cancel).unwrap();
    assert!(value.as_array().is_some_and(|list| list.len() == 2), "{value}");
    let cut = GenerateOptions { max_tokens: Some(2), ..asked(SUM).options };
    let cut = scheduler.ask_value(ChatState { options: cut, ..asked(SUM) }, &schema, &cancel);
    assert!(matches!(cut, Err(AskError::Unfinished { stop: Stop::Length, .. })), "{cut:?}");
    cancel.cancel();
    let stopped = scheduler.ask::<Sum>(asked(SUM), &cancel);
    assert!(matches!(stopped, Err(AskError::Unfinished { stop: Stop::Cancelled, .. })), "{stopped:?}");
}
