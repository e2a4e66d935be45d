//! Tests conversations that outgrow their context.

use super::session_of;
use wglm::serde_json::Map;
use wglm::{Chat, Error, Event, Message, SamplerParams, ToolCall};

const CONTEXT: usize = 160;

fn chat() -> Chat {
    let mut chat = Chat::with_session(session_of(CONTEXT)).unwrap();
    (chat.reasoning, chat.options.sampling) = (Some(false), SamplerParams::greedy());
    chat
}

/// Three turns, one of which has a call, and a new message.
fn long() -> Vec<Message> {
    let mut call = ToolCall::new("dice", Map::new());
    call.id = Some("call_0".to_owned());
    vec![
        Message::system("Be brief."),
        Message::assistant("Hello!"),
        Message::user("Roll the dice and tell me what you see on it."),
        Message::assistant("").with_tool_calls(vec![call]),
        Message::tool("call_0", "6"),
        Message::assistant("It is a six."),
        Message::user("What is seven plus five?"),
        Message::assistant("Twelve."),
        Message::user("My name is Anna."),
        Message::assistant("Hello, Anna."),
        Message::user("What is my name?"),
    ]
}

fn needs(messages: &[Message]) -> usize {
    let mut chat = chat();
    chat.set_messages(messages.to_vec());
    chat.prompt().unwrap().len()
}

/// For any reserve, no more turns are dropped than necessary, only whole turns are dropped, and the rest keeps its
/// order.
#[test]
fn extended_the_oldest_turns_are_dropped_as_a_whole() {
    let all = long();
    let newest = needs(&[all[0].clone(), all[10].clone()]);
    // The ends of turns, up to which messages may be dropped.
    let gaps = [1, 2, 6, 8, 10];
    let needed = gaps.map(|gap| needs(&[&all[..1], &all[gap..]].concat()));
    let mut seen = [false; 5];
    let mut chat = chat();
    for reserve in 0..=CONTEXT - newest {
        chat.set_messages(all.clone());
        let gone = chat.fit(reserve).unwrap();
        let gap = gone.len() + 1;
        let index = gaps.iter().position(|end| *end == gap).unwrap_or_else(|| panic!("{} messages went", gone.len()));
        seen[index] = true;
        assert_eq!(gone, all[1..gap]);
        assert_eq!(chat.messages(), [&all[..1], &all[gap..]].concat());
        assert!(chat.prompt().unwrap().len() + reserve <= CONTEXT, "{reserve} reserved");
        if index > 0 {
            assert!(needed[index - 1] + reserve > CONTEXT, "{reserve} reserved: more might have stayed");
        }
    }
    assert_eq!(seen, [true; 5], "every gap is tried");
}

#[test]
fn a_turn_that_is_too_long_is_refused() {
    let all = long();
    let newest = needs(&[all[0].clone(), all[10].clone()]);
    let mut chat = chat();
    chat.set_messages(all.clone());
    let error = chat.fit(CONTEXT - newest + 1).unwrap_err();
    assert!(matches!(error, Error::ContextFull { needed, context: CONTEXT } if needed == CONTEXT + 1), "{error}");
    assert!(chat.fit(usize::MAX).is_err());
    assert_eq!(chat.messages(), all);
    chat.clear();
    assert!(chat.fit(10).unwrap().is_empty());
}

/// An endless conversation never fails for lack of space, and keeps its system prompt.
#[test]
fn extended_a_conversation_continues_forever() {
    let mut chat = chat();
    chat.options.max_tokens = Some(24);
    chat.push(Message::system("Be brief."));
    let mut went = 0;
    for turn in 0..12 {
        chat.push(Message::user(["My name is Anna.", "What is seven plus five?"][turn % 2]));
        went += chat.fit(24).unwrap().len();
        for event in chat.reply().unwrap() {
            if let Event::Done(stats) = event.unwrap() {
                assert_ne!(stats.stop, wglm::Stop::Context, "turn {turn}");
            }
        }
        assert_eq!(chat.messages()[0].role, "system");
    }
    assert!(went > 4 && chat.messages().len() + went == 25, "{went} messages went");
}

#[test]
fn messages_are_taken_out() {
    let all = long();
    let mut chat = chat();
    chat.set_messages(all.clone());
    assert_eq!(chat.remove(1..2), all[1..2]);
    assert_eq!(chat.remove(9..100), all[10..]);
    assert!(chat.remove(50..60).is_empty() && chat.remove(3..3).is_empty());
    #[allow(clippy::reversed_empty_ranges)]
    let none = chat.remove(5..2);
    assert!(none.is_empty());
    assert_eq!(chat.take_messages(), [&all[..1], &all[2..10]].concat());
    assert!(chat.messages().is_empty());
}
