//! Computes prompts of several sessions in one batch, each with all of its remaining tokens. A batch takes less time
//! than its prompts one after another, because it reads the weights once.
//!
//! The rows of a prompt are computed as they are alone, to the bit, so that a reply does not depend on what else is
//! computed.

use super::Session;
use super::pool::Pool;
use super::step::{Part, Row, StepRequest, Token, Want};
use crate::error::{Error, Result};
use crate::kernels::batch_splits;
use crate::model::{BatchShape, Outputs};

/// The most rows of several prompts.
const MAX_ROWS: usize = 512;

/// The remaining tokens of a prompt, which are computed in one part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FinalPart {
    /// The shape of the plan that computes it alone.
    pub shape: BatchShape,
    /// The first row of a prompt in a batch of several has to be a multiple of this number.
    aligned: usize,
    /// How many rows it takes there.
    pub rows: usize,
    /// The fewest rows of another prompt that is computed by the same plan.
    pub least: usize,
    /// The most rows of a batch that contains it.
    pub most: usize,
}

impl Session {
    /// The plan for the remaining `tokens` of a prompt, if they are computed in one part and can be computed together
    /// with those of other sessions.
    ///
    /// # Errors
    /// Any error from planning.
    pub(crate) fn final_part(&self, tokens: &[u32]) -> Result<Option<FinalPart>> {
        let held = self.tokens().len();
        let mut parts = self.parts;
        parts.begin(held);
        let is_whole = parts.block(held, tokens.len()) == (held..held + tokens.len());
        if tokens.len() < 2 || !is_whole || parts.next(held, tokens.len()) < tokens.len() {
            return Ok(None);
        }
        if self.sequence.sampling.want() != Want::Sample(None) {
            return Ok(None); // logits that a mask awaits would be overwritten by the other prompts' heads
        }
        let shape = BatchShape::of(self.options.capacity_for(tokens.len()), Outputs::Last, held, self.context());
        let planned = self.model().plan(self.planned.cache, shape)?;
        let (aligned, splits) = (planned.plan.aligned, planned.plan.splits);
        if aligned == 0 {
            return Ok(None);
        }
        let smaller = self.options.capacities().filter(|capacity| *capacity < shape.rows).max();
        let least = 1 + smaller.unwrap_or_default();
        // A batch takes about as much memory as a part of a single prompt with as many rows over a deep cache: if its
        // attention has more splits, whose results are kept for each row, it has fewer rows.
        let most = MAX_ROWS.min(self.options.together());
        let usual = batch_splits(self.model().config().heads * most, true);
        let most = (most * usual / splits.max(usual)).min(parts.most_together());
        Ok(Some(FinalPart { shape, aligned, rows: tokens.len().next_multiple_of(aligned), least, most }))
    }

    /// How many of its pages other sessions can share.
    pub(crate) fn offered_pages(&self) -> usize {
        self.sequence.offered
    }
}

impl Pool {
    /// Feeds each session its tokens, as [`Session::feed`] does, and returns once they are computed. Neighbouring short
    /// texts of 33 to 128 tokens, or of 129 to 256, are computed in one batch, which takes less time. The tokens that
    /// follow are those of each session alone. The device keeps only the last session's logits; for those of another
    /// one, [`Session::logits`] computes its last token again.
    ///
    /// # Errors
    /// [`Error::Argument`] unless there are as many texts as sessions, all of this pool; otherwise as for
    /// [`Session::feed`]. The sessions before the one that fails have their tokens then.
    pub fn feed_each(&self, sessions: &mut [&mut Session], tokens: &[&[u32]]) -> Result<()> {
        if sessions.len() != tokens.len() {
            let expected = format!("{}, one for each session", sessions.len());
            return Err(Error::argument("tokens", expected, tokens.len().to_string()));
        }
        self.check_own(sessions)?;
        let (mut sessions, mut tokens) = (sessions, tokens);
        while let [first, ..] = &mut *sessions {
            let (mut count, mut rows) = (1, 0);
            let part = first.final_part(tokens[0])?;
            if let Some(part) = part {
                rows += part.rows;
                while let Some((session, tokens)) = sessions.get(count).zip(tokens.get(count))
                    && let Ok(Some(next)) = session.final_part(tokens)
                    && next.shape == part.shape
                    && rows + next.rows <= part.most.min(next.most)
                {
                    (count, rows) = (count + 1, rows + next.rows);
                }
            }
            let (now, later) = sessions.split_at_mut(count);
            self.feed_some(now, &tokens[..count], part)?;
            (sessions, tokens) = (later, &tokens[count..]);
        }
        Ok(())
    }

