//! Logit bias and penalties: the choice's steps with them, on the device from their first use on.
//!
//! The host lists what happens to which logit, anew for each token, and the GPU adds what the host cannot know yet: the
//! token that it chose itself and is computing now. So a generation with penalties is ahead of the host like any other.

use crate::error::{Error, Result};
use crate::kernels::{Adjustment, Penalties, Sampling};
use crate::model::{Model, SamplingPlan, TokenPlan};
use crate::plan::Executor;
use crate::sample::SamplerParams;
use std::collections::HashSet;

/// The plan of a choice with adjustments, and what they are.
pub struct Adjusting {
    params: SamplerParams,
    planned: SamplingPlan,
    pub executor: Executor,
    /// Adjustments there is room for.
    room: usize,
}

impl Adjusting {
    /// How many logits `params` adjust at most.
    ///
    /// # Errors
    /// [`Error::TokenOutOfRange`] for a bias on no token, [`Error::Argument`] if every token is banned.
    pub fn room(params: &SamplerParams, vocab: usize, context: usize) -> Result<usize> {
        if let Some(&(token, _)) = params.logit_bias.iter().find(|(token, _)| *token as usize >= vocab) {
            return Err(Error::TokenOutOfRange { token, vocab });
        }
        let banned = params.logit_bias.iter().filter(|(_, bias)| *bias == f32::NEG_INFINITY);
        if banned.map(|(token, _)| token).collect::<HashSet<_>>().len() == vocab {
            let (expected, found) = ("a token that is not banned", format!("minus infinity for all {vocab} tokens"));
            return Err(Error::Argument { argument: "logit_bias", expected: expected.to_owned(), found });
        }
        let recent = if params.penalises() { params.repeat_last_n.min(context) } else { 0 };
        Ok((recent + params.logit_bias.len()).min(vocab))
    }

    /// Has `params` adjust up to `room` logits of a token's plan.
    ///
    /// # Errors
    /// What the device reports.
    pub fn new(params: &SamplerParams, room: usize, model: &Model, token: (&TokenPlan, &Executor)) -> Result<Self> {
        let planned = model.plan_sampling(token.0, room)?;
        let shared = planned.shared.iter().map(|(here, there)| (*here, token.1.local(*there).clone())).collect();
        let executor = Executor::with_locals(model.pipelines(), &planned.plan, &[], &shared)?;
        Ok(Self { params: params.clone(), planned, executor, room })
    }

    /// Whether it has room for so many adjustments.
    pub fn has(&self, room: usize) -> bool {
        self.room >= room
    }

    /// The same, adjusting by other `params`.
    pub fn with(self, params: &SamplerParams) -> Self {
        Self { params: params.clone(), ..self }
    }

    /// Writes how to choose.
    pub fn set(&self, sampling: &Sampling) -> Result<()> {
        self.executor.gpu().write(self.executor.local(self.planned.sampling.params), 0, bytemuck::bytes_of(sampling))
    }

    /// Writes what is to happen after `tokens`, and, if `ahead`, after one more that only the GPU knows.
    pub fn write(&self, tokens: &[u32], ahead: bool) -> Result<()> {
        let SamplerParams { repeat_penalty, presence_penalty, frequency_penalty, .. } = self.params;
        let ahead = ahead && self.params.penalises();
        let listed = self.params.adjustments(tokens, self.params.repeat_last_n - usize::from(ahead));
        let listed: Vec<Adjustment> =
            listed.iter().map(|it| Adjustment { token: it.token, count: it.count, bias: it.bias }).collect();
        let penalties = Penalties {
            count: listed.len() as u32,
            ahead: ahead.into(),
            repeat: repeat_penalty,
            presence: presence_penalty,
            frequency: frequency_penalty,
        };
        let bytes = [bytemuck::bytes_of(&penalties), bytemuck::cast_slice(&listed)].concat();
        self.executor.gpu().write(self.executor.local(self.planned.adjustments), 0, &bytes)
    }

    /// The steps, without those that `sampling` does without.
    pub fn steps(&self, sampling: &Sampling) -> impl Iterator<Item = usize> + use<> {
        let unneeded = (!sampling.filters()).then_some(self.planned.sampling.histogram);
        (0..self.planned.plan.steps.len()).filter(move |step| Some(*step) != unneeded)
    }
}
