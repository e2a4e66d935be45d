//! The message that a reply continues, if the tokens of which it was generated are unknown.

use super::check;
use crate::error::{Error, Result};
use crate::generate::GenerateOptions;
use crate::model::Model;
use crate::text::Message;

/// Removes the last message, whose text is the beginning of the reply to the others.
///
/// # Errors
/// See [`ChatState::continues`](super::ChatState::continues).
pub(crate) fn take_beginning(
    messages: &mut Vec<Message>,
    options: &GenerateOptions,
    model: &Model,
    context: usize,
) -> Result<Message> {
    check::messages(messages, model.template()?)?;
    check_free(options)?;
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
    Ok(last)
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
