//! Makes a reply match a constraint, and its calls the functions' schemas.
//!
//! Thinking is free. From the beginning of the answer, a grammar determines which tokens may come next: that of the
//! constraint, or of the required calls. Otherwise the answer is free too, except for the calls in it, each from its
//! opening to its end. While a grammar holds, the host has to know a token before it can compute the mask of the next
//! one. So the GPU computes the layers of a token while the host computes the mask, and tokens that the grammar forces
//! are not sampled but fed at once, several together. Only those guesses are computed that the grammar allows, and each
//! is sampled under its own mask.
//!
//! If the model may still open its thinking, the token for that is allowed in addition to the grammar, which is then
//! set aside. A reply cannot end before its answer: if the model would end it while it thinks, its thinking is ended
//! instead, and elsewhere another token is drawn. With functions and a constraint the answer is either of both;
//! `Calls::None` bans the tokens that open calls. A continued reply is replayed first, and refused if its beginning
//! does not match.
//!
//! All grammars of a reply are compiled before it begins, since other replies may wait for each of its tokens.
//!
//! A draw is the largest sum of logit and noise, and the noise depends only on seed, position and token. So without
//! top-k, top-p and min-p, which count only allowed tokens, a mask changes a reply only where it forbids the token that
//! would be drawn. For a `Chooser` the host applies the mask to the logits.

use super::choose::Turn;
use super::chooser::Steering;
use super::rule::Rule;
use crate::constrain::{self, CallGrammar, Calls, Grammar, Matcher, Vocabulary};
use crate::error::{Error, Result};
use crate::generate::GenerateOptions;
use crate::model::Model;
use crate::sample::SamplerParams;
use crate::session::{GuessedRows, GuessedStep, Session};
use crate::speculate::Continuation;
use crate::text::{ReplyParser, ReplyPosition, Tag, Tokenizer};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// The maximum number of tokens that a step feeds because a grammar forces them. Other replies wait for the step, and a
/// grammar may force a text of any length, whose rest the next steps feed. A chunk of a prompt is usually at least
/// twice as long.
const MAX_FORCED: usize = 256;

/// The grammars of a reply.
pub(super) struct Constraining {
    model: Model,
    /// The grammar of the answer, until the answer begins. Until then it is shared with other replies, so that waiting
    /// replies take no memory for it.
    answer: Option<Arc<Matcher>>,
    /// The grammar of a call after its opening, and that of the calls that may follow one if the answer was
    /// constrained.
    call: Option<Arc<Matcher>>,
    more: Option<Arc<Matcher>>,
    /// The grammar that holds now.
    holds: Option<(Matcher, Part)>,
    /// Whether nothing can follow, because a call was the answer.
    over: bool,
    /// The token with which the model may begin to think before its answer, and the one that ends its thinking.
    think: Option<u32>,
    think_end: Option<u32>,
    /// The last token of the reply, if it was cut from the session or there was no memory for it, so that it has to be
    /// fed first.
    missing: Option<u32>,
    /// The number of the session's tokens, and the token that was sampled after them instead of a guess that was wrong
    /// or ended the reply. The next choice takes it.
    drawn: Option<(usize, u32)>,
    /// The number of the session's tokens after the last step, when that step began, and its guesses.
    step: Option<(usize, Instant, Option<GuessedStep>)>,
}

/// The part of a reply that a grammar describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The answer up to the end of the reply.
    Answer,
    /// A call in an otherwise free answer.
    Call,
}

