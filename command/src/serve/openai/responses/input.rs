//! The items of a request to `/v1/responses` as messages.

use super::namespaces::Namespaces;
use crate::serve::failure::{Failure, shown};
use crate::serve::parts::{Parts, warn_of_parts};
use crate::serve::unmet::Warnings;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use wglm_engine::text::{FunctionCall, Message, ToolCall};

/// The prefix of thinking that a client sends back with the next request. It is not encrypted: the server has no key
/// for it, and what its model thinks is not secret.
const THINKING: &str = "wglm1:";

#[derive(Debug, Deserialize)]
pub struct Item {
    #[serde(rename = "type")]
    kind: Option<String>,
    role: Option<String>,
    content: Option<Value>,
    name: Option<String>,
    namespace: Option<String>,
    arguments: Option<String>,
    input: Option<String>,
    call_id: Option<String>,
    output: Option<Value>,
    summary: Option<Value>,
    encrypted_content: Option<String>,
    id: Option<String>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl Item {
    /// The id of the item that this one only refers to. Its type may be left out.
    pub fn reference(&self) -> Option<&str> {
        let is_bare = self.role.is_none() && self.content.is_none();
        let refers = self.kind.as_deref().map_or(is_bare && self.id.is_some(), |kind| kind == "item_reference");
        refers.then(|| self.id.as_deref().unwrap_or_default())
    }
}

/// The fields of an item of a response that a client sends back with it.
const REPLY_FIELDS: &[&str] = &["phase", "status"];

/// The fields of parts of any type that are read, that come with a picture or a file, or that replies have.
const PART_FIELDS: &[&str] = &[
    "annotations",
    "detail",
    "file_data",
    "file_id",
    "file_url",
    "filename",
    "image_url",
    "logprobs",
    "refusal",
    "text",
    "type",
];

/// Thinking in the form in which clients send it back.
pub fn encoded_thinking(thinking: &str) -> String {
    format!("{THINKING}{}", STANDARD.encode(thinking))
}

fn decoded_thinking(text: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(text.strip_prefix(THINKING)?).ok()?).ok()
}

/// The messages so far. A message of the model consists of several items.
struct Messages {
    parts: Parts,
    done: Vec<Message>,
    reasoning: Option<String>,
}

impl Messages {
    /// The message that the next item of the model belongs to.
    fn assistant(&mut self) -> &mut Message {
        let last_is = self.done.last().is_some_and(|message| message.role == "assistant") && self.reasoning.is_none();
        if !last_is {
            let mut message = Message { role: "assistant".into(), ..Message::default() };
            message.reasoning_content = self.reasoning.take();
            self.done.push(message);
        }
        let last = self.done.len() - 1;
        &mut self.done[last]
    }

    fn push(&mut self, message: Message) {
        self.reasoning = None;
        self.done.push(message);
    }

