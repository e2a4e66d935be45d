//! Encodes the beginning of a reply, which a message provides.

use super::tag::Tag;
use super::{Message, ReplyParser, Tokenizer};
use crate::error::Result;

impl ReplyParser {
    /// The tokens of the beginning of a reply that this parser is for, as the model would generate them: if the reply
    /// starts in thinking, the message's thinking and, if the message has any text, the tag that ends thinking; then
    /// that text. Thinking is left out if the reply starts after it. Names of control tokens and tags in the message
    /// are plain text.
    ///
    /// # Errors
    /// [`Error::NoToken`](crate::error::Error::NoToken) if the message cannot be encoded.
    pub fn beginning(&self, message: &Message, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
        let start = tokenizer.encode("", false)?.len();
        let plain = |text: &str| tokenizer.encode(text, false).map(|tokens| tokens[start..].to_vec());
        let (thought, text) = (message.reasoning_content.as_deref().unwrap_or_default(), message.text());
        let (mut tokens, mut lead) = (Vec::new(), self.family().lead);
        if self.is_thinking() {
            lead = "";
            tokens.extend(plain(thought)?);
            if !text.is_empty() {
                let end = self.family().text(Tag::ThinkEnd);
                tokens.extend(tokenizer.special(end).map_or_else(|| plain(end), |token| Ok(vec![token]))?);
            }
        }
        if !text.is_empty() {
            tokens.extend(plain(&format!("{lead}{text}"))?);
        }
        Ok(tokens)
    }
}
