//! The outputs of the model: logits, and the hidden states from which they are computed.

use super::pool::{RowOutput, Runner};
use super::run::Next;
use super::{LastOutput, Session, heeding};
use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::gpu::Fetch;
use crate::model::{BatchPlan, BatchShape, Outputs};
use crate::plan::{LocalId, Tensor};

/// The most bytes of logits on the device when those of every token are wanted.
const LOGITS_BYTES: usize = 64 << 20;

impl Session {
    /// The logits {vocab} of the last token that was fed, without bias and penalties.
    ///
    /// # Errors
    /// [`Error::Argument`] if nothing was fed since the start or the last rewind. [`Error::NoResult`] if the device lost
    /// work: the tokens that no earlier result has confirmed are then removed from the session. What the device reports.
    pub fn logits(&mut self) -> Result<Vec<f32>> {
        self.with_runner(Self::logits_in)
    }

    pub(super) fn logits_in(&mut self, runner: &mut Runner) -> Result<Vec<f32>> {
        match self.last_output(runner)? {
            LastOutput::Row(at) => return self.read_row(runner, at, |planned| Ok(planned.head()?.logits)),
            LastOutput::Sampled => self.run_again(runner)?,
            LastOutput::Logits | LastOutput::Hidden => {}
        }
        let logits = self.planned.head()?.logits.buffer.local()?;
        self.read(runner, logits, self.model().config().vocab)
    }

    /// The hidden state {width} of the last token that was fed: the sum of all layers, normalised by `output_norm`. Its
    /// products with the rows of the output matrix are the [logits](Session::logits). llama.cpp calls it the embedding of
    /// the token, and transformers calls it `last_hidden_state`.
    ///
    /// # Errors
    /// As for [`Session::logits`]. [`Error::Argument`] also if nothing was fed since a snapshot was restored, because a
    /// snapshot does not hold the hidden state.
    pub fn hidden(&mut self) -> Result<Vec<f32>> {
        let hidden = self.with_runner(|session, runner| {
            match session.last_output(runner)? {
                LastOutput::Hidden => {}
                LastOutput::Row(at) => return session.read_row(runner, at, |planned| Ok(planned.hidden)),
                LastOutput::Sampled => session.run_again(runner)?,
                LastOutput::Logits => {
                    let expected = "a token fed since the snapshot was restored".to_owned();
                    return Err(Error::Argument { argument: "session", expected, found: "none".into() });
                }
            }
            session.read(runner, session.planned.hidden.buffer.local()?, session.model().config().width)
        })?;
        Ok(normalised(&hidden, &self.output_norm()?, self.model().config().epsilon))
    }

    /// Feeds tokens and calls `visit` with the place of each among them and its logits {vocab}, in order.
    ///
    /// # Errors
    /// As for [`Session::feed`], and the error of `visit`, after which the session keeps what was fed.
    pub fn feed_all(&mut self, tokens: &[u32], visit: &mut dyn FnMut(usize, &[f32]) -> Result<()>) -> Result<()> {
        self.feed_all_with(tokens, &Cancel::default(), visit)
    }

    /// Like [`Session::feed_all`]. `cancel` stops it, as it stops [`Session::feed_with`].
    ///
    /// # Errors
    /// As there, and [`Error::Cancelled`], after which the session keeps the tokens that it holds.
    pub fn feed_all_with(
        &mut self,
        tokens: &[u32],
        cancel: &Cancel,
        visit: &mut dyn FnMut(usize, &[f32]) -> Result<()>,
    ) -> Result<()> {
        heeding(cancel, || self.feed_rows(tokens, Outputs::All, cancel, visit))
    }

    /// Feeds tokens and calls `visit` with the place of each among them and its hidden state {width}, which is that of
    /// [`Session::hidden`], in order.
    ///
    /// # Errors
    /// As for [`Session::feed`], and the error of `visit`, after which the session keeps what was fed.
    pub fn feed_hidden(&mut self, tokens: &[u32], visit: &mut dyn FnMut(usize, &[f32]) -> Result<()>) -> Result<()> {
        self.feed_hidden_with(tokens, &Cancel::default(), visit)
    }

