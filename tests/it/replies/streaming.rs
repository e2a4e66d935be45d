//! Tests replies as asynchronous streams.

use super::{OWL, chat, model, script::script, story, text, told};
use crate::common::chats::{self, take_events};
use crate::common::gpu::open;
use crate::common::models::{fable_file, load_on};
use pollster::block_on;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use wglm::serde_json::json;
use wglm::{Cancel, Chat, Error, ErrorKind, Event, Message, OwnedReply, ReplyStream, Result, SharedChat, Stop, Stream};

/// The reply to a message, as a stream.
fn sent(chat: Chat, text: &str) -> ReplyStream {
    SharedChat::new(chat).send(text).into_stream()
}

fn back(stream: ReplyStream) -> Result<Chat> {
    stream.into_reply().into_chat()
}

fn sent_with(chat: Chat, cancel: &Cancel) -> ReplyStream {
    SharedChat::new(chat).send(OWL).with_cancel(cancel).into_stream()
}

async fn next(stream: &mut ReplyStream) -> Option<Result<Event>> {
    poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
}

async fn all(stream: &mut ReplyStream) -> Vec<Result<Event>> {
    let mut events = Vec::new();
    while let Some(event) = next(stream).await {
        events.push(event);
    }
    events
}

#[test]
fn extended_a_stream_has_the_events_of_the_iterator() {
    let mut stream = sent(chat(), OWL);
    let (events, stats) = told(block_on(all(&mut stream)).into_iter());
    assert_eq!((text(&events).as_str(), stats.stop), (&*story()[1].text(), Stop::End));
    assert!(block_on(next(&mut stream)).is_none(), "an event after the end");
    let mut back = back(stream).unwrap();
    assert_eq!(back.messages(), story());
    // The conversation continues with its cache.
    let (events, stats) = told(back.send("What is seven plus five?").unwrap());
    assert!(stats.prompt.cached > 100 && text(&events).contains("twelve"), "{events:?} {:?}", stats.prompt);
}

/// Polling never blocks, and the task is woken.
#[test]
fn extended_polling_does_not_block() {
    let mut stream = sent(chat(), OWL);
    let mut context = Context::from_waker(Waker::noop());
    let (mut pending, mut ended, mut longest) = (0, false, Duration::ZERO);
    while !ended {
        let start = Instant::now();
        match Pin::new(&mut stream).poll_next(&mut context) {
            Poll::Pending => pending += 1,
            Poll::Ready(event) => ended = event.is_none(),
        }
        longest = longest.max(start.elapsed());
        std::thread::sleep(Duration::from_micros(200));
    }
    println!("{pending} times pending, at most {longest:?} a poll");
    assert!(pending > 10, "pending {pending} times");
}

#[test]
fn extended_a_stream_becomes_a_reply_again() {
    let mut stream = sent(chat(), OWL);
    let mut part = String::new();
    while part.len() < 20 {
        if let Event::Text(text) = block_on(next(&mut stream)).unwrap().unwrap() {
            part += &text;
        }
    }
    let mut chat = back(stream).unwrap();
    let said = chat.messages()[1].clone();
    assert_eq!(said.role, "assistant");
    assert!(serde_json::to_string(&said.content).unwrap().contains(part.split('"').next().unwrap()), "{said:?} {part}");
    let (events, stats) = told(chat.send("My name is Anna.").unwrap());
    assert!(stats.prompt.cached > 0 && !text(&events).is_empty());
}

/// A stream whose first event has arrived, and a `Cancel` that others may share.
fn begun(chat: Chat) -> (ReplyStream, Cancel) {
    let cancel = Cancel::default();
    let mut stream = sent_with(chat, &cancel);
    block_on(next(&mut stream)).unwrap().unwrap();
    (stream, cancel)
}

/// The device is used by nothing else, so that its work can be counted.
#[test]
fn extended_a_dropped_stream_stops() {
    let alone = load_on(&fable_file("q4_0"), &open(true));
    let before = alone.gpu().work().submissions;
    let (stream, cancel) = begun(chats::greedy(&alone));
    drop(stream); // waits for the thread, which uses the session
    let submissions = alone.gpu().work().submissions - before;
    assert!(submissions < 60, "{submissions} submissions: the rest of the reply was generated"); // the whole reply has a hundred tokens
    assert!(!cancel.is_cancelled(), "other replies may share it");
}

