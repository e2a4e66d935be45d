//! Counts the tokens of the prompts of conversations that get no reply.

use super::body::JsonBody;
use super::client::{Caller, Client};
use super::conversation::{Conversation, template_input};
use super::failure::Failure;
use super::memory::Share;
use super::parse::read;
use super::server::{LoadedModel, Server};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use wglm_engine::text::ReplyParser;
use wglm_engine::{ChatState, Result as EngineResult};

/// Reads the conversation of a body, and whether a reply would continue its last message.
type Reader<B> = fn(B, &Server, Client, &Share) -> Result<(Conversation, bool), Failure>;

/// The number of tokens of the prompt that a body makes.
pub async fn count<B: DeserializeOwned + 'static>(
    server: Arc<Server>,
    body: JsonBody,
    conversation: Reader<B>,
) -> Result<usize, Failure> {
    body.check_text()?;
    let loaded = server.named(&body).await?;
    let (of, needed, client) = (server.clone(), body.conversation(), Caller::current().client);
    let count = move |memory: &Share| {
        let (mut conversation, continues) = conversation(read(&body.bytes)?, &of, client, memory)?;
        let chat = ChatState { continues, ..conversation.state(&of, &loaded)? };
        Ok(prompt_tokens(chat, &loaded)?)
    };
    let (counted, _memory) = server.work(&server.pools.tools, needed, count).await?;
    Ok(counted)
}

fn prompt_tokens(mut chat: ChatState, loaded: &LoadedModel) -> EngineResult<usize> {
    let continues = chat.continues;
    let begun = chat.messages.pop_if(|last| continues && last.tool_calls.is_empty() && !last.text().is_empty());
    if let Some(begun) = &begun {
        // The reply thinks only if its beginning has.
        chat.reasoning = Some(begun.reasoning_content.as_ref().is_some_and(|thought| !thought.is_empty()));
    }
    let tokenizer = loaded.model.tokenizer()?;
    let prompt = loaded.model.template()?.prompt(&template_input(&chat), tokenizer)?;
    let parser = ReplyParser::new(prompt.opens_thinking).with_family(prompt.family);
    let begun = begun.map_or(Ok(Vec::new()), |begun| parser.beginning(&begun, tokenizer))?;
    Ok(prompt.tokens.len() + begun.len())
}
