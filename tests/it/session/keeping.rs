//! Tests what an app saves: conversations, and events.

use super::model;
use crate::common::chats;
use std::time::Duration;
use wglm::serde_json;
use wglm::serde_json::{Value, json};
use wglm::text::Content;
use wglm::{
    Chat, ChatState, Error, Event, GenerateOptions, LoadOptions, Message, Model, SamplerParams, Stats, Stop, ToolCall,
};

/// Reasoning, functions, template variables and options are restored together with the messages: the prompt is the
/// same.
#[test]
fn a_saved_conversation_is_restored() {
    let mut chat = chats::greedy(model());
    chat.push(Message::system("Be brief."));
    chat.push(Message::user("What is seven plus five?"));
    chat.push(Message::assistant("Twelve.").with_reasoning("Count."));
    chat.push(Message::user("And nine?"));
    chat.reasoning = Some(true);
    chat.template_kwargs.insert("clear_thinking".to_owned(), false.into());
    chat.tools = vec![json!({"type": "function", "function": {"name": "dice", "parameters": {}}})];
    chat.options.stop = vec!["\n\n".to_owned()];
    chat.options.logprobs = Some(2);
    chat.options.sampling.logit_bias = vec![(7, f32::NEG_INFINITY)];
    let kept = serde_json::to_string(&chat.save()).unwrap();
    let mut again = Chat::new(model()).unwrap();
    again.restore(serde_json::from_str(&kept).unwrap());
    assert_eq!(again.messages(), chat.messages());
    assert_eq!((again.reasoning, &again.tools), (chat.reasoning, &chat.tools));
    assert_eq!(again.options.sampling, chat.options.sampling);
    assert_eq!((&again.options.stop, again.options.logprobs), (&chat.options.stop, Some(2)));
    assert_eq!(again.options.max_tokens, chat.options.max_tokens);
    assert_eq!(again.prompt().unwrap(), chat.prompt().unwrap());
    assert_eq!(serde_json::to_string(&again.save()).unwrap(), kept);
}

/// A file of an older or a newer version can be read: missing fields have their defaults, and unknown ones are ignored.
#[test]
fn parts_of_a_conversation_are_enough() {
    let kept = json!({"messages": [{"role": "user", "content": "Hi"}], "colour": "red", "options": {"max_tokens": 3}});
    let saved: ChatState = serde_json::from_value(kept).unwrap();
    assert_eq!(saved.messages, [Message::user("Hi")]);
    assert_eq!((saved.options.max_tokens, saved.options.sampling), (Some(3), SamplerParams::default()));
    let options: GenerateOptions = serde_json::from_str("{}").unwrap();
    assert_eq!((options.max_tokens, options.logprobs), (None, None));
}

#[test]
fn events_become_json() {
    let value = |event: &Event| serde_json::to_value(event).unwrap();
    assert_eq!(value(&Event::Prompt { done: 1, total: 2 }), json!({"prompt": {"done": 1, "total": 2}}));
    assert_eq!(value(&Event::Thinking("Hm".into())), json!({"thinking": "Hm"}));
    let call = ToolCall::new("dice", serde_json::Map::new());
    let told = json!({"tool_call": {"type": "function", "function": {"name": "dice", "arguments": {}}}});
    assert_eq!(value(&Event::ToolCall(call)), told);
    let done = json!({
        "prompt": {"cached": 3, "new": 4}, "generated": 5, "seed": 6, "stop": "stop_string",
        "prompt_seconds": 1.5, "generate_seconds": 0.25,
        "drafts": {"drafted": 3, "accepted": 2, "steps": 1, "saved_seconds": 0.5},
    });
    let stats: Stats = serde_json::from_value(done.clone()).unwrap();
    let times = (Duration::from_millis(1500), Duration::from_millis(250));
    assert_eq!((stats.prompt.new, stats.stop, stats.drafts.accepted), (4, Stop::StopString, 2));
    assert_eq!((stats.prompt_time, stats.generate_time), times);
    assert_eq!(value(&Event::Done(stats)), json!({"done": done}));
    let mut broken = done.clone();
    broken["prompt_seconds"] = json!(-1.0);
    assert!(serde_json::from_value::<Stats>(broken).is_err());
    let options = LoadOptions { context: Some(64), ..LoadOptions::default() };
    let estimate = Model::estimate(model().file(), &options, None).unwrap();
    let told = serde_json::to_value(&estimate).unwrap();
    assert_eq!((&told["weights"], &told["fit"]), (&json!(estimate.weights), &json!("unknown")));
    assert_eq!(told["shape"], json!({"context": 64, "ty": "f32"}));
}

#[test]
fn a_message_is_text_whatever_it_is_made_of() {
    let parts = vec![json!({"type": "text", "text": "An "}), json!({"type": "image"}), json!("owl")];
    assert_eq!(Message::user(Content::Parts(parts)).text(), "An owl");
    assert_eq!(Message::user("An owl").text(), "An owl");
    assert_eq!(Message::default().text(), "");
    assert_eq!(Message::user(Content::Parts(vec![Value::Null])).text(), "");
}

/// An error can be both kept and shown, and the reason of the operating system stays available.
#[test]
fn an_error_has_clones() {
    let error = wglm::Gguf::open("no such file").unwrap_err();
    let Error::Io { reason, .. } = error.clone() else { panic!("{error}") };
    assert_eq!(reason.kind(), std::io::ErrorKind::NotFound);
    assert_eq!(error.clone().to_string(), error.to_string());
}
