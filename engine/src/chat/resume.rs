//! Continues a reply that has begun: one that was cut off, or one whose beginning the caller provides.

use super::draft::Draft;
use super::{Chat, Reply, check};
use crate::error::{Error, Result};
use crate::generate::{GenerateOptions, Generation, GenerationTask, PartialReply};
use crate::model::Model;
use crate::text::{Message, ReplyParser};

impl Chat {
    /// Continues the last message, which has to be the assistant's: one that was cut off by
    /// [`Stop::Length`](crate::Stop::Length) or by a cancellation, or one that was [pushed](Chat::push) for the model
    /// to complete. The new text and calls become part of that message.
    /// [`max_tokens`](crate::GenerateOptions::max_tokens) counts new tokens only. If the message had ended by itself,
    /// the model most likely ends it again at once.
    ///
    /// If the session still holds the tokens of the message, generation continues after them and computes none of them
    /// again. Otherwise the message is encoded as text: its thinking and, if it has any content, the tag that ends the
    /// thinking and the content. Text that was held back at the cut because it might be the beginning of a tag becomes
    /// part of the next event. A stop string that spans the cut is not found. A reply that was cut off before it had
    /// any content, for example inside its first call, is not among the messages, but can still be resumed while the
    /// session holds its tokens.
    ///
    /// A [`constraint`](crate::GenerateOptions::constraint) applies to the whole answer: its beginning has to match,
    /// and the rest continues it. A reply that `Chat::ask` left unfinished continues with the schema of that call,
    /// whatever the options say.
    ///
    /// # Errors
    /// [`Error::Argument`] if the last message is not the assistant's, [`Error::Message`] if it contains calls and the
    /// session no longer holds its tokens; otherwise the errors of [`Chat::send`].
    pub fn resume(&mut self) -> Result<Reply<'_>> {
        #[cfg(feature = "schema")]
        let options = self.resumed_options();
        #[cfg(not(feature = "schema"))]
        let options = self.options.clone();
        let resumed = self.beginning(true).and_then(|beginning| beginning.resumed(self.session.model(), options))?;
        Ok(self.continued(resumed))
    }

    /// Returns a reply to the current messages that begins with `text`. No event repeats this text, and it is part of
    /// the message even if nothing follows. The reply has no thinking, because the text is the beginning of the answer.
    /// (To provide the beginning of the thinking instead, [`push`](Chat::push) a message of the assistant with only
    /// [reasoning](Message::with_reasoning), and [`resume`](Chat::resume) it.) End the text with a whole word and
    /// without a space, since tokens begin with spaces. Spaces at either end may belong to a tag: they are dropped, or
    /// repeated with what follows.
    ///
    /// # Errors
    /// The errors of [`Chat::resume`]. After an error the messages are unchanged.
    pub fn prefill(&mut self, text: &str) -> Result<Reply<'_>> {
        self.messages.push(Message::assistant(text));
        let options = self.options.clone();
        match self.beginning(false).and_then(|beginning| beginning.resumed(self.session.model(), options)) {
            Ok(resumed) => {
                self.forget_asked(); // this is another reply
                Ok(self.continued(resumed))
            }
            Err(error) => {
                self.messages.pop();
                Err(error)
            }
        }
    }

    /// Continues a reply.
    fn continued(&mut self, (task, draft, joins): Resumed) -> Reply<'_> {
        Reply::resumed(Generation::of(&mut self.session, task), &mut self.messages, draft, joins)
    }

    /// Finds where to continue: at the tokens that the session holds of the last message, if `held` allows that, or at
    /// the message encoded as text.
    fn beginning(&self, held: bool) -> Result<ResumePoint> {
        self.options.check()?;
        check::messages(&self.messages, self.session.model().template()?)?;
        let (last, before) = match self.messages.split_last() {
            Some((last, before)) if last.role == "assistant" => (Some(last), before),
            _ => (None, &self.messages[..]),
        };
        let (prompt, parser) = self.maker().render(before)?;
        if let Some(beginning) = if held { self.held(last, &prompt, &parser)? } else { None } {
            return Ok(beginning);
        }
        let last = last.ok_or_else(|| check::not_begun(&self.messages))?;
        if !last.tool_calls.is_empty() {
            let expected = "none, because the session no longer holds their tokens".to_owned();
            let found = last.tool_calls.len().to_string();
            return Err(Error::Message { index: before.len(), what: "tool calls", expected, found });
        }
        self.read(last, prompt, parser)
    }

    /// The last message as the tokens in the session, if the session holds it. Without a last message, a reply that has
    /// no content yet.
    fn held(&self, last: Option<&Message>, prompt: &[u32], parser: &ReplyParser) -> Result<Option<ResumePoint>> {
        let held = self.session.tokens();
        let Some(said) = held.strip_prefix(prompt).filter(|said| last.is_some() || !said.is_empty()) else {
            return Ok(None);
        };
        let begun = PartialReply::replay(self.session.model(), parser.clone(), said)?;
        if !Draft::of(&begun.events_at_end()).says(last.unwrap_or(&Message::assistant(""))) {
            return Ok(None);
        }
        let mut draft = Draft::of(begun.events());
        draft.calls = last.map(|last| last.tool_calls.clone()).unwrap_or_default(); // the parsed calls have no ids
        Ok(Some(ResumePoint { prompt: held.to_vec(), begun, draft, joins: last.is_some() }))
    }

    /// The last message encoded as text.
    fn read(&self, last: &Message, mut prompt: Vec<u32>, parser: ReplyParser) -> Result<ResumePoint> {
        let model = self.session.model();
        let said = parser.beginning(last, model.tokenizer()?)?;
        let begun = PartialReply::replay(model, parser.clone(), &said)?;
        let mut draft = Draft::of(begun.events());
        if !parser.is_thinking() {
            draft.thinking = last.reasoning_content.clone().unwrap_or_default(); // the prompt leaves thinking out
        }
        prompt.extend(said);
        self.session.check(0, &prompt)?;
        Ok(ResumePoint { prompt, begun, draft, joins: true })
    }
}

/// The point at which a reply continues.
struct ResumePoint {
    /// All tokens up to the point, those of the reply's beginning included.
    prompt: Vec<u32>,
    begun: PartialReply,
    draft: Draft,
    /// Whether the last message of the conversation is the beginning of the reply.
    joins: bool,
}

/// What continues a reply, its message so far, and whether that is the last one of the conversation.
type Resumed = (GenerationTask<'static>, Draft, bool);

impl ResumePoint {
    fn resumed(self, model: &Model, options: GenerateOptions) -> Result<Resumed> {
        let Self { prompt, begun, draft, joins } = self;
        Ok((GenerationTask::resumed(model, prompt, begun, options)?, draft, joins))
    }
}
