//! A conversation as it is kept.

use super::Chat;
use crate::generate::GenerateOptions;
use crate::text::Message;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// All of a [`Chat`] but its session: what an app writes to a file beside the session's
/// [snapshot](crate::Session::save_snapshot). Without the same tools and template variables, a conversation that is
/// opened again has another prompt, and its snapshot is of little use.
///
/// What is missing where it was kept is as by default, what is unknown is left out.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # #[cfg(feature = "demo-model")] {
/// # use wglm::{Gguf, Gpu, GpuOptions, LoadOptions, Model};
/// # let gpu = Gpu::open(&GpuOptions::default())?;
/// # let model = Model::load(&Gguf::from_static(wglm::DEMO_MODEL)?, &gpu, &LoadOptions::default())?;
/// use wglm::{Chat, Message, SavedChat, serde_json};
///
/// let mut chat = Chat::new(&model)?;
/// chat.push(Message::system("Answer in one sentence."));
/// chat.reasoning = Some(false);
/// let kept = serde_json::to_string(&chat.save())?;
///
/// let mut again = Chat::new(&model)?;
/// again.restore(serde_json::from_str::<SavedChat>(&kept)?);
/// assert_eq!(again.prompt()?, chat.prompt()?);
/// # }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SavedChat {
    /// As [`Chat::messages`].
    pub messages: Vec<Message>,
    /// As [`Chat::reasoning`].
    pub reasoning: Option<bool>,
    /// As [`Chat::tools`].
    pub tools: Vec<Value>,
    /// As [`Chat::template_kwargs`].
    pub template_kwargs: Map<String, Value>,
    /// As [`Chat::options`].
    pub options: GenerateOptions,
}

impl Chat {
    /// Everything of the conversation but its session.
    pub fn save(&self) -> SavedChat {
        SavedChat {
            messages: self.messages.clone(),
            reasoning: self.reasoning,
            tools: self.tools.clone(),
            template_kwargs: self.template_kwargs.clone(),
            options: self.options.clone(),
        }
    }

    /// Puts a conversation that was kept in place of this one. The cache stays for what both have in common.
    pub fn restore(&mut self, saved: SavedChat) {
        let SavedChat { messages, reasoning, tools, template_kwargs, options } = saved;
        (self.messages, self.reasoning, self.tools) = (messages, reasoning, tools);
        (self.template_kwargs, self.options) = (template_kwargs, options);
    }
}
