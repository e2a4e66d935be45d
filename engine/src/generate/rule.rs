//! The interface for restrictions on the tokens of a reply: a constraint of the answer, or the schemas of the functions
//! that it may call. Without the feature `constrain` there are none.

use super::GenerateOptions;
use super::choose::Turn;
use super::chooser::Steering;
use super::event_builder::EventBuilder;
use crate::error::Result;
use crate::model::Model;
use crate::session::Session;
use crate::text::ReplyPosition;
use std::collections::VecDeque;

/// Restricts which tokens may come next, and feeds them: forced tokens together, and guesses that it allows.
pub trait Rule: Send {
    /// Called before a token at a place, where the rule may begin or cease to hold. `pending` are tokens in the session
    /// that were not reported yet.
    fn begin(&mut self, session: &mut Session, place: ReplyPosition, pending: &mut VecDeque<u32>) -> Result<()>;

    /// Whether it holds at a place or begins to.
    fn holds_at(&self, place: ReplyPosition) -> bool;

    /// Whether the reply is complete.
    fn is_over(&self) -> bool;

    /// Whether the reply may not end yet.
    fn awaits_answer(&self) -> bool;

    /// Whether the session does not have the last token of the reply yet.
    fn lacks_token(&self) -> bool;

    /// Feeds the tokens that must come next, if there are any, and returns them.
    fn feed_forced(&mut self, session: &mut Session, turn: &Turn<'_>) -> Result<Vec<u32>>;

    /// Chooses the next token, if it holds.
    fn choose(
        &mut self,
        session: &mut Session,
        turn: &Turn<'_>,
        steering: Option<&mut Steering<'_>>,
    ) -> Result<Option<u32>>;

    /// Chooses another token instead of one that would end the reply, after `before` tokens.
    fn choose_no_end(
        &mut self,
        session: &mut Session,
        before: usize,
        turn: &Turn<'_>,
        steering: Option<&mut Steering<'_>>,
    ) -> Result<u32>;

    /// Feeds a chosen token, and with it others that are certain, or guesses that turn out to be right: these become
    /// `pending`. If the token cannot be fed now, it is fed before the next choice.
    fn feed(&mut self, session: &mut Session, token: u32, turn: &Turn<'_>, pending: &mut VecDeque<u32>) -> Result<()>;

    /// Replays the beginning of a reply that is to be continued: its tokens, and the place before each.
    fn replay(&mut self, begun: &[(u32, ReplyPosition)]) -> Result<()>;
}

/// The rule for a reply to a prompt, if anything restricts it. If no calls are wanted, this changes the options to ban
/// the tokens that open them.
#[cfg(feature = "constrain")]
pub fn rule_for(
    model: &Model,
    prompt: &[u32],
    events: &mut EventBuilder,
    options: &mut GenerateOptions,
) -> Result<Option<Box<dyn Rule>>> {
    if options.calls == crate::constrain::Calls::None {
        events.forbid_calls(&mut options.sampling.logit_bias);
    }
    let constraining = super::constraining::Constraining::new(model, events.parser(), prompt, options)?;
    Ok(constraining.map(|constraining| Box::new(constraining) as Box<dyn Rule>))
}

#[cfg(not(feature = "constrain"))]
pub fn rule_for(_: &Model, _: &[u32], _: &mut EventBuilder, _: &mut GenerateOptions) -> Result<Option<Box<dyn Rule>>> {
    Ok(None)
}

/// Options that allow a beginning of the reply which these refuse: JSON with spaces. They allow spaces in the rest too,
/// even if the constraint is compact JSON.
#[cfg(feature = "constrain")]
pub fn relaxed(options: &GenerateOptions) -> Option<GenerateOptions> {
    let constraint = options.constraint.as_ref().and_then(crate::constrain::Constraint::with_blanks)?;
    Some(GenerateOptions { constraint: Some(constraint), ..options.clone() })
}

#[cfg(not(feature = "constrain"))]
pub fn relaxed(_: &GenerateOptions) -> Option<GenerateOptions> {
    None
}
