//! How the next token is sampled, with logit bias and penalties or without. With them, sampling has steps of its own, which
//! are on the device from their first use on.
//!
//! The host lists what happens to which logit, anew for each token, and the GPU adds what the host cannot know yet: the
//! token that it sampled itself and is computing now. So a generation with penalties is ahead of the host like any other.

use super::run::Next;
use super::{LastOutput, Session};
use crate::error::{Error, Result};
use crate::kernels::{Adjustment, Penalties, Sampling};
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
        let room = if params.adjusts() { Some(self.most_adjustments(params)?) } else { None };
        let sampling = match temperature {
            0.0 => Sampling::GREEDY,
            _ => Sampling::draw(temperature, top_k, top_p, min_p, seed),
        };
        let penalties = Penalties {
            repeat: params.repeat_penalty,
            presence: params.presence_penalty,
            frequency: params.frequency_penalty,
        };
        self.with_runner(|session, runner| {
            if let Some(room) = room {
                runner.plans.alone.adjust_up_to(session.pool.model(), room)?;
            }
            session.sampling = sampling.penalised(penalties);
            session.params = params.clone();
            runner.set_sampling(session.sequence, &session.sampling)?;
            match session.output.map(|_| session.last_output(runner)).transpose()? {
                None => Ok(()),
                Some(LastOutput::Logits | LastOutput::Hidden) => session.run(runner, Next::Sampling),
                Some(_) => session.run_again(runner),
            }
        })?;
        Ok(seed)
    }

    /// How many logits `params` adjust at most.
    ///
    /// # Errors
    /// [`Error::TokenOutOfRange`] for a bias on no token, [`Error::Argument`] if every token is banned.
    fn most_adjustments(&self, params: &SamplerParams) -> Result<usize> {
        let vocab = self.model().config().vocab;
        if let Some(&(token, _)) = params.logit_bias.iter().find(|(token, _)| *token as usize >= vocab) {
            return Err(Error::TokenOutOfRange { token, vocab });
        }
        let banned = params.logit_bias.iter().filter(|(_, bias)| *bias == f32::NEG_INFINITY);
        if banned.map(|(token, _)| token).collect::<HashSet<_>>().len() == vocab {
            let (expected, found) = ("a token that is not banned", format!("minus infinity for all {vocab} tokens"));
            return Err(Error::Argument { argument: "logit_bias", expected: expected.to_owned(), found });
        }
        let recent = if params.penalises() { params.repeat_last_n.min(self.context()) } else { 0 };
        Ok((recent + params.logit_bias.len()).min(vocab))
    }

    /// Whether logits are adjusted before a token is sampled.
    pub(super) fn adjusts(&self) -> bool {
        self.params.adjusts()
    }

    /// What happens to logits after `tokens`, and, if `ahead`, after one more that only the GPU knows.
    pub(super) fn adjustments(&self, tokens: &[u32], ahead: bool) -> Vec<Adjustment> {
        let ahead = ahead && self.params.penalises();
        let listed = self.params.adjustments(tokens, self.params.repeat_last_n - usize::from(ahead));
        listed.iter().map(|it| Adjustment { token: it.token, count: it.count, bias: it.bias }).collect()
    }
}