    /// Like [`Session::feed_hidden`]. `cancel` stops it, as it stops [`Session::feed_with`].
    ///
    /// # Errors
    /// As there, and [`Error::Cancelled`], after which the session keeps the tokens that it holds.
    pub fn feed_hidden_with(
        &mut self,
        tokens: &[u32],
        cancel: &Cancel,
        visit: &mut dyn FnMut(usize, &[f32]) -> Result<()>,
    ) -> Result<()> {
        let (norm, epsilon) = (self.output_norm()?, self.model().config().epsilon);
        let mut normalise = |place, row: &[f32]| visit(place, &normalised(row, &norm, epsilon));
        heeding(cancel, || self.feed_rows(tokens, Outputs::Last, cancel, &mut normalise))
    }

    /// The mean of the [hidden states](Session::hidden) {width} of a text's tokens. Two texts can be compared by the cosine
    /// of the angle between their means. The model was trained to predict text and not to compare it, so models that were
    /// trained for that are better at it. The chat template is not used. The session forgets what it held before, and
    /// holds the text afterwards.
    ///
    /// # Errors
    /// [`Error::Argument`] for a text without tokens, [`Error::Tokenizer`]; otherwise as for [`Session::feed`].
    pub fn embed(&mut self, text: &str) -> Result<Vec<f32>> {
        self.embed_with(text, &Cancel::default())
    }

