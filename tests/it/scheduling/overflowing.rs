//! Tests conversations that outgrow their context.

use super::{alone, greedy, model, request, rest, said, scheduler_with, small, small_scheduler_with, words};
#[cfg(feature = "constrain")]
use wglm::ToolCall;
use wglm::serde_json::{Map, json};
use wglm::{CacheShape, Chat, ChatState, Error, Event, Message, Model, Overflow, SchedulerOptions, Session, Stop};

const CONTEXT: usize = 128;

/// A long conversation.
fn grown() -> Vec<Message> {
    let mut messages = vec![Message::system("Be brief.")];
    for _ in 0..8 {
        messages.push(Message::user("Tell me a story about an owl and a fox."));
        messages.push(Message::assistant("The owl sat on a branch. The fox ran over the hill."));
    }
    messages.push(Message::user("What is seven plus five?"));
    messages
}

fn chat() -> Chat {
    chat_with(model())
}

fn chat_with(model: &Model) -> Chat {
    let cache = CacheShape { context: CONTEXT, ..model.cache() };
    let mut chat = Chat::with_session(Session::with_cache(model, cache).unwrap()).unwrap();
    (chat.reasoning, chat.options) = (Some(false), greedy(20));
    chat
}

/// The dropped messages, and the other events.
fn dropped(events: impl Iterator<Item = wglm::Result<Event>>) -> (Vec<Message>, Vec<Event>) {
    let mut events = events.map(Result::unwrap);
    match events.next() {
        Some(Event::Dropped { messages }) => (messages, events.collect()),
        other => panic!("no `Dropped` but {other:?}"),
    }
}

