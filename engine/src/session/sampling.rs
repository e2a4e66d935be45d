//! How the next token is sampled: with or without logit bias and penalties, from all tokens or from those that a mask
//! allows.
//!
//! The host lists the changes of logits for each token, and the GPU adds those for the token that it has sampled itself
//! and that the host does not know yet. So a generation with penalties is ahead of the host like any other.
//!
//! The mask for a token depends on the token before it, so the host has to know that one first. The layers and the head
//! do not depend on the mask and are submitted before. While the GPU computes them, the caller determines which tokens
//! are allowed. Then the sampling is a submission of its own, with the mask.

use super::Session;
use super::owners::Values;
use super::step::{Want, known};
use super::token_counts::TokenCounts;
use crate::error::{Error, Result};
use crate::kernels::{Adjustment, Penalties, Sampling, mask_words};
use crate::sample::SamplerParams;
use std::collections::HashSet;

/// How the tokens of a sequence are sampled.
pub struct SamplingState {
    /// The parameters from the caller, and those on the GPU.
    params: SamplerParams,
    sampling: Sampling,
    /// Whether sampling waits for a mask.
    pub masked: bool,
    /// How often tokens occur among those that the penalties took into account last.
    pub recent: TokenCounts,
}

impl Default for SamplingState {
    fn default() -> Self {
        let (params, recent) = (SamplerParams::greedy(), TokenCounts::default());
        Self { params, sampling: Sampling::GREEDY, masked: false, recent }
    }
}

impl SamplingState {
    /// What is wanted of a token after which another is sampled.
    pub fn want<'a>(&self) -> Want<'a> {
        if self.masked { Want::Logits } else { Want::Sample(None) }
    }

    /// Whether filters remove tokens before one is drawn.
    pub fn filters(&self) -> bool {
        self.sampling.filters()
    }

    /// Whether logits are adjusted before a token is sampled.
    pub fn adjusts(&self) -> bool {
        self.params.adjusts()
    }

    /// Whether that depends on the tokens before.
    pub fn penalises(&self) -> bool {
        self.params.penalises()
    }

    /// The adjustments of logits after the tokens of the sequence, then `more` and, if `ahead`, one more token that
    /// only the GPU knows.
    pub fn adjustments(&mut self, tokens: &[u32], more: &[u32], ahead: bool) -> Vec<Adjustment> {
        let Self { params, recent, .. } = self;
        let listed = if params.penalises() {
            let (length, end) = (tokens.len(), tokens.len() + more.len());
            let start = end.saturating_sub(params.repeat_last_n - usize::from(ahead));
            let at = |index: usize| tokens.get(index).copied().unwrap_or_else(|| more[index - length]);
            recent.move_to(start..end, at);
            let listed = params.adjustments(recent.iter());
            recent.move_to(start.min(length)..length, at); // `more` need not become part of the sequence
            listed
        } else {
            params.adjustments([])
        };
        listed.iter().map(|it| Adjustment { token: it.token, count: it.count, bias: it.bias }).collect()
    }
}

impl Session {
    /// Sets how tokens are sampled from now on: greedily until this is called. If the last token's output is available,
    /// the next token is sampled again. Returns the seed in use, given or random.
    ///
    /// A draw depends on the logits, the parameters, the seed, the position and, with penalties, the tokens before it,
    /// and on nothing else: on one device the same seed makes the same text, whatever was generated or rewound before.
    ///
    /// # Errors
    /// [`Error::Argument`] for parameters out of range or a bias that bans every token, [`Error::TokenOutOfRange`] for
    /// a bias on a token that is not in the vocabulary, [`Error::OutOfMemory`] if bias or penalties are asked for the
    /// first time and do not fit into memory: after these tokens are sampled as before. Any error from the device.
    pub fn set_sampling(&mut self, params: &SamplerParams) -> Result<u64> {
        params.check()?;
        let seed = params.seed();
        let SamplerParams { temperature, top_k, top_p, min_p, .. } = *params;
        let most = if params.adjusts() { Some(self.most_adjustments(params)?) } else { None };
        let sampling = match temperature {
            0.0 => Sampling::GREEDY,
            _ => Sampling::draw(temperature, top_k, top_p, min_p, seed),
        };
        let penalties = match params.penalises() {
            true => Penalties {
                repeat: params.repeat_penalty,
                presence: params.presence_penalty,
                frequency: params.frequency_penalty,
            },
            false => Penalties::NONE,
        };
        let (mut state, sequence) = self.enter()?;
        let state = &mut *state;
        if let Some(most) = most {
            state.plans.alone.sample_with(&state.model, most, false)?;
        }
        let sampling = sampling.penalised(penalties);
        (sequence.sampling.params, sequence.sampling.sampling) = (params.clone(), sampling);
        state.write_sampling(sequence.index, &sampling)?;
        if !sequence.has_output() {
            return Ok(seed);
        }
        // A row in a step of several is rounded differently from a single row, and only the latter counts for the text.
        sequence.output = sequence.output.filter(|output| !matches!(output.values, Values::Row { .. }));
        let again = state.held(sequence) == Values::Gone;
        let want = if again { sequence.sampling.want() } else { Want::Sample(None) };
        state.run_last(sequence, want)?;
        Ok(seed)
    }

