//! Tests calls that have to match their functions' schemas.

use super::super::script::script;
use super::super::{CONTEXT, chat, model, text, told};
use std::sync::OnceLock;
use wglm::serde_json::{Map, Value, json};
use wglm::text::{Family, ReplyParser};
use wglm::{
    CacheShape, Calls, Chat, Constraint, Event, GenerateOptions, Generation, Message, SamplerParams, Session, Stats,
    Stop, ToolCall,
};

const ASKED: &str = "Does it rain in Rome?";

fn functions() -> Vec<Value> {
    let weather = json!({"type": "object", "properties": {
        "city": {"type": "string", "enum": ["Rome", "Oslo"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
        "unit": {"type": "string", "pattern": "^[CF]$"},
    }, "required": ["city", "days"]});
    let light = json!({"type": "object", "properties": {
        "on": {"type": "boolean"},
        "rooms": {"type": "array", "items": {"type": "string", "maxLength": 4}, "maxItems": 2},
        "note": {"type": "string", "maxLength": 6},
        "level": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 9}, {"type": "null"}]},
    }, "required": ["on", "rooms", "note", "level"]});
    let function = |name: &str, parameters: Value| json!({"type": "function", "function": {"name": name, "description": "", "parameters": parameters}});
    vec![function("weather", weather), function("light", light)]
}

/// A session that holds the prompt of [`ASKED`] with these functions, but for its last token. It is computed once.
fn asked() -> &'static [u8] {
    static SNAPSHOT: OnceLock<Vec<u8>> = OnceLock::new();
    SNAPSHOT.get_or_init(|| {
        let mut chat = chat();
        chat.tools = functions();
        chat.push(Message::user(ASKED));
        let prompt = chat.prompt().unwrap();
        let session = chat.session_mut();
        session.sync(&prompt[..prompt.len() - 1]).unwrap();
        session.snapshot().unwrap()
    })
}

fn chat_with(calls: Calls, seed: u64) -> Chat {
    let mut chat = chat();
    chat.tools = functions();
    chat.session_mut().restore(asked()).unwrap();
    chat.options.calls = calls;
    chat.options.max_tokens = Some(300);
    chat.options.sampling.temperature = 1.5;
    chat.options.sampling.seed = Some(seed);
    chat
}

fn calls(events: &[Event]) -> Vec<ToolCall> {
    let call = |event: &Event| if let Event::ToolCall(call) = event { Some(call.clone()) } else { None };
    events.iter().filter_map(call).collect()
}

/// Whether the arguments are valid against the function's schema.
fn is_valid(call: &ToolCall) -> bool {
    let of = &call.function.arguments;
    let names: Vec<&str> = of.as_object().unwrap().keys().map(String::as_str).collect();
    match call.function.name.as_str() {
        "weather" => {
            let unit = of.get("unit").is_none_or(|unit| unit == "C" || unit == "F");
            let days = of["days"].as_i64().is_some_and(|days| (1..=7).contains(&days));
            (of["city"] == "Rome" || of["city"] == "Oslo") && days && unit && names.len() <= 3
        }
        "light" => {
            let short = |text: &Value, most: usize| text.as_str().is_some_and(|text| text.chars().count() <= most);
            let rooms =
                of["rooms"].as_array().is_some_and(|rooms| rooms.len() <= 2 && rooms.iter().all(|r| short(r, 4)));
            let level = of["level"].is_null() || of["level"].as_i64().is_some_and(|level| (0..=9).contains(&level));
            of["on"].is_boolean() && rooms && level && short(&of["note"], 6) && names.len() == 4
        }
        _ => false,
    }
}

#[test]
fn extended_calls_that_are_required() {
    for seed in 0..2 {
        let mut chat = chat_with(Calls::Required, seed);
        chat.options.max_tokens = Some(120); // the model begins one call after the other
        let (events, stats) = told(chat.send(ASKED).unwrap());
        println!("{seed}: {events:?}");
        let called = calls(&events);
        assert!(stats.stop != Stop::End || !called.is_empty(), "{events:?}");
        assert!(!called.is_empty() && called.iter().all(is_valid), "{called:?}");
        assert_eq!(text(&events), "");
    }
    let mut chat = chat_with(Calls::Function("light".to_owned()), 0);
    let (events, stats) = told(chat.send(ASKED).unwrap());
    let called = calls(&events);
    assert_eq!((called.len(), stats.stop), (1, Stop::End), "{events:?}");
    assert!(called[0].function.name == "light" && is_valid(&called[0]), "{called:?}");
}

