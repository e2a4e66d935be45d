//! The outputs of the model: logits, and the hidden states from which they are computed.

use super::owners::Values;
use super::plans::PlanKey;
use super::pool_state::PoolState;
use super::sequence::Sequence;
use super::{Session, heeding};
use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::gpu::Fetch;
use crate::model::{BatchPlan, Outputs};
use crate::plan::Tensor;
use std::ops::Range;

/// The most bytes of logits on the device when those of every token are wanted.
const LOGITS_BYTES: usize = 64 << 20;

/// The same while log-probabilities of a prompt are computed: the host has two copies of them meanwhile, beside
/// everything else that a server does.
const SCORED_BYTES: usize = 32 << 20;

/// The most bytes of hidden states that are read from the device at a time for their mean.
const SLICE_BYTES: usize = 1 << 20;

/// How many copies of a slice the host has while it is read, one of them in memory that the device can write.
const SLICE_COPIES: usize = 4;

/// The mean of the hidden states of tokens that are fed part by part.
#[derive(Debug, Default)]
pub(crate) struct HiddenMean {
    /// The weights {width} of the norm before the head; empty before they were read.
    norm: Vec<f32>,
    /// {width}; empty before the first token.
    sums: Vec<f64>,
    count: usize,
}

impl HiddenMean {
    /// The maximum host memory in bytes that is needed to read the hidden states {width} of `tokens` tokens.
    pub fn memory(tokens: usize, width: usize) -> usize {
        SLICE_COPIES * SLICE_BYTES.min(tokens.saturating_mul(4 * width))
    }

    fn add(&mut self, row: &[f32]) {
        self.sums.resize(row.len(), 0.0);
        self.sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value));
        self.count += 1;
    }

    /// The number of tokens.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The mean {width} over the tokens so far.
    pub fn value(&self) -> Vec<f32> {
        self.sums.iter().map(|sum| (sum / self.count as f64) as f32).collect()
    }
}

impl Session {
    /// The logits {vocab} of the last token, without bias and penalties.
    ///
    /// # Errors
    /// [`Error::Argument`] if nothing was fed since the start or the last rewind. [`Error::NoResult`] if the device
    /// lost work: the tokens that no earlier result has confirmed are then removed from the session. Any error from the
    /// device.
    pub fn logits(&mut self) -> Result<Vec<f32>> {
        let (mut state, sequence) = self.enter()?;
        state.logits(sequence)
    }

    /// The hidden state {width} of the last token: the sum of all layers, normalised by `output_norm`. Its products
    /// with the rows of the output matrix are the [logits](Session::logits). llama.cpp calls it the embedding of the
    /// token, and transformers calls it `last_hidden_state`.
    ///
    /// # Errors
    /// The errors of [`Session::logits`]. [`Error::Argument`] as well if nothing was fed since a snapshot was restored,
    /// because a snapshot does not hold the hidden state.
    pub fn hidden(&mut self) -> Result<Vec<f32>> {
        let (mut state, sequence) = self.enter()?;
        let values = state.values(sequence)?;
        if values == Values::Logits {
            return Err(Error::argument("session", "a token fed since the snapshot was restored", "none"));
        }
        let hidden = state.read_last(sequence, values, |planned| Ok(planned.hidden))?;
        drop(state);
        Ok(normalised(&hidden, &self.output_norm()?, self.model().config().epsilon))
    }

    /// Feeds tokens and calls `visit` with the index of each among them and its logits {vocab}, in order.
    ///
    /// # Errors
    /// The errors of [`Session::feed`], and the error of `visit`, after which the session keeps what was fed.
    pub fn feed_all(&mut self, tokens: &[u32], visit: &mut dyn FnMut(usize, &[f32]) -> Result<()>) -> Result<()> {
        self.feed_all_with(tokens, &Cancel::default(), visit)
    }

