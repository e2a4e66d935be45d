//! The message that a reply continues, if its original tokens are unknown.

use super::{ChatState, check};
use crate::error::{Error, Result};
use crate::generate::GenerateOptions;
use crate::model::Model;
use crate::text::Message;

/// Removes the last message if the reply [continues](ChatState::continues) it: its text is the beginning of the reply.
///
/// # Errors
/// See [`ChatState::continues`].
pub(crate) fn take_beginning(chat: &mut ChatState, model: &Model, context: usize) -> Result<Option<Message>> {
    if !chat.continues {
        return Ok(None);
    }
    let messages = &mut chat.messages;
    check::messages(messages, model.template()?)?;
    check_free(&chat.options)?;
    let last = messages.pop_if(|last| last.role == "assistant").ok_or_else(|| check::not_begun(messages))?;
    let wrong = |what, expected: &str, found| {
        Err(Error::Message { index: messages.len(), what, expected: expected.to_owned(), found })
    };
    if !last.tool_calls.is_empty() {
        return wrong("tool calls", "none in a message that the reply continues", last.tool_calls.len().to_string());
    }
    if last.text().is_empty() {
        return wrong("content", "text that the reply continues", "none".to_owned());
    }
    let (tokenizer, thought) = (model.tokenizer()?, last.reasoning_content.as_deref().unwrap_or_default());
    tokenizer.check_length(thought, context)?;
    tokenizer.check_length(&last.text(), context)?;
    Ok(Some(last))
}

/// Refuses options that determine how an answer begins.
#[cfg(feature = "constrain")]
fn check_free(options: &GenerateOptions) -> Result<()> {
    use crate::constrain::Calls;
    if options.constraint.is_some() {
        return Err(Error::argument("constraint", "none for a reply that continues a message", "one"));
    }
    match options.calls {
        Calls::Auto | Calls::None => Ok(()),
        Calls::Required | Calls::Function(_) => {
            Err(Error::argument("calls", "no required call in a reply that continues a message", "a required one"))
        }
    }
}

#[cfg(not(feature = "constrain"))]
fn check_free(_: &GenerateOptions) -> Result<()> {
    Ok(())
}