impl Constraining {
    /// The grammars for a reply to a prompt; `None` if nothing of the reply is constrained.
    pub(super) fn new(
        model: &Model,
        parser: Option<&ReplyParser>,
        prompt: &[u32],
        options: &GenerateOptions,
    ) -> Result<Option<Self>> {
        let tools = parser.map_or(&[][..], ReplyParser::tools);
        let wanted = options.constraint.is_some() || matches!(options.calls, Calls::Required | Calls::Function(_));
        if !wanted && (tools.is_empty() || options.calls == Calls::None) {
            return Ok(None);
        }
        let (family, tokenizer) = (parser.map(ReplyParser::family).unwrap_or_default(), model.tokenizer()?);
        let tools = constrain::bounded(tools);
        let grammar = CallGrammar { family, tools: &tools, tokenizer };
        let callable = callable(&tools, &options.calls);
        let vocabulary = model.vocabulary()?;
        let write = |grammar: &CallGrammar| grammar.answer(options.constraint.as_ref(), &options.calls);
        let answer = match write(&grammar)? {
            Some(answer) if callable.is_empty() => Some(vocabulary.matcher(&answer)?),
            Some(answer) => Some(compiled(vocabulary, &grammar, &answer, write)?),
            None => None,
        };
        let calls = CallGrammar { tools: &callable, ..grammar };
        let call = of_calls(vocabulary, &calls, |calls| calls.body().map(Some));
        let more = match &options.calls {
            Calls::Function(_) => None,
            _ if answer.is_none() => None,
            _ => of_calls(vocabulary, &calls, |calls| calls.more()),
        };
        let [think, think_end] = parser.map_or([None; 2], |parser| thinking_tokens(parser, prompt, tokenizer));
        let model = model.clone();
        Ok(Some(Self {
            model,
            answer,
            call,
            more,
            holds: None,
            over: false,
            think,
            think_end,
            missing: None,
            drawn: None,
            step: None,
        }))
    }

    /// Whether a grammar holds now.
    fn is_holding(&self) -> bool {
        self.holds.is_some()
    }

    /// Updates the grammar for the present place, where one may begin or cease to hold.
    fn arrive(&mut self, place: ReplyPosition) {
        match &self.holds {
            Some((matcher, Part::Call)) if matcher.is_over() => {
                self.holds = None;
                // A call takes the place of the answer; others may follow.
                if self.answer.take().is_some() {
                    self.holds = self.more.as_ref().map(|more| (more.copy(), Part::Answer));
                    self.over = self.holds.is_none();
                }
            }
            Some(_) => {}
            None if matches!(place, ReplyPosition::Start | ReplyPosition::Answer) => {
                self.holds = self.answer.take().map(|matcher| (matcher.copy(), Part::Answer));
            }
            None if place == ReplyPosition::CallBegun => {
                self.holds = self.call.as_ref().map(|call| (call.copy(), Part::Call));
            }
            None => {}
        }
    }

    /// Whether a grammar begins to hold at a place.
    fn begins(&self, place: ReplyPosition) -> bool {
        match place {
            _ if self.is_holding() => false,
            ReplyPosition::Start | ReplyPosition::Answer => self.answer.is_some(),
            ReplyPosition::CallBegun => self.call.is_some(),
            ReplyPosition::Thinking | ReplyPosition::Within => false,
        }
    }

    /// The token that begins thinking, at a place where that is allowed.
    fn thinks_at(&self, place: ReplyPosition) -> Option<u32> {
        self.think.filter(|_| place == ReplyPosition::Start && matches!(self.holds, Some((_, Part::Answer))))
    }

    /// Sets the grammar of the answer aside while the model thinks.
    fn set_aside(&mut self) {
        self.answer = self.holds.take().map(|(matcher, _)| Arc::new(matcher));
    }
}

/// The functions that may be called anywhere in the reply.
fn callable(tools: &[Value], calls: &Calls) -> Vec<Value> {
    match calls {
        Calls::None => Vec::new(),
        Calls::Function(wanted) => {
            tools.iter().filter(|tool| constrain::function_name(tool) == *wanted).cloned().collect()
        }
        Calls::Auto | Calls::Required => tools.to_vec(),
    }
}

/// Compiles a grammar with calls. If it is not supported, any arguments are allowed for the functions whose schemas are
/// not supported.
fn compiled(
    vocabulary: &Vocabulary,
    grammar: &CallGrammar,
    text: &Grammar,
    write: impl Fn(&CallGrammar) -> Result<Option<Grammar>>,
) -> Result<Arc<Matcher>> {
    vocabulary.matcher_or(text, |error| {
        let tools = constrain::supported(grammar.tools);
        write(&CallGrammar { tools: &tools, ..*grammar })?.ok_or(error)
    })
}

/// Compiles a grammar of calls in an otherwise free answer. Calls are free too if there is no grammar: in a family
/// without calls, and if it is too large.
fn of_calls(
    vocabulary: &Vocabulary,
    grammar: &CallGrammar,
    write: impl Fn(&CallGrammar) -> Result<Option<Grammar>>,
) -> Option<Arc<Matcher>> {
    if grammar.tools.is_empty() {
        return None;
    }
    let text = write(grammar).ok().flatten()?;
    match compiled(vocabulary, grammar, &text, write) {
        Ok(matcher) => Some(matcher),
        Err(_) => {
            tracing::warn!("calls are not constrained, since the schemas of the functions are not supported");
            None
        }
    }
}

