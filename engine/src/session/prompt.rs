//! Feeds known tokens: a prompt in parts of several tokens, if that pays off, or token by token.

use super::pool_state::PoolState;
use super::sequence::Sequence;
use super::step::{Part, Row, StepRequest, Token, Want};
use super::{Session, heeding};
use crate::cancel::Cancel;
use crate::error::Result;
use crate::model::{BatchShape, Outputs};

impl Session {
    /// Feeds tokens after the current ones.
    ///
    /// # Errors
    /// [`Error::TokenOutOfRange`], [`Error::ContextFull`], [`Error::PoolFull`], or any error from the device. After an
    /// error the session has the tokens that were fed before it, and after [`Error::NoResult`] those that an earlier
    /// result has confirmed.
    ///
    /// [`Error::TokenOutOfRange`]: crate::Error::TokenOutOfRange
    /// [`Error::ContextFull`]: crate::Error::ContextFull
    /// [`Error::PoolFull`]: crate::Error::PoolFull
    /// [`Error::NoResult`]: crate::Error::NoResult
    pub fn feed(&mut self, tokens: &[u32]) -> Result<()> {
        self.feed_while(tokens, &mut |_| Ok(()))
    }

    /// Feeds tokens like [`Session::feed`] and calls `progress` with the number of these tokens that the session has:
    /// before each submission, and repeatedly while kernels compile. After each call it checks `cancel`. `progress`
    /// must not use another session of the same pool.
    ///
    /// # Errors
    /// The errors of [`Session::feed`], and [`Error::Cancelled`](crate::Error::Cancelled), after which the session
    /// keeps the tokens that it holds.
    pub fn feed_with(&mut self, tokens: &[u32], cancel: &Cancel, progress: &mut dyn FnMut(usize)) -> Result<()> {
        heeding(cancel, || {
            self.feed_while(tokens, &mut |held| {
                progress(held);
                cancel.check()
            })
        })
    }

    /// Feeds tokens like [`Session::feed_with`], until `check_stop` returns an error.
    ///
    /// # Errors
    /// The errors of [`Session::feed_with`], and the error of `check_stop`.
    pub(crate) fn feed_while(&mut self, tokens: &[u32], check_stop: &mut dyn FnMut(usize) -> Result<()>) -> Result<()> {
        let before = self.tokens().len();
        self.begin_prompt(tokens)?;
        let mut fed = 0;
        while fed < tokens.len() {
            let (rest, held) = (&tokens[fed..], self.tokens().len());
            let count = self.parts.next(held, rest.len());
            let follows = rest.get(count).map_or(Token::Sampled, |next| Token::Known(*next));
            let shape = self.part_shape(rest.len());
            let wanted = if rest.len() == count { self.sequence.sampling.want() } else { Want::Nothing };
            let check_part = &mut |held: usize| check_stop(held - before);
            if self.feed_part(&rest[..count], (shape, wanted), (fed == 0, Some(follows)), check_part)? {
                fed += count;
                check_stop(fed)?;
            } // otherwise in smaller parts
        }
        if self.end_prompt(tokens)? { check_stop(fed) } else { Ok(()) }
    }

    /// Begins a prompt, and reserves the pages for its tokens.
    pub(crate) fn begin_prompt(&mut self, tokens: &[u32]) -> Result<()> {
        self.check(self.tokens().len(), tokens)?;
        if tokens.is_empty() {
            return Ok(());
        }
        let (mut state, sequence) = self.enter()?;
        state.reach(sequence, tokens.len())?;
        drop(state);
        self.parts.begin(self.sequence.tokens.len());
        Ok(())
    }

    /// Ends a prompt. Returns whether the head had to be computed for its last token.
    pub(super) fn end_prompt(&mut self, tokens: &[u32]) -> Result<bool> {
        self.parts.end();
        if tokens.is_empty() || self.sequence.has_output() {
            return Ok(false);
        }
        let (mut state, sequence) = self.enter()?;
        let want = sequence.sampling.want();
        state.run_last(sequence, want).map(|()| true)
    }

    /// Feeds a part of a prompt with the plan of a shape, or a single token with the `wanted` output. `idle` says that
    /// the GPU has nothing else to do, and `then` is the token after the part, if the block should follow. `check_stop`
    /// is called with the number of the session's tokens. Returns false if the part was abandoned.
    pub(super) fn feed_part(
        &mut self,
        tokens: &[u32],
        of: (BatchShape, Want<'static>),
        how: (bool, Option<Token>),
        check_stop: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<bool> {
        Ok(self.feed_part_and(tokens, of, how, check_stop, |_, _| Ok(()))?.is_some())
    }

    /// The same, and then what `read` reads of the results, before another session of the pool can overwrite them.
    /// Returns `None` if the part was abandoned.
    pub(super) fn feed_part_and<T>(
        &mut self,
        tokens: &[u32],
        (shape, wanted): (BatchShape, Want<'static>),
        (idle, then): (bool, Option<Token>),
        check_stop: &mut dyn FnMut(usize) -> Result<()>,
        read: impl FnOnce(&mut PoolState, &mut Sequence) -> Result<T>,
    ) -> Result<Option<T>> {
        let (limit, parts) = (self.options.limit, &mut self.parts);
        let state = &mut *self.pool.enter()?;
        state.settle(&mut self.sequence)?;
        let request = match *tokens {
            [token] => StepRequest::row(Token::Known(token), wanted),
            _ => {
                let row = |token: &u32| Row { of: 0, token: Token::Known(*token), want: Want::Nothing };
                let part = Some(Part { shape, limit, idle, parts, then, check_stop });
                StepRequest { part, ..StepRequest::new(tokens.iter().map(row).collect()) }
            }
        };
        if state.run(&mut [&mut self.sequence], request)?.given_up {
            return Ok(None);
        }
        read(state, &mut self.sequence).map(Some)
    }

    /// The shape of the plan for the next part of a prompt with `rest` remaining tokens: that of the block that the
    /// part belongs to.
    pub(super) fn part_shape(&self, rest: usize) -> BatchShape {
        let block = self.parts.block(self.tokens().len(), rest);
        BatchShape::of(self.options.capacity_for(block.len()), Outputs::Last, block.start, self.context())
    }

    /// The shape of the plan for `count` tokens after the current ones.
    pub(super) fn shape(&self, count: usize, outputs: Outputs) -> BatchShape {
        BatchShape::of(self.options.capacity_for(count), outputs, self.tokens().len(), self.context())
    }

    /// Sets whether others wait for the end of each part of a prompt: see
    /// [`Parts::set_others_waiting`](super::parts::Parts::set_others_waiting).
    pub(crate) fn set_others_waiting(&mut self, waiting: bool) {
        self.parts.set_others_waiting(waiting);
    }
}
