//! Tests replies that were cut off and are continued, and replies whose beginning is given.

use super::script::script;
use super::{OWL, chat, model, story, text, told};
use wglm::serde_json::json;
use wglm::{Chat, Error, Event, Message, SamplerParams, Stop, ToolCall};

const SUM: &str = "What is seven plus five?";

/// The message that a reply of at most `most` tokens becomes, and how it ends.
fn whole(mut chat: Chat, question: &str, most: usize) -> (Message, Stop) {
    chat.options.max_tokens = Some(most);
    let (_, stats) = told(chat.send(question).unwrap());
    (chat.messages()[1].clone(), stats.stop)
}

/// The same for a reply that is cut off twice, each time after `cut` tokens, and continued.
fn cut_off(mut chat: Chat, question: &str, most: usize, cut: usize) -> (Message, Stop) {
    chat.options.max_tokens = Some(cut);
    assert_eq!(told(chat.send(question).unwrap()).1.stop, Stop::Length);
    let held = chat.session().tokens().len();
    let (_, stats) = told(chat.resume().unwrap());
    assert_eq!((stats.prompt.cached, stats.prompt.new), (held, 0), "cut after {cut}");
    assert_eq!((stats.generated, stats.stop), (cut, Stop::Length));
    chat.options.max_tokens = Some(most - 2 * cut);
    let (events, stats) = told(chat.resume().unwrap());
    assert_eq!(stats.prompt.new, 0);
    let [asked, reply] = chat.messages() else { panic!("{:?}", chat.messages()) };
    assert_eq!(*asked, Message::user(question));
    assert!(reply.text().ends_with(&text(&events)), "{events:?}");
    (reply.clone(), stats.stop)
}

fn seeded(mut chat: Chat) -> Chat {
    chat.options.sampling = SamplerParams { seed: Some(11), ..SamplerParams::default() };
    chat
}

fn thinking(mut chat: Chat) -> Chat {
    chat.reasoning = Some(true);
    chat
}

/// A reply that is cut off anywhere, even inside thinking, continues as if it had not been cut, and computes no token
/// again.
#[test]
fn extended_a_cut_reply_is_continued() {
    assert_eq!(cut_off(chat(), OWL, 120, 6), (story()[1].clone(), Stop::End));
    for (thinks, question, most, end) in [(false, OWL, 40, Stop::Length), (true, SUM, 120, Stop::End)] {
        let chat = || if thinks { thinking(chat()) } else { seeded(chat()) };
        let want = whole(chat(), question, most);
        assert_eq!(want.1, end);
        for cut in [1, 6] {
            assert_eq!(cut_off(chat(), question, most, cut), want, "cut after {cut}");
        }
    }
}

/// A cancelled reply is continued from the saved conversation, without its cache.
#[test]
fn extended_a_saved_reply_is_continued() {
    let want = &story()[1];
    let mut cut = chat();
    {
        let mut reply = cut.send(OWL).unwrap();
        let cancel = reply.cancel();
        let mut words = 0;
        let last = reply.try_for_each(|event| {
            words += usize::from(matches!(event.unwrap(), Event::Text(_)));
            if words == 12 {
                cancel.cancel();
            }
            Some(())
        });
        assert!(last.is_some());
    }
    let mut again = chat();
    again.restore(cut.save());
    let said = again.messages()[1].text().into_owned();
    assert!(want.text().starts_with(&said) && said.len() > 20, "{said}");
    let (events, stats) = told(again.resume().unwrap());
    assert!(stats.prompt.new > 12, "{:?}", stats.prompt);
    assert_eq!(again.messages().len(), 2);
    let joined = again.messages()[1].text().into_owned();
    assert_eq!(joined, format!("{said}{}", text(&events)));
    assert!(!text(&events).is_empty() && stats.stop == Stop::End, "{joined}");
    // The next turn is like any other.
    assert!(text(&told(again.send(SUM).unwrap()).0).contains("twelve"));
}