/// The caller's `Cancel`, the stream's own, and one that was cancelled before the stream existed each stop the reply.
#[test]
fn extended_a_cancelled_stream_stops() {
    let (mut stream, cancel) = begun(chat());
    cancel.cancel();
    assert_eq!(told(block_on(all(&mut stream)).into_iter()).1.stop, Stop::Cancelled);
    let (mut stream, cancel) = begun(back(stream).unwrap());
    stream.reply().cancel().cancel();
    assert_eq!(told(block_on(all(&mut stream)).into_iter()).1.stop, Stop::Cancelled);
    assert!(!cancel.is_cancelled());
    let pressed = Cancel::default();
    pressed.cancel();
    let mut stream = sent_with(back(stream).unwrap(), &pressed);
    let (events, stats) = told(block_on(all(&mut stream)).into_iter());
    assert_eq!((text(&events).as_str(), stats.stop), ("", Stop::Cancelled));
    assert_eq!(told(back(stream).unwrap().send("My name is Anna.").unwrap()).1.stop, Stop::End);
}

/// A task that is dropped in the middle of a reply leaves the conversation and its cache.
#[test]
fn extended_a_task_that_is_dropped_loses_nothing() {
    let shared = SharedChat::new(chat());
    assert!(shared.messages().is_empty());
    let mut stream = shared.send(OWL).into_stream();
    let mut part = String::new();
    while part.len() < 20 {
        if let Event::Text(text) = block_on(next(&mut stream)).unwrap().unwrap() {
            part += &text;
        }
    }
    assert_eq!((stream.reply().messages(), shared.messages()), (vec![Message::user(OWL)], vec![Message::user(OWL)]));
    // Meanwhile the stream uses it.
    let refused = shared.with(|_| ()).unwrap_err();
    assert!(matches!(refused, Error::ChatInUse) && refused.kind() == ErrorKind::Busy, "{refused}");
    let events = block_on(all(&mut shared.send("And?").into_stream()));
    assert!(matches!(&events[..], [Err(Error::ChatInUse)]), "{events:?}");
    drop(stream);
    let held = shared.with(|chat| chat.session().tokens().len()).unwrap();
    let messages = shared.messages();
    assert!(messages[1].text().starts_with(&part), "{messages:?}");
    let mut stream = shared.send("My name is Anna.").into_stream();
    let (_, stats) = told(block_on(all(&mut stream)).into_iter());
    assert!(stats.prompt.cached + 4 > held, "{:?} of {held} tokens held", stats.prompt);
    assert_eq!(format!("{stream:?}"), "ReplyStream { reply: OwnedReply { over: true, .. } }");
    assert_eq!(stream.reply().messages().len(), 4);
    let chat = shared.take().unwrap();
    assert_eq!(chat.messages(), shared.messages());
    assert!(shared.take().is_err() && back(stream).is_err());
    assert!(matches!(shared.with(|_| ()), Err(Error::Argument { argument: "chat", .. })));
}

/// A reply has the conversation from the first request for an event, whether its thread runs already or not. It waits
/// for a call that has begun before.
#[test]
fn a_reply_and_a_call_do_not_race() {
    let mut own = chat();
    own.options.ignore_eos = true;
    let shared = SharedChat::new(own);
    for _ in 0..8 {
        let mut reply = shared.send(OWL);
        let _ = reply.try_next();
        let refused = shared.with(|_| ());
        assert!(matches!(refused, Err(Error::ChatInUse)), "{refused:?}");
        reply.cancel().cancel();
        assert_eq!(told(reply).1.stop, Stop::Cancelled);
        shared.with(Chat::clear).unwrap();
    }
    shared.with(|chat| chat.options.max_tokens = Some(8)).unwrap();
    let (enter, entered) = std::sync::mpsc::channel();
    let mut reply = shared.send(OWL);
    std::thread::scope(|scope| {
        let call = scope.spawn(|| {
            shared.with(|chat| {
                enter.send(()).unwrap();
                std::thread::sleep(Duration::from_millis(20));
                chat.push(Message::system("Be brief."));
            })
        });
        entered.recv().unwrap();
        assert_eq!(told(&mut reply).1.stop, Stop::Length);
        call.join().unwrap().unwrap();
    });
    assert_eq!(shared.messages().len(), 3);
}

