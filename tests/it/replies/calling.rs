//! Tests functions that the model calls, and their results.

use super::script::script;
use super::{chat, text, told};
use wglm::serde_json::{Map, json};
use wglm::text::Content;
use wglm::{Chat, Error, Event, Message, Stop, ToolCall};

const ASKED: &str = "Does it rain in Rome?";
const CALL: &str = "<tool_call>weather<arg_key>city</arg_key><arg_value>Rome</arg_value></tool_call>";

fn chat_with_tools() -> Chat {
    let mut chat = chat();
    let city = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let function = json!({"name": "weather", "description": "The weather in a city", "parameters": city});
    chat.tools = vec![json!({"type": "function", "function": function})];
    chat
}

fn calls(events: &[Event]) -> Vec<ToolCall> {
    events
        .iter()
        .filter_map(|event| if let Event::ToolCall(call) = event { Some(call.clone()) } else { None })
        .collect()
}

fn content(message: &Message) -> &str {
    let Some(Content::Text(text)) = &message.content else { panic!("{message:?}") };
    text
}

/// A whole exchange: the call, its result, the answer, a second call. Each prompt is found in the cache.
#[test]
fn extended_a_round_trip() {
    let mut chat = chat_with_tools();
    for (thought, reasoning) in [("", false), ("Who knows</think>", true)] {
        chat.clear();
        chat.reasoning = Some(reasoning);
        script(&mut chat, Some(ASKED), &format!("{thought}Let me see.{CALL}"), "<|observation|>");
        let (events, stats) = told(chat.send(ASKED).unwrap());
        println!("{events:?}");
        assert_eq!((text(&events).as_str(), stats.stop), ("Let me see.", Stop::End));
        let [call] = &calls(&events)[..] else { panic!("{events:?}") };
        assert_eq!((call.id.as_deref(), call.function.name.as_str()), (Some("call_0"), "weather"));
        assert_eq!(call.function.arguments, json!({"city": "Rome"}));
        let reply = &chat.messages()[1];
        assert_eq!((content(reply), &reply.tool_calls), ("Let me see.", &vec![call.clone()]));
        assert_eq!(reply.reasoning_content.as_deref(), reasoning.then_some("Who knows"));

        let held = chat.session().tokens().len();
        chat.push(Message::tool("call_0", "heavy rain"));
        script(&mut chat, None, &format!("{thought}Yes, it does."), "<|user|>");
        let (events, stats) = told(chat.reply().unwrap());
        assert_eq!((text(&events).as_str(), stats.stop), ("Yes, it does.", Stop::End));
        assert_eq!(stats.prompt.cached, held, "of what was held: {:?}", stats.prompt);
        assert_eq!(
            chat.messages().iter().map(|m| m.role.as_str()).collect::<Vec<_>>(),
            ["user", "assistant", "tool", "assistant"]
        );

        script(&mut chat, Some("And now?"), &format!("{thought}{CALL}"), "<|observation|>");
        let (events, stats) = told(chat.send("And now?").unwrap());
        assert_eq!(calls(&events)[0].id.as_deref(), Some("call_1"));
        assert_eq!(text(&events), "");
        assert!(stats.prompt.cached > 0, "{:?}", stats.prompt);
    }
}

/// Ids that other programs gave, or that remain from a longer conversation, are not given again.
#[test]
fn extended_every_call_has_its_own_id() {
    let mut chat = chat_with_tools();
    let mut before = ToolCall::new("weather", Map::new());
    before.id = Some("call_1".to_owned());
    let asked = Message::user("And in Oslo?");
    chat.set_messages(vec![
        asked,
        Message::assistant("").with_tool_calls(vec![before]),
        Message::tool("call_1", "dry"),
    ]);
    script(&mut chat, Some(ASKED), CALL, "<|observation|>");
    let (events, _) = told(chat.send(ASKED).unwrap());
    assert_eq!(calls(&events)[0].id.as_deref(), Some("call_2"));
}

/// A reply that is cut off inside a call has no answer, and can be generated again.
#[test]
fn extended_a_call_that_is_cut_off_is_not_text() {
    let mut chat = chat_with_tools();
    script(&mut chat, Some(ASKED), CALL, "<|observation|>");
    chat.options.max_tokens = Some(6);
    let (events, stats) = told(chat.send(ASKED).unwrap());
    assert_eq!((calls(&events), stats.stop), (vec![], Stop::Length));
    let Some(Event::ToolCallFailed { text: raw, cut: true }) = events.last() else { panic!("{events:?}") };
    assert!(raw.starts_with("<tool_call>weather") && CALL.starts_with(raw), "{raw}");
    assert_eq!((text(&events).as_str(), chat.messages().len()), ("", 1), "{events:?}");
    chat.options.max_tokens = Some(40);
    script(&mut chat, None, CALL, "<|observation|>");
    let (events, _) = told(chat.reply().unwrap());
    let Event::ToolCallStart { id, name } = &events[0] else { panic!("{events:?}") };
    assert_eq!((id, name.as_str()), (&calls(&events)[0].id, "weather"));
    let piece = |event: &Event| if let Event::ToolCallPiece(text) = event { text.clone() } else { String::new() };
    let told = events.iter().map(piece).collect::<String>();
    assert_eq!(told, calls(&events)[0].function.arguments.to_string());
    assert_eq!((calls(&events).len(), chat.messages().len()), (1, 2));
}

