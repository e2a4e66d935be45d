//! How long the steps of a token take, by the GPU's clock.
//!
//! A timestamp after every step would take longer than most steps do. So all steps of one kind run in a pass of their
//! own, which is timed at its beginning and its end. Steps that write the same activations wait for each other, as a step
//! of a token waits for the one before it. The time of a step therefore includes that wait, but not the time that a
//! change from one kernel to another takes.

use super::Session;
use crate::error::{Error, Result};
use crate::model::Outputs;
use crate::plan::{Executor, Plan, StepKind};

/// The fewest steps of a pass. Fewer steps are repeated, so that the time of the pass itself does not count. A step that
/// is repeated finds its data in the GPU's caches if it fits there, and may then seem faster than it is.
const LEAST: usize = 16;

/// How long a token took on the GPU, in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenProfile {
    /// A step of each of [`Plan::kinds`](crate::plan::Plan::kinds), among others of its kind.
    pub kinds: Vec<f64>,
    /// All of the token in one pass, as it runs otherwise.
    pub pass: f64,
}

impl Session {
    /// Feeds one token and returns how long it took on the GPU.
    ///
    /// Steps that run out of order leave wrong activations, sums that grow with every run, and a wrong KV row. None of
    /// these stay: each kind of step runs after a whole token, and a whole token comes last and writes everything again.
    ///
    /// # Errors
    /// As [`Session::feed`]; [`Error::Unsupported`] on a device without timestamps.
    pub fn profile(&mut self, token: u32) -> Result<TokenProfile> {
        self.check(self.tokens.len(), &[token])?;
        self.output = None;
        let kinds = self.planned.plan.kinds();
        let passes: Vec<Vec<usize>> = kinds.iter().map(repeated).collect();
        let all: Vec<usize> = (0..self.planned.plan.steps.len()).collect();
        let mut times = Vec::with_capacity(passes.len());
        for pass in &passes {
            self.write(self.tokens.len(), Some(token))?; // the last step of a token leaves another
            times.push(kind_time(&self.executor, &all, pass)?);
        }
        self.write(self.tokens.len(), Some(token))?;
        let profile = TokenProfile { kinds: times, pass: self.executor.time(&[&all])?[0] };
        self.tokens.push(token);
        Ok(profile)
    }

    /// As [`Session::profile`], of tokens computed together, as many as a chunk has at most.
    ///
    /// # Errors
    /// As there; [`Error::Argument`] for more of them.
    pub fn profile_chunk(&mut self, tokens: &[u32]) -> Result<TokenProfile> {
        self.check(self.tokens.len(), tokens)?;
        let most = self.plans.options.together();
        if !(1..=most).contains(&tokens.len()) {
            let (expected, found) = (format!("1 to {most} tokens"), tokens.len().to_string());
            return Err(Error::Argument { argument: "tokens", expected, found });
        }
        self.output = None;
        let place = (self.tokens.len(), tokens.len());
        let token = (&self.planned, &self.executor);
        let known = self.plans.plan(place, Outputs::Last, &self.model, token, &mut || Ok(()))?;
        known.write(&self.state, self.tokens.len(), tokens, 0)?;
        let (executor, plan) = (&known.executor, &known.planned.plan);
        let all: Vec<usize> = (0..plan.steps.len()).collect();
        let time = |kind: &StepKind<'_>| kind_time(executor, &all, &repeated(kind));
        let kinds = plan.kinds().iter().map(time).collect::<Result<_>>()?;
        let profile = TokenProfile { kinds, pass: executor.time(&[&all])?[0] };
        self.tokens.extend_from_slice(tokens);
        Ok(profile)
    }

    /// The plan by which so many tokens are computed together, after those that are there.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if there is no room for what it needs.
    pub fn chunk_plan(&mut self, count: usize) -> Result<&Plan> {
        let place = (self.tokens.len(), count);
        let token = (&self.planned, &self.executor);
        Ok(&self.plans.plan(place, Outputs::Last, &self.model, token, &mut || Ok(()))?.planned.plan)
    }
}

/// The time of a step of a kind, which runs after all steps of a token or of a part of a prompt.
fn kind_time(executor: &Executor, all: &[usize], pass: &[usize]) -> Result<f64> {
    Ok(executor.time(&[all, pass])?[1] / pass.len() as f64)
}

/// The steps of a kind, repeated until they are enough for a pass.
fn repeated(kind: &StepKind<'_>) -> Vec<usize> {
    let times = LEAST.div_ceil(kind.steps.len().max(1));
    kind.steps.repeat(times)
}