    /// Like [`Session::feed_all`]. `cancel` stops it, as it stops [`Session::feed_with`].
    ///
    /// # Errors
    /// The errors of [`Session::feed_all`], and [`Error::Cancelled`], after which the session keeps the tokens that it
    /// holds.
    pub fn feed_all_with(
        &mut self,
        tokens: &[u32],
        cancel: &Cancel,
        visit: &mut dyn FnMut(usize, &[f32]) -> Result<()>,
    ) -> Result<()> {
        heeding(cancel, || self.feed_rows(tokens, Outputs::All, cancel, visit))
    }

    /// Feeds tokens and calls `visit` with the index of each among them and its hidden state {width}, which is that of
    /// [`Session::hidden`], in order.
    ///
    /// # Errors
    /// The errors of [`Session::feed`], and the error of `visit`, after which the session keeps what was fed.
    pub fn feed_hidden(&mut self, tokens: &[u32], visit: &mut dyn FnMut(usize, &[f32]) -> Result<()>) -> Result<()> {
        self.feed_hidden_with(tokens, &Cancel::default(), visit)
    }

    /// Like [`Session::feed_hidden`]. `cancel` stops it, as it stops [`Session::feed_with`].
    ///
    /// # Errors
    /// The errors of [`Session::feed_hidden`], and [`Error::Cancelled`], after which the session keeps the tokens that
    /// it holds.
    pub fn feed_hidden_with(
        &mut self,
        tokens: &[u32],
        cancel: &Cancel,
        visit: &mut dyn FnMut(usize, &[f32]) -> Result<()>,
    ) -> Result<()> {
        heeding(cancel, || {
            let (norm, epsilon) = (self.output_norm()?, self.model().config().epsilon);
            let mut normalise = |index, row: &[f32]| visit(index, &normalised(row, &norm, epsilon));
            self.feed_rows(tokens, Outputs::Last, cancel, &mut normalise)
        })
    }

    /// The mean of the [hidden states](Session::hidden) {width} of a text's tokens. Two texts can be compared by the
    /// cosine of the angle between their means. The model was trained to predict text and not to compare it, so models
    /// that were trained for that are better at it. The chat template is not used. The session forgets what it held
    /// before, and holds the text afterwards.
    ///
    /// # Errors
    /// [`Error::Argument`] for a text without tokens, [`Error::NoToken`], [`Error::Tokenizer`]; otherwise as for
    /// [`Session::feed`].
    pub fn embed(&mut self, text: &str) -> Result<Vec<f32>> {
        self.embed_with(text, &Cancel::default())
    }

    /// Like [`Session::embed`]. `cancel` stops it, as it stops [`Session::feed_with`].
    ///
    /// # Errors
    /// The errors of [`Session::embed`], and [`Error::Cancelled`], after which the session holds the beginning of the
    /// text.
    pub fn embed_with(&mut self, text: &str, cancel: &Cancel) -> Result<Vec<f32>> {
        let tokens = self.model().tokenizer()?.encode(text, false)?;
        if tokens.is_empty() {
            return Err(Error::argument("text", "a text of at least one token", "an empty one"));
        }
        self.check(0, &tokens)?;
        self.rewind(0);
        let mut mean = HiddenMean::default();
        self.feed_hidden_with(&tokens, cancel, &mut |_, row| {
            mean.add(row);
            Ok(())
        })?;
        Ok(mean.value())
    }

