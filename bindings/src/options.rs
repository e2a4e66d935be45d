//! The options of replies.

use crate::error::WglmError;
use std::collections::HashMap;
use wglm::{GenerateOptions, SamplerParams, SchemaOptions};

/// What an answer has to match.
#[derive(Debug, Clone, PartialEq, Eq, uniffi::Enum)]
pub enum Constraint {
    /// JSON that is valid against a schema.
    JsonSchema {
        /// The schema, as JSON.
        schema: String,
    },
    /// A JSON object.
    JsonObject,
    /// A regular expression.
    Regex {
        /// The expression.
        expression: String,
    },
    /// A grammar in llguidance's variant of Lark's syntax.
    Lark {
        /// The grammar.
        grammar: String,
    },
}

/// Whether functions may or must be called.
#[derive(Debug, Clone, PartialEq, Eq, uniffi::Enum)]
pub enum Calls {
    /// The model decides.
    Auto,
    /// No function is called.
    None,
    /// At least one function is called, and there is no answer.
    Required,
    /// This function is called once, and there is no answer.
    Function {
        /// The function's name.
        name: String,
    },
}

/// How replies are generated. What is not given is as the model's file recommends, or as wglm does by default.
#[derive(Debug, Clone, Default, PartialEq, uniffi::Record)]
pub struct Options {
    /// The maximum number of generated tokens; otherwise as many as the context holds.
    #[uniffi(default)]
    pub max_tokens: Option<u32>,
    /// Flattens (above 1) or sharpens (below 1) the distribution of tokens. At 0 the most likely token is always taken.
    #[uniffi(default)]
    pub temperature: Option<f32>,
    /// Keep only this many of the most likely tokens; 0 keeps all.
    #[uniffi(default)]
    pub top_k: Option<u32>,
    /// Keep the fewest of the most likely tokens that together reach this probability; 1 keeps all.
    #[uniffi(default)]
    pub top_p: Option<f32>,
    /// Keep tokens whose probability is at least this share of the most likely one's; 0 keeps all.
    #[uniffi(default)]
    pub min_p: Option<f32>,
    /// The seed of the draws; otherwise a random one every time.
    #[uniffi(default)]
    pub seed: Option<u64>,
    /// Makes tokens that occurred less likely, by dividing their logits; 1 changes nothing.
    #[uniffi(default)]
    pub repeat_penalty: Option<f32>,
    /// Subtracted from the logits of tokens that occurred.
    #[uniffi(default)]
    pub presence_penalty: Option<f32>,
    /// Subtracted from the logits of tokens once for each time that they occurred.
    #[uniffi(default)]
    pub frequency_penalty: Option<f32>,
    /// How many of the last tokens the penalties take into account.
    #[uniffi(default)]
    pub repeat_last_n: Option<u32>,
    /// Added to the logits of tokens; minus infinity bans a token.
    #[uniffi(default)]
    pub logit_bias: HashMap<u32, f32>,
    /// The answer ends just before the first of these strings.
    #[uniffi(default)]
    pub stop: Vec<String>,
    /// How many of the most likely tokens each `Event.Token` lists; otherwise there are no such events.
    #[uniffi(default)]
    pub logprobs: Option<u32>,
    /// What the answer has to match.
    #[uniffi(default)]
    pub constraint: Option<Constraint>,
    /// Whether functions may or must be called; otherwise the model decides.
    #[uniffi(default)]
    pub calls: Option<Calls>,
    /// Whether a reply that repeats itself endlessly ends.
    #[uniffi(default)]
    pub stop_loops: bool,
}

impl Options {
    /// The library's options, where `sampling` has the parameters that are not given.
    pub(crate) fn over(self, sampling: SamplerParams) -> Result<GenerateOptions, WglmError> {
        let constraint = match self.constraint {
            Some(Constraint::JsonSchema { schema }) => {
                Some(wglm::Constraint::json_schema_text(&schema, SchemaOptions::default())?)
            }
            Some(Constraint::JsonObject) => Some(wglm::Constraint::json_object()),
            Some(Constraint::Regex { expression }) => Some(wglm::Constraint::regex(&expression)?),
            Some(Constraint::Lark { grammar }) => Some(wglm::Constraint::lark(&grammar)?),
            None => None,
        };
        let calls = match self.calls {
            None | Some(Calls::Auto) => wglm::Calls::Auto,
            Some(Calls::None) => wglm::Calls::None,
            Some(Calls::Required) => wglm::Calls::Required,
            Some(Calls::Function { name }) => wglm::Calls::Function(name),
        };
        let mut logit_bias: Vec<_> = self.logit_bias.into_iter().collect();
        logit_bias.sort_unstable_by_key(|(token, _)| *token); // equal options give equal replies
        let number = |count: u32| count as usize;
        Ok(GenerateOptions {
            sampling: SamplerParams {
                temperature: self.temperature.unwrap_or(sampling.temperature),
                top_k: self.top_k.map_or(sampling.top_k, number),
                top_p: self.top_p.unwrap_or(sampling.top_p),
                min_p: self.min_p.unwrap_or(sampling.min_p),
                seed: self.seed.or(sampling.seed),
                repeat_penalty: self.repeat_penalty.unwrap_or(sampling.repeat_penalty),
                repeat_last_n: self.repeat_last_n.map_or(sampling.repeat_last_n, number),
                presence_penalty: self.presence_penalty.unwrap_or(sampling.presence_penalty),
                frequency_penalty: self.frequency_penalty.unwrap_or(sampling.frequency_penalty),
                logit_bias,
            },
            max_tokens: self.max_tokens.map(number),
            stop: self.stop,
            logprobs: self.logprobs.map(number),
            constraint,
            calls,
            stop_loops: self.stop_loops,
            ..GenerateOptions::default()
        })
    }
}