    /// Feeds sessions their tokens, in one batch if there are several.
    fn feed_some(&self, sessions: &mut [&mut Session], tokens: &[&[u32]], part: Option<FinalPart>) -> Result<()> {
        if let Some(part) = part.filter(|_| sessions.len() > 1) {
            let held: Vec<usize> = sessions.iter().map(|session| session.tokens().len()).collect();
            let mut each = sessions.iter_mut().zip(tokens);
            let reserved = each.try_for_each(|(session, tokens)| session.begin_prompt(tokens));
            match reserved.and_then(|()| self.feed_together(sessions, tokens, part, &mut || Ok(()))) {
                Ok(true) => return sessions[0].wait(),
                read => {
                    sessions.iter_mut().for_each(|session| session.release_reserved());
                    // One after another they may fit, or one of them has an error that the others do not have.
                    let unchanged = sessions.iter().zip(held).all(|(session, held)| session.tokens().len() == held);
                    read.map(drop).or_else(|error| if unchanged { Ok(()) } else { Err(error) })?;
                }
            }
        }
        for (session, tokens) in sessions.iter_mut().zip(tokens) {
            session.feed(tokens)?;
            session.wait()?;
        }
        Ok(())
    }

    /// Feeds each session the remaining tokens of its prompt, which it has [begun](Session::begin_prompt), and samples
    /// the next token of each. All have the same plan alone. `check_stop` is called before each submission. Returns
    /// false if the batch was abandoned because it would take too long: then the sessions are unchanged.
    ///
    /// # Errors
    /// The errors of [`Session::feed`], and the error of `check_stop`. The sessions are unchanged, or all have their
    /// tokens, if the error came after these. After [`Error::NoResult`] they may have lost tokens.
    pub(crate) fn feed_together(
        &self,
        sessions: &mut [&mut Session],
        prompts: &[&[u32]],
        part: FinalPart,
        check_stop: &mut dyn FnMut() -> Result<()>,
    ) -> Result<bool> {
        let [first, ..] = sessions else { return Ok(true) };
        let (limit, options, mut parts) = (first.options.limit, first.options, first.parts);
        let state = &mut *self.enter()?;
        let mut request = StepRequest::new(Vec::new());
        for (of, tokens) in prompts.iter().enumerate() {
            request.rows.extend(tokens.iter().map(|token| Row {
                of,
                token: Token::Known(*token),
                want: Want::Nothing,
            }));
        }
        let rows = prompts.iter().map(|tokens| tokens.len().next_multiple_of(part.aligned)).sum();
        let shape = part.shape.of_prompts(options.capacity_for(rows));
        let mut check_stop = |_| check_stop();
        let then = Some(Token::Sampled);
        request.part = Some(Part { shape, limit, idle: true, parts: &mut parts, then, check_stop: &mut check_stop });
        let mut sequences = Vec::with_capacity(sessions.len());
        for session in sessions.iter_mut() {
            state.settle(&mut session.sequence)?;
            sequences.push(&mut session.sequence);
        }
        let given_up = state.run(&mut sequences, request)?.given_up;
        for session in sessions {
            session.parts.adopt_size(&parts);
            if !given_up {
                session.parts.end();
            }
        }
        Ok(!given_up)
    }
}
