//! Generates the next tokens: the one that was sampled, and as many guesses after it as are right.

use super::Session;
use super::guesses::Guess;
use super::pool::Pool;
use super::pool_state::PoolState;
use super::sequence::Sequence;
use super::step::{Row, StepRequest, Token, Want, known};
use crate::error::{Error, Result};
use crate::kernels::VERIFIED_ROWS;
use crate::model::{most_drafts, most_sequences, no_block};
use crate::plan::{Plan, RowHeader};
use crate::speculate::DraftSource;

impl Session {
    /// Feeds the token that was sampled after the last one, and returns it.
    ///
    /// The GPU knows this token before the host does. So the token is submitted first and read afterwards, and the GPU
    /// works while the host uses the token. Calling this in a loop is the fastest way to generate. If the token should
    /// not have been fed, because it ends a reply, [`Session::rewind`] by one: the next token overwrites its KV rows.
    ///
    /// # Errors
    /// [`Error::ContextFull`] and [`Error::PoolFull`], which change nothing. [`Error::Argument`] as for
    /// [`Session::logits`]. [`Error::NotANumber`] if no logit is a number, or any error from the device: then no other
    /// token was fed, and the output of the last token is lost. [`Error::NoResult`] as for [`Session::logits`].
    pub fn next_token(&mut self) -> Result<u32> {
        self.verify_some(vec![None])?.first().copied().ok_or(Error::NoResult)
    }

    /// Feeds the token that was sampled after the last one, like [`Session::next_token`], and as many guesses after it
    /// as are right: see [`Session::set_speculation`]. Returns the fed tokens in order: at least one, and at most
    /// `most`.
    ///
    /// Each is the token that the model samples at its position. Only the rounding of sums may differ between one row
    /// and several, so that of two equally likely tokens the other one may be sampled.
    ///
    /// # Errors
    /// See [`Session::next_token`].
    pub fn next_tokens(&mut self, most: usize) -> Result<Vec<u32>> {
        self.check(self.tokens().len() + 1, &[])?;
        let pool = self.pool.clone();
        only(pool.step(&mut [self], &[most])?)
    }

    /// Feeds the token that was sampled after the last one, and those of `drafts` that are then sampled in this order.
    /// Returns the fed tokens.
    ///
    /// # Errors
    /// [`Error::Argument`] for more drafts than a step verifies; otherwise as for [`Session::next_token`].
    pub fn verify(&mut self, drafts: &[u32]) -> Result<Vec<u32>> {
        self.check_drafts(drafts.len())?;
        self.check(self.tokens().len() + 1, drafts)?;
        let guess = Guess { source: DraftSource::Matched(0), count: drafts.len(), tokens: Some(drafts.to_vec()) };
        self.verify_some(vec![Some(guess)])
    }

    fn verify_some(&mut self, guesses: Vec<Option<Guess>>) -> Result<Vec<u32>> {
        self.check(self.tokens().len() + 1, &[])?;
        let pool = self.pool.clone();
        only(pool.verify(&mut [self], &guesses, &[])?)
    }
}

/// The only one of several results.
fn only<T>(results: Vec<Result<T>>) -> Result<T> {
    results.into_iter().next().unwrap_or(Err(Error::NoResult))
}

impl Pool {
    /// Feeds each session the token that was sampled after its last one, all in one step, and returns these tokens in
    /// order. Like [`Session::next_token`], this submits first and reads afterwards.
    ///
    /// Each session gets the tokens that it would get alone. Logits may differ by rounding, because rows of a batch are
    /// summed in another order than a single row.
    ///
    /// # Errors
    /// [`Error::Argument`] for a session of another pool, or one without a token since the last rewind,
    /// [`Error::ContextFull`] and [`Error::PoolFull`], after which all are unchanged; [`Error::NoResult`] and any error
    /// from the device. If no logit of a session is a number, its result is [`Error::NotANumber`]. More than 32
    /// sessions take several steps: if a later one fails, the sessions of that step and of the following ones get its
    /// error.
    pub fn next_token_of_each(&self, sessions: &mut [&mut Session]) -> Result<Vec<Result<u32>>> {
        let fed = self.next_tokens_of_each(sessions, &vec![1; sessions.len()])?;
        let first = |fed: Vec<u32>| fed.first().copied().ok_or(Error::NoResult);
        Ok(fed.into_iter().map(|fed| fed.and_then(first)).collect())
    }

