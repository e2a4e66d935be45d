//! `/api/generate`: a single question, or a text that is continued without the chat template.

use super::fields::Common;
use super::lines::{LinesBody, Part, nothing};
use crate::serve::failure::Failure;
use crate::serve::infill::Gap;
use crate::serve::interface::Prompt;
use crate::serve::prompts::Prompts;
use crate::serve::server::{LoadedModel, Server};
use crate::serve::unmet::Warnings;
use serde::Deserialize;
use serde_json::Value;
use wglm_engine::Message;

#[derive(Debug, Deserialize)]
pub struct Body {
    prompt: Option<String>,
    system: Option<String>,
    raw: Option<bool>,
    suffix: Option<String>,
    template: Option<String>,
    images: Option<Vec<Value>>,
    context: Option<Vec<Value>>,
    #[serde(flatten)]
    common: Common,
}

fn has_text(field: &Option<String>) -> bool {
    field.as_ref().is_some_and(|text| !text.is_empty())
}

impl Body {
    /// Refuses what would change the prompt and is not supported.
    fn check_supported(&self) -> Result<(), Failure> {
        let has_items = |field: &Option<Vec<Value>>| field.as_ref().is_some_and(|items| !items.is_empty());
        let is_raw_system = self.is_raw() && has_text(&self.system);
        for (is_asked_for, field, wrong) in [
            (has_text(&self.template), "template", "not supported; the model's own is used, or none with raw"),
            (has_items(&self.images), "images", "this model reads text only"),
            (has_items(&self.context), "context", "not supported; send earlier messages to /api/chat"),
            (is_raw_system, "system", "not supported together with raw or suffix; write it in the prompt"),
        ] {
            if is_asked_for {
                return Err(Failure::of_field(field, wrong).with_code("unsupported"));
            }
        }
        Ok(())
    }
}

impl LinesBody for Body {
    fn common(&mut self) -> &mut Common {
        &mut self.common
    }

    fn is_raw(&self) -> bool {
        self.raw == Some(true) || has_text(&self.suffix)
    }

    fn prompt(self, server: &Server, loaded: &LoadedModel, _: &mut Warnings) -> Result<(Prompt, usize), Failure> {
        self.check_supported()?;
        let is_raw = self.is_raw();
        let Some(prompt) = self.prompt.filter(|prompt| !prompt.is_empty()) else { return Ok(nothing()) };
        if is_raw {
            let options = self.common.raw(loaded)?;
            let tokens = match self.suffix.filter(|suffix| !suffix.is_empty()) {
                None => Prompts::Text(prompt).tokens(loaded)?,
                Some(after) => {
                    let gap = Gap { before: prompt, after, extra: Vec::new() };
                    vec![gap.tokens("suffix", options.max_tokens, loaded)?]
                }
            };
            return Ok((Prompt::Tokens(tokens, Box::new(options)), 0));
        }
        let system = self.system.filter(|system| !system.is_empty()).map(Message::system);
        let messages = system.into_iter().chain([Message::user(prompt)]).collect();
        let (chat, demand, held) = self.common.conversation(messages, Vec::new(), server)?.chat(server, loaded)?;
        Ok((Prompt::Chat(Box::new(chat), demand), held))
    }

    /// Without tools there are no calls.
    fn write(part: Part<'_>, to: &mut Value) {
        to["response"] = part.text.into();
        if !part.thinking.is_empty() {
            to["thinking"] = part.thinking.into();
        }
    }
}