/// A call that the model begins itself, and what it would write wrongly.
#[test]
fn extended_calls_that_the_model_begins() {
    for reasoning in [false, true] {
        let mut chat = chat_with(Calls::Auto, 1);
        chat.reasoning = Some(reasoning);
        let thought = if reasoning { "Who knows</think>" } else { "" };
        script(&mut chat, Some(ASKED), &format!("{thought}Let me see.<tool_call>wind"), "<|observation|>");
        let (events, stats) = told(chat.send(ASKED).unwrap());
        println!("{events:?}");
        let called = calls(&events);
        assert!(text(&events).starts_with("Let me see."), "{events:?}");
        assert!(!called.is_empty() && called.iter().all(is_valid), "{events:?}");
        assert!(!events.iter().any(|event| matches!(event, Event::ToolCallFailed { .. })), "{events:?}");
        assert_ne!(stats.stop, Stop::Context);
    }
}

#[test]
fn extended_no_calls() {
    let mut chat = chat_with(Calls::None, 1);
    chat.options.max_tokens = Some(20);
    script(&mut chat, Some(ASKED), "Let me see.<tool_call>weather", "<|user|>");
    let (events, _) = told(chat.send(ASKED).unwrap());
    assert!(calls(&events).is_empty() && !text(&events).contains("<tool_call>"), "{events:?}");
    assert!(!events.iter().any(|event| matches!(event, Event::ToolCallStart { .. })), "{events:?}");
    assert!(chat.prompt().unwrap().len() > 100, "the functions are not in the prompt");
}

/// With a constraint and functions the reply is one or the other.
#[test]
fn long_an_answer_or_calls() {
    let (mut answers, mut called) = (0, 0);
    for seed in 0..2 {
        let mut chat = chat_with(Calls::Auto, seed);
        chat.options.max_tokens = Some(120); // the model begins one call after the other
        let open = model().tokenizer().unwrap().special("<tool_call>").unwrap();
        chat.options.constraint = Some(Constraint::regex("(yes|no), [a-z]{3}").unwrap());
        chat.options.sampling.logit_bias = vec![(open, if seed == 0 { 30.0 } else { -30.0 })];
        let (events, stats) = told(chat.send(ASKED).unwrap());
        let (answer, calls) = (text(&events), calls(&events));
        if calls.is_empty() && stats.stop == Stop::End {
            answers += 1;
            assert!(["yes, ", "no, "].iter().any(|word| answer.starts_with(word)) && answer.len() <= 8, "{events:?}");
        } else {
            called += 1;
            assert!(answer.is_empty() && calls.iter().all(is_valid), "{events:?}");
        }
    }
    assert!(answers > 0 && called > 0, "{answers} answers, {called} replies with calls");
}

/// Functions whose schemas are too deep, branch without end, are unsupported or have no value: they are called with any
/// arguments, and other functions as usual.
#[test]
fn extended_functions_of_any_schema() {
    let links = (0..5000).map(|number| (format!("a{number}"), json!({"$ref": format!("#/$defs/a{}", number + 1)})));
    let chain: Value = json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/a0"}},
        "$defs": links.collect::<Map<_, _>>()});
    let again = json!({"$ref": "#/$defs/again"});
    let fan = json!({"type": "object", "properties": {"x": again, "y": again},
        "$defs": {"again": {"anyOf": [again, again, again, again, {"type": "boolean"}]}}});
    let unsupported = json!({"type": "object", "properties": {"x": {"type": "array", "items": {"$ref": "#/nosuch"}}}});
    let unmet = json!({"type": "object", "properties": {"x": {"type": "integer", "minimum": 2, "maximum": 1}},
        "required": ["x"]});
    for (schema, fits) in [(chain, None), (fan, Some("boolean")), (unsupported, None), (unmet, None)] {
        let mut tools = functions();
        tools.push(json!({"name": "other", "parameters": schema}));
        let (events, _) = called_by(&tools, "other", 60, 3);
        let started = |event: &Event| matches!(event, Event::ToolCallStart { name, .. } if name == "other");
        assert!(events.iter().any(started), "{events:?}");
        for call in calls(&events) {
            let arguments = call.function.arguments.as_object().unwrap();
            assert!(fits.is_none() || arguments.values().all(Value::is_boolean), "{call:?}");
        }
        if fits.is_some() {
            let (events, stats) = called_by(&tools, "light", 300, 3);
            let called = calls(&events);
            assert!(called.len() == 1 && is_valid(&called[0]) && stats.stop == Stop::End, "{events:?}");
        }
    }
}

