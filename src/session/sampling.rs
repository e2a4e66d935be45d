//! How the next token is sampled, with logit bias and penalties or without. With them, sampling has steps of its own, which
//! are on the device from their first use on.
//!
//! The host lists what happens to which logit, anew for each token, and the GPU adds what the host cannot know yet: the
//! token that it sampled itself and is computing now. So a generation with penalties is ahead of the host like any other.

use super::Session;
use super::run::Next;
use crate::error::{Error, Result};
use crate::kernels::{Adjustment, Penalties, Sampling};
use crate::model::{Model, SamplingPlan, TokenPlan};
use crate::plan::Executor;
use crate::sample::SamplerParams;
use std::collections::HashSet;

impl Session {
    /// How tokens are sampled from here on: greedily until this is called. If the last token's output is there, its
    /// successor is sampled anew. Returns the seed in use, given or made up.
    ///
    /// A draw depends on the logits, the parameters, the seed, the position and, with penalties, the tokens before it,
    /// and on nothing else: on one device the same seed makes the same text, whatever was generated or rewound before.
    ///
    /// # Errors
    /// [`Error::Argument`] for parameters out of range or a bias that bans every token, [`Error::TokenOutOfRange`] for a
    /// bias on no token,
    /// [`Error::OutOfMemory`] if bias or penalties are asked for the first time and there is no room for them: after
    /// these tokens are sampled as before. What the device reports.
    pub fn set_sampling(&mut self, params: &SamplerParams) -> Result<u64> {
        params.check()?;
        let seed = params.seed();
        let SamplerParams { temperature, top_k, top_p, min_p, .. } = *params;
        self.adjusting = if params.adjusts() { Some(self.adjusting_for(params)?) } else { None };
        self.sampling = match temperature {
            0.0 => Sampling::GREEDY,
            _ => Sampling::draw(temperature, top_k, top_p, min_p, seed),
        };
        let (executor, steps) = match &self.adjusting {
            Some(adjusting) => (&adjusting.executor, &adjusting.planned.sampling),
            None => (&self.executor, &self.planned.sampling),
        };
        executor.gpu().write(executor.local(steps.params), 0, bytemuck::bytes_of(&self.sampling))?;
        if self.output.is_some() {
            self.run(Next::Sampling)?;
        }
        Ok(seed)
    }

    /// What adjusts logits by `params`: what does so already, if it has room enough. After an error that does so still.
    fn adjusting_for(&mut self, params: &SamplerParams) -> Result<Adjusting> {
        let room = Adjusting::room(params, self.model.config().vocab, self.context())?;
        match self.adjusting.take_if(|known| known.room >= room) {
            Some(known) => Ok(Adjusting { params: params.clone(), ..known }),
            None => Adjusting::new(params, room, &self.model, (&self.planned, &self.executor)),
        }
    }
}

/// Sampling from adjusted logits on the device, and how they are adjusted.
pub struct Adjusting {
    params: SamplerParams,
    pub planned: SamplingPlan,
    pub executor: Executor,
    /// Adjustments there is room for.
    room: usize,
}

impl Adjusting {
    /// How many logits `params` adjust at most.
    ///
    /// # Errors
    /// [`Error::TokenOutOfRange`] for a bias on no token, [`Error::Argument`] if every token is banned.
    fn room(params: &SamplerParams, vocab: usize, context: usize) -> Result<usize> {
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
    fn new(params: &SamplerParams, room: usize, model: &Model, token: (&TokenPlan, &Executor)) -> Result<Self> {
        let planned = model.plan_sampling(token.0, room)?;
        let shared = planned.shared.iter().map(|(here, there)| (*here, token.1.local(*there).clone())).collect();
        let executor = Executor::with_locals(model.pipelines(), &planned.plan, &[], &shared)?;
        Ok(Self { params: params.clone(), planned, executor, room })
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
}