    /// Feeds the next part of `tokens`, and adds the hidden states of its tokens to `mean`. Nothing can be sampled
    /// after the last of them until another token is fed.
    ///
    /// # Errors
    /// The errors of [`Session::feed`], and the error of `check_stop`, which is called before each submission.
    pub(crate) fn feed_first_into(
        &mut self,
        mean: &mut HiddenMean,
        tokens: &[u32],
        check_stop: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let (width, epsilon) = (self.model().config().width, self.model().config().epsilon);
        if mean.norm.is_empty() {
            mean.norm = self.output_norm()?;
        }
        self.begin_prompt(tokens)?;
        let (slice, mut fetch) = ((SLICE_BYTES / (4 * width)).max(1), None);
        let read = |state: &mut PoolState, sequence: &mut Sequence, (plan, count): (PlanKey, usize)| {
            for first in (0..count).step_by(slice) {
                let rows = first..count.min(first + slice);
                let rows = state.read_rows(sequence, plan, rows, |planned| Ok(planned.hidden), &mut fetch)?;
                rows.iter().for_each(|row| mean.add(&normalised(row, &mean.norm, epsilon)));
            }
            Ok(count)
        };
        let fed = self.feed_next(tokens, (Outputs::Last, LOGITS_BYTES), check_stop, read)?;
        if fed == Some(tokens.len()) {
            self.parts.end();
        }
        Ok(())
    }

    /// Feeds tokens and calls `visit` with the index of each and with its logits if those of all tokens are wanted, and
    /// otherwise with its hidden state before the norm.
    fn feed_rows(
        &mut self,
        tokens: &[u32],
        outputs: Outputs,
        cancel: &Cancel,
        visit: &mut dyn FnMut(usize, &[f32]) -> Result<()>,
    ) -> Result<()> {
        self.begin_prompt(tokens)?;
        let mut fed = 0;
        while fed < tokens.len() {
            let rows = self.next_rows(&tokens[fed..], (outputs, LOGITS_BYTES), &mut || cancel.check())?;
            for (row, index) in rows.iter().zip(fed..) {
                visit(index, row)?;
            }
            fed += rows.len();
        }
        self.end_prompt(tokens).map(drop)
    }