    /// Like [`Pool::next_token_of_each`], with as many guesses as are right: at most `most` tokens for each session.
    /// Returns the fed tokens.
    ///
    /// # Errors
    /// See [`Pool::next_token_of_each`].
    #[doc(hidden)]
    pub fn next_tokens_of_each(&self, sessions: &mut [&mut Session], most: &[usize]) -> Result<Vec<Result<Vec<u32>>>> {
        self.prepare(sessions)?;
        let count = sessions.len();
        // Steps of about the same size. Of 33 sessions, one would otherwise be alone in its step, which makes guesses
        // and rounds in another way than a step of several.
        let steps = count.div_ceil(most_sequences(self.model().config()));
        let together = count.div_ceil(steps.max(1)).max(1);
        let mut all = Vec::with_capacity(count);
        for (group, most) in sessions.chunks_mut(together).zip(most.chunks(together)) {
            match self.step(group, most) {
                Ok(fed) => all.extend(fed),
                Err(error) if all.is_empty() => return Err(error),
                Err(error) => {
                    all.resize_with(count, || Err(error.clone()));
                    break;
                }
            }
        }
        Ok(all)
    }

    /// Prepares sessions for a common step, and reserves the pages for it.
    fn prepare(&self, sessions: &mut [&mut Session]) -> Result<()> {
        self.check_own(sessions)?;
        let state = &mut *self.enter()?;
        for session in sessions.iter_mut() {
            session.check(session.tokens().len() + 1, &[])?;
            state.settle(&mut session.sequence)?;
            state.sample_if_left(&mut session.sequence)?;
            state.reach(&mut session.sequence, 1)?;
        }
        Ok(())
    }

    /// Takes a step with sessions that verifies their guesses.
    fn step(&self, sessions: &mut [&mut Session], most: &[usize]) -> Result<Vec<Result<Vec<u32>>>> {
        let mut guesses: Vec<Option<Guess>> = match &mut *sessions {
            [session] => vec![session.guess(most[0])],
            sessions if most.iter().all(|most| *most <= 1) => sessions.iter().map(|_| None).collect(),
            sessions => self.enter()?.drafter.guess(sessions, most),
        };
        let mut fed = self.verify(sessions, &guesses, &[]);
        if guesses.iter().any(Option::is_some) && self.goes_without(sessions, &fed) {
            guesses.iter_mut().for_each(|guess| *guess = None);
            fed = self.verify(sessions, &guesses, &[]);
        }
        let fed = fed?;
        let counts: Vec<usize> = fed.iter().map(|fed| fed.as_ref().map_or(0, Vec::len)).collect();
        match &mut *sessions {
            [session] if counts[0] > 0 => {
                let tokens = session.sequence.tokens.len();
                session.drafter.record_step(guesses[0].as_ref(), counts[0], tokens);
            }
            [_] => {}
            sessions => self.state().drafter.record_step(sessions, &guesses, &counts),
        }
        Ok(fed)
    }

    /// Whether a step with guesses failed but one without may succeed.
    fn goes_without(&self, sessions: &mut [&mut Session], fed: &Result<Vec<Result<Vec<u32>>>>) -> bool {
        match fed {
            Err(Error::PoolFull { .. }) => true, // there may be enough memory without guesses
            Err(Error::OutOfMemory { .. } | Error::TooLarge { .. }) => {
                let are_whole = sessions.iter().all(|session| session.sequence.has_output());
                if are_whole {
                    sessions.iter_mut().for_each(|session| session.stop_guessing()); // plans with guesses do not fit
                }
                are_whole
            }
            _ => false,
        }
    }

    /// Feeds each session the token that was sampled after its last one, and its guesses as far as they are right. The
    /// first `right` drafts of each count as right, whatever the block made.
    fn verify(
        &self,
        sessions: &mut [&mut Session],
        guesses: &[Option<Guess>],
        right: &[usize],
    ) -> Result<Vec<Result<Vec<u32>>>> {
        let state = &mut *self.enter()?;
        let mut sequences: Vec<&mut Sequence> = sessions.iter_mut().map(|session| &mut session.sequence).collect();
        for sequence in &mut sequences {
            state.settle(sequence)?;
        }
        let request = state.verification(&mut sequences, guesses, right)?;
        let ticket = state.run(&mut sequences, request)?;
        let fed = state.take(&mut sequences, &ticket)?;
        for ((session, guess), fed) in sessions.iter_mut().zip(guesses).zip(&fed) {
            if let (Some(Guess { count: count @ 1.., .. }), Ok(fed)) = (guess, fed) {
                session.drafter.count(*count, fed.len() - 1);
            }
        }
        Ok(fed)
    }

