//! Arguments for how replies are generated.

use super::choice::{Choice, choice};
use super::numbers::{OrNone, above_zero, finite, from_zero, positive, probability, some, whole};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use std::str::FromStr;
use wglm_engine::{DraftKind, SamplerParams, Speculation};

/// A logit bias for a token, such as `1234+2.5`.
#[derive(Debug, Clone, Copy)]
pub struct Bias {
    pub token: u32,
    pub amount: f32,
}

impl FromStr for Bias {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = |text: &str| {
            let (token, amount) = text.split_at(text.find(['+', '-'])?);
            Some(Self { token: token.parse().ok()?, amount: amount.parse().ok()? })
        };
        let possible = |bias: &Self| bias.amount.is_finite() || bias.amount == f32::NEG_INFINITY;
        read(text)
            .filter(possible)
            .ok_or_else(|| "expected a token id and a bias, such as 1234+2.5 or 1234-inf".to_owned())
    }
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sampling (recommendations in the model file take precedence over these defaults)")]
pub struct SamplingArgs {
    /// Temperature; 0 always picks the most likely token [default: 1]
    #[arg(long = "temp", alias = "temperature", value_name = "T", allow_negative_numbers = true, value_parser = from_zero)]
    pub temperature: Option<f32>,
    /// Keep the K most likely tokens; 0 keeps all [default: 0]
    #[arg(long, value_name = "K", allow_negative_numbers = true, value_parser = whole::<usize>)]
    pub top_k: Option<usize>,
    /// Keep the most likely tokens that together reach probability P; 1 keeps all [default: 0.95]
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = probability)]
    pub top_p: Option<f32>,
    /// Keep tokens at least P times as likely as the most likely one; 0 keeps all [default: 0]
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = probability)]
    pub min_p: Option<f32>,
    /// Repetition penalty: divides positive logits of recent tokens and multiplies negative ones; 1 disables it
    /// [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = above_zero)]
    pub repeat_penalty: Option<f32>,
    /// How many recent tokens the penalties consider; 0 for none, -1 for all [default: 64]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub repeat_last_n: Option<OrNone<usize>>,
    /// Presence penalty: subtracted from the logits of recent tokens [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = finite)]
    pub presence_penalty: Option<f32>,
    /// Frequency penalty: subtracted from a recent token's logit once per occurrence [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = finite)]
    pub frequency_penalty: Option<f32>,
    /// Add to a token's logit: 1234+2.5 or 1234-1; 1234-inf bans the token; can be repeated
    #[arg(short = 'l', long, value_name = "TOKEN(+/-)BIAS")]
    pub logit_bias: Vec<Bias>,
    /// Stop before this text; can be repeated
    #[arg(short = 'r', long = "reverse-prompt", alias = "stop", value_name = "TEXT", allow_hyphen_values = true, value_parser = NonEmptyStringValueParser::new())]
    pub stop: Vec<String>,
    /// End a reply that repeats itself endlessly: the same tokens at least five times in a row, 512 tokens in total
    #[arg(long)]
    pub stop_loops: bool,
    /// Random seed; -1 for a new one each time, below 2^53 so that all JSON readers can represent it
    #[arg(short, long, value_name = "N", default_value = "-1", allow_negative_numbers = true)]
    pub seed: OrNone<u64>,
    /// Maximum number of tokens to generate; -1 for no limit
    #[arg(
        short = 'n',
        long = "n-predict",
        alias = "predict",
        value_name = "N",
        default_value = "-1",
        allow_negative_numbers = true,
        value_parser = some
    )]
    pub predict: OrNone<usize>,
    /// Speculative decoding: guess tokens ahead and verify them in one step; does not change the text
    #[arg(long, value_name = "KIND", default_value = "auto", value_parser = choice(KINDS))]
    pub speculate: DraftKind,
    /// Maximum number of tokens to guess at a time [default: as many as pay off]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = positive::<u32>)]
    pub draft_max: Option<u32>,
}

/// What guesses tokens ahead.
pub const KINDS: &[Choice<DraftKind>] = &[
    ("auto", "Whatever pays off, as measured during generation; often nothing", DraftKind::Auto),
    ("off", "Nothing", DraftKind::Off),
    ("lookup", "What followed the same tokens earlier in the text", DraftKind::Lookup),
    ("mtp", "The model's multi-token-prediction block", DraftKind::Mtp),
];

impl SamplingArgs {
    /// The model file's recommended parameters, overridden by the given ones.
    pub fn over(&self, model: SamplerParams) -> SamplerParams {
        SamplerParams {
            temperature: self.temperature.unwrap_or(model.temperature),
            top_k: self.top_k.unwrap_or(model.top_k),
            top_p: self.top_p.unwrap_or(model.top_p),
            min_p: self.min_p.unwrap_or(model.min_p),
            seed: self.seed.0,
            repeat_penalty: self.repeat_penalty.unwrap_or(model.repeat_penalty),
            repeat_last_n: self.repeat_last_n.map_or(model.repeat_last_n, |n| n.0.unwrap_or(usize::MAX)),
            presence_penalty: self.presence_penalty.unwrap_or(model.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(model.frequency_penalty),
            logit_bias: self.logit_bias.iter().map(|bias| (bias.token, bias.amount)).collect(),
        }
    }

    pub fn speculation(&self) -> Speculation {
        Speculation { kind: self.speculate, most: self.draft_max.map(|most| most as usize) }
    }

    pub fn max_tokens(&self) -> Option<usize> {
        self.predict.0
    }
}
