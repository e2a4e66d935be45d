//! Prompts: many tokens at a time, in chunks, each a few submissions.

use super::chunks::Class;
use super::parts::Parts;
use super::{Session, going_on};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::gpu::Fetch;
use crate::model::{Outputs, PromptOptions};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Bytes of logits on the device at a time, where those of every token are wanted.
const LOGITS_BYTES: usize = 64 << 20;

impl Session {
    /// How prompts are computed.
    pub fn prompt_options(&self) -> PromptOptions {
        self.chunks.options
    }

    /// How prompts are computed from here on: as the model was loaded with until this is called.
    pub fn set_prompt_options(&mut self, options: PromptOptions) {
        if options != self.chunks.options {
            self.chunks = super::chunks::Chunks::new(options);
            self.parts = Parts::new(options);
        }
    }

    /// Feeds tokens and has `visit` see each one's place among them and its logits {vocab}, in order.
    ///
    /// # Errors
    /// As [`Session::feed`], and [`Error::Cancelled`] if `visit` says so; what was fed until then stays.
    pub fn feed_all(&mut self, tokens: &[u32], visit: &mut dyn FnMut(usize, &[f32]) -> ControlFlow<()>) -> Result<()> {
        self.check(self.tokens.len(), tokens)?;
        let most = LOGITS_BYTES / (4 * self.model.config().vocab.max(1));
        let together = self.chunks.options.rooms().take_while(|room| *room <= most).last().unwrap_or(1);
        for (part, index) in tokens.chunks(together).zip(0..) {
            let first = index * together;
            if part.len() == 1 {
                self.feed(part)?;
                let logits = self.logits()?;
                going_on(visit(first, &logits))?;
                continue;
            }
            self.output = None;
            let computed = self.chunk(part, Outputs::All, true, &mut |_| ControlFlow::Continue(()));
            let rows = computed.and_then(|_| self.chunk_rows(part.len(), Outputs::All));
            let (rows, stride) = self.or_rewound(rows)?;
            self.confirmed = self.tokens.len();
            let vocab = self.model.config().vocab;
            for (row, place) in rows.chunks(stride).zip(first..) {
                going_on(visit(place, &row[..vocab]))?;
            }
        }
        if self.output.is_none() && !tokens.is_empty() { self.finish_prompt() } else { Ok(()) }
    }

    /// Feeds several tokens in chunks, and a rest that is none one by one; `progress` is told after each submission how
    /// many of them the session holds.
    pub(super) fn feed_chunks(
        &mut self,
        tokens: &[u32],
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<()> {
        let (before, options) = (self.tokens.len(), self.chunks.options);
        let mut rest = tokens;
        self.parts.begin(before);
        while options.chunks(self.part(rest)) {
            let (part, then) = rest.split_at(self.part(rest));
            self.parts.leave(self.tokens.len());
            if self.feed_part(part, rest.len() == tokens.len(), &mut |held| progress(held - before))? {
                self.parts.leave(self.tokens.len());
                going_on(progress(self.tokens.len() - before))?;
                rest = then;
            }
        }
        self.parts.end();
        if !rest.is_empty() {
            return self.feed_each(rest, tokens.len() - rest.len(), progress);
        }
        self.finish_prompt()?;
        going_on(progress(tokens.len()))
    }

    /// How many of the tokens that follow are computed together next.
    pub(super) fn part(&self, rest: &[u32]) -> usize {
        self.parts.next(self.tokens.len(), rest.len())
    }

    /// Computes a part of a prompt as a chunk, and learns from what it takes. False if it would take too long: the next
    /// ones are to have fewer tokens.
    pub(super) fn feed_part(
        &mut self,
        part: &[u32],
        idle: bool,
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<bool> {
        let took = self.chunk(part, Outputs::Last, idle, progress)?;
        took.into_iter().for_each(|time| self.parts.took(part.len(), time));
        Ok(took.is_some())
    }

    /// Computes a chunk, for which the GPU waits if it is `idle`. `progress` is told after each submission but the last
    /// how many tokens the session holds. Returns what it took, or none if it is given up because it would take too
    /// long: the next ones are to have fewer tokens.
    fn chunk(
        &mut self,
        part: &[u32],
        outputs: Outputs,
        idle: bool,
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<Option<Duration>> {
        let (held, count) = (self.tokens.len(), part.len());
        let token = (&self.planned, &self.executor);
        let mut go_on = || going_on(progress(held));
        let class = self.chunks.class((held, count), outputs, &self.model, token, &mut go_on)?;
        class.write(&self.state, self.tokens.len(), part)?;
        let Class { executor, planned, pace } = class;
        let gpu = executor.gpu();
        let limit = &self.model.target().limit;
        let since = Instant::now();
        pace.start(&planned.plan, limit, held + part.len(), self.running.back().cloned(), idle);
        let (mut first, end) = (0, planned.plan.steps.len());
        while first < end {
            let steps = pace.next(first);
            let receipt = self.receipts.next(gpu, self.running.back())?;
            let submission = executor.submit(steps.clone(), &[receipt])?;
            self.running.clear(); // older than this one
            self.running.push_back(submission.clone());
            first = steps.end;
            pace.submitted(gpu, submission, steps)?;
            if first < end {
                going_on(progress(held))?;
                let pace = pace.so_far().filter(|_| outputs == Outputs::Last);
                if pace.is_some_and(|(so_far, expected)| self.parts.give_up(part.len(), so_far, expected)) {
                    return Ok(None);
                }
            }
        }
        self.tokens.extend_from_slice(part);
        Ok(Some(since.elapsed()))
    }

    /// Takes the last token of a chunk through the head of the token's plan, as if it had come alone.
    pub(super) fn finish_prompt(&mut self) -> Result<()> {
        let last = self.tokens.len().saturating_sub(1);
        self.write_state(last)?;
        self.output = Some(self.submit_from(self.planned.plan.head)?);
        Ok(())
    }

    /// What the chunk that was just computed left of every token, and how far one token's values are from the next's: the
    /// logits if those of all are wanted, otherwise the hidden states before their norm.
    pub(super) fn chunk_rows(&mut self, count: usize, outputs: Outputs) -> Result<(Vec<f32>, usize)> {
        let place = (self.tokens.len() - count, count);
        let token = (&self.planned, &self.executor);
        let class = self.chunks.class(place, outputs, &self.model, token, &mut || Ok(()))?;
        let (gpu, planned) = (class.executor.gpu(), &class.planned);
        let (local, stride) = planned.logits.unwrap_or(planned.hidden);
        let bytes = 4 * (stride * count) as u64;
        let rows = Fetch::new(gpu, bytes)?.read(class.executor.local(local), 0, bytes)?;
        self.running.back().map_or(Ok(()), |newest| self.receipts.check(gpu, newest))?;
        Ok((bytemuck::pod_collect_to_vec(&rows), stride))
    }
}
