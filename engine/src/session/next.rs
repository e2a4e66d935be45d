//! The next tokens: the one that was sampled, and with it as many of those that follow as were guessed right.

use super::Session;
use super::device::Device;
use super::guesses::Guess;
use super::pool::Pool;
use super::sequence::Sequence;
use super::step::{Row, StepRequest, Token, Want, known};
use crate::error::{Error, Result};
use crate::kernels::VERIFIED_ROWS;
use crate::model::{most_drafts, most_sequences, no_block};
use crate::plan::{Plan, RowHeader};
use crate::speculate::Evidence;
use std::sync::Arc;

impl Session {
    /// Feeds the token that was sampled after the last one, and returns it.
    ///
    /// The GPU knows this token before the host does. So it is submitted first and read afterwards, and the GPU is at work
    /// while the host uses the token. Calling this in a loop is the fastest way to generate. If the token should not have
    /// been fed, because it ends a reply, [`Session::rewind`] by one: the next token that is fed overwrites its KV rows.
    ///
    /// # Errors
    /// [`Error::ContextFull`] and [`Error::PoolFull`], which leave everything as it was. [`Error::Argument`] as for
    /// [`Session::logits`]. [`Error::NotANumber`] if no logit is a number, or what the device reports: then nothing more was
    /// fed, and the output of the last token is gone. [`Error::NoResult`] as for [`Session::logits`].
    pub fn next_token(&mut self) -> Result<u32> {
        self.verify_some(vec![None])?.first().copied().ok_or(Error::NoResult)
    }

    /// Feeds the token that was sampled after the last one, as [`Session::next_token`], and with it as many of those that
    /// follow as were guessed right: see [`Session::set_speculation`]. Returns all that were fed, in order: at least one, and
    /// at most `most`.
    ///
    /// Each is the token that the model samples at its position by itself. Only the rounding of sums may differ between a row
    /// alone and several rows, so that of two tokens that are equally likely the other one may be sampled.
    ///
    /// # Errors
    /// As for [`Session::next_token`].
    pub fn next_tokens(&mut self, most: usize) -> Result<Vec<u32>> {
        self.check(self.tokens().len() + 1, &[])?;
        let pool = self.pool.clone();
        only(pool.step(&mut [self], &[most])?)
    }