    /// Adds an item. Those of types that the model does not know are left out, with a warning.
    fn add(&mut self, index: usize, mut item: Item, namespaces: &Namespaces, to: &mut Warnings) -> Result<(), Failure> {
        let others = std::mem::take(&mut item.others);
        for (place, parts) in [("content", &item.content), ("output", &item.output), ("summary", &item.summary)] {
            let parts = parts.as_ref().and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            warn_of_parts(&format!("input.{place}"), parts, PART_FIELDS, to);
        }
        let id = item.call_id.clone().unwrap_or_default();
        match item.kind.as_deref().unwrap_or("message") {
            "message" => self.message(index, &item)?,
            "reasoning" => {
                let own = item.encrypted_content.as_deref().and_then(decoded_thinking);
                // Clients of models that only return a summary send an empty list as content.
                let whole = |content: &Value| content.as_array().is_none_or(|parts| !parts.is_empty());
                let content = item.content.filter(whole).or(item.summary);
                let thinking = own.map_or_else(|| self.parts.result("content", content.as_ref()), Ok)?;
                self.reasoning = Some(thinking).filter(|thinking| !thinking.is_empty());
            }
            "function_call" | "custom_tool_call" => {
                let name = item.name.unwrap_or_default();
                if name.is_empty() {
                    return Err(Failure::of_field("name", "expected the name of a function, found none"));
                }
                let name = match item.namespace {
                    Some(namespace) => namespaces.offered(&namespace, &name),
                    None => name,
                };
                let mut function = FunctionCall::from_json(name, item.arguments.as_deref().unwrap_or_default());
                if let (None, Some(input)) = (&item.arguments, item.input) {
                    function.arguments = json!({"input": input});
                }
                self.assistant().tool_calls.push(ToolCall { id: Some(id), kind: "function".into(), function });
            }
            "function_call_output" | "custom_tool_call_output" => {
                let text = self.parts.result("output", item.output.as_ref())?;
                self.push(Message::tool(id, text));
            }
            // Those that are stored have been replaced.
            "item_reference" => return Err(Failure::of_field("id", "the item that this one refers to is not stored")),
            other => {
                to.ignored(&format!("input: an item of type {}", shown(other)));
                return Ok(());
            }
        }
        to.ignored_in("input", others.iter().filter(|(name, _)| !REPLY_FIELDS.contains(&name.as_str())));
        Ok(())
    }

    fn message(&mut self, index: usize, item: &Item) -> Result<(), Failure> {
        let text = self.parts.content(index, item.content.as_ref())?;
        match item.role.as_deref() {
            Some("assistant") => {
                let message = self.assistant();
                let before = message.text().into_owned();
                let text = if before.is_empty() { text } else { before + "\n" + &text };
                message.content = Some(text.into());
            }
            Some("system" | "developer") => self.push(Message::system(text)),
            Some("user") => self.push(Message::user(text)),
            other => {
                let (role, expected) = (other.unwrap_or("none"), "expected user, assistant, system or developer");
                return Err(Failure::of_field("role", format_args!("{}: {expected}", shown(role))));
            }
        }
        Ok(())
    }
}

