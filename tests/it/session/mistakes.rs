//! Tests errors of the caller, which are distinct from those of a broken file.

use super::{dialogue, model};
use crate::common::chats;
use wglm::serde_json::{Map, Value, json};
use wglm::text::Content;
use wglm::{CacheShape, Chat, Error, Message, SamplerParams, Session, ToolCall};

fn call(name: &str, arguments: Value) -> Message {
    let mut call = ToolCall::new(name, Map::new());
    call.function.arguments = arguments;
    Message::assistant("").with_tool_calls(vec![call])
}

#[test]
fn a_bad_message_is_named() {
    for (message, what, found) in [
        (Message::new("critic", "Boo"), "role", "\"critic\""),
        (Message::new("", "Boo"), "role", "\"\""),
        (Message::new("developer", "Be brief."), "role", "\"developer\""), // this template lacks the role
        (call("dice", json!([1])), "arguments of a tool call", "[1] for dice"),
        (call("dice", json!("{}")), "arguments of a tool call", "\"{}\" for dice"),
        (call("", json!({})), "tool call", "an empty one"),
        (Message::user(Content::Parts(vec![json!("ok"), json!(7)])), "content", "7"),
    ] {
        let mut chat = chats::greedy(model());
        chat.push(Message::user("Roll."));
        chat.push(message.clone());
        for error in
            [chat.prompt().map(drop), chat.send("Well?").map(drop), chat.reply().map(drop)].map(Result::unwrap_err)
        {
            let Error::Message { index: 1, what: named, found: shown, .. } = &error else { panic!("{error}") };
            assert_eq!((*named, shown.as_str()), (what, found), "{error}");
        }
        assert_eq!(chat.messages().len(), 2, "the message that was refused stays");
    }
}

#[test]
fn tools_that_are_none_are_named() {
    let long = json!({"type": "function", "function": {"description": "x".repeat(1000)}});
    for (tool, found) in [
        (json!({}), "{} at 1"),
        (json!("x"), "\"x\" at 1"),
        (json!({"type": "function", "function": {"name": ""}}), "at 1"),
        (json!({"name": "dice", "parameters": "none"}), "at 1"),
        (long, "… at 1"),
    ] {
        let mut chat = chats::greedy(model());
        chat.tools = vec![json!({"name": "dice", "parameters": {}}), tool];
        let error = chat.send("Roll.").map(drop).unwrap_err();
        let Error::Argument { argument: "tools", found: shown, .. } = &error else { panic!("{error}") };
        assert!(shown.ends_with(found) && shown.len() < 200, "{error}");
        assert!(chat.messages().is_empty());
    }
}

/// If all tokens are banned, the request is at fault, whatever the logits are.
#[test]
fn every_token_banned_is_a_bad_request() {
    let mut chat: Chat = chats::greedy(model());
    let vocab = model().config().vocab as u32;
    let all = || (0..vocab).map(|token| (token, f32::NEG_INFINITY));
    chat.options.sampling = SamplerParams { logit_bias: all().collect(), ..SamplerParams::greedy() };
    let events: Vec<_> = chat.send("My name is Anna.").unwrap().collect();
    assert!(matches!(events.last(), Some(Err(Error::Argument { argument: "logit_bias", .. }))), "{events:?}");
    chat.options.sampling.logit_bias = all().skip(1).chain(all().skip(1)).collect(); // all tokens but one, twice
    chat.options.max_tokens = Some(2);
    assert!(chat.reply().unwrap().all(|event| event.is_ok()));
}

#[test]
fn a_cache_of_no_tokens_is_refused() {
    let error = Session::with_cache(model(), CacheShape { context: 0, ..model().cache() }).map(drop).unwrap_err();
    assert!(matches!(error, Error::Argument { argument: "context", .. }), "{error}");
    let mut one = Session::with_cache(model(), CacheShape { context: 1, ..model().cache() }).unwrap();
    one.feed(&dialogue(1)).unwrap();
    assert_eq!(one.context(), 1);
}