    /// Feeds the token that was sampled after the last one, and those of `drafts` that are sampled after it one after the
    /// other. Returns all that were fed.
    ///
    /// # Errors
    /// [`Error::Argument`] for more drafts than a step verifies; otherwise as for [`Session::next_token`].
    pub fn verify(&mut self, drafts: &[u32]) -> Result<Vec<u32>> {
        self.check_drafts(drafts.len())?;
        self.check(self.tokens().len() + 1, drafts)?;
        let guess = Guess { evidence: Evidence::Matched(0), count: drafts.len(), tokens: Some(drafts.to_vec()) };
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
    /// Feeds each session the token that was sampled after its last one, all in one step, and returns these tokens in order.
    /// As with [`Session::next_token`], which does the same for one, they are submitted first and read afterwards.
    ///
    /// A session gets the tokens that it would get alone. Logits may be off by rounding, because rows of a batch are summed
    /// in another order than a row alone.
    ///
    /// # Errors
    /// [`Error::Argument`] for a session of another pool or one that nothing was fed to since the last rewind,
    /// [`Error::ContextFull`] and [`Error::PoolFull`], after which all are as they were; [`Error::NoResult`] and what the
    /// device reports. A session of whose logits none is a number gets [`Error::NotANumber`] for a token. More than 32
    /// sessions take several steps: if one after the first fails, the sessions of this step and of those after it get its
    /// error for a token.
    pub fn next_tokens(&self, sessions: &mut [&mut Session]) -> Result<Vec<Result<u32>>> {
        let fed = self.next_of_each(sessions, &vec![1; sessions.len()])?;
        let first = |fed: Vec<u32>| fed.first().copied().ok_or(Error::NoResult);
        Ok(fed.into_iter().map(|fed| fed.and_then(first)).collect())
    }

    /// As [`Pool::next_tokens`], with as many of the tokens that follow as were guessed right: of each session at most so many
    /// tokens in all. Returns all that were fed.
    ///
    /// # Errors
    /// As there.
    #[doc(hidden)]
    pub fn next_of_each(&self, sessions: &mut [&mut Session], most: &[usize]) -> Result<Vec<Result<Vec<u32>>>> {
        self.make_ready(sessions)?;
        let (count, together) = (sessions.len(), most_sequences(self.model().config()));
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

    /// Sees to it that sessions can take a step together, and hold the pages for it.
    fn make_ready(&self, sessions: &mut [&mut Session]) -> Result<()> {
        let device = &mut *self.enter()?;
        for session in sessions.iter_mut() {
            if !Arc::ptr_eq(&session.pool.device, &self.device) {
                let (expected, found) = ("a session of this pool".to_owned(), "one of another".to_owned());
                return Err(Error::Argument { argument: "sessions", expected, found });
            }
            session.check(session.tokens().len() + 1, &[])?;
            device.settle(&mut session.sequence)?;
            device.sample_if_left(&mut session.sequence)?;
            device.reach(&mut session.sequence, 1)?;
        }
        Ok(())
    }

    /// Takes a step with sessions, in which what they guess is verified.
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
                session.drafter.took(guesses[0].as_ref(), counts[0], tokens);
            }
            [_] => {}
            sessions => self.device().drafter.took(sessions, &guesses, &counts),
        }
        Ok(fed)
    }

    /// Whether a step with guesses failed, but one without may not.
    fn goes_without(&self, sessions: &mut [&mut Session], fed: &Result<Vec<Result<Vec<u32>>>>) -> bool {
        match fed {
            Err(Error::PoolFull { .. }) => true, // there may be memory for the tokens that are certain
            Err(Error::OutOfMemory { .. } | Error::TooLarge { .. }) => {
                let are_whole = sessions.iter().all(|session| session.sequence.has_output());
                if are_whole {
                    sessions.iter_mut().for_each(|session| session.stop_guessing()); // plans that guess do not fit
                }
                are_whole
            }
            _ => false,
        }
    }

    /// Feeds each session the token that was sampled after its last one, and what it guessed as far as that is right. Of
    /// drafts by the block the first `right` ones are what is sampled, whatever the block made.
    fn verify(
        &self,
        sessions: &mut [&mut Session],
        guesses: &[Option<Guess>],
        right: &[usize],
    ) -> Result<Vec<Result<Vec<u32>>>> {
        let device = &mut *self.enter()?;
        let mut sequences: Vec<&mut Sequence> = sessions.iter_mut().map(|session| &mut session.sequence).collect();
        for sequence in &mut sequences {
            device.settle(sequence)?;
        }
        let request = device.verification(&mut sequences, guesses, right)?;
        let ticket = device.run(&mut sequences, request)?;
        let fed = device.take(&mut sequences, &ticket)?;
        for ((session, guess), fed) in sessions.iter_mut().zip(guesses).zip(&fed) {
            if let (Some(Guess { count: count @ 1.., .. }), Ok(fed)) = (guess, fed) {
                session.drafter.count(*count, fed.len() - 1);
            }
        }
        Ok(fed)
    }

    /// As if there were `count` drafts for each session, of which `accepted` are right, for measurements on random weights: a
    /// step as sessions take it. The block makes drafts for the next one, unless they are `from_text`.
    ///
    /// # Errors
    /// As for [`Pool::next_tokens`]; [`Error::Argument`] for a model without a block, and for more rows than a step verifies.
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
            let expected = format!("at most {VERIFIED_ROWS} rows, a token of each session and its drafts");
            return Err(Error::Argument { argument: "drafts", expected, found: format!("{rows} rows") });
        }
        let tokens = from_text.then(|| vec![0; count]);
        let guess = |_| Some(Guess { evidence: Evidence::Predicted, count, tokens: tokens.clone() });
        let guesses: Vec<Option<Guess>> = sessions.iter().map(guess).collect();
        self.verify(sessions, &guesses, &vec![accepted; sessions.len()])
    }
}

impl Device {
    /// A step of the token that was sampled after the last one of each sequence, and of its drafts.
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
                    // A draft that is named by what is sampled after the row before it is always right.
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
    /// As [`Pool::predict_assumed`], of the session alone, with drafts by the block.
    ///
    /// # Errors
    /// As there.
    #[doc(hidden)]
    pub fn predict_assumed(&mut self, count: usize, accepted: usize) -> Result<Vec<u32>> {
        let pool = self.pool.clone();
        only(pool.predict_assumed(&mut [self], (count, accepted), false)?)
    }

    /// An error for more drafts than a step verifies.
    pub(super) fn check_drafts(&self, count: usize) -> Result<()> {
        let most = most_drafts(self.model().config());
        if count <= most {
            return Ok(());
        }
        let (expected, found) = (format!("at most {most}"), count.to_string());
        Err(Error::Argument { argument: "drafts", expected, found })
    }

    /// The token that was sampled after the last one, with the parameters of [`Session::set_sampling`].
    ///
    /// # Errors
    /// As for [`Session::most_likely`].
    pub fn sampled_token(&mut self) -> Result<u32> {
        let [sampled, ..] = self.sampled()?;
        known(sampled)
    }

    /// The most likely token after the last one that was fed, with bias and penalties.
    ///
    /// # Errors
    /// As for [`Session::logits`]; [`Error::NotANumber`] if no logit is a number.
    pub fn most_likely(&mut self) -> Result<u32> {
        let [_, likeliest, _] = self.sampled()?;
        known(likeliest)
    }

    fn sampled(&mut self) -> Result<[u32; Plan::SAMPLED_WORDS]> {
        let (mut device, sequence) = self.device()?;
        device.sample_if_left(sequence)?;
        device.newest(sequence)
    }
}