/// After the last event was sent, the conversation is free, and a call while a stream is running says that it is in
/// use.
#[test]
fn extended_the_conversation_is_free_after_the_last_event() {
    let shared = SharedChat::new(chat());
    let mut stream = shared.send("My name is Anna.").into_stream();
    assert_eq!(format!("{stream:?}"), "ReplyStream { reply: OwnedReply { over: false, .. } }");
    loop {
        if let Event::Done(_) = block_on(next(&mut stream)).unwrap().unwrap() {
            break;
        }
    }
    assert_eq!(shared.with(|chat| chat.messages().len()).unwrap(), 2);
    assert!(block_on(next(&mut stream)).is_none());
}

/// Streams reply to results of functions, too, and failures are events.
#[test]
fn extended_replies_to_results_and_failures() {
    let mut chat = chat();
    chat.tools = vec![json!({"type": "function", "function": {"name": "dice", "parameters": {}}})];
    script(&mut chat, Some("Roll."), "<tool_call>dice</tool_call>", "<|observation|>");
    let mut stream = sent(chat, "Roll.");
    let (events, _) = told(block_on(all(&mut stream)).into_iter());
    let [Event::ToolCallStart { .. }, .., Event::ToolCall(call)] = &events[..] else { panic!("{events:?}") };
    let mut chat = back(stream).unwrap();
    chat.push(Message::tool(call.id.clone().unwrap(), "6"));
    script(&mut chat, None, "It is a six.", "<|user|>");
    let mut stream = SharedChat::new(chat).reply().into_stream();
    assert_eq!(text(&told(block_on(all(&mut stream)).into_iter()).0), "It is a six.");
    let mut chat = back(stream).unwrap();
    chat.push(Message::new("critic", "Boo"));
    let mut stream = sent(chat, "Well?");
    let events = block_on(all(&mut stream));
    assert!(matches!(&events[..], [Err(Error::Message { index: 4, .. })]), "{events:?}");
    assert!(back(stream).is_ok());
}

#[test]
fn extended_conversations_and_streams_can_be_sent() {
    fn send<T: Send>() {}
    send::<Chat>();
    send::<ReplyStream>();
    send::<OwnedReply>();
    fn share<T: Send + Sync + Clone>() {}
    share::<SharedChat>();
    let streams: Vec<_> = (0..3).map(|_| sent(chat(), "What is seven plus five?")).collect();
    let answers: Vec<String> =
        streams.into_iter().map(|mut stream| text(&told(block_on(all(&mut stream)).into_iter()).0)).collect();
    assert!(answers.iter().all(|answer| answer.contains("twelve")), "{answers:?}");
    assert!(model().gpu().check().is_ok());
}

/// The stream's own `Cancel`, and one that is added after the stream has begun.
#[test]
fn every_cancel_of_a_stream_stops_it() {
    for pressed in 0..2 {
        let mut stream = sent(chat(), OWL);
        block_on(next(&mut stream)).unwrap().unwrap();
        let buttons = [stream.reply().cancel(), Cancel::default()];
        let mut stream = stream.into_reply().with_cancel(&buttons[1]).into_stream();
        buttons[pressed].cancel();
        assert_eq!(told(block_on(all(&mut stream)).into_iter()).1.stop, Stop::Cancelled, "button {pressed}");
    }
}

/// A reply next to its conversation in a struct of the app, used only with blocking calls.
#[test]
fn extended_an_owned_reply_is_an_iterator() {
    struct View {
        chat: SharedChat,
        reply: Option<OwnedReply>,
    }
    let mut view = View { chat: SharedChat::new(chat()), reply: None };
    view.reply = Some(view.chat.send(OWL));
    let (events, stats) = told(view.reply.as_mut().unwrap());
    assert_eq!((text(&events).as_str(), stats.stop), (&*story()[1].text(), Stop::End));
    assert!(view.reply.as_mut().unwrap().next().is_none(), "an event after the end");
    assert_eq!(view.chat.messages().len(), 2);
}

