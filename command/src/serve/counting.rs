//! Counts the tokens of the prompts of conversations that get no reply.

use super::body::JsonBody;
use super::client::{Caller, Client};
use super::conversation::{Conversation, template_input};
use super::failure::Failure;
use super::memory::Share;
use super::parse::read;
use super::server::Server;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// The number of tokens of the prompt that a body makes, which `conversation` reads.
pub async fn count<B: DeserializeOwned + 'static>(
    server: Arc<Server>,
    body: JsonBody,
    conversation: fn(B, &Server, Client, &Share) -> Result<Conversation, Failure>,
) -> Result<usize, Failure> {
    body.check_text()?;
    let loaded = server.named(&body).await?;
    let (of, needed, client) = (server.clone(), body.conversation(), Caller::current().client);
    let count = move |memory: &Share| {
        let chat = conversation(read(&body.bytes)?, &of, client, memory)?.state(&of, &loaded)?;
        let prompt = loaded.model.template()?.prompt(&template_input(&chat), loaded.model.tokenizer()?)?;
        Ok(prompt.tokens.len())
    };
    let (counted, _memory) = server.work(&server.pools.tools, needed, count).await?;
    Ok(counted)
}
