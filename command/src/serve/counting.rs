//! Counts the tokens of the prompts of conversations that get no reply.

use super::body::JsonBody;
use super::client::{Caller, Client};
use super::conversation::Conversation;
use super::failure::Failure;
use super::memory::Share;
use super::parse::read;
use super::server::Server;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use wglm_engine::{ChatState, Message};

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
        let chat = conversation.state(&of, &loaded)?;
        // A message that no reply can continue is counted like any other.
        let can_continue = |last: &Message| last.tool_calls.is_empty() && !last.text().is_empty();
        let continues = continues && chat.messages.last().is_some_and(can_continue);
        Ok(loaded.scheduler.prompt_tokens(ChatState { continues, ..chat })?)
    };
    let (counted, _memory) = server.work(&server.pools.tools, needed, count).await?;
    Ok(counted)
}
