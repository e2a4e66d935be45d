//! The outputs of the model: logits, and the hidden states from which they are computed.

use super::run::{Next, going_on};
use super::{LastOutput, Session};
use crate::error::{Error, Result};
use crate::gpu::Fetch;
use crate::model::Outputs;
use std::ops::ControlFlow;

/// The most bytes of logits on the device when those of every token are wanted.
const LOGITS_BYTES: usize = 64 << 20;

impl Session {
    /// The logits {vocab} of the last token that was fed, without bias and penalties.
    ///
    /// # Errors
    /// [`Error::Argument`] if nothing was fed since the start or the last rewind. [`Error::NoResult`] if the device lost
    /// work: the tokens that no earlier result has confirmed are then removed from the session. What the device reports.
    pub fn logits(&mut self) -> Result<Vec<f32>> {
        self.last_output()?;
        self.read(self.planned.logits, self.model.config().vocab)
    }

    /// The hidden state {width} of the last token that was fed: the sum of all layers, normalised by `output_norm`. Its
    /// products with the rows of the output matrix are the [logits](Session::logits). llama.cpp calls it the embedding of
    /// the token, and transformers calls it `last_hidden_state`.
    ///
    /// # Errors
    /// As for [`Session::logits`]. [`Error::Argument`] also if nothing was fed since a snapshot was restored, because a
    /// snapshot does not hold the hidden state.
    pub fn hidden(&mut self) -> Result<Vec<f32>> {
        if self.last_output()? != LastOutput::Hidden {
            let expected = "a token fed since the snapshot was restored".to_owned();
            return Err(Error::Argument { argument: "session", expected, found: "none".into() });
        }
        let hidden = self.read(self.planned.hidden, self.model.config().width)?;
        Ok(normalised(&hidden, &self.output_norm()?, self.model.config().epsilon))
    }

    /// Feeds tokens and calls `visit` with the place of each among them and its logits {vocab}, in order.
    ///
    /// # Errors
    /// As for [`Session::feed`], and [`Error::Cancelled`] if `visit` says so, after which the session keeps what was fed.
    pub fn feed_all(&mut self, tokens: &[u32], visit: &mut dyn FnMut(usize, &[f32]) -> ControlFlow<()>) -> Result<()> {
        self.feed_rows(tokens, Outputs::All, visit)
    }

    /// Feeds tokens and calls `visit` with the place of each among them and its hidden state {width}, which is that of
    /// [`Session::hidden`], in order.
    ///
    /// # Errors
    /// As for [`Session::feed`], and [`Error::Cancelled`] if `visit` says so, after which the session keeps what was fed.
    pub fn feed_hidden(
        &mut self,
        tokens: &[u32],
        visit: &mut dyn FnMut(usize, &[f32]) -> ControlFlow<()>,
    ) -> Result<()> {
        let (norm, epsilon) = (self.output_norm()?, self.model.config().epsilon);
        let mut normalise = |place, row: &[f32]| visit(place, &normalised(row, &norm, epsilon));
        self.feed_rows(tokens, Outputs::Last, &mut normalise)
    }

