//! Who owns what the device holds outside of the cache, and at which number.
//!
//! Plans share their buffers, so what a step leaves is there until another step takes its buffers. Every run of a plan
//! has a number. A buffer has the number of the run that wrote it last, and whoever wants to read what a run left
//! compares the two. Buffers that carry something over from one step to the next belong to a sequence instead.

use super::plans::PlanKey;
use crate::model::BatchShape;

/// The owners of the buffers that the plans of a pool share. Only [`Device`](super::device::Device) keeps them.
#[derive(Default)]
pub struct Owners {
    /// The number of the newest run.
    runs: u64,
    /// The run that wrote the logits and the hidden state of the plan of a row alone.
    alone: u64,
    /// The run that wrote the activations that all other plans share.
    shared: u64,
    /// The sequence whose list of pages the plan of a row alone has, if it is up to date. Its kernels look for no other.
    list: Option<usize>,
}

/// What the device holds of a sequence's last token, beside its KV rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output {
    /// The run that left it.
    pub run: u64,
    pub values: Values,
    /// Whether a token was sampled after it. Otherwise a mask will say from which tokens.
    pub sampled: bool,
}

/// Which values of a token the device holds, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// Its hidden state, where the plan of a row alone has it. The head was not computed.
    State,
    /// Its logits, where the plan of a row alone has them. A snapshot holds nothing else.
    Logits,
    /// Both.
    Whole,
    /// Both, in a row of a step of several rows.
    Row { shape: BatchShape, row: usize },
    /// None any more, but the token that was sampled after it.
    Gone,
}

impl Owners {
    /// A run of a plan begins. Returns its number.
    pub fn begin(&mut self, plan: PlanKey) -> u64 {
        match plan {
            PlanKey::Alone => self.take_alone(),
            PlanKey::Shape(_) => self.take_shared(),
        }
    }

    /// The buffers of the plan of a row alone are written.
    pub fn take_alone(&mut self) -> u64 {
        self.runs += 1;
        self.alone = self.runs;
        self.runs
    }

    /// The buffers of another plan are written, or such a plan may be made, which drops those of others.
    fn take_shared(&mut self) -> u64 {
        self.runs += 1;
        self.shared = self.runs;
        self.runs
    }

    /// Which values of a token are still there.
    pub fn values(&self, output: &Output) -> Values {
        let owner = if let Values::Row { .. } = output.values { self.shared } else { self.alone };
        if owner == output.run { output.values } else { Values::Gone }
    }

    /// Gives a sequence the list of pages of the plan of a row alone. Returns whether it has to be written.
    pub fn take_list(&mut self, sequence: usize) -> bool {
        self.list.replace(sequence) != Some(sequence)
    }

    /// The pages of a sequence have changed, or it has ended.
    pub fn drop_list(&mut self, sequence: usize) {
        self.list.take_if(|owner| *owner == sequence);
    }
}
