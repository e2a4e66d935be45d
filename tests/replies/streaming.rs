//! Replies as asynchronous streams.

use crate::common::chats;
use crate::common::gpu::open;
use crate::common::models::{fable_file, load_on};
use crate::{chat, model, script::script, text, told};
use pollster::block_on;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use wglm::generate::Stop;
use wglm::serde_json::json;
use wglm::stream::Stream;
use wglm::{Cancel, Chat, Error, Event, Message, ReplyStream, Result};

const OWL: &str = "Tell me a story about an owl.";

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
fn it_tells_what_the_iterator_tells() {
    let mut known = chat();
    let (want, _) = told(known.send(OWL).unwrap());
    let mut stream = chat().into_stream(OWL).unwrap();
    let (events, stats) = told(block_on(all(&mut stream)).into_iter());
    assert_eq!((text(&events), stats.stop), (text(&want), Stop::End));
    assert!(block_on(next(&mut stream)).is_none(), "an event after the end");
    let mut back = stream.into_chat().unwrap();
    assert_eq!(back.messages(), known.messages());
    // The conversation goes on, with its cache.
    let (events, stats) = told(back.send("What is seven plus five?").unwrap());
    assert!(stats.prompt.cached > 100 && text(&events).contains("twelve"), "{events:?} {:?}", stats.prompt);
}

/// Whoever polls is never blocked, and is woken.
#[test]
fn polling_does_not_wait() {
    let mut stream = chat().into_stream(OWL).unwrap();
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
fn given_back_half_way() {
    let mut stream = chat().into_stream(OWL).unwrap();
    let mut part = String::new();
    while part.len() < 20 {
        if let Event::Text(text) = block_on(next(&mut stream)).unwrap().unwrap() {
            part += &text;
        }
    }
    let mut chat = stream.into_chat().unwrap();
    assert!(!chat.options.cancel.is_cancelled(), "the next reply would be cancelled");
    let said = chat.messages()[1].clone();
    assert_eq!(said.role, "assistant");
    assert!(serde_json::to_string(&said.content).unwrap().contains(part.split('"').next().unwrap()), "{said:?} {part}");
    let (events, stats) = told(chat.send("My name is Anna.").unwrap());
    assert!(stats.prompt.cached > 0 && !text(&events).is_empty());
}

/// A stream of which the first event has come, and the button of its conversation.
fn begun(chat: Chat) -> (ReplyStream, Cancel) {
    let cancel = chat.options.cancel.clone();
    let mut stream = chat.into_stream(OWL).unwrap();
    block_on(next(&mut stream)).unwrap().unwrap();
    (stream, cancel)
}

/// On a device of its own, to count what it is given.
#[test]
fn dropped_it_stops() {
    let alone = load_on(&fable_file("q4_0"), &open(true));
    let before = alone.gpu().work().submissions;
    let (stream, cancel) = begun(chats::greedy(&alone));
    drop(stream); // waits for the thread, which holds the session
    let submissions = alone.gpu().work().submissions - before;
    assert!(submissions < 60, "{submissions} submissions: the rest of the reply was generated"); // it has a hundred tokens
    assert!(!cancel.is_cancelled(), "other conversations may share it");
}

/// The conversation's own button stops the stream, and stays pressed.
#[test]
fn stopped_by_the_conversations_button() {
    let (mut stream, cancel) = begun(chat());
    cancel.cancel();
    let (_, stats) = told(block_on(all(&mut stream)).into_iter());
    assert_eq!(stats.stop, Stop::Cancelled);
    let chat = stream.into_chat().unwrap();
    assert!(chat.options.cancel.is_cancelled());
    cancel.reset();
    assert!(!chat.options.cancel.is_cancelled(), "it is the same button");
}

/// After the results of functions; failures are events.
#[test]
fn replies_to_results_and_failures() {
    let mut chat = chat();
    chat.tools = vec![json!({"type": "function", "function": {"name": "dice", "parameters": {}}})];
    script(&mut chat, Some("Roll."), "<tool_call>dice</tool_call>", "<|observation|>");
    let mut stream = chat.into_stream("Roll.").unwrap();
    let (events, _) = told(block_on(all(&mut stream)).into_iter());
    let [Event::ToolCall(call)] = &events[..] else { panic!("{events:?}") };
    let mut chat = stream.into_chat().unwrap();
    chat.push(Message::tool(call.id.clone().unwrap(), "6"));
    script(&mut chat, None, "It is a six.", "<|user|>");
    let mut stream = chat.into_reply_stream().unwrap();
    assert_eq!(text(&told(block_on(all(&mut stream)).into_iter()).0), "It is a six.");
    let mut chat = stream.into_chat().unwrap();
    chat.push(Message::new("critic", "Boo"));
    let mut stream = chat.into_stream("Well?").unwrap();
    let events = block_on(all(&mut stream));
    assert!(matches!(&events[..], [Err(Error::Template { .. })]), "{events:?}");
    assert!(stream.into_chat().is_ok());
}

#[test]
fn conversations_and_streams_go_to_other_threads() {
    fn send<T: Send>() {}
    send::<Chat>();
    send::<ReplyStream>();
    let streams: Vec<_> = (0..3).map(|_| chat().into_stream("What is seven plus five?").unwrap()).collect();
    let answers: Vec<String> =
        streams.into_iter().map(|mut stream| text(&told(block_on(all(&mut stream)).into_iter()).0)).collect();
    assert!(answers.iter().all(|answer| answer.contains("twelve")), "{answers:?}");
    assert!(model().gpu().check().is_ok());
}