    /// The mean of the [hidden states](Session::hidden) {width} of a text's tokens. Two texts can be compared by the cosine
    /// of the angle between their means. The model was trained to predict text and not to compare it, so models that were
    /// trained for that are better at it. The chat template is not used. The session forgets what it held before, and
    /// holds the text afterwards.
    ///
    /// # Errors
    /// [`Error::Argument`] for a text without tokens, [`Error::Tokenizer`]; otherwise as for [`Session::feed`].
    pub fn embed(&mut self, text: &str) -> Result<Vec<f32>> {
        let tokens = self.model.tokenizer()?.encode(text, false)?;
        if tokens.is_empty() {
            let expected = "a text of at least one token".to_owned();
            return Err(Error::Argument { argument: "text", expected, found: "an empty one".into() });
        }
        self.check(0, &tokens)?;
        self.rewind(0);
        let mut sums = vec![0f64; self.model.config().width];
        self.feed_hidden(&tokens, &mut |_, row| {
            sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value));
            ControlFlow::Continue(())
        })?;
        Ok(sums.into_iter().map(|sum| (sum / tokens.len() as f64) as f32).collect())
    }

    /// Feeds tokens and calls `visit` with the place of each and with its logits if those of all tokens are wanted, or else
    /// with its hidden state before the norm.
    fn feed_rows(
        &mut self,
        tokens: &[u32],
        outputs: Outputs,
        visit: &mut dyn FnMut(usize, &[f32]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.check(self.tokens.len(), tokens)?;
        let (vocab, width) = (self.model.config().vocab, self.model.config().width);
        let (values, local) = match outputs {
            Outputs::All => (vocab, self.planned.logits),
            Outputs::Last => (width, self.planned.hidden),
        };
        let most = LOGITS_BYTES / (4 * vocab.max(1));
        let together = self.plans.options.rooms().take_while(|room| *room <= most).last().unwrap_or(1);
        self.parts.begin(self.tokens.len());
        let mut fed = 0;
        while fed < tokens.len() {
            let rest = &tokens[fed..];
            let count = match outputs {
                Outputs::All => rest.len().min(together),
                Outputs::Last => self.parts.next(self.tokens.len(), rest.len()),
            };
            let (rows, stride) = match rest[..count] {
                [token] => {
                    self.run(Next::Token(token))?;
                    (self.read(local, values)?, values)
                }
                _ if !self.run_part(&rest[..count], outputs, true, &mut |_| ControlFlow::Continue(()))? => continue,
                _ => self.read_part(count, outputs)?,
            };
            for (row, place) in rows.chunks(stride).zip(fed..) {
                going_on(visit(place, &row[..values]))?;
            }
            fed += count;
        }
        self.parts.end();
        if self.output.is_none() && !tokens.is_empty() { self.run(Next::Head) } else { Ok(()) }
    }

    /// The first values in a local buffer of the token's plan.
    fn read(&mut self, local: usize, count: usize) -> Result<Vec<f32>> {
        let values = self.fetch.read(self.executor.local(local), 0, 4 * count as u64);
        self.take(self.submissions.place)?; // no work that they depend on was lost
        Ok(bytemuck::pod_collect_to_vec(&values?))
    }

    /// The values of every token that the last part of a prompt left, and the distance from the first value of one token to
    /// the first of the next.
    fn read_part(&mut self, count: usize, outputs: Outputs) -> Result<(Vec<f32>, usize)> {
        let place = (self.tokens.len() - count, count);
        let token = (&self.planned, &self.executor);
        let plan = self.plans.plan(place, outputs, &self.model, token, &mut || Ok(()))?;
        let (gpu, planned) = (plan.executor.gpu(), &plan.planned);
        let (local, stride) = planned.logits.unwrap_or(planned.hidden);
        let bytes = 4 * (stride * count) as u64;
        let rows = Fetch::new(gpu, bytes)?.read(plan.executor.local(local), 0, bytes);
        self.take(self.submissions.place)?;
        Ok((bytemuck::pod_collect_to_vec(&rows?), stride))
    }

    /// The weights {width} of the norm before the head.
    fn output_norm(&self) -> Result<Vec<f32>> {
        const NAME: &str = "output_norm.weight";
        let missing = || Error::Tensor { name: NAME.into(), expected: "a vector".into(), found: "nothing".into() };
        let index = self.planned.plan.weights.iter().position(|weight| *weight.name == *NAME).ok_or_else(missing)?;
        let bytes = 4 * self.model.config().width as u64;
        let read = Fetch::new(self.executor.gpu(), bytes)?.read(&self.model.weights()[index], 0, bytes)?;
        Ok(bytemuck::pod_collect_to_vec(&read))
    }
}

/// A row divided by its root mean square and multiplied by a norm's weights.
fn normalised(row: &[f32], weights: &[f32], epsilon: f32) -> Vec<f32> {
    let squares: f64 = row.iter().map(|value| f64::from(*value).powi(2)).sum();
    let scale = (squares / row.len() as f64 + f64::from(epsilon)).sqrt().recip();
    row.iter().zip(weights).map(|(value, weight)| (f64::from(*value) * scale * f64::from(*weight)) as f32).collect()
}
