//! Chooses the next token: by the sampler on the GPU, a rule, or the caller's chooser. Feeding it is separate, because
//! a common step of several conversations feeds the tokens that the GPU has sampled.

use super::chooser::{Chooser, Steering};
use super::event_builder::EventBuilder;
use super::rule::Rule;
use crate::error::Result;
use crate::sample::SamplerParams;
use crate::session::Session;
use std::collections::VecDeque;

/// Chooses the tokens of a reply.
pub struct Policy<'a> {
    steering: Option<Steering<'a>>,
    pub rule: Option<Box<dyn Rule>>,
}

/// What the choice of a token may look at.
#[derive(Clone, Copy)]
pub struct Turn<'a> {
    /// The reply so far.
    pub events: &'a EventBuilder,
    /// The logits of the token, if they were read back.
    pub logits: Option<&'a [f32]>,
    /// The maximum number of tokens that may be chosen at a time; 0 if the context is full.
    pub most: usize,
    /// How tokens are sampled.
    pub sampling: &'a SamplerParams,
}

impl Turn<'_> {
    /// Whether a token would end the reply. The end of a message does not if a call may follow as another message.
    pub fn ends(&self, session: &Session, token: u32) -> bool {
        session.model().tokenizer().is_ok_and(|known| known.is_end(token)) && !self.events.is_tag(token)
    }
}

impl<'a> Policy<'a> {
    pub fn new(rule: Option<Box<dyn Rule>>) -> Self {
        Self { steering: None, rule }
    }

    pub fn set_chooser(&mut self, chooser: Box<dyn Chooser + Send + 'a>) {
        self.steering = Some(Steering::new(chooser));
    }

    /// Whether a caller's chooser takes part, which needs the logits.
    pub fn has_chooser(&self) -> bool {
        self.steering.is_some()
    }

    /// Whether there is a rule that satisfies a condition.
    pub fn rules(&self, says: impl Fn(&dyn Rule) -> bool) -> bool {
        self.rule.as_deref().is_some_and(says)
    }

    /// Chooses the next token without feeding it. `None` leaves the choice to the GPU, which has sampled one.
    pub fn choose(&mut self, session: &mut Session, turn: &Turn<'_>) -> Result<Option<u32>> {
        if let Some(rule) = &mut self.rule
            && let Some(token) = rule.choose(session, turn, self.steering.as_mut())?
        {
            return Ok(Some(token));
        }
        let Some((steering, logits)) = self.steering.as_mut().zip(turn.logits) else { return Ok(None) };
        steering.choose(&mut logits.to_vec(), session.tokens(), turn.sampling).map(Some)
    }

    /// Chooses the next token, and feeds it if the context is not full and it does not end the reply, perhaps with
    /// others after it, which become `pending`. `None` leaves the choice to the GPU: a step feeds the token that was
    /// sampled there.
    pub fn next(&mut self, session: &mut Session, turn: &Turn<'_>, pending: &mut VecDeque<u32>) -> Result<Option<u32>> {
        if let Some(rule) = self.rule.as_mut().filter(|_| turn.most > 0 && turn.logits.is_none()) {
            let forced = rule.feed_forced(session, turn)?;
            if let [first, rest @ ..] = &forced[..] {
                pending.extend(rest);
                return Ok(Some(*first));
            }
        }
        if self.steering.is_some() && turn.most > 0 {
            session.reserve_next()?; // or a full pool would make the chooser choose again
        }
        let Some(token) = self.choose(session, turn)? else { return Ok(None) };
        if turn.most > 0 && !turn.ends(session, token) {
            match &mut self.rule {
                Some(rule) => rule.feed(session, token, turn, pending)?,
                None => session.feed(&[token])?,
            }
        }
        Ok(Some(token))
    }

    /// Chooses another token instead of one that would end a reply that may not end yet, after `before` tokens, and
    /// feeds it if the context is not full. `None` if the reply may end.
    pub fn next_no_end(&mut self, session: &mut Session, before: usize, turn: &Turn<'_>) -> Result<Option<u32>> {
        let Some(rule) = self.rule.as_mut().filter(|rule| rule.awaits_answer()) else { return Ok(None) };
        let token = rule.choose_no_end(session, before, turn, self.steering.as_mut())?;
        if turn.most > 0 {
            session.feed(&[token])?;
        }
        Ok(Some(token))
    }
}