/// Without tools no calls are searched for.
#[test]
fn without_tools_a_call_is_text() {
    let mut chat = chat();
    script(&mut chat, Some(ASKED), CALL, "<|user|>");
    let (events, _) = told(chat.send(ASKED).unwrap());
    assert_eq!(calls(&events), []);
    println!("{events:?}");
    assert!(text(&events).contains("weather"), "{events:?}");
}

/// Tools change the prompt, and the model still answers.
#[test]
fn extended_tools_that_are_not_called() {
    let mut chat = chat_with_tools();
    let (events, stats) = told(chat.send("What is seven plus five?").unwrap());
    assert!(!text(&events).is_empty() && calls(&events).is_empty(), "{events:?}");
    assert!(stats.prompt.new > 60, "the tools are not in the prompt: {:?}", stats.prompt);
}

/// Stop strings are not searched for in calls, and text that was held back for one comes before the call.
#[test]
fn extended_stop_strings_leave_calls_alone() {
    let mut chat = chat_with_tools();
    script(&mut chat, Some(ASKED), &format!("Let me see.{CALL}"), "<|observation|>");
    chat.options.stop = vec!["Rome".to_owned(), "see.<".to_owned()];
    let (events, stats) = told(chat.send(ASKED).unwrap());
    assert_eq!((calls(&events).len(), text(&events).as_str(), stats.stop), (1, "Let me see.", Stop::End));
    assert!(matches!(events.last(), Some(Event::ToolCall(_))), "{events:?}");
}

#[test]
fn a_reply_to_nothing_new() {
    let mut chat = chat();
    chat.push(Message::user("My name is Anna."));
    let (events, _) = told(chat.reply().unwrap());
    assert!(!text(&events).is_empty());
    assert_eq!(chat.messages().len(), 2);
    chat.options.max_tokens = Some(0);
    chat.push(Message::user("What is my name?"));
    told(chat.reply().unwrap());
    assert_eq!(chat.messages().len(), 3, "a message that was pushed has gone");
}

/// Results that belong to no call are refused, and leave the conversation as it is.
#[test]
fn a_result_without_its_call_is_refused() {
    let call = |id: Option<&str>| {
        let mut call = ToolCall::new("weather", Map::new());
        call.id = id.map(str::to_owned);
        Message::assistant("").with_tool_calls(vec![call])
    };
    let asked = || Message::user("And in Oslo?");
    let nameless = || Message { tool_call_id: None, ..Message::tool("", "dry") };
    let refused = [
        (vec![Message::tool("a", "dry")], 0, "a tool call before its result, found \"a\""),
        (vec![asked(), Message::tool("a", "dry")], 1, "a tool call before its result, found \"a\""),
        (vec![asked(), nameless()], 1, "a tool call before its result"),
        (vec![asked(), call(Some("a")), Message::tool("b", "dry")], 2, "such as \"a\", found \"b\""),
        (vec![asked(), Message::tool("a", "dry"), call(Some("a"))], 1, "a tool call"),
    ];
    for (messages, at, words) in refused {
        let mut chat = chat_with_tools();
        chat.set_messages(messages.clone());
        for error in [chat.prompt().map(drop), chat.send("Well?").map(drop), chat.reply().map(drop)] {
            let error = error.unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, Error::Message { index, .. } if index == at) && text.contains(words), "{text}");
        }
        assert_eq!(chat.messages(), messages);
    }
    let taken = [
        vec![asked(), call(Some("a")), Message::tool("a", "dry"), Message::tool("a", "wet")],
        vec![asked(), call(None), Message::tool("given by another program", "dry")],
        vec![asked(), call(Some("a")), nameless()],
        vec![Message::system("Be brief."), call(Some("a")), Message::tool("a", "dry"), asked()],
        vec![Message::system("Be brief."), asked(), call(Some("a")), asked(), Message::tool("a", "dry")],
    ];
    for messages in taken {
        let mut chat = chat_with_tools();
        chat.set_messages(messages.clone());
        chat.prompt().unwrap_or_else(|error| panic!("{messages:?}: {error}"));
    }
}
