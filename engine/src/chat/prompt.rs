//! Makes prompts of messages with the chat template of the model's file, without the oldest turns if the prompt would
//! be too long.

use super::overflow::Overflow;
use super::{ChatState, check, fit};
use crate::error::{Error, Result};
use crate::model::Model;
use crate::text::{ChatInput, Message, ReplyParser, Tokenizer};
use serde_json::{Map, Value};

/// The tokens of a prompt, and the parser for the reply to it.
pub(crate) type Prepared = (Vec<u32>, ReplyParser);

/// What a prompt is made of, apart from the messages.
#[derive(Clone, Copy)]
pub(crate) struct PromptMaker<'a> {
    pub model: &'a Model,
    /// The context in tokens, for the prompt and its reply.
    pub context: usize,
    pub reasoning: Option<bool>,
    pub tools: &'a [Value],
    pub template_kwargs: &'a Map<String, Value>,
    /// The message whose text is the beginning of the reply, after the prompt for the others.
    pub begun: Option<&'a Message>,
}

impl<'a> PromptMaker<'a> {
    /// For a saved conversation from which `begun`, the beginning of the reply, was removed. If there is one, the reply
    /// has thinking only if `begun` has.
    pub fn new(model: &'a Model, context: usize, chat: &'a ChatState, begun: Option<&'a Message>) -> Self {
        let ChatState { reasoning, tools, template_kwargs, .. } = chat;
        let thinks = |begun: &Message| begun.reasoning_content.as_ref().is_some_and(|thought| !thought.is_empty());
        let reasoning = begun.map_or(*reasoning, |begun| Some(thinks(begun)));
        Self { model, context, reasoning, tools, template_kwargs, begun }
    }

    /// The prompt for `messages`, and the parser for the reply to it.
    pub fn render(&self, messages: &[Message]) -> Result<Prepared> {
        self.check(messages)?;
        self.render_rest(messages)
    }

    /// Returns an error for the first message that cannot become part of a prompt. Its index is that in the whole
    /// conversation, so this comes before the oldest turns are dropped.
    pub fn check(&self, messages: &[Message]) -> Result<()> {
        check::results(messages)?;
        check::messages(messages, self.model.template()?)
    }

    /// The same as [`PromptMaker::render`] for what is left of a checked conversation without its oldest turns.
    pub fn render_rest(&self, messages: &[Message]) -> Result<Prepared> {
        self.render_within(messages, usize::MAX)
    }

    /// The same, except that a text that must have more than `context` tokens is refused before it is encoded.
    fn render_within(&self, messages: &[Message], context: usize) -> Result<Prepared> {
        let (tokenizer, template) = (self.model.tokenizer()?, self.model.template()?);
        check::tools(self.tools)?;
        let mut input = ChatInput::new(messages);
        input.enable_thinking = self.reasoning;
        input.tools = Some(self.tools).filter(|tools| !tools.is_empty());
        input.extra = self.template_kwargs.clone();
        let mut prompt = template.prompt_within(&input, tokenizer, context)?;
        let parser = ReplyParser::new(prompt.opens_thinking).with_family(prompt.family).with_tools(self.tools);
        let Some(begun) = self.begun else { return Ok((prompt.tokens, parser)) };
        prompt.tokens.extend(parser.beginning(begun, tokenizer)?);
        Ok((prompt.tokens, parser.in_answer()))
    }

    /// Like [`PromptMaker::render`], but checks that the model has all tokens, and leaves out the oldest turns if there
    /// are too many tokens and `overflow` allows it. Also returns the first turn that is kept, for
    /// [`drop_before`](super::drop_before).
    ///
    /// # Errors
    /// The errors of [`Chat::send`](crate::Chat::send).
    pub fn prepare(
        &self,
        messages: &[Message],
        overflow: Overflow,
        max_tokens: Option<usize>,
    ) -> Result<(Prepared, usize)> {
        self.check(messages)?;
        // Long texts beyond what the context can hold are neither rendered nor encoded.
        let bytes: usize = messages.iter().map(|message| message.text().len()).sum();
        let first = match bytes <= Tokenizer::SHORT {
            true => 0,
            false => fit::first_possible(messages, overflow, self.context, self.model.tokenizer()?.longest_token())?,
        };
        if first == 0 {
            return self.prepare_possible(messages, overflow, max_tokens);
        }
        let (prepared, more) = self.prepare_possible(&fit::kept(messages, first), overflow, max_tokens)?;
        // The first turn that was kept is number 1 there.
        Ok((prepared, if more == 0 { first } else { first + more - 1 }))
    }

    fn prepare_possible(
        &self,
        messages: &[Message],
        overflow: Overflow,
        max_tokens: Option<usize>,
    ) -> Result<(Prepared, usize)> {
        // If turns may be dropped, the length of the whole prompt decides how many.
        let within = if overflow == Overflow::Refuse { self.context } else { usize::MAX };
        let (prepared, vocab) = (self.render_within(messages, within)?, self.model.config().vocab);
        if let Some(&token) = prepared.0.iter().find(|token| **token as usize >= vocab) {
            return Err(Error::TokenOutOfRange { token, vocab });
        }
        let (length, context, most) = (prepared.0.len(), self.context, max_tokens.unwrap_or(usize::MAX));
        let reserve = match overflow {
            Overflow::Refuse => 0,
            Overflow::DropOldest { reserve } => reserve.unwrap_or(most.min(context / 4)),
        };
        if length.saturating_add(reserve) <= context {
            return Ok((prepared, 0));
        }
        if overflow == Overflow::Refuse {
            return Err(Error::ContextFull { needed: length, context });
        }
        let first = fit::overflow(self, messages, length, reserve, most.min(1))?;
        let prepared = if first == 0 { prepared } else { self.render_rest(&fit::kept(messages, first))? };
        Ok((prepared, first))
    }
}