/// The maximum number of tokens of spaces at the end of a prompt.
const BLANKS: usize = 4;

/// The token that begins thinking before the answer, unless the prompt has ended the thinking, and the one that ends
/// thinking.
fn thinking_tokens(parser: &ReplyParser, prompt: &[u32], tokenizer: &Tokenizer) -> [Option<u32>; 2] {
    let [begin, end] = [Tag::Think, Tag::ThinkEnd].map(|tag| parser.family().text(tag));
    let special = |text: &str| tokenizer.special(text).filter(|_| !text.is_empty());
    // A tag that is spelled has no more tokens than letters.
    let last = tokenizer.decode(&prompt[prompt.len().saturating_sub(end.len() + BLANKS)..], true);
    let is_done = !end.is_empty() && last.is_ok_and(|last| last.trim_end().ends_with(end));
    [special(begin).filter(|_| !is_done), special(end)]
}

impl Rule for Constraining {
    fn begin(&mut self, session: &mut Session, place: ReplyPosition, pending: &mut VecDeque<u32>) -> Result<()> {
        self.feed_missing(session)?;
        if self.begins(place) && !pending.is_empty() {
            // They were guessed while everything was allowed.
            let reported = session.tokens().len() - pending.len();
            pending.clear();
            session.set_masked(true);
            self.feed_last_again(session, reported)?;
        }
        if pending.is_empty() {
            self.arrive(place);
        }
        session.set_masked(self.is_holding());
        Ok(())
    }

    fn holds_at(&self, place: ReplyPosition) -> bool {
        self.is_holding() || self.begins(place)
    }

    fn is_over(&self) -> bool {
        match &self.holds {
            Some((matcher, Part::Answer)) => matcher.is_over(),
            // It takes the place of the answer.
            Some((matcher, Part::Call)) => self.answer.is_some() && self.more.is_none() && matcher.is_over(),
            None => self.over,
        }
    }

    fn awaits_answer(&self) -> bool {
        !self.is_holding() && self.answer.is_some()
    }

    fn lacks_token(&self) -> bool {
        self.missing.is_some()
    }

    fn feed_forced(&mut self, session: &mut Session, turn: &Turn<'_>) -> Result<Vec<u32>> {
        let may_think = self.thinks_at(turn.events.position()).is_some();
        let Some((matcher, _)) = self.holds.as_mut().filter(|_| !may_think) else { return Ok(Vec::new()) };
        let mut forced = matcher.forced();
        forced.truncate(most_forced(session, turn));
        session.feed(&forced)?;
        forced.iter().try_for_each(|token| matcher.accept(*token))?;
        Ok(forced)
    }

    fn choose(
        &mut self,
        session: &mut Session,
        turn: &Turn<'_>,
        steering: Option<&mut Steering<'_>>,
    ) -> Result<Option<u32>> {
        let think = self.thinks_at(turn.events.position());
        let Some((matcher, _)) = &mut self.holds else { return Ok(None) };
        let length = session.tokens().len();
        // If the cache was computed again since, it has to be sampled again.
        let drawn = self.drawn.take().filter(|(after, _)| *after == length && !session.awaits_mask());
        let mut mask = matcher.mask()?.to_vec();
        if let Some(think) = think {
            set(&mut mask, think, true);
        }
        let token = match (steering, turn.logits, drawn) {
            (Some(steering), Some(logits), _) => {
                let token = steering.choose(&mut masked(logits, &mask), session.tokens(), turn.sampling)?;
                check_allowed(&mask, token, "a token that the constraint allows")?;
                token
            }
            (_, _, Some((_, token))) => token,
            _ => {
                ban(&mut mask, turn.sampling)?;
                session.sample_masked(&mask)?
            }
        };
        if let Some((_, begun, guessed)) = self.step.take().filter(|(after, ..)| *after == length) {
            session.record_masked_step(begun.elapsed(), guessed);
        }
        if think == Some(token) {
            self.set_aside()
        } else {
            matcher.accept(token)?
        }
        Ok(Some(token))
    }

