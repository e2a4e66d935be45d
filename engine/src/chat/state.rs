//! A conversation without its KV cache: what an app saves, and what a scheduler replies to.

use super::{Chat, Overflow};
#[cfg(feature = "schema")]
use crate::constrain::Constraint;
use crate::generate::GenerateOptions;
use crate::text::Message;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Everything in a [`Chat`] except its session: what a [`Scheduler`](crate::Scheduler) replies to, and what an app
/// writes to a file, next to the session's [snapshot](crate::Session::save_snapshot). It includes the tools and
/// template variables because they are part of the prompt: with different ones, most of the snapshot could not be
/// reused.
///
/// Fields that are missing when it is deserialized have their defaults; unknown fields are ignored.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use wglm::{Gguf, Gpu, GpuOptions, LoadOptions, Model};
/// # let gpu = Gpu::open(&GpuOptions::default())?;
/// # let model = Model::load(&Gguf::from_static(wglm::DEMO_MODEL)?, &gpu, &LoadOptions::default())?;
/// use wglm::{Chat, Message, ChatState, serde_json};
///
/// let mut chat = Chat::new(&model)?;
/// chat.push(Message::system("Answer in one sentence."));
/// chat.reasoning = Some(false);
/// let kept = serde_json::to_string(&chat.save())?;
///
/// let mut again = Chat::new(&model)?;
/// again.restore(serde_json::from_str::<ChatState>(&kept)?);
/// assert_eq!(again.prompt()?, chat.prompt()?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChatState {
    /// See [`Chat::messages`].
    pub messages: Vec<Message>,
    /// See [`Chat::reasoning`].
    pub reasoning: Option<bool>,
    /// See [`Chat::tools`].
    pub tools: Vec<Value>,
    /// See [`Chat::template_kwargs`].
    pub template_kwargs: Map<String, Value>,
    /// See [`Chat::options`]. Their default is not what the model's file recommends, which is
    /// [`Model::sampling`](crate::Model::sampling).
    pub options: GenerateOptions,
    /// See [`Chat::overflow`].
    pub overflow: Overflow,
    /// Whether a scheduler's reply continues the last message, which has to be the assistant's, with text and without
    /// calls. Its text is the beginning of the answer: its tokens are part of the prompt, and the reply is what
    /// follows. If the message has [reasoning](Message::with_reasoning) and the template then begins replies with
    /// thinking, that comes before the text. In any case the reply itself has no thinking. End the text with a whole
    /// word and without a space, since tokens begin with spaces. A constraint of the answer and required calls are
    /// refused. A [`Chat`] ignores this field; it has [`Chat::resume`] and [`Chat::prefill`].
    pub continues: bool,
    /// What the last message has to match, if it is an answer that `Chat::ask` left unfinished: [`Chat::resume`]
    /// continues it accordingly. A scheduler, which resumes nothing, ignores it.
    #[cfg(feature = "schema")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<Constraint>,
}

impl Chat {
    /// Copies everything in the conversation except its session.
    pub fn save(&self) -> ChatState {
        ChatState {
            messages: self.messages.clone(),
            reasoning: self.reasoning,
            tools: self.tools.clone(),
            template_kwargs: self.template_kwargs.clone(),
            options: self.options.clone(),
            overflow: self.overflow,
            continues: false,
            #[cfg(feature = "schema")]
            unfinished: self.unfinished(),
        }
    }

    /// Replaces this conversation by a saved one. The KV cache stays, and the saved conversation reuses what it has in
    /// common with this one.
    pub fn restore(&mut self, saved: ChatState) {
        let ChatState { messages, reasoning, tools, template_kwargs, options, overflow, .. } = saved;
        (self.messages, self.reasoning, self.tools) = (messages, reasoning, tools);
        (self.template_kwargs, self.options, self.overflow) = (template_kwargs, options, overflow);
        #[cfg(feature = "schema")]
        self.set_unfinished(saved.unfinished);
    }
}