    /// Like [`Session::embed`]. `cancel` stops it, as it stops [`Session::feed_with`].
    ///
    /// # Errors
    /// As there, and [`Error::Cancelled`], after which the session holds the beginning of the text.
    pub fn embed_with(&mut self, text: &str, cancel: &Cancel) -> Result<Vec<f32>> {
        let tokens = self.model().tokenizer()?.encode(text, false)?;
        if tokens.is_empty() {
            let expected = "a text of at least one token".to_owned();
            return Err(Error::Argument { argument: "text", expected, found: "an empty one".into() });
        }
        self.check(0, &tokens)?;
        self.rewind(0);
        let mut sums = vec![0f64; self.model().config().width];
        self.feed_hidden_with(&tokens, cancel, &mut |_, row| {
            sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value));
            Ok(())
        })?;
        Ok(sums.into_iter().map(|sum| (sum / tokens.len() as f64) as f32).collect())
    }

    /// Feeds tokens and calls `visit` with the place of each and with its logits if those of all tokens are wanted, or else
    /// with its hidden state before the norm.
    fn feed_rows(
        &mut self,
        tokens: &[u32],
        outputs: Outputs,
        cancel: &Cancel,
        visit: &mut dyn FnMut(usize, &[f32]) -> Result<()>,
    ) -> Result<()> {
        self.check(self.tokens.len(), tokens)?;
        let (vocab, width) = (self.model().config().vocab, self.model().config().width);
        let (values, local) = match outputs {
            Outputs::All | Outputs::Sequences | Outputs::Verified => {
                (vocab, self.planned.head()?.logits.buffer.local()?)
            }
            Outputs::Last => (width, self.planned.hidden.buffer.local()?),
        };
        let most = LOGITS_BYTES / (4 * vocab.max(1));
        let together = self.options.rooms().take_while(|room| *room <= most).last().unwrap_or(1);
        self.with_runner(|session, runner| session.reach(runner, tokens.len()))?;
        self.parts.begin(self.tokens.len());
        let mut fed = 0;
        while fed < tokens.len() {
            cancel.check()?;
            let rest = &tokens[fed..];
            let count = match outputs {
                Outputs::All | Outputs::Sequences | Outputs::Verified => rest.len().min(together),
                Outputs::Last => self.parts.next(self.tokens.len(), rest.len()),
            };
            let read = self.with_runner(|session, runner| match rest[..count] {
                [token] => {
                    session.run(runner, Next::Token(token))?;
                    Ok(Some((session.read(runner, local, values)?, values)))
                }
                _ => {
                    let shape = match outputs {
                        Outputs::Last => session.part_shape(rest.len()),
                        _ => session.shape(count, outputs),
                    };
                    match session.run_part(runner, &rest[..count], shape, true, &mut |_| cancel.check())? {
                        true => session.read_part(runner, count, shape).map(Some),
                        false => Ok(None),
                    }
                }
            })?;
            let Some((rows, stride)) = read else { continue };
            for (row, place) in rows.chunks(stride).zip(fed..) {
                visit(place, &row[..values])?;
            }
            fed += count;
        }
        self.parts.end();
        let ended = self.output.is_some() || tokens.is_empty();
        if ended { Ok(()) } else { self.with_runner(Self::end_prompt) }
    }

    /// The first values in a local buffer of the token's plan.
    fn read(&mut self, runner: &mut Runner, local: LocalId, count: usize) -> Result<Vec<f32>> {
        let values = runner.fetch.read(runner.plans.alone.executor.local(local), 0, 4 * count as u64);
        self.take(runner, runner.submissions.place)?; // no work that they depend on was lost
        Ok(bytemuck::pod_collect_to_vec(&values?))
    }

    /// A row of what a step of several sessions left.
    fn read_row(
        &mut self,
        runner: &mut Runner,
        at: RowOutput,
        tensor: impl Fn(&BatchPlan) -> Result<Tensor>,
    ) -> Result<Vec<f32>> {
        let ready = runner.plans.get(self.model(), at.shape, self.options.limit, &mut || Ok(()))?;
        let rows = tensor(&ready.planned)?;
        let (offset, bytes) = (4 * (at.row * rows.pitch) as u64, 4 * rows.shape[0] as u64);
        let values = runner.fetch.read(ready.executor.local(rows.buffer.local()?), offset, bytes);
        self.take(runner, runner.submissions.place)?;
        Ok(bytemuck::pod_collect_to_vec(&values?))
    }

    /// The values of every token that the last part of a prompt left, and the distance from the first value of one token to
    /// the first of the next.
    fn read_part(&mut self, runner: &mut Runner, count: usize, shape: BatchShape) -> Result<(Vec<f32>, usize)> {
        let ready = runner.plans.get(self.model(), shape, self.options.limit, &mut || Ok(()))?;
        let rows = ready.planned.head.map_or(ready.planned.hidden, |head| head.logits);
        let bytes = 4 * (rows.pitch * count) as u64;
        let values = Fetch::new(self.model().gpu(), bytes)?.read(ready.executor.local(rows.buffer.local()?), 0, bytes);
        self.take(runner, runner.submissions.place)?;
        Ok((bytemuck::pod_collect_to_vec(&values?), rows.pitch))
    }

    /// The weights {width} of the norm before the head.
    fn output_norm(&self) -> Result<Vec<f32>> {
        let norm = &self.planned.weights.output_norm.weight;
        let bytes = 4 * self.model().config().width as u64;
        let read = Fetch::new(self.model().gpu(), bytes)?.read(&self.model().weights()[norm.id.index()], 0, bytes)?;
        Ok(bytemuck::pod_collect_to_vec(&read))
    }
}

/// A row divided by its root mean square and multiplied by a norm's weights.
fn normalised(row: &[f32], weights: &[f32], epsilon: f32) -> Vec<f32> {
    let squares: f64 = row.iter().map(|value| f64::from(*value).powi(2)).sum();
    let scale = (squares / row.len() as f64 + f64::from(epsilon)).sqrt().recip();
    row.iter().zip(weights).map(|(value, weight)| (f64::from(*value) * scale * f64::from(*weight)) as f32).collect()
}