/// A reply that is cut off inside a call is continued; the call is complete afterwards, and earlier calls keep their
/// ids.
#[test]
fn extended_a_cut_call_is_continued() {
    const CALL: &str = "<tool_call>weather<arg_key>city</arg_key><arg_value>Rome</arg_value></tool_call>";
    let asked = "Does it rain in Rome?";
    let tokens = model().tokenizer().unwrap().encode(CALL, true).unwrap().len();
    let mut chat = chat();
    chat.tools = vec![json!({"type": "function", "function": {"name": "weather", "parameters": {}}})];
    for cut in [1, 3, tokens / 2, tokens] {
        chat.clear();
        script(&mut chat, Some(asked), CALL, "<|observation|>");
        chat.options.max_tokens = Some(cut);
        assert_eq!(told(chat.send(asked).unwrap()).1.stop, Stop::Length);
        chat.options.max_tokens = Some(tokens);
        let (_, stats) = told(chat.resume().unwrap());
        assert_eq!(stats.stop, Stop::End, "cut after {cut}");
        let [call] = &chat.messages()[1].tool_calls[..] else { panic!("{:?}", chat.messages()) };
        assert_eq!((call.id.as_deref(), &call.function.arguments), (Some("call_0"), &json!({"city": "Rome"})));
        assert_eq!(chat.messages()[1].text(), "");
    }
}

/// The reply begins with the given text, without thinking; the beginning of thinking can be given as well.
#[test]
fn extended_a_reply_with_a_given_beginning() {
    for reasoning in [Some(false), Some(true)] {
        let mut chat = chat();
        chat.reasoning = reasoning;
        chat.options.max_tokens = Some(32);
        chat.push(Message::user(OWL));
        let begin = "Once there was a fox";
        let (events, _) = told(chat.prefill(begin).unwrap());
        assert!(events.iter().all(|event| !matches!(event, Event::Thinking(_))), "{events:?}");
        let message = &chat.messages()[1];
        assert_eq!(message.text(), format!("{begin}{}", text(&events)));
        assert!(message.text().len() > begin.len() + 20 && message.reasoning_content.is_none(), "{message:?}");
    }
    let mut chat = thinking(chat());
    chat.push(Message::user(SUM));
    chat.push(Message { content: None, ..Message::assistant("").with_reasoning("I count: ") });
    told(chat.resume().unwrap());
    let message = &chat.messages()[1];
    assert!(message.reasoning_content.as_deref().unwrap().starts_with("I count: "), "{message:?}");
    assert!(!message.text().is_empty(), "{message:?}");
}

/// Names of control tokens and tags in a given beginning are text, as anywhere else.
#[test]
fn a_beginning_forges_nothing() {
    let mut chat = chat();
    chat.push(Message::user(OWL));
    chat.options.max_tokens = Some(1);
    told(chat.prefill("<|user|>Once").unwrap());
    let user = model().tokenizer().unwrap().special("<|user|>").unwrap();
    let count = chat.session().tokens().iter().filter(|token| **token == user).count();
    assert_eq!(count, 1);
}

#[test]
fn replies_that_cannot_continue_are_refused() {
    let mut chat = chat();
    for messages in [vec![], vec![Message::user(OWL)]] {
        chat.set_messages(messages);
        let error = chat.resume().map(drop).unwrap_err();
        assert!(matches!(error, Error::Argument { argument: "messages", .. }), "{error}");
    }
    let call = ToolCall::new("dice", serde_json::Map::new());
    chat.push(Message::assistant("").with_tool_calls(vec![call]));
    let error = chat.resume().map(drop).unwrap_err();
    assert!(matches!(error, Error::Message { index: 1, what: "tool calls", .. }), "{error}");
    chat.truncate(1);
    let error = chat.prefill(&"owl ".repeat(2000)).map(drop).unwrap_err();
    assert!(matches!(error, Error::ContextFull { .. }), "{error}");
    assert_eq!(chat.messages().len(), 1);
    // If the reply is dropped unread, the message is the beginning only.
    drop(chat.prefill("Once").unwrap());
    assert_eq!(chat.messages()[1], Message::assistant("Once"));
}

/// A given beginning is not confused with an earlier reply that began in the same way, for example inside a call.
#[test]
fn extended_a_beginning_is_not_an_earlier_reply() {
    let asked = "Does it rain in Rome?";
    let mut chat = chat();
    chat.tools = vec![json!({"type": "function", "function": {"name": "weather", "parameters": {}}})];
    script(&mut chat, Some(asked), "<tool_call>weather<arg_key>", "<|observation|>");
    chat.options.max_tokens = Some(2);
    assert_eq!(told(chat.send(asked).unwrap()).1.stop, Stop::Length);
    let held = chat.session().tokens().len();
    chat.truncate(1);
    chat.options.sampling = SamplerParams::greedy();
    let (_, stats) = told(chat.prefill("").unwrap());
    assert!(stats.prompt.cached < held && stats.prompt.cached + stats.prompt.new < held, "{:?}", stats.prompt);
}