/// A reply that calls a function. The functions are not in the prompt, which has no space for all of them.
pub(super) fn called_by(tools: &[Value], name: &str, most: usize, seed: u64) -> (Vec<Event>, Stats) {
    called_in(Default::default(), tools, name, most, seed)
}

/// The same in the form of a family.
fn called_in(family: &'static Family, tools: &[Value], name: &str, most: usize, seed: u64) -> (Vec<Event>, Stats) {
    let prompt = format!("[gMASK]<sop><|user|>{ASKED}<|assistant|></think>");
    let prompt = model().tokenizer().unwrap().encode(&prompt, true).unwrap();
    let sampling = SamplerParams { temperature: 1.5, seed: Some(seed), ..SamplerParams::default() };
    let calls = Calls::Function(name.to_owned());
    let options = GenerateOptions { calls, sampling, max_tokens: Some(most), ..GenerateOptions::default() };
    let mut session = Session::with_cache(model(), CacheShape { context: CONTEXT, ..model().cache() }).unwrap();
    let parser = ReplyParser::new(false).with_family(family).with_tools(tools);
    told(Generation::new(&mut session, prompt, Some(parser), options).unwrap())
}

/// A call that has to come is written as the family writes calls, with tags that are tokens here or are spelled.
#[test]
fn extended_calls_in_the_forms_of_other_families() {
    for (name, source) in
        [("hermes", "<tool_call>"), ("kimi", "<|im_middle|>"), ("deepseek-v3.1", "<｜tool▁call▁begin｜><｜tool▁sep｜>")]
    {
        let family = Family::of(source);
        assert_eq!(family.name, name);
        let (events, stats) = called_in(family, &functions(), "weather", 600, 3);
        let called = calls(&events);
        assert_eq!((called.len(), stats.stop), (1, Stop::End), "{name}: {events:?}");
        assert!(called[0].function.name == "weather" && is_valid(&called[0]) && text(&events).is_empty(), "{events:?}");
        assert_eq!(called[0].id.as_deref().is_some_and(|id| id.starts_with("functions.weather:")), name == "kimi");
    }
}

/// Only the requested function is called, once, even if the call begins in the thinking.
#[test]
fn one_function_from_the_thinking() {
    let mut chat = chat_with(Calls::Function("light".to_owned()), 1);
    chat.reasoning = Some(true);
    script(&mut chat, Some(ASKED), "Who knows<tool_call>wind", "<|observation|>");
    let (events, stats) = told(chat.send(ASKED).unwrap());
    let called = calls(&events);
    assert_eq!((called.len(), stats.stop), (1, Stop::End), "{events:?}");
    assert!(called[0].function.name == "light" && is_valid(&called[0]) && text(&events).is_empty(), "{events:?}");
}

/// Arguments behind references and among alternatives are read as the types as which they were written.
#[test]
fn extended_arguments_behind_references() {
    let schema = json!({"type": "object", "properties": {
        "zip": {"$ref": "#/$defs/Zip"},
        "flag": {"allOf": [{"$ref": "#/$defs/Flag"}], "description": "which"},
        "either": {"type": ["string", "integer"], "minimum": 5, "maximum": 9, "maxLength": 3},
        "maybe": {"anyOf": [{"enum": ["1", "null", "none"]}, {"type": "null"}]},
    }, "required": ["zip", "flag", "either", "maybe"], "$defs": {
        "Zip": {"type": "string", "pattern": "^[0-9]{5}$"},
        "Flag": {"type": "string", "enum": ["true", "null", "12"]},
    }});
    for seed in 0..2 {
        let tools = [json!({"name": "post", "parameters": schema})];
        let (events, stats) = called_by(&tools, "post", 300, seed);
        let called = calls(&events);
        assert_eq!((called.len(), stats.stop), (1, Stop::End), "{events:?}");
        let of = &called[0].function.arguments;
        assert!(of["zip"].as_str().is_some_and(|zip| zip.len() == 5), "{of}");
        assert!(["true", "null", "12"].iter().any(|flag| of["flag"] == *flag), "{of}");
        let number = of["either"].as_i64().is_some_and(|number| (5..=9).contains(&number));
        assert!(number || of["either"].as_str().is_some_and(|text| text.chars().count() <= 3), "{of}");
        assert!(of["maybe"].is_null() || of["maybe"] == "1" || of["maybe"] == "none", "{of}");
    }
}
