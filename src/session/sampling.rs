//! How the next token is chosen, and going on with it.

use super::Session;
use super::adjusting::Adjusting;
use super::sampled::{LastOutput, SampledToken};
use crate::error::{Error, Result};
use crate::kernels::Sampling;
use crate::plan::Plan;
use crate::sample::SamplerParams;

impl Session {
    /// How tokens are chosen from here on: greedily until this is called. If the last token's output is there, its
    /// successor is chosen anew. Returns the seed in use, given or made up.
    ///
    /// A draw depends on the logits, the parameters, the seed, the position and, with penalties, the tokens before it,
    /// and on nothing else: on one device the same seed makes the same text, whatever was generated or rewound before.
    ///
    /// # Errors
    /// [`Error::Argument`] for parameters out of range or a bias that bans every token, [`Error::TokenOutOfRange`] for a
    /// bias on no token,
    /// [`Error::OutOfMemory`] if bias or penalties are asked for the first time and there is no room for them: after
    /// these tokens are chosen as before. What the device reports.
    pub fn set_sampling(&mut self, params: &SamplerParams) -> Result<u64> {
        params.check()?;
        let seed = params.seed();
        let SamplerParams { temperature, top_k, top_p, min_p, .. } = *params;
        self.adjusting = if params.adjusts() { Some(self.adjusting_for(params)?) } else { None };
        self.sampling = match temperature {
            0.0 => Sampling::GREEDY,
            _ => Sampling::draw(temperature, top_k, top_p, min_p, seed),
        };
        match &self.adjusting {
            Some(adjusting) => adjusting.set(&self.sampling)?,
            None => {
                let local = self.executor.local(self.planned.sampling.params);
                self.executor.gpu().write(local, 0, bytemuck::bytes_of(&self.sampling))?;
            }
        }
        if self.output.take().is_some() {
            self.resample()?;
        }
        Ok(seed)
    }

    /// What adjusts logits by `params`: what does so already, if it has room enough. After an error that does so still.
    fn adjusting_for(&mut self, params: &SamplerParams) -> Result<Adjusting> {
        let room = Adjusting::room(params, self.model.config().vocab, self.context())?;
        match self.adjusting.take_if(|known| known.has(room)) {
            Some(known) => Ok(known.with(params)),
            None => Adjusting::new(params, room, &self.model, (&self.planned, &self.executor)),
        }
    }

    /// Chooses the last token's successor by the logits that are on the device.
    pub(super) fn resample(&mut self) -> Result<()> {
        self.write_state(self.tokens.len() - 1)?; // the same token, with a ticket of its own
        self.output = Some(self.submit_from(self.planned.sampling.first)?);
        Ok(())
    }

    /// Feeds the token that was chosen after the last one, and returns it.
    ///
    /// The GPU knows that token before the host does: it is submitted first and read then, so that the GPU
    /// is at work while the host makes something of the token. Called in a loop this is the fastest way to
    /// generate. Where the token should not have been fed, as one that ends a reply, [`Session::rewind`] by
    /// one: its line in the cache is overwritten by the next token fed.
    ///
    /// # Errors
    /// [`Error::ContextFull`], which leaves everything as it was; [`Error::Argument`] as [`Session::logits`];
    /// [`Error::NotANumber`] if no logit is a number, or what the device reports, after which nothing more was
    /// fed and the last token's output is gone; [`Error::NoResult`] as [`Session::logits`].
    pub fn feed_chosen(&mut self) -> Result<u32> {
        self.check(self.tokens.len() + 1, &[])?;
        let before = self.output()?.clone();
        self.output = None;
        self.write(None)?;
        let output = self.submit_from(0)?;
        let token = self.read(&before)?.chosen()?;
        self.tokens.push(token);
        self.output = Some(output);
        Ok(token)
    }

    /// The token chosen after the last one, as [`Session::set_sampling`] asks.
    ///
    /// # Errors
    /// As [`Session::most_likely`].
    pub fn chosen(&mut self) -> Result<u32> {
        self.read(&self.output()?.clone())?.chosen()
    }

    /// The most likely token after the last one fed, as bias and penalties leave it.
    ///
    /// # Errors
    /// As [`Session::logits`]; [`Error::NotANumber`] if no logit is a number.
    pub fn most_likely(&mut self) -> Result<u32> {
        self.read(&self.output()?.clone())?.likeliest()
    }

    /// Submits a step and those after it, to the choice of the next token. From the first step on it is a token that is
    /// not among the session's yet.
    pub(super) fn submit_from(&mut self, first: usize) -> Result<LastOutput> {
        let (executor, planned, sampling) = (&self.executor, &self.planned, &self.sampling);
        let token = executor.local(Plan::TOKEN);
        let computed = first < planned.sampling.first;
        let output = match &self.adjusting {
            Some(adjusting) => {
                adjusting.write(&self.tokens, first == 0)?;
                let then = (&adjusting.executor, adjusting.steps(sampling));
                let steps = first..planned.sampling.first;
                self.sampled.submit(self.ticket, token, |copy| executor.submit_with(steps, then, &[copy]))?
            }
            None => {
                let unneeded = (!sampling.filters()).then_some(planned.sampling.histogram);
                let steps = (first..planned.plan.steps.len()).filter(|step| Some(*step) != unneeded);
                self.sampled.submit(self.ticket, token, |copy| executor.submit(steps, &[copy]))?
            }
        };
        self.has_hidden |= computed;
        self.runs(output.submission().clone())?;
        Ok(output)
    }

    /// The choice after the tokens as they are. If it never came, those that no other result vouches for go: nobody
    /// knows what the cache holds of them.
    pub(super) fn read(&mut self, output: &LastOutput) -> Result<SampledToken> {
        let gpu = self.executor.gpu();
        let choice = self.sampled.read(gpu, output);
        let choice = choice.and_then(|choice| self.receipts.check(gpu, output.submission()).map(|()| choice));
        let choice = self.or_rewound(choice)?;
        self.confirmed = self.tokens.len();
        Ok(choice)
    }

    /// What came of work; if it never came, without the tokens that nothing else vouches for.
    pub(super) fn or_rewound<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(Error::NoResult) = result {
            self.rewind(self.confirmed);
            self.output = None;
        }
        result
    }
}