    fn choose_no_end(
        &mut self,
        session: &mut Session,
        before: usize,
        turn: &Turn<'_>,
        steering: Option<&mut Steering<'_>>,
    ) -> Result<u32> {
        let mut mask = vec![u32::MAX; self.model.config().vocab.div_ceil(u32::BITS as usize)];
        let only = self.think_end.filter(|_| turn.events.position() == ReplyPosition::Thinking);
        if let Some(token) = only {
            mask.fill(0);
            set(&mut mask, token, true);
        } else {
            self.model.tokenizer()?.end_tokens().iter().for_each(|end| set(&mut mask, *end, false));
        }
        session.set_masked(true);
        if session.tokens().len() > before {
            self.feed_last_again(session, before)?;
        }
        let token = match (steering, turn.logits) {
            (Some(steering), Some(logits)) => {
                steering.choose(&mut masked(logits, &mask), session.tokens(), turn.sampling)?
            }
            _ => match only {
                Some(token) => token,
                None => session.sample_masked(&mask)?,
            },
        };
        check_allowed(&mask, token, "a token that does not end the reply")?;
        session.set_masked(false);
        Ok(token)
    }

    fn feed(&mut self, session: &mut Session, token: u32, turn: &Turn<'_>, pending: &mut VecDeque<u32>) -> Result<()> {
        let (begun, mut certain) = (Instant::now(), vec![token]);
        // If the logits of each token are wanted, tokens are fed one by one.
        if let Some((matcher, _)) = self.holds.as_mut().filter(|_| turn.logits.is_none()) {
            if !matcher.is_over() {
                certain.extend(matcher.forced());
                certain.truncate(most_forced(session, turn));
            }
            let known = self.model.tokenizer()?.vocab_size();
            if certain.len() == 1
                && !matcher.is_over()
                && let Some(guesses) = allowed_after(session, matcher, (token, known), turn.most - 1)?
                && let Some(rows) = session.feed_with_guesses(token, &guesses.tokens)?
            {
                let (step, drawn) = accept_guesses(session, matcher, (&guesses, rows), turn, pending)?;
                session.guessed(step);
                (self.step, self.drawn) = (Some((session.tokens().len(), begun, Some(step))), drawn);
                return Ok(());
            }
        }
        let before = session.tokens().len();
        match session.feed(&certain) {
            // The reply may move to another device, and the grammar has taken the token.
            Err(Error::PoolFull { .. } | Error::DeviceLost { .. }) => {
                session.rewind(before);
                self.missing = Some(token);
                return Ok(());
            }
            fed => fed?,
        }
        if let Some((matcher, _)) = self.holds.as_mut().filter(|_| turn.logits.is_none()) {
            certain[1..].iter().try_for_each(|token| matcher.accept(*token))?;
            pending.extend(&certain[1..]);
            self.step = Some((session.tokens().len(), begun, None)).filter(|_| certain.len() == 1);
        }
        Ok(())
    }

    fn replay(&mut self, begun: &[(u32, ReplyPosition)]) -> Result<()> {
        for (token, place) in begun {
            self.arrive(*place);
            if self.thinks_at(*place) == Some(*token) {
                self.set_aside();
            }
            let Some((matcher, _)) = &mut self.holds else { continue };
            if matcher.is_over() || !matcher.allows(*token)? {
                let text = self.model.tokenizer()?.decode(&[*token], true)?;
                let (expected, found) =
                    ("a beginning of a reply that satisfies the constraint", format!("{text:?}, which does not"));
                return Err(Error::argument("messages", expected, found));
            }
            matcher.accept(*token)?;
        }
        Ok(())
    }
}

impl Constraining {
    /// Reduces a session to its first `length` tokens, and computes the last of them again, so that its logits are
    /// available.
    fn feed_last_again(&mut self, session: &mut Session, length: usize) -> Result<()> {
        self.missing = session.tokens()[..length].last().copied();
        session.rewind(length.saturating_sub(1));
        self.feed_missing(session)
    }

    /// Feeds the last token of the reply if the session does not have it.
    fn feed_missing(&mut self, session: &mut Session) -> Result<()> {
        if let Some(token) = self.missing {
            session.feed(&[token])?;
            self.missing = None;
        }
        Ok(())
    }
}

/// The maximum number of tokens that a step may feed because a grammar forces them.
fn most_forced(session: &Session, turn: &Turn<'_>) -> usize {
    turn.most.min(session.context() - session.tokens().len()).min(MAX_FORCED)
}