    /// For measurements on random weights: a step like any other, with `count` drafts for each session, of which
    /// `accepted` count as right. The block makes drafts for the next step, unless they are `from_text`.
    ///
    /// # Errors
    /// The errors of [`Pool::next_token_of_each`]; [`Error::Argument`] for a model without a block, and for more rows
    /// than a step verifies.
    #[doc(hidden)]
    pub fn predict_assumed(
        &self,
        sessions: &mut [&mut Session],
        (count, accepted): (usize, usize),
        from_text: bool,
    ) -> Result<Vec<Result<Vec<u32>>>> {
        if !from_text && !self.model().has_block() {
            return Err(no_block());
        }
        for session in sessions.iter() {
            session.check_drafts(count)?;
            session.check(session.tokens().len() + 1 + count, &[])?;
        }
        let rows = sessions.len() * (1 + count);
        if rows > VERIFIED_ROWS {
            let (expected, found) = (
                format!("at most {VERIFIED_ROWS} rows, a token of each session and its drafts"),
                format!("{rows} rows"),
            );
            return Err(Error::argument("drafts", expected, found));
        }
        let tokens = from_text.then(|| vec![0; count]);
        let guess = |_| Some(Guess { source: DraftSource::Predicted, count, tokens: tokens.clone() });
        let guesses: Vec<Option<Guess>> = sessions.iter().map(guess).collect();
        self.verify(sessions, &guesses, &vec![accepted; sessions.len()])
    }
}

impl PoolState {
    /// The request for the token that was sampled after the last one of each sequence, and for its drafts.
    fn verification(
        &mut self,
        sequences: &mut [&mut Sequence],
        guesses: &[Option<Guess>],
        right: &[usize],
    ) -> Result<StepRequest<'static>> {
        let predicted =
            |guess: &Option<Guess>| guess.as_ref().filter(|guess| guess.tokens.is_none()).map(|it| it.count);
        let made = guesses.iter().filter_map(predicted).max().unwrap_or_default();
        if made > 0 {
            let drafting: Vec<bool> = guesses.iter().map(|guess| predicted(guess).is_some()).collect();
            self.prepare_drafts(sequences, &drafting, made)?;
        }
        let first = self.sessions();
        let mut request = StepRequest { drafts: made, ..StepRequest::new(Vec::new()) };
        for (of, (sequence, guess)) in sequences.iter().zip(guesses).enumerate() {
            let want = if guess.is_some() { Want::Sample(None) } else { sequence.sampling.want() };
            request.rows.push(Row { of, token: Token::Sampled, want });
            let Some(guess) = guess else { continue };
            for draft in 0..guess.count {
                let token = match &guess.tokens {
                    // A draft that is named after the value sampled for the row before it is always right.
                    _ if right.get(of).is_some_and(|right| draft < *right) => {
                        RowHeader::sampled(first + request.rows.len() - 1)
                    }
                    Some(tokens) => tokens[draft],
                    None => self.draft_name(sequence, draft),
                };
                request.rows.push(Row { of, token: Token::Draft(token), want });
            }
        }
        Ok(request)
    }
}

impl Session {
    /// Like [`Pool::predict_assumed`], for this session alone, with drafts by the block.
    ///
    /// # Errors
    /// See [`Pool::predict_assumed`].
    #[doc(hidden)]
    pub fn predict_assumed(&mut self, count: usize, accepted: usize) -> Result<Vec<u32>> {
        let pool = self.pool.clone();
        only(pool.predict_assumed(&mut [self], (count, accepted), false)?)
    }

    /// Returns an error for more drafts than a step verifies.
    pub(super) fn check_drafts(&self, count: usize) -> Result<()> {
        let most = most_drafts(self.model().config());
        if count <= most {
            return Ok(());
        }
        Err(Error::argument("drafts", format!("at most {most}"), count.to_string()))
    }

    /// The token that was sampled after the last one, with the parameters of [`Session::set_sampling`].
    ///
    /// # Errors
    /// See [`Session::most_likely`].
    pub fn sampled_token(&mut self) -> Result<u32> {
        let [sampled, ..] = self.sampled()?;
        known(sampled)
    }

    /// The most likely token after the last one that was fed, with bias and penalties.
    ///
    /// # Errors
    /// The errors of [`Session::logits`]; [`Error::NotANumber`] if no logit is a number.
    pub fn most_likely(&mut self) -> Result<u32> {
        let [_, likeliest, _] = self.sampled()?;
        known(likeliest)
    }

    fn sampled(&mut self) -> Result<[u32; Plan::SAMPLED_WORDS]> {
        let (mut state, sequence) = self.enter()?;
        state.sample_if_left(sequence)?;
        state.newest(sequence)
    }
}