#[test]
fn extended_a_chat_drops_its_oldest_turns() {
    let mut chat = chat();
    chat.set_messages(grown());
    assert!(matches!(chat.reply().map(drop), Err(Error::ContextFull { .. })));
    assert_eq!(chat.messages(), grown(), "refused, and unchanged");
    chat.overflow = Overflow::DROP_OLDEST;
    let (gone, events) = dropped(chat.reply().unwrap());
    assert_eq!(gone, grown()[1..1 + gone.len()]);
    let kept: Vec<Message> =
        grown().into_iter().filter(|it| it.role == "system").chain(grown()[1 + gone.len()..].to_vec()).collect();
    assert_eq!(chat.messages()[..kept.len()], kept);
    assert_eq!(chat.messages().len(), kept.len() + 1);
    let Some(Event::Done(stats)) = events.last() else { panic!("{events:?}") };
    assert!(matches!(stats.stop, Stop::End | Stop::Length), "{stats:?}");
    // The policy decides once which messages stay, and they are what is saved.
    let saved: ChatState = serde_json::from_str(&serde_json::to_string(&chat.save()).unwrap()).unwrap();
    assert_eq!(saved.overflow, Overflow::DropOldest { reserve: None });
    assert_eq!(serde_json::from_str::<Overflow>(r#"{"drop_oldest": {}}"#).unwrap(), saved.overflow);
    assert_eq!(serde_json::from_str::<ChatState>("{}").unwrap().overflow, Overflow::Refuse);
}

/// A reply that is refused leaves the messages unchanged.
#[cfg(feature = "constrain")]
#[test]
fn no_turn_is_dropped_for_a_refused_reply() {
    let mut chat = chat();
    chat.set_messages(grown());
    chat.overflow = Overflow::DROP_OLDEST;
    chat.options.calls = wglm::Calls::Required; // but there are no functions
    assert!(matches!(chat.reply().map(drop), Err(Error::Argument { argument: "calls", .. })));
    assert_eq!(chat.messages(), grown());
    assert!(matches!(chat.send("Who are you?").map(drop), Err(Error::Argument { argument: "calls", .. })));
    assert_eq!(chat.messages(), grown());
}

/// In the whole conversation no id occurs twice, although the turn with the first call was dropped.
#[cfg(feature = "constrain")]
#[test]
fn extended_ids_of_dropped_calls_are_not_reused() {
    let mut call = ToolCall::new("dice", Map::new());
    call.id = Some("call_0".to_owned());
    let mut asked = ChatState {
        messages: vec![
            Message::user("Roll the dice."),
            Message::assistant("").with_tool_calls(vec![call]),
            Message::tool("call_0", "6"),
            Message::assistant("It is a six."),
            Message::user("Roll the dice again."),
        ],
        overflow: Overflow::DropOldest { reserve: Some(usize::MAX) },
        ..request("", 60)
    };
    let parameters = json!({"type": "object", "properties": {}});
    asked.tools = vec![json!({"type": "function", "function": {"name": "dice", "parameters": parameters}})];
    asked.options.calls = wglm::Calls::Required;
    let scheduler = scheduler_with(SchedulerOptions { sessions: 1, ..SchedulerOptions::default() });
    let (gone, events) = dropped(scheduler.chat(asked).unwrap());
    assert_eq!(gone.len(), 4);
    let called = events.iter().find_map(|event| if let Event::ToolCall(call) = event { Some(call) } else { None });
    assert_eq!(called.expect("a call").id.as_deref(), Some("call_1"), "{events:?}");
}

/// An endless conversation, in which every turn has space for its reply.
#[test]
fn extended_a_chat_continues_forever() {
    let mut chat = chat_with(small());
    chat.options = words("", 20).options;
    chat.push(Message::system("Be brief."));
    chat.overflow = Overflow::DropOldest { reserve: Some(24) };
    let mut went = 0;
    for turn in 0..10 {
        for event in chat.send(["My name is Anna.", "What is seven plus five?"][turn % 2]).unwrap() {
            match event.unwrap() {
                Event::Dropped { messages } => went += messages.len(),
                Event::Done(stats) => assert_ne!(stats.stop, Stop::Context, "turn {turn}"),
                _ => {}
            }
        }
    }
    assert!(went > 4 && chat.messages().len() + went == 21, "{went} messages went");
}

/// If each request has the whole conversation, the remaining part is the same for some turns, and therefore in the
/// cache.
#[test]
fn extended_turns_are_dropped_in_steps() {
    let options = SchedulerOptions { sessions: 1, context: Some(2 * CONTEXT), ..SchedulerOptions::default() };
    let scheduler = small_scheduler_with(options);
    let mut messages = grown();
    messages.splice(1..1, grown()[1..17].to_vec());
    let mut asked = ChatState { messages, overflow: Overflow::DROP_OLDEST, ..words("", 4) };
    let (mut counts, mut kept) = (Vec::new(), 0);
    for _ in 0..4 {
        let (gone, events) = dropped(scheduler.chat(asked.clone()).unwrap());
        let Some(Event::Done(stats)) = events.last() else { panic!("{events:?}") };
        if counts.last() == Some(&gone.len()) {
            assert!(stats.prompt.cached > stats.prompt.new, "{stats:?}");
            kept += 1;
        }
        counts.push(gone.len());
        asked.messages.extend([Message::assistant("Twelve."), Message::user("What is two plus two?")]);
    }
    assert!(kept >= 1 && counts.is_sorted(), "{counts:?}");
}

/// If the newest turn leaves less space than the reserve, the reply gets what is left; if it leaves none, the reply is
/// refused.
#[test]
fn the_newest_turn_stays() {
    let mut chat = chat();
    chat.overflow = Overflow::DropOldest { reserve: Some(CONTEXT) };
    chat.set_messages(grown());
    let (gone, _) = dropped(chat.reply().unwrap());
    assert_eq!(gone.len(), 16);
    chat.set_messages(grown());
    let long = "owl ".repeat(CONTEXT);
    assert!(matches!(chat.send(&long).map(drop), Err(Error::ContextFull { .. })));
    assert_eq!(chat.messages(), grown());
}

/// An error has the index in the whole conversation, and does not depend on its length: a message that would be dropped
/// is refused too.
#[test]
fn a_wrong_message_of_a_long_conversation_is_refused() {
    let scheduler = scheduler_with(SchedulerOptions { context: Some(CONTEXT), ..SchedulerOptions::default() });
    for place in [1, 3] {
        let mut messages = vec![Message::user("owl ".repeat(20_000)), Message::assistant("x".repeat(100_000))];
        messages.extend([Message::user("Hello."), Message::assistant("Hello."), Message::user("?")]);
        messages.insert(place, Message::new("wizard", "I wave."));
        let state = ChatState { messages, overflow: Overflow::DROP_OLDEST, ..request("", 4) };
        let error = scheduler.prepare(state).map(drop).unwrap_err();
        assert!(matches!(error, Error::Message { index, what: "role", .. } if index == place), "{place}: {error}");
    }
}

#[test]
fn extended_a_request_drops_its_oldest_turns() {
    let options = SchedulerOptions { sessions: 2, context: Some(CONTEXT), ..SchedulerOptions::default() };
    let scheduler = scheduler_with(options);
    let mut asked = ChatState { messages: grown(), ..request("", 20) };
    assert!(matches!(scheduler.chat(asked.clone()), Err(Error::ContextFull { .. })));
    asked.overflow = Overflow::DROP_OLDEST;
    let (gone, events) = dropped(scheduler.chat(asked.clone()).unwrap());
    asked.messages.drain(1..1 + gone.len());
    let (reply, wanted) = (rest(&mut scheduler.chat(asked.clone()).unwrap()), alone(&asked));
    assert!(matches!(reply[0], Event::Prompt { .. }), "nothing goes any more");
    assert!(!gone.is_empty() && said(&events) == said(&wanted) && said(&reply) == said(&wanted));
}

/// Texts that are too large for the context are not even rendered, and the result is the same.
#[test]
fn extended_a_prepared_conversation_has_several_replies() {
    let scheduler =
        scheduler_with(SchedulerOptions { sessions: 2, context: Some(CONTEXT), ..SchedulerOptions::default() });
    let mut messages = vec![Message::system("Be brief.")];
    messages.extend([Message::user("owl ".repeat(20_000)), Message::assistant("x".repeat(100_000))]);
    messages.push(Message::user("What is seven plus five?"));
    let mut state = ChatState { messages, overflow: Overflow::DROP_OLDEST, ..request("", 8) };
    let prepared = scheduler.prepare(state.clone()).unwrap();
    assert_eq!(prepared.dropped(), &state.messages[1..3]);
    assert_eq!(scheduler.state().counts.requests, 0, "nothing is asked for yet");
    let mut replies: Vec<_> = (0..3).map(|seed| scheduler.reply(&prepared, Some(seed)).unwrap()).collect();
    state.overflow = Overflow::Refuse;
    assert!(matches!(scheduler.prepare(state.clone()), Err(Error::ContextFull { needed, .. }) if needed > CONTEXT));
    state.messages.drain(1..3);
    let alone = said(&alone(&state));
    for reply in &mut replies {
        assert_eq!(reply.prompt_tokens(), prepared.prompt_tokens());
        let (gone, events) = dropped(reply);
        assert_eq!((gone.as_slice(), said(&events)), (prepared.dropped(), alone.clone()));
    }
}
