//! Tests replies that continue the last message of a conversation.

use super::{CONTEXT, greedy, model, request, scheduler, session_of};
use wglm::{Chat, ChatState, Error, Event, Message, Overflow, Stop, ToolCall};

const OWL: &str = "Tell me a story about an owl.";
const BEGUN: &str = "Once there was a fox";

fn continued(question: &str, begun: Message) -> ChatState {
    let mut request = request(question, 24);
    request.messages.push(begun);
    ChatState { continues: true, ..request }
}

fn text(events: &[Event]) -> String {
    events.iter().filter_map(|event| if let Event::Text(text) = event { Some(text.as_str()) } else { None }).collect()
}

/// The reply is the one that a chat with the same beginning gets, and its prompt includes the beginning.
#[test]
fn extended_a_reply_continues_the_last_message() {
    let mut chat = Chat::with_session(session_of(model())).unwrap();
    (chat.reasoning, chat.options) = (Some(false), greedy(24));
    chat.push(Message::user(OWL));
    let want: Vec<Event> = chat.prefill(BEGUN).unwrap().map(Result::unwrap).collect();
    let scheduler = scheduler(1);
    // Thinking is closed even if the request asks for it.
    for reasoning in [None, Some(false), Some(true)] {
        let request = ChatState { reasoning, ..continued(OWL, Message::assistant(BEGUN)) };
        let reply = scheduler.chat(request).unwrap();
        let prompt = reply.prompt_tokens();
        let events: Vec<Event> = reply.map(Result::unwrap).collect();
        assert_eq!(text(&events), text(&want), "{reasoning:?}");
        let Some(Event::Done(stats)) = events.last() else { panic!("{events:?}") };
        assert_eq!((stats.prompt.cached + stats.prompt.new, stats.generated, stats.stop), (prompt, 24, Stop::Length));
        assert_eq!(prompt + 24, chat.session().tokens().len());
    }
}

#[test]
fn messages_that_cannot_be_continued_are_refused() {
    let scheduler = scheduler(1);
    let refused = |request: ChatState| scheduler.prepare(request).map(drop).unwrap_err();
    let error = refused(ChatState { continues: true, ..request(OWL, 4) });
    assert!(matches!(error, Error::Argument { argument: "messages", .. }), "{error}");
    let call = ToolCall::new("dice", Default::default());
    let error = refused(continued(OWL, Message::assistant(BEGUN).with_tool_calls(vec![call])));
    assert!(matches!(error, Error::Message { index: 1, what: "tool calls", .. }), "{error}");
    let error = refused(continued(OWL, Message::assistant("").with_reasoning("hm")));
    assert!(matches!(error, Error::Message { index: 1, what: "content", .. }), "{error}");
    let error = refused(continued(OWL, Message::assistant("owl ".repeat(2000))));
    assert!(matches!(error, Error::ContextFull { .. }), "{error}");
}

/// The beginning takes its part of the context, so more turns are dropped.
#[test]
fn the_beginning_counts_when_turns_are_dropped() {
    let tokens = |text: &str| model().tokenizer().unwrap().encode(text, false).unwrap().len();
    let owls = " owl".repeat(CONTEXT / 2 / (tokens(" owl owl") - tokens(" owl")));
    let mut messages = vec![Message::user(owls.as_str()), Message::assistant("Hoo."), Message::user(OWL)];
    let whole = ChatState { messages: messages.clone(), overflow: Overflow::DROP_OLDEST, ..request("", 4) };
    messages.push(Message::assistant(owls));
    let begun = ChatState { messages, continues: true, ..whole.clone() };
    let dropped = |request| scheduler(1).prepare(request).unwrap().dropped().len();
    assert_eq!((dropped(whole), dropped(begun)), (0, 2));
}
