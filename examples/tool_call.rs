//! A function that the model can call: the model asks for it, gets the result, and answers.
//!
//! `cargo run --release --example tool_call [FILE [QUESTION]]`. The demonstration model was not trained to call
//! functions, so it answers as if there were none.
#![allow(clippy::print_stdout)]

use wglm::serde_json::{Value, json};
use wglm::{Chat, Event, Gguf, Gpu, GpuOptions, LoadOptions, Message, Model, Reply, ToolCall};

/// The most rounds of calls, after which the model has to answer.
const MAX_ROUNDS: usize = 4;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let file = match arguments.next() {
        Some(path) => Gguf::open(path)?,
        None => Gguf::from_static(wglm::DEMO_MODEL)?,
    };
    let question = arguments.next().unwrap_or_else(|| "What is seven plus five?".to_owned());
    let gpu = Gpu::open(&GpuOptions::from_env()?)?;
    let mut chat = Chat::new(&Model::load(&file, &gpu, &LoadOptions::default())?)?;
    chat.tools = vec![description()];

    let mut calls = show(chat.send(&question)?)?;
    for round in 0..MAX_ROUNDS {
        if calls.is_empty() {
            break;
        }
        for call in calls {
            let result = answer(&call);
            println!("{}({}) = {result}", call.function.name, call.function.arguments);
            chat.push(Message::tool(call.id.unwrap_or_default(), result));
        }
        if round + 1 == MAX_ROUNDS {
            chat.tools.clear();
        }
        calls = show(chat.reply()?)?;
    }
    Ok(())
}

/// The description of the function for the model, in OpenAI's form.
fn description() -> Value {
    json!({"type": "function", "function": {
        "name": "add",
        "description": "Adds two numbers",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
            "required": ["a", "b"],
        },
    }})
}

/// The function itself. An invalid call gets an answer too, with which the model may do better.
fn answer(call: &ToolCall) -> String {
    let number = |name: &str| call.function.arguments[name].as_f64();
    match (call.function.name.as_str(), number("a"), number("b")) {
        ("add", Some(a), Some(b)) => (a + b).to_string(),
        ("add", ..) => "error: a and b must be numbers".to_owned(),
        (name, ..) => format!("error: there is no function {name}"),
    }
}

/// Prints a reply and returns its calls.
fn show(events: Reply<'_>) -> anyhow::Result<Vec<ToolCall>> {
    let (mut calls, mut text) = (Vec::new(), String::new());
    for event in events {
        match event? {
            Event::Text(piece) => text.push_str(&piece),
            Event::ToolCall(call) => calls.push(call),
            Event::ToolCallFailed { text, cut: true } => println!("a call that was cut: {text}"),
            Event::ToolCallFailed { text, .. } => println!("no call: {text}"),
            _ => {}
        }
    }
    println!("{text}");
    Ok(calls)
}
