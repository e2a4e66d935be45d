//! Tests calls that are separate messages, as GigaChat 3.0 writes them, with a small model that generates given tokens.

use super::told;
use crate::common::gguf_writer::Meta;
use crate::common::gpu::gpu;
use crate::hostile_models::small::{Numbers, Small};
use wglm::serde_json::json;
use wglm::text::{Family, ReplyParser};
use wglm::{Event, GenerateOptions, Generation, LoadOptions, Model, SamplerParams, Session, Stop};

/// The tokens after those of single bytes, and their types.
const TOKENS: [(&str, i32); 7] = [
    ("Yes.", 1),
    ("functionĠcall", 1),
    ("user", 1),
    ("{\"name\":\"weather\"}", 1),
    ("<|message_sep|>\n\n", 3),
    ("<|role_sep|>\n", 3),
    ("</s>", 3),
];
const YES: u32 = 256;
const CALL: u32 = 257;
const USER: u32 = 258;
const WEATHER: u32 = 259;
const END: u32 = 260;
const ROLE: u32 = 261;
const OVER: u32 = 262;

fn model() -> Model {
    let mut small = Small::of(&Numbers { vocab: 263, ..Numbers::default() });
    let plain = |b: &u32| matches!(b, 33..=126 | 161..=172 | 174..=255);
    let bytes = (0..256).filter(plain).chain(256..256 + 68).filter_map(char::from_u32).map(String::from);
    let tokens = bytes.map(|byte| Meta::from(byte.as_str())).chain(TOKENS.map(|(token, _)| token.into())).collect();
    let types = std::iter::repeat_n(Meta::from(1i32), 256).chain(TOKENS.map(|(_, kind)| kind.into())).collect();
    small.set("tokenizer.ggml.model", "gpt2");
    small.set("tokenizer.ggml.pre", "gigachat");
    small.set("tokenizer.ggml.tokens", Meta::Array(8, tokens));
    small.set("tokenizer.ggml.token_type", Meta::Array(5, types));
    small.set("tokenizer.ggml.merges", Meta::Array(8, vec![]));
    Model::load(&small.open().unwrap(), gpu(), &LoadOptions::default()).unwrap()
}

/// How a reply of these tokens is reported: the answer, the names of the called functions, and the number of generated
/// tokens.
fn reply(model: &Model, tokens: &[u32], tools: bool) -> (String, usize) {
    let favour = |(place, token): (usize, &u32)| (*token, 128.0 * (tokens.len() - place + 1) as f32);
    let sampling = SamplerParams {
        logit_bias: tokens.iter().enumerate().map(favour).collect(),
        frequency_penalty: 8192.0,
        repeat_last_n: usize::MAX,
        ..SamplerParams::greedy()
    };
    let options = GenerateOptions { sampling, max_tokens: Some(20), ..GenerateOptions::default() };
    let tools = vec![json!({"type": "function", "function": {"name": "weather"}}); usize::from(tools)];
    let family = Family::of("<|message_sep|><|role_sep|>function call");
    let parser = ReplyParser::new(false).with_family(family).with_tools(&tools);
    let mut session = Session::new(model).unwrap();
    let (events, stats) = told(Generation::new(&mut session, vec![0], Some(parser), options).unwrap());
    assert_eq!(stats.stop, Stop::End, "{events:?}");
    let mut said = String::new();
    for event in &events {
        match event {
            Event::Text(text) => said += text,
            Event::ToolCall(call) => said += &format!("[{}]", call.function.name),
            _ => {}
        }
    }
    (said, stats.generated)
}

#[test]
fn a_reply_continues_where_a_call_may_follow() {
    let model = model();
    assert_eq!(reply(&model, &[YES, END, CALL, ROLE, WEATHER, OVER], true), ("Yes.[weather]".into(), 5));
    assert_eq!(reply(&model, &[END, CALL, ROLE, WEATHER, OVER], true), ("[weather]".into(), 4));
    // Another role ends the reply. Without functions, the end of the message does too.
    assert_eq!(reply(&model, &[YES, END, USER, ROLE, CALL], true), ("Yes.".into(), 3));
    assert_eq!(reply(&model, &[YES, END, OVER], true), ("Yes.".into(), 2));
    assert_eq!(reply(&model, &[YES, END, CALL, ROLE, WEATHER], false), ("Yes.".into(), 1));
}
