//! Speculation: guesses of the tokens that come next, which one step of several rows verifies.
//!
//! A step of a few rows takes little longer than a step of one. So tokens are guessed, and the next step computes the guessed
//! ones, the drafts, together with the one that is certain. Each row's token is then sampled as if it were alone. As long
//! as drafts are what was sampled, they are accepted, and the step has made several tokens. What is sampled after the last
//! accepted row is the model's own choice, so no text depends on what was guessed.
//!
//! This module guesses and decides; it knows neither the model nor the GPU. `session/verify.rs` verifies.

mod lookup;
mod planner;

pub(crate) use lookup::{Continuation, Lookup};
pub(crate) use planner::{DraftPlanner, Evidence, Offer};

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// Whether and how tokens are guessed ahead. It changes how fast text is generated, and not which: see
/// [`Session::next_tokens`](crate::Session::next_tokens).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Speculation {
    /// What guesses.
    pub kind: DraftKind,
    /// The most tokens that are guessed at a time, from 1 on; `None` for as many as pay.
    pub most: Option<usize>,
}

/// What guesses the tokens that come next. Serialized as `"auto"`, `"off"` and so on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DraftKind {
    /// Whatever is expected to pay, measured on this GPU and in this conversation; often nothing.
    #[default]
    Auto,
    /// Nothing.
    Off,
    /// The text so far: what followed the last time when the same tokens stood there. Wherever there is a guess, it is
    /// tried.
    Lookup,
    /// The model's multi-token-prediction block, where its file has one, and nothing elsewhere.
    Mtp,
}

impl Speculation {
    /// No guesses.
    pub const OFF: Self = Self { kind: DraftKind::Off, most: None };

    /// Whether nothing is guessed.
    pub fn is_off(&self) -> bool {
        self.kind == DraftKind::Off
    }

    /// An error for a number of tokens that is out of range.
    pub(crate) fn check(&self) -> Result<()> {
        match self.most {
            Some(0) => {
                let (expected, found) = ("at least 1".to_owned(), "0".to_owned());
                Err(Error::Argument { argument: "speculation.most", expected, found })
            }
            _ => Ok(()),
        }
    }
}

/// What guessing has come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct DraftStats {
    /// The tokens that were guessed and verified.
    pub drafted: usize,
    /// How many of them were right.
    pub accepted: usize,
    /// The steps that verified them. Each also made a token that was not guessed.
    pub steps: usize,
    /// The seconds that this saved, as far as they were measured: what the tokens of these steps would have taken one by
    /// one, less what the steps took.
    pub saved_seconds: f64,
}

impl DraftStats {
    /// What was added since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            drafted: self.drafted.saturating_sub(earlier.drafted),
            accepted: self.accepted.saturating_sub(earlier.accepted),
            steps: self.steps.saturating_sub(earlier.steps),
            saved_seconds: self.saved_seconds - earlier.saved_seconds,
        }
    }
}
