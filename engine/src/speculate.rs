//! Speculation: guesses of the tokens that come next, which one step of several rows verifies.
//!
//! A step of a few rows takes little longer than a step of one. So tokens are guessed, and the next step computes the
//! guesses, called drafts, together with the certain token. Each row's token is then sampled as if the row were alone.
//! Drafts are accepted as long as they equal the sampled tokens, and the step has made several tokens. The token
//! sampled after the last accepted row is the model's own choice, so no text depends on the guesses.
//!
//! This module guesses and decides how much to guess, without the model or the GPU. `session/next.rs` has
//! them verified.

mod lookup;
mod planner;

pub(crate) use lookup::{Continuation, Lookup};
pub(crate) use planner::{DraftEstimate, DraftOffer, DraftPlanner, DraftSource};

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// Whether and how tokens are guessed ahead. It changes the speed of a generation, not its text: see
/// [`Session::next_tokens`](crate::Session::next_tokens).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Speculation {
    /// What guesses.
    pub kind: DraftKind,
    /// The maximum number of tokens that are guessed at a time, at least 1; `None` for as many as pay off.
    pub most: Option<usize>,
}

/// What guesses the tokens that come next. Serialized as `"auto"`, `"off"` and so on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DraftKind {
    /// Whatever is expected to pay off, as measured on this GPU and in this conversation; often nothing.
    #[default]
    Auto,
    /// Nothing.
    Off,
    /// The text so far: what followed the last occurrence of the same tokens. Every guess is tried.
    Lookup,
    /// The model's multi-token-prediction block; nothing if its file has none.
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
            Some(0) => Err(Error::argument("speculation.most", "at least 1", "0")),
            _ => Ok(()),
        }
    }
}

/// The results of guessing.
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
    /// The seconds that this saved, as far as they were measured: the time that the tokens of these steps would have
    /// taken one by one, minus the time of the steps.
    pub saved_seconds: f64,
}

impl DraftStats {
    /// The difference to earlier statistics.
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