/// The messages for the items of a request, and for each message the index of the item from which it comes.
pub fn conversation(
    items: Vec<Item>,
    namespaces: &Namespaces,
    to: &mut Warnings,
) -> Result<(Vec<Message>, Vec<usize>), Failure> {
    let last = items.iter().rposition(|item| item.role.as_deref() == Some("user"));
    let mut messages = Messages { parts: Parts::new(last), done: Vec::new(), reasoning: None };
    let mut origins = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        messages.add(index, item, namespaces, to).map_err(|failure| failure.within(&format!("input[{index}]")))?;
        origins.resize(messages.done.len(), index);
    }
    Ok((messages.done, origins))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Failure, Item, Message, Namespaces, Warnings, conversation, encoded_thinking};
    use serde_json::{Value, json};

    fn read(items: Value) -> Vec<Message> {
        read_with(items, &mut Warnings::default()).unwrap()
    }

    fn read_with(items: Value, to: &mut Warnings) -> Result<Vec<Message>, Failure> {
        conversation(serde_json::from_value(items).unwrap(), &Namespaces::default(), to).map(|(messages, _)| messages)
    }

    #[test]
    fn the_items_of_the_model_are_one_message() {
        let messages = read(json!([
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
            {"role": "user", "content": "Look."},
            {"type": "reasoning", "summary": [], "encrypted_content": encoded_thinking("hm")},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me."}]},
            {"type": "function_call", "name": "ls", "arguments": "{\"path\": \".\"}", "call_id": "c1"},
            {"type": "function_call", "namespace": "sh", "name": "pwd", "arguments": "", "call_id": "c2"},
            {"type": "function_call_output", "call_id": "c1", "output": "a b"},
            {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "/"}]},
        ]));
        let roles: Vec<&str> = messages.iter().map(|message| message.role.as_str()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool", "tool"]);
        assert_eq!(messages[2].reasoning_content.as_deref(), Some("hm"));
        assert_eq!((messages[2].text().as_ref(), messages[2].tool_calls.len()), ("Let me.", 2));
        assert_eq!(messages[2].tool_calls[0].function.arguments, json!({"path": "."}));
        assert_eq!(messages[2].tool_calls[1].function.name, "sh__pwd");
        assert_eq!((messages[4].text().as_ref(), messages[4].tool_call_id.as_deref()), ("/", Some("c2")));
    }

    #[test]
    fn thinking_of_other_servers_is_content_or_summary() {
        for (content, thinking) in [
            (json!(null), "so"),
            (json!([]), "so"),
            (json!([{"type": "reasoning_text", "text": "so it is"}]), "so it is"),
        ] {
            let summary = json!([{"type": "summary_text", "text": "so"}]);
            let messages = read(json!([
                {"role": "user", "content": "?"},
                {"type": "reasoning", "summary": summary, "content": content, "encrypted_content": "gAAAA"},
                {"role": "assistant", "content": "!"},
            ]));
            assert_eq!(messages[1].reasoning_content.as_deref(), Some(thinking), "{content}");
        }
    }

    #[test]
    fn pictures_and_references_are_refused() {
        for (item, place) in [
            (
                json!({"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}),
                "input[1].content[0]: a part of type input_image",
            ),
            (json!({"type": "item_reference", "id": "msg_1"}), "input[1].id: the item that this one refers to"),
            (json!({"role": "wizard", "content": "?"}), "input[1].role: wizard"),
        ] {
            let items = json!([{"role": "user", "content": "?"}, item]);
            let failure = read_with(items, &mut Warnings::default()).unwrap_err();
            assert!(failure.status == 400 && failure.message.starts_with(place), "{failure:?}");
        }
    }

    /// A call joins the message of an earlier item, which is not the one that is wrong.
    #[test]
    fn a_call_without_a_name_is_refused_where_it_is() {
        for call in [json!({"type": "function_call", "call_id": "c"}), json!({"type": "custom_tool_call", "name": ""})]
        {
            let items = json!([{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}, call]);
            let failure = read_with(items, &mut Warnings::default()).unwrap_err();
            assert_eq!(failure.message, "input[2].name: expected the name of a function, found none");
            assert_eq!(failure.param.as_deref(), Some("input[2].name"));
        }
    }

    #[test]
    fn references_may_leave_out_their_type() {
        for (item, id) in [
            (json!({"type": "item_reference", "id": "msg_1"}), Some("msg_1")),
            (json!({"type": "item_reference"}), Some("")),
            (json!({"id": "msg_1"}), Some("msg_1")),
            (json!({"id": "msg_1", "role": "user", "content": "?"}), None),
            (json!({"id": "msg_1", "type": "message"}), None),
        ] {
            assert_eq!(serde_json::from_value::<Item>(item.clone()).unwrap().reference(), id, "{item}");
        }
    }

    #[test]
    fn fields_that_nothing_reads_are_named() {
        let mut warnings = Warnings::default();
        let items = json!([
            {"role": "user", "content": [{"type": "input_text", "text": "?", "weight": 2}], "mood": "glad"},
            {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "phase": "final_answer",
             "content": [{"type": "output_text", "text": "!", "annotations": [{"index": 0}], "logprobs": []}]},
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "/", "x": 1}]},
        ]);
        read_with(items, &mut warnings).unwrap();
        let names = ["input.content.weight", "input.mood", "input.output.x"];
        assert_eq!(warnings.texts(), names.map(|name| format!("{name}: not supported; ignored")));
    }

    #[test]
    fn items_of_other_types_are_named() {
        let mut warnings = Warnings::default();
        let items = json!([{"role": "user", "content": "?"}, {"type": "web_search_call", "id": "ws"}]);
        assert_eq!(read_with(items, &mut warnings).unwrap().len(), 1);
        assert_eq!(warnings.texts(), ["input: an item of type web_search_call: not supported; ignored"]);
    }
}
