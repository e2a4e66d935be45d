//! Records which run wrote the buffers outside the cache.
//!
//! Plans share their buffers, so the output of a step is available until another step uses its buffers. Every run of a
//! plan has a number, and a buffer has the number of the run that wrote it last. To read the output of a run, compare
//! the two. Buffers that keep something from one step to the next belong to a sequence instead.

use super::plans::PlanKey;
use crate::model::BatchShape;

/// The owners of the buffers that the plans of a pool share. Only [`PoolState`](super::pool_state::PoolState) keeps
/// them.
#[derive(Default)]
pub struct Owners {
    /// The number of the newest run.
    runs: u64,
    /// The run that wrote the logits and the hidden state of the single-row plan.
    alone: u64,
    /// The run that wrote the activations that all other plans share.
    shared: u64,
    /// The sequence whose list of pages the single-row plan has, if it is up to date. Its kernels read no other list.
    list: Option<usize>,
}

/// What the device holds of a sequence's last token, in addition to its KV rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output {
    /// The run that wrote it.
    pub run: u64,
    pub values: Values,
    /// Whether a token was sampled after it. Otherwise a mask will be given first.
    pub sampled: bool,
}

/// Which values of a token the device holds, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// Its hidden state, in the single-row plan's buffer. The head was not computed.
    State,
    /// Its hidden state, in a row of a batch of several prompts. The head was not computed.
    StateRow { shape: BatchShape, row: usize },
    /// Its logits, in the single-row plan's buffer. A snapshot has nothing else.
    Logits,
    /// Both.
    Whole,
    /// Both, in a row of a step of several rows.
    Row { shape: BatchShape, row: usize },
    /// Only the token that was sampled after it.
    Gone,
}

impl Owners {
    /// Records that a run of a plan begins, and returns its number.
    pub fn begin(&mut self, plan: PlanKey) -> u64 {
        match plan {
            PlanKey::Alone => self.take_alone(),
            PlanKey::Shape(_) => self.take_shared(),
        }
    }

    /// Records that the single-row plan's buffers are written, and returns the number of the run.
    pub fn take_alone(&mut self) -> u64 {
        self.runs += 1;
        self.alone = self.runs;
        self.runs
    }

    /// Records that the buffers of another plan are written, or that such a plan may be created, which drops those of
    /// others.
    fn take_shared(&mut self) -> u64 {
        self.runs += 1;
        self.shared = self.runs;
        self.runs
    }

    /// Which values of a token are still available.
    pub fn values(&self, output: &Output) -> Values {
        let owner = match output.values {
            Values::Row { .. } | Values::StateRow { .. } => self.shared,
            _ => self.alone,
        };
        if owner == output.run { output.values } else { Values::Gone }
    }

    /// Gives a sequence the single-row plan's list of pages. Returns whether it has to be written.
    pub fn take_list(&mut self, sequence: usize) -> bool {
        self.list.replace(sequence) != Some(sequence)
    }

    /// Records that the pages of a sequence have changed, or that it has ended.
    pub fn drop_list(&mut self, sequence: usize) {
        self.list.take_if(|owner| *owner == sequence);
    }
}
