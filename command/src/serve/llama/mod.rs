//! The endpoints of llama.cpp's server that OpenAI's API does not have, for programs that use them.

mod completion;
pub mod slots;
pub mod tokens;

pub type Completion = completion::Completion<false>;
pub type Infill = completion::Completion<true>;

use crate::serve::body::JsonBody;
use crate::serve::conversation::{check_messages, check_tools, template_input, variables};
use crate::serve::failure::Failure;
use crate::serve::fields::Fields;
use crate::serve::figures::decimal;
use crate::serve::memory::Share;
use crate::serve::openai::messages::{functions, messages};
use crate::serve::parse::read;
use crate::serve::router::{counted_json, json};
use crate::serve::server::Server;
use crate::serve::unmet::Warnings;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokens::{answer, written};
use wglm_engine::{ChatState, Message};

/// How many copies of the template there are while `/props` is answered.
const PROPS_COPIES: usize = 4;

/// Whether the model is loaded.
pub async fn health(State(server): State<Arc<Server>>) -> Result<Response, Failure> {
    server.loaded().map(|_| json(&json!({"status": "ok"})))
}

/// What the server runs, and with which options.
pub async fn props(State(server): State<Arc<Server>>) -> Result<Response, Failure> {
    let loaded = server.loaded()?;
    let (model, sampling) = (&loaded.model, &loaded.defaults.sampling);
    let source = model.file().opt_string("tokenizer.chat_template").ok().flatten().unwrap_or_default();
    let memory = server.memory.requests.try_take(source.len() * PROPS_COPIES)?; // the file may have a long template
    let (tools, reasoning) = (source.contains("tools"), source.contains("reasoning_content"));
    let caps = json!({
        "supports_tools": tools,
        "supports_tool_calls": source.contains("tool_calls"),
        "supports_parallel_tool_calls": tools,
        "supports_system_role": source.contains("system"),
        "supports_preserve_reasoning": reasoning,
        "supports_object_arguments": true,
        "supports_string_content": true,
        "supports_typed_content": true,
    });
    let params = json!({
        "temperature": decimal(sampling.temperature),
        "top_k": sampling.top_k,
        "top_p": decimal(sampling.top_p),
        "min_p": decimal(sampling.min_p),
        "repeat_penalty": decimal(sampling.repeat_penalty),
        "presence_penalty": decimal(sampling.presence_penalty),
        "frequency_penalty": decimal(sampling.frequency_penalty),
        "seed": sampling.seed.unwrap_or(u32::MAX.into()), // llama.cpp's number for a new one each time
        "n_predict": loaded.defaults.max_tokens.map_or(-1, |tokens| i64::try_from(tokens).unwrap_or(i64::MAX)),
        "stop": loaded.defaults.stop,
    });
    let props = json!({
        "default_generation_settings": {"n_ctx": loaded.scheduler.context(), "params": params},
        "total_slots": loaded.scheduler.state().slots.len(),
        "model_alias": server.name,
        "model_path": server.file_name,
        "modalities": {"vision": false, "audio": false},
        "chat_template": source,
        "chat_template_caps": caps,
        "build_info": concat!("wglm ", env!("CARGO_PKG_VERSION")),
    });
    Ok(counted_json(props.to_string(), memory))
}

/// The adapters: this server loads none.
pub async fn lora_adapters() -> Response {
    json(&json!([]))
}

/// Accepts a list of no adapters, and refuses any other.
pub async fn set_lora_adapters(body: JsonBody) -> Result<Response, Failure> {
    body.check_text()?;
    let adapters: Vec<IgnoredAny> = read(&body.bytes)?; // which take no memory
    match adapters.is_empty() {
        true => Ok(json(&json!({"success": true}))),
        false => Err(Failure::unsupported("LoRA adapters are not supported; the list must be empty")),
    }
}

#[derive(Debug, Deserialize)]
struct TemplateBody {
    messages: Vec<Message>,
    tools: Option<Vec<Value>>,
    add_generation_prompt: Option<bool>,
    #[serde(flatten)]
    fields: Fields,
}

/// The prompt for a conversation, as text.
pub async fn apply_template(State(server): State<Arc<Server>>, body: JsonBody) -> Result<Response, Failure> {
    body.check_text()?;
    let loaded = server.named(&body).await?;
    let (of, needed) = (server.clone(), body.conversation());
    let work = move |_: &Share| {
        let TemplateBody { messages: given, tools, add_generation_prompt, mut fields } = read(&body.bytes)?;
        check_messages("messages", given.len(), &of)?;
        let tools = tools.unwrap_or_default();
        check_tools(&tools)?;
        let (thinks, template_kwargs) = variables(&mut fields, of.reasoning)?;
        let messages = messages(given, &mut Warnings::default())?; // unknown fields are ignored here
        let (tools, reasoning) = (functions(tools)?, Some(thinks));
        let chat = ChatState { messages, tools, reasoning, template_kwargs, ..ChatState::default() };
        let mut input = template_input(&chat);
        input.add_generation_prompt = add_generation_prompt.unwrap_or(true);
        written(&BTreeMap::from([("prompt", loaded.model.template()?.render(&input)?)]))
    };
    answer(server.work(&server.pools.tools, needed, work).await?)
}