/// Without a runtime, and without blocking.
#[test]
fn extended_an_owned_reply_is_polled_in_frames() {
    let mut reply = SharedChat::new(chat()).send(OWL);
    let (mut events, mut pending) = (Vec::new(), 0);
    loop {
        match reply.try_next() {
            Poll::Ready(Some(event)) => events.push(event),
            Poll::Ready(None) => break,
            Poll::Pending => pending += 1,
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    let (events, _) = told(events.into_iter());
    assert!(text(&events) == story()[1].text() && pending > 10, "pending {pending} times: {events:?}");
}

/// A task whose last owner is the waker that the generating thread calls: the reply is dropped on its own thread.
#[test]
fn a_reply_that_is_dropped_by_its_waker_does_not_wait_for_itself() {
    use std::sync::{Arc, Mutex};
    struct Task(Mutex<Option<OwnedReply>>, std::sync::mpsc::SyncSender<()>);
    impl std::task::Wake for Task {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().unwrap().take());
            let _ = self.1.try_send(());
        }
    }
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let task = Arc::new(Task(Mutex::new(Some(SharedChat::new(chat()).send(OWL))), sender));
    let waker = Waker::from(task.clone());
    let mut held = task.0.lock().unwrap();
    let reply = held.as_mut().unwrap();
    take_events(|| reply.poll_next(&mut Context::from_waker(&waker)));
    drop(held);
    receiver.recv_timeout(Duration::from_secs(60)).unwrap();
}

/// Runs something with a time limit. It would hang if it held a lock that another thread waits for.
fn in_time(does: impl FnOnce() + Send + 'static) {
    let (done, is_done) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        does();
        let _ = done.send(());
    });
    is_done.recv_timeout(Duration::from_secs(120)).expect("neither a deadlock nor a panic");
}

/// An app may drop a reply while it holds the lock that the reply's waker waits for: egui's `request_repaint` takes
/// one.
#[test]
fn a_reply_is_dropped_under_the_lock_of_its_waker() {
    use std::sync::{Arc, Mutex, mpsc::SyncSender};
    struct View(Mutex<Option<OwnedReply>>, SyncSender<()>);
    impl std::task::Wake for View {
        fn wake(self: Arc<Self>) {
            let _ = self.1.try_send(());
            drop(self.0.lock());
        }
    }
    in_time(|| {
        let (sender, waits) = std::sync::mpsc::sync_channel(1);
        let shared = SharedChat::new(chat());
        let view = Arc::new(View(Mutex::new(Some(shared.send(OWL))), sender));
        let waker = Waker::from(view.clone());
        let mut held = view.0.lock().unwrap();
        let reply = held.as_mut().unwrap();
        take_events(|| reply.poll_next(&mut Context::from_waker(&waker)));
        waits.recv().unwrap();
        *held = None;
        drop(held);
        while shared.with(|_| ()).is_err() {
            std::thread::sleep(Duration::from_millis(5)); // until the waker has returned
        }
        assert_eq!(shared.messages()[0], Message::user(OWL));
    });
}

/// A panic of a waker, which is an error of the app, does not end the reply.
#[test]
fn extended_a_reply_outlives_a_panic_of_its_waker() {
    struct Panics;
    impl std::task::Wake for Panics {
        fn wake(self: std::sync::Arc<Self>) {
            panic!("on purpose");
        }
    }
    let mut reply = SharedChat::new(chat()).send(OWL);
    let waker = Waker::from(std::sync::Arc::new(Panics));
    let first = match reply.poll_next(&mut Context::from_waker(&waker)) {
        Poll::Ready(event) => event,
        Poll::Pending => reply.next(),
    };
    let (events, stats) = told(first.into_iter().chain(&mut reply));
    assert_eq!((text(&events).as_str(), stats.stop), (&*story()[1].text(), Stop::End));
}
