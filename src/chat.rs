//! A conversation: messages in, events out, through the file's own template.

use crate::error::Result;
use crate::generate::{Event, GenerateOptions, Generation};
use crate::model::Model;
use crate::session::Session;
use crate::text::{ChatInput, Message, ReplyParser, opens_thinking};

/// A conversation with a model. The cache of earlier turns is kept: a turn computes only its new tokens.
pub struct Chat {
    session: Session,
    messages: Vec<Message>,
    /// Whether the model thinks before it answers; none leaves it to the template, which says yes.
    pub reasoning: Option<bool>,
    /// How replies are generated.
    pub options: GenerateOptions,
}

impl Chat {
    /// An empty conversation.
    ///
    /// # Errors
    /// [`Error::Metadata`](crate::Error::Metadata) if the model has no tokenizer or no chat template;
    /// otherwise as [`Session::new`].
    pub fn new(model: &Model) -> Result<Self> {
        Self::with_session(Session::new(model)?)
    }

    /// An empty conversation in a session.
    ///
    /// # Errors
    /// As [`Chat::new`].
    pub fn with_session(session: Session) -> Result<Self> {
        let model = session.model();
        model.tokenizer()?;
        model.template()?;
        let options = GenerateOptions { sampling: model.sampling()?, ..GenerateOptions::default() };
        Ok(Self { session, messages: Vec::new(), reasoning: None, options })
    }

    /// The messages so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Appends a message, such as the system's, without a reply.
    pub fn push(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// Forgets all messages. The cache stays for whatever the next conversation shares with this one.
    pub fn clear(&mut self) {
        self.messages.clear();
    }

    /// The session behind the conversation.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Sends what the user says and returns the reply as it is generated. The reply joins the messages
    /// when it is dropped, as far as it came; if nothing came, the user's message leaves them again.
    ///
    /// # Errors
    /// [`Error::Template`](crate::Error::Template) and [`Error::Tokenizer`](crate::Error::Tokenizer);
    /// failures of the computation arrive as events.
    pub fn send(&mut self, text: &str) -> Result<Reply<'_>> {
        self.messages.push(Message::user(text));
        let generation = match self.prompt() {
            Ok((prompt, parser)) => Generation::new(&mut self.session, prompt, Some(parser), self.options.clone()),
            Err(error) => Err(error),
        };
        match generation {
            Ok(generation) => {
                let (messages, thinking, text) = (&mut self.messages, String::new(), String::new());
                Ok(Reply { generation, messages, thinking, text })
            }
            Err(error) => {
                self.messages.pop();
                Err(error)
            }
        }
    }

    fn prompt(&self) -> Result<(Vec<u32>, ReplyParser)> {
        let model = self.session.model();
        let mut input = ChatInput::new(&self.messages);
        input.enable_thinking = self.reasoning;
        let rendered = model.template()?.render(&input)?;
        Ok((model.tokenizer()?.encode(&rendered, true)?, ReplyParser::new(opens_thinking(&rendered))))
    }
}

/// A reply on its way: an iterator of events.
pub struct Reply<'a> {
    generation: Generation<'a>,
    messages: &'a mut Vec<Message>,
    thinking: String,
    text: String,
}

impl Iterator for Reply<'_> {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        let event = self.generation.next();
        match &event {
            Some(Ok(Event::Thinking(piece))) => self.thinking.push_str(piece),
            Some(Ok(Event::Text(piece))) => self.text.push_str(piece),
            _ => {}
        }
        event
    }
}

impl Drop for Reply<'_> {
    fn drop(&mut self) {
        let (thinking, text) = (std::mem::take(&mut self.thinking), std::mem::take(&mut self.text));
        if thinking.is_empty() && text.is_empty() {
            self.messages.pop();
            return;
        }
        let message = Message::assistant(text);
        self.messages.push(if thinking.is_empty() { message } else { message.with_reasoning(thinking) });
    }
}
