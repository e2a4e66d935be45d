//! A sequence: its tokens, the pages with their KV rows, and how many of them a result has confirmed.

use super::block::BlockState;
use super::owners::{Output, Values};
use super::pages::Before;
use super::sampling::SamplingState;
use crate::plan::{PAGE, RowHeader};
use crate::speculate::Lookup;

/// A sequence of tokens in a pool.
pub struct Sequence {
    /// Its index among the sequences of the pool.
    pub index: usize,
    /// The index at which its list of pages begins within all lists.
    pub first_page: usize,
    /// The tenant whose tokens it holds: it shares pages only with sequences of the same tenant.
    pub tenant: u64,
    pub tokens: Vec<u32>,
    /// How many of the tokens a result has confirmed. If work is lost, the others are removed.
    pub confirmed: usize,
    /// The pages of the cache that hold the tokens' KV rows, in order.
    pub pages: Vec<u32>,
    /// How many of them are full and confirmed, so that other sequences can find them.
    pub offered: usize,
    /// The pool's loss count when this sequence was last used.
    pub losses: u64,
    /// What the device holds of the last token.
    pub output: Option<Output>,
    /// The token that was sampled after the last one, if the host knows it.
    pub sampled: Option<u32>,
    /// How tokens are sampled.
    pub sampling: SamplingState,
    /// What the multi-token-prediction block has computed.
    pub block: BlockState,
    /// An index of the tokens by those before them, for guesses from the text.
    pub lookup: Lookup,
}

impl Sequence {
    /// An empty sequence.
    pub fn new(index: usize, first_page: usize, losses: u64) -> Self {
        Self {
            index,
            first_page,
            tenant: 0,
            tokens: Vec::new(),
            confirmed: 0,
            pages: Vec::new(),
            offered: 0,
            losses,
            output: None,
            sampled: None,
            sampling: SamplingState::default(),
            block: BlockState::default(),
            lookup: Lookup::default(),
        }
    }

    /// Whether the logits of the last token were computed, and nothing has followed it.
    pub fn has_output(&self) -> bool {
        self.output.is_some_and(|output| !matches!(output.values, Values::State | Values::StateRow { .. }))
    }

    /// Whether a token was sampled after the last one.
    pub fn is_sampled(&self) -> bool {
        self.has_output() && self.output.is_some_and(|output| output.sampled)
    }

    /// A row of this sequence, with a token at a position.
    pub fn row(&self, token: u32, position: usize) -> RowHeader {
        let [position, sequence, first_page] = [position, self.index, self.first_page].map(|number| number as u32);
        RowHeader { token, position, sequence, result: sequence, first_page, ..RowHeader::default() }
    }

    /// What precedes a page of its list.
    pub fn before(&self, index: usize) -> Before {
        index.checked_sub(1).map_or(Before::Start(self.tenant), |before| Before::Page(self.pages[before]))
    }

    /// Forgets the token that was sampled after the last one, and the drafts after it.
    pub fn forget_sampled(&mut self) {
        self.sampled = None;
        self.block.made = 0;
    }

    /// Removes all tokens but the first `length`, and what depends on the others.
    pub fn cut(&mut self, length: usize) {
        self.lookup.truncate(&self.tokens, length);
        self.block.truncate(self.tokens.len(), length);
        self.sampling.recent.truncate(&self.tokens, length);
        self.tokens.truncate(length);
        self.confirmed = self.confirmed.min(length);
        self.offered = self.offered.min(length / PAGE);
        (self.sampled, self.output) = (None, None);
    }
}