/// Removes the tokens that a bias bans from a mask.
fn ban(mask: &mut [u32], sampling: &SamplerParams) -> Result<()> {
    let banned = sampling.logit_bias.iter().filter(|(_, bias)| *bias == f32::NEG_INFINITY);
    banned.for_each(|(token, _)| set(mask, *token, false));
    if mask.iter().all(|word| *word == 0) {
        return Err(Error::argument("logit_bias", "a token that the constraint allows and no bias bans", "none"));
    }
    Ok(())
}

/// What the text predicts after a token that the grammar has taken, as far as that pays off and is allowed: at most
/// `most` tokens, each below `known`.
fn allowed_after(
    session: &mut Session,
    matcher: &mut Matcher,
    (token, known): (u32, usize),
    most: usize,
) -> Result<Option<Continuation>> {
    let Some(mut guesses) = session.guesses_after(token, most) else { return Ok(None) };
    let spelled = guesses.tokens.iter().take_while(|token| (**token as usize) < known).count();
    // The grammar checks only guesses that pay off. Checking all of them took 5 % of a reply's time.
    guesses.tokens.truncate(matcher.valid(&guesses.tokens[..spelled])?);
    Ok(Some(guesses).filter(|guesses| !guesses.tokens.is_empty()))
}

/// Samples after each row of a step as long as the sampled token is the guess, which becomes `pending`. Returns the
/// result, and the token that was sampled instead of the first wrong guess, with the number of tokens before it.
fn accept_guesses(
    session: &mut Session,
    matcher: &mut Matcher,
    (guesses, mut rows): (&Continuation, GuessedRows),
    turn: &Turn<'_>,
    pending: &mut VecDeque<u32>,
) -> Result<(GuessedStep, Option<(usize, u32)>)> {
    let Continuation { tokens: guesses, matched } = guesses;
    let mut step = GuessedStep { matched: *matched, rows: 1 + guesses.len(), guessed: guesses.len(), accepted: 0 };
    for guess in guesses {
        if matcher.is_over() {
            break;
        }
        // An error of the grammar, of biases or of logits occurs again with the next choice.
        let Ok(mut mask) = matcher.mask().map(<[u32]>::to_vec) else { break };
        if ban(&mut mask, turn.sampling).is_err() {
            break;
        }
        match only(&mask) {
            Some(only) if only != *guess => break, // the same text, tokenized differently
            Some(_) => step.guessed -= 1,
            None => {
                let sampled = match session.sample_masked(&mask) {
                    Err(Error::NotANumber | Error::DeviceLost { .. }) => break, // it occurs again with the next choice
                    sampled => sampled?,
                };
                if sampled != *guess || turn.ends(session, sampled) {
                    return Ok((step, Some((session.tokens().len(), sampled))));
                }
                step.accepted += 1;
            }
        }
        match session.accept_guess(*guess, &mut rows) {
            Ok(true) => {}
            Ok(false) | Err(Error::DeviceLost { .. }) => break,
            Err(error) => return Err(error),
        }
        pending.push_back(*guess);
        if matcher.accept(*guess).is_err() {
            break;
        }
    }
    Ok((step, None))
}

/// The only token that a mask allows, if there is only one.
fn only(mask: &[u32]) -> Option<u32> {
    let place = mask.iter().position(|word| *word != 0)?;
    let alone = mask[place].is_power_of_two() && mask[place + 1..].iter().all(|word| *word == 0);
    alone.then(|| u32::BITS * place as u32 + mask[place].trailing_zeros())
}

/// Whether a mask allows a token.
fn is_allowed(mask: &[u32], token: usize) -> bool {
    mask.get(token / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
}

/// Returns an error if a mask does not allow a chooser's token.
fn check_allowed(mask: &[u32], token: u32, expected: &str) -> Result<()> {
    if is_allowed(mask, token as usize) {
        return Ok(());
    }
    Err(Error::argument("chooser", expected, format!("token {token}")))
}

/// Allows or forbids a token in a mask.
fn set(mask: &mut [u32], token: u32, allowed: bool) {
    if let Some(word) = mask.get_mut(token as usize / 32) {
        let bit = 1 << (token % 32);
        *word = if allowed { *word | bit } else { *word & !bit };
    }
}

/// The logits that a mask allows; minus infinity for the others.
fn masked(logits: &[f32], mask: &[u32]) -> Vec<f32> {
    let of = |(token, logit): (usize, &f32)| if is_allowed(mask, token) { *logit } else { f32::NEG_INFINITY };
    logits.iter().enumerate().map(of).collect()
}
