//! `/v1/responses`, as Codex calls it. A request contains its whole conversation, or continues a stored response.

mod echo;
mod input;
mod items;
pub mod kept;
mod namespaces;

use crate::serve::body::JsonBody;
use crate::serve::client::Client;
use crate::serve::constraints::{FormatField, choice};
use crate::serve::conversation::{Conversation, Origin, Origins, check_messages, check_tools};
use crate::serve::counting::count;
use crate::serve::failure::{Failure, shown};
use crate::serve::fields::{Fields, at_most, integer, max_tokens};
use crate::serve::interface::{Prompt, Request};
use crate::serve::memory::Share;
use crate::serve::parse::read_field;
use crate::serve::router::json;
use crate::serve::server::{LoadedModel, Server};
use crate::serve::unmet::{OtherFields, Warnings};
use axum::extract::State;
use axum::response::Response;
use input::{Item, conversation};
use kept::Keeper;
use namespaces::Namespaces;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use wglm_engine::Overflow;
use wglm_engine::text::Message;

pub use items::Responses;
pub use kept::KeptResponses;

/// What a client puts into `include` to get the model's thinking in a form that it can send back.
const INCLUDE_THINKING: &str = "reasoning.encrypted_content";

/// Why there may be no response with an id, and the remedy.
const NOT_KEPT: &str = "it may have been dropped to make room for newer ones (--keep-responses), its request \
                        had \"store\": false, or the server was restarted: send the whole conversation as input";

#[derive(Debug, Deserialize)]
pub struct Body {
    input: Option<Input>,
    instructions: Option<String>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    #[serde(default, deserialize_with = "integer")]
    max_output_tokens: Option<i64>,
    text: Option<Map<String, Value>>,
    truncation: Option<String>,
    include: Option<Vec<String>>,
    previous_response_id: Option<String>,
    /// What came before the input: the conversation of the previous response.
    #[serde(skip)]
    earlier: Vec<Message>,
    /// The client for whom the response is stored.
    #[serde(skip)]
    client: Option<Client>,
    store: Option<bool>,
    conversation: Option<Value>,
    prompt: Option<Value>,
    background: Option<bool>,
    metadata: Option<Map<String, Value>>,
    #[serde(flatten)]
    fields: Fields,
    #[serde(flatten)]
    others: OtherFields,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of items")]
enum Input {
    Text(String),
    Items(Vec<Item>),
}

/// Refuses fields that need something that is not stored between requests.
fn check_complete(body: &Body) -> Result<(), Failure> {
    for (field, is_missing, kept, remedy) in [
        ("conversation", body.conversation.is_some(), "conversations", "send the whole conversation as input"),
        ("prompt", body.prompt.as_ref().is_some_and(Value::is_object), "prompts", "send its text"),
        ("background", body.background == Some(true), "replies without a client", "leave this field out"),
    ] {
        if is_missing {
            let wrong = format!("{kept} are not stored; {remedy}");
            return Err(Failure::of_field(field, wrong).with_code("unsupported"));
        }
    }
    Ok(())
}

/// Adds the conversation of the previous response, and the items that the input refers to.
fn complete(body: &mut Body, server: &Server, client: Client, memory: &Share) -> Result<(), Failure> {
    body.client = Some(client);
    if let Some(Input::Items(items)) = &mut body.input {
        at_most("input", items.len(), server.limits.messages, "messages")?;
        kept::resolve(items, server, client, memory)?;
    }
    match body.previous_response_id.as_deref() {
        None | Some("") => body.previous_response_id = None,
        Some(id) => body.earlier = kept::earlier(id, server, client, memory)?,
    }
    Ok(())
}

/// The messages of the conversation, with the instructions as the first.
fn messages(
    body: &mut Body,
    namespaces: &Namespaces,
    server: &Server,
    to: &mut Warnings,
) -> Result<(Vec<Message>, Origins), Failure> {
    let (mut messages, mut origins) = (std::mem::take(&mut body.earlier), Origins::new("input"));
    origins.add(messages.len(), Origin::Field("previous_response_id"));
    match body.input.take() {
        None => return Err(Failure::invalid("there is no input").with_param("input")),
        Some(Input::Text(text)) => {
            check_messages("input", messages.len() + 1, server)?;
            messages.push(Message::user(text));
            origins.add(messages.len(), Origin::Field("input"));
        }
        Some(Input::Items(items)) => {
            check_messages("input", messages.len() + items.len(), server)?;
            let (read, indices) = conversation(items, namespaces, to)?;
            for (message, index) in read.into_iter().zip(indices) {
                messages.push(message);
                origins.add(messages.len(), Origin::Item(index));
            }
        }
    }
    body.instructions.take_if(|text| text.is_empty());
    if let Some(instructions) = &body.instructions {
        messages.insert(0, Message::system(instructions.as_str()));
        origins.add_first(Origin::Field("instructions"));
    }
    Ok((messages, origins))
}

impl Body {
    /// The format of the answer, as the client sent it.
    fn format(&self) -> &Value {
        self.text.as_ref().and_then(|text| text.get("format")).unwrap_or(&Value::Null)
    }