    /// How many logits `params` adjust at most.
    ///
    /// # Errors
    /// [`Error::TokenOutOfRange`] for a bias on a token that is not in the vocabulary, [`Error::Argument`] if every
    /// token is banned.
    fn most_adjustments(&self, params: &SamplerParams) -> Result<usize> {
        let vocab = self.model().config().vocab;
        if let Some(&(token, _)) = params.logit_bias.iter().find(|(token, _)| *token as usize >= vocab) {
            return Err(Error::TokenOutOfRange { token, vocab });
        }
        let banned = params.logit_bias.iter().filter(|(_, bias)| *bias == f32::NEG_INFINITY);
        if banned.map(|(token, _)| token).collect::<HashSet<_>>().len() == vocab {
            let (expected, found) = ("a token that is not banned", format!("minus infinity for all {vocab} tokens"));
            return Err(Error::argument("logit_bias", expected, found));
        }
        let recent = if params.penalises() { params.repeat_last_n.min(self.context()) } else { 0 };
        Ok((recent + params.logit_bias.len()).min(vocab))
    }

    /// Sets whether masks restrict tokens from now on. Then nothing is sampled when tokens are fed, but only by
    /// [`Session::sample_masked`]. If no token was sampled, [`Session::next_token`] and all others that need one sample
    /// it from all tokens.
    pub fn set_masked(&mut self, masked: bool) {
        self.sequence.sampling.masked = masked;
    }

    /// Samples the token after the last one from those that `mask` allows, with the parameters of
    /// [`Session::set_sampling`], and returns it without feeding it. The mask has a bit for each token, 32 in a word,
    /// the lowest bit of a word first. Top-k, top-p and min-p filter only the allowed tokens, so they may keep some
    /// that they would remove among all. If none of them is set, the token that would be drawn from all tokens is drawn
    /// here if it is allowed.
    ///
    /// If the same logits are sampled again, the random number is the same.
    ///
    /// # Errors
    /// [`Error::Argument`] for a mask of another length or one that allows no token; [`Error::NotANumber`] if no
    /// allowed logit is a number; otherwise as for [`Session::logits`].
    pub fn sample_masked(&mut self, mask: &[u32]) -> Result<u32> {
        let vocab = self.model().config().vocab;
        let (words, last) = (mask_words(vocab), vocab % u32::BITS as usize);
        if mask.len() != words {
            return Err(Error::argument(
                "mask",
                format!("{words} words, one bit per token"),
                format!("{} words", mask.len()),
            ));
        }
        let unused = if last == 0 { 0 } else { u32::MAX << last };
        let is_last = |index: usize| index + 1 == words;
        if mask.iter().enumerate().all(|(index, word)| word & !if is_last(index) { unused } else { 0 } == 0) {
            return Err(Error::argument("mask", "at least one allowed token", "none"));
        }
        let (mut state, sequence) = self.enter()?;
        state.check_output(sequence)?;
        state.run_last(sequence, Want::Sample(Some(mask)))?;
        let [sampled, ..] = state.newest(sequence)?;
        known(sampled)
    }
}
