//! A conversation as a file for other programs: Markdown to read, or JSON with messages in OpenAI's form.

use crate::conversation::Conversation;
use serde_json::{Value, json};
use std::fmt::Write;
use wglm::Message;

/// The forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Markdown,
    Json,
}

impl Form {
    pub const ALL: [(Self, &str); 2] = [(Self::Markdown, "Markdown"), (Self::Json, "JSON")];

    /// The extension of files.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Markdown => "md",
            Self::Json => "json",
        }
    }

    /// The conversation in this form, with the versions of its messages that are shown.
    pub fn write(self, conversation: &Conversation) -> String {
        match self {
            Self::Markdown => markdown(conversation),
            Self::Json => format!("{:#}\n", json(conversation)),
        }
    }
}

/// The messages that are shown, the system prompt included.
fn messages(conversation: &Conversation) -> impl Iterator<Item = Message> {
    let system = Some(conversation.settings.system.trim()).filter(|system| !system.is_empty());
    system.map(Message::system).into_iter().chain(conversation.tree.messages().cloned())
}

fn json(conversation: &Conversation) -> Value {
    let settings = &conversation.settings;
    let tools = settings.tools().unwrap_or_default();
    let messages: Vec<Value> = messages(conversation).map(|message| as_openai(json!(message))).collect();
    json!({
        "title": conversation.name(),
        "messages": messages,
        "tools": tools,
        "sampling": settings.sampling,
    })
}

/// A message in OpenAI's form, in which the arguments of a call are a string of JSON.
fn as_openai(mut message: Value) -> Value {
    let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
    for arguments in calls.into_iter().flatten().filter_map(|call| call.pointer_mut("/function/arguments")) {
        *arguments = Value::String(arguments.to_string());
    }
    message
}

fn markdown(conversation: &Conversation) -> String {
    let mut text = format!("# {}\n", conversation.name());
    let mut part = |part: &str| {
        if !part.trim().is_empty() {
            let _ = write!(text, "\n{}\n", part.trim_end()); // writing to a string does not fail
        }
    };
    for message in messages(conversation) {
        part(match message.role.as_str() {
            "system" => "## System prompt",
            "user" => "## User",
            "tool" => "## Function result",
            _ => "## Model",
        });
        let thinking = message.reasoning_content.as_deref().unwrap_or_default().trim();
        let quoted: Vec<String> = thinking.lines().map(|line| format!("> {line}")).collect();
        part(&quoted.join("\n"));
        part(&if message.role == "tool" { code("", &message.text()) } else { message.text().into_owned() });
        for call in &message.tool_calls {
            part(&format!("Function call: `{}`", call.function.name));
            part(&code("json", &format!("{:#}", call.function.arguments)));
        }
    }
    text
}

/// A block of code, between fences that do not occur in it.
fn code(language: &str, text: &str) -> String {
    let mut fence = "```".to_owned();
    while text.contains(&fence) {
        fence.push('`');
    }
    format!("{fence}{language}\n{}\n{fence}", text.trim_end())
}

/// A name for the file: the title, without characters that file systems may refuse.
pub fn file_name(conversation: &Conversation, form: Form) -> String {
    let fine = |letter: char| letter.is_alphanumeric() || [' ', '-', '_'].contains(&letter);
    let name: String = conversation.name().chars().filter(|letter| fine(*letter)).collect();
    let name = name.trim();
    format!("{}.{}", if name.is_empty() { "conversation" } else { name }, form.extension())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Conversation, Form, Message, Value, file_name};
    use crate::settings::Settings;
    use wglm::ToolCall;

    fn conversation() -> Conversation {
        let settings = Settings { system: "You are an owl.".into(), ..Settings::default() };
        let mut conversation = Conversation::new(settings);
        conversation.ask("How many mice/day?");
        let call = ToolCall { id: Some("1".into()), ..ToolCall::new("count", Default::default()) };
        let calls = Message::assistant("").with_reasoning("Let me see.\nI count.").with_tool_calls(vec![call]);
        conversation.tree.push(calls, None);
        conversation.tree.push(Message::tool("1", "```\n7"), None);
        conversation.tree.push(Message::assistant("*Eight*, of course."), None);
        conversation.tree.end_at(3);
        conversation.tree.push(Message::assistant("**Seven**."), None);
        conversation
    }

    #[test]
    fn markdown_has_what_is_shown() {
        let expected = "# How many mice/day?\n\n## System prompt\n\nYou are an owl.\n\n## User\n\nHow many mice/day?\n\n\
            ## Model\n\n> Let me see.\n> I count.\n\nFunction call: `count`\n\n```json\n{}\n```\n\n\
            ## Function result\n\n````\n```\n7\n````\n\n## Model\n\n**Seven**.\n";
        assert_eq!(Form::Markdown.write(&conversation()), expected);
        assert_eq!(file_name(&conversation(), Form::Markdown), "How many miceday.md");
    }

    #[test]
    fn json_has_messages_that_can_be_read_again() {
        let json: Value = serde_json::from_str(&Form::Json.write(&conversation())).unwrap();
        assert_eq!(json["messages"][2]["tool_calls"][0]["function"]["arguments"], "{}");
        let messages: Vec<Message> = serde_json::from_value(json["messages"].clone()).unwrap();
        let shown: Vec<Message> = conversation().tree.messages().cloned().collect();
        assert_eq!((&messages[0], &messages[1..]), (&Message::system("You are an owl."), &shown[..]));
        assert_eq!(json["sampling"]["top_p"].as_f64().unwrap() as f32, 0.95);
    }
}