    /// Feeds the first of some tokens, as many as are computed together, and returns the logits {vocab} of each. What
    /// follows the last of them cannot be sampled before another token was fed.
    ///
    /// # Errors
    /// The errors of [`Session::feed`], and the error of `check_stop`, which is called before each submission.
    pub(crate) fn feed_first(
        &mut self,
        tokens: &[u32],
        check_stop: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<Vec<f32>>> {
        self.begin_prompt(tokens)?;
        self.next_rows(tokens, (Outputs::All, SCORED_BYTES), check_stop)
    }

    /// Computes the first tokens of the rest of a prompt, and reads what is wanted of them, with at most `most` bytes
    /// of logits. Returns nothing if the part was abandoned, so that the next one is smaller.
    fn next_rows(
        &mut self,
        rest: &[u32],
        (outputs, most): (Outputs, usize),
        check_stop: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<Vec<f32>>> {
        let wanted = |planned: &BatchPlan| match outputs {
            Outputs::Last => Ok(planned.hidden),
            _ => Ok(planned.head()?.logits),
        };
        let read = |state: &mut PoolState, sequence: &mut Sequence, (plan, count): (PlanKey, usize)| {
            state.read_rows(sequence, plan, 0..count, wanted, &mut None)
        };
        Ok(self.feed_next(rest, (outputs, most), check_stop, read)?.unwrap_or_default())
    }

    /// Computes the first tokens of the rest of a prompt. `read` gets the plan that has the results, and the number of
    /// tokens. Returns `None` if the part was abandoned, so that the next one is smaller.
    fn feed_next<T>(
        &mut self,
        rest: &[u32],
        (outputs, most): (Outputs, usize),
        check_stop: &mut dyn FnMut() -> Result<()>,
        read: impl FnOnce(&mut PoolState, &mut Sequence, (PlanKey, usize)) -> Result<T>,
    ) -> Result<Option<T>> {
        check_stop()?;
        let most = most / (4 * self.model().config().vocab.max(1));
        let together = self.options.capacities().take_while(|rows| *rows <= most).last().unwrap_or(1);
        let (count, shape) = match outputs {
            Outputs::Last => (self.parts.next(self.tokens().len(), rest.len()), self.part_shape(rest.len())),
            _ => (rest.len().min(together), self.shape(rest.len().min(together), outputs)),
        };
        let wanted = self.sequence.sampling.want();
        let plan = if count == 1 { PlanKey::Alone } else { PlanKey::Shape(shape) };
        let read = |state: &mut PoolState, sequence: &mut Sequence| read(state, sequence, (plan, count));
        self.feed_part_and(&rest[..count], (shape, wanted), (true, None), &mut |_| check_stop(), read)
    }

    /// The weights {width} of the norm before the head.
    fn output_norm(&self) -> Result<Vec<f32>> {
        let norm = &self.planned.weights.output_norm.weight;
        let bytes = 4 * self.model().config().width as u64;
        let read = Fetch::new(self.model().gpu(), bytes)?.read(&self.model().weights()[norm.id.index()], 0, bytes)?;
        Ok(bytemuck::pod_collect_to_vec(&read))
    }
}

impl PoolState {
    /// The logits {vocab} of the last token of a sequence.
    ///
    /// # Errors
    /// See [`Session::logits`].
    pub fn logits(&mut self, sequence: &mut Sequence) -> Result<Vec<f32>> {
        let values = self.values(sequence)?;
        self.read_last(sequence, values, |planned| Ok(planned.head()?.logits))
    }

    /// The values of a sequence's last token that the device has. If there are none, the token is computed again.
    fn values(&mut self, sequence: &mut Sequence) -> Result<Values> {
        self.check_output(sequence)?;
        if self.held(sequence) == Values::Gone {
            let want = sequence.sampling.want();
            self.run_last(sequence, want)?;
        }
        Ok(self.held(sequence))
    }

    /// A value of a sequence's last token.
    fn read_last(
        &mut self,
        sequence: &mut Sequence,
        values: Values,
        tensor: impl Fn(&BatchPlan) -> Result<Tensor>,
    ) -> Result<Vec<f32>> {
        let (plan, row) = match values {
            Values::Row { shape, row } => (PlanKey::Shape(shape), row),
            _ => (PlanKey::Alone, 0),
        };
        Ok(self.read_rows(sequence, plan, row..row + 1, tensor, &mut None)?.pop().unwrap_or_default())
    }

    /// A value of some rows that a plan has computed. Several are read with `fetch`, which is created for the first
    /// ones and reads no more at a time.
    fn read_rows(
        &mut self,
        sequence: &mut Sequence,
        plan: PlanKey,
        rows: Range<usize>,
        tensor: impl Fn(&BatchPlan) -> Result<Tensor>,
        fetch: &mut Option<Fetch>,
    ) -> Result<Vec<Vec<f32>>> {
        let ready = self.plans.get(&self.model, plan, &mut || Ok(()))?;
        let Tensor { buffer, pitch, shape, .. } = tensor(&ready.planned)?;
        let (from, values) = (ready.executor.local(buffer.local()?), shape[0]);
        let (offset, bytes) = (4 * (rows.start * pitch) as u64, 4 * ((rows.len() - 1) * pitch + values) as u64);
        let read = match rows.len() {
            1 => self.fetch.read(from, offset, bytes),
            _ => match fetch {
                Some(fetch) => fetch.read(from, offset, bytes),
                none => none.insert(Fetch::new(self.model.gpu(), bytes)?).read(from, offset, bytes),
            },
        };
        self.newest(sequence)?; // checks that no work that they depend on was lost
        let all: Vec<f32> = bytemuck::pod_collect_to_vec(&read?);
        Ok(all.chunks(pitch).map(|row| row[..values].to_vec()).collect())
    }
}

/// A row divided by its root mean square and multiplied by a norm's weights.
fn normalised(row: &[f32], weights: &[f32], epsilon: f32) -> Vec<f32> {
    let squares: f64 = row.iter().map(|value| f64::from(*value).powi(2)).sum();
    let scale = (squares / row.len() as f64 + f64::from(epsilon)).sqrt().recip();
    row.iter().zip(weights).map(|(value, weight)| (f64::from(*value) * scale * f64::from(*weight)) as f32).collect()
}