    /// The conversation, the namespaces of its functions, and the origins of its messages. What a response repeats
    /// stays in the body.
    fn conversation(
        &mut self,
        server: &Server,
        to: &mut Warnings,
    ) -> Result<(Conversation, Namespaces, Origins), Failure> {
        check_complete(self)?;
        let given = self.tools.as_deref().unwrap_or_default();
        check_tools(given)?;
        let (mut tools, namespaces) = Namespaces::read(given, to)?;
        check_tools(&tools)?;
        let (messages, origins) = messages(self, &namespaces, server, to)?;
        let overflow = match self.truncation.as_deref() {
            None => server.overflow,
            Some("auto") => Overflow::DROP_OLDEST,
            Some("disabled") => Overflow::Refuse,
            Some(_) => return Err(Failure::of_field("truncation", "expected auto or disabled")),
        };
        let format_in = "text.format";
        let format: Option<FormatField> = read_field(format_in, self.format().clone())?;
        let written = server.schema_options(self.fields.json_whitespace);
        let format = format.unwrap_or_default().read(format_in, written)?;
        self.tool_choice.as_mut().map_or(Ok(()), |choice| namespaces.resolve(choice))?;
        let calls = choice(self.tool_choice.as_ref(), &mut tools)?;
        let thinking = server.reasoning;
        let max_tokens = max_tokens([("max_output_tokens", self.max_output_tokens)])?;
        let fields = std::mem::take(&mut self.fields);
        let fields_in = "";
        let conversation = Conversation {
            messages,
            tools,
            calls,
            format,
            format_in,
            max_tokens,
            thinking,
            overflow,
            fields,
            fields_in,
        };
        Ok((conversation, namespaces, origins))
    }
}

fn request(mut body: Body, server: &Server, loaded: &LoadedModel) -> Result<(Prompt, Request<Responses>), Failure> {
    let mut warnings = std::mem::take(&mut body.others).read()?;
    body.metadata.as_ref().map_or(Ok(()), echo::check_metadata)?;
    let (stream, reasoning) = (body.fields.stream(), body.fields.reasoning.clone().unwrap_or_default());
    if !reasoning["summary"].is_null() {
        warnings
            .add("reasoning.summary", "not supported; the thinking itself is the content of items of type reasoning");
    }
    let (conversation, namespaces, origins) = body.conversation(server, &mut warnings)?;
    let constraints = echo::Constraints::of(&body, &conversation, &namespaces);
    let from = usize::from(body.instructions.is_some());
    let keeps = body.client.filter(|_| body.store != Some(false));
    let keeper = keeps.and_then(|client| Keeper::new(&server.responses, client, &conversation.messages[from..]));
    let (chat, demand, held) = conversation.chat(server, loaded)?;
    let one_call = body.parallel_tool_calls == Some(false);
    let include_thinking = body.include.iter().flatten().any(|what| what == INCLUDE_THINKING);
    let mut echo = echo::fields(body, &reasoning, constraints, &chat);
    echo.insert("store".into(), keeper.is_some().into());
    let held = held + echo::bytes(&echo) + namespaces.bytes() + keeper.as_ref().map_or(0, Keeper::bytes);
    let interface = Responses::new(&loaded.name, echo, include_thinking, namespaces, keeper).with_origins(origins);
    let request = Request { choices: 1, stream, one_call, held, warnings: warnings.texts(), interface };
    Ok((Prompt::Chat(Box::new(chat), demand), request))
}

/// `/v1/responses/input_tokens`.
pub async fn input_tokens(State(server): State<Arc<Server>>, body: JsonBody) -> Result<Response, Failure> {
    let conversation = |mut body: Body, server: &Server, client: Client, memory: &Share| {
        complete(&mut body, server, client, memory)?;
        Ok((body.conversation(server, &mut Warnings::default())?.0, false))
    };
    let tokens = count(server, body, conversation).await?;
    Ok(json(&json!({"object": "response.input_tokens", "input_tokens": tokens})))
}
