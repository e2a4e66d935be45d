//! Log-probabilities of a prompt's own tokens: the logits of each row are those of the token after it, so the rows are
//! computed together like others of a prompt, and their logits are read back.

use super::{PromptLogprobs, TokenLogprobs};
use crate::error::Result;
use crate::sample::{Logprob, logprobs};
use crate::session::Session;
use crate::threads::{Job, StopCheck, cores, work};

/// The tokens of a prompt that have not got their log-probabilities yet.
#[derive(Debug, Clone, Copy)]
pub struct Scoring {
    /// The index of the next one.
    next: usize,
    top: usize,
}

impl Scoring {
    pub fn new(PromptLogprobs { from, top }: PromptLogprobs) -> Self {
        Self { next: from.max(1), top }
    }

    /// Whether any token of the prompt is left.
    pub fn is_open(&self, prompt: &[u32]) -> bool {
        self.next < prompt.len()
    }

    /// How many tokens of the prompt may come from the cache, or be computed without their logits.
    pub fn without_logits(&self) -> usize {
        self.next - 1
    }

    /// Computes the next rows of a prompt in a session that holds all tokens before them, and returns the tokens after
    /// these rows. The last token of the prompt is not computed, because what follows it is generated.
    ///
    /// # Errors
    /// The errors of [`Session::feed`], and the error of `check_stop`.
    pub fn read(
        &mut self,
        session: &mut Session,
        prompt: &[u32],
        check_stop: &mut StopCheck<'_>,
    ) -> Result<Vec<TokenLogprobs>> {
        let rows = session.feed_first(&prompt[self.next - 1..prompt.len() - 1], check_stop)?;
        let tokens = &prompt[self.next..][..rows.len()];
        let tokenizer = session.model().tokenizer()?;
        let mut scored = Vec::with_capacity(rows.len());
        for (chosen, top) in each(&rows, tokens, self.top, check_stop)? {
            let bytes = tokenizer.token_bytes(chosen.token)?.to_owned();
            scored.push(TokenLogprobs { chosen, bytes, top });
        }
        self.next += rows.len();
        Ok(scored)
    }
}

/// The log-probabilities of tokens by the logits of the rows before them. A row takes about a millisecond for a large
/// vocabulary, so all cores take part.
fn each(
    rows: &[Vec<f32>],
    tokens: &[u32],
    top: usize,
    check_stop: &mut StopCheck<'_>,
) -> Result<Vec<(Logprob, Vec<Logprob>)>> {
    let mut scored = vec![None; rows.len()];
    let each = rows.len().div_ceil(cores()).max(1);
    let parts = rows.chunks(each).zip(tokens.chunks(each)).zip(scored.chunks_mut(each));
    let jobs = parts.map(|((rows, tokens), to)| -> Job<'_> {
        Box::new(move |_| {
            for ((row, token), to) in rows.iter().zip(tokens).zip(to) {
                *to = Some(logprobs(row, *token, top));
            }
            Ok(())
        })
    });
    work("log-probabilities", jobs.collect(), |_| Ok(()), check_stop)?;
    Ok(scored.into_iter().flatten().collect())
}
