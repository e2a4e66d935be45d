//! Has a reply match a constraint, and its calls the functions' schemas.
//!
//! Thinking is free. Where the answer begins, a grammar says from then on which tokens may come next: that of the
//! constraint, or of the calls that are required. Otherwise the answer is free too, but for the calls in it, each from its
//! opening to its end. While a grammar holds, the host has to know a token before it can tell the next one's mask. So the
//! GPU computes the layers of a token while the host computes the mask, and tokens that the grammar forces are not sampled
//! but fed at once, several together. Of tokens that are guessed ahead only those are computed that the grammar allows,
//! and each is sampled under its own mask.

use super::chooser::Steering;
use crate::constrain::{self, CallGrammar, Calls, Grammar, Matcher, Vocabulary};
use crate::error::{Error, Result};
use crate::generate::GenerateOptions;
use crate::model::Model;
use crate::sample::SamplerParams;
use crate::session::{GuessedRows, GuessedStep, Session};
use crate::speculate::Continuation;
use crate::text::{ReplyParser, ReplyPlace, Tag, Tokenizer};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// The grammars of a reply. All of them are compiled before the reply begins, since other replies may wait for each of its
/// tokens.
pub(super) struct Constraining {
    model: Model,
    /// That of the answer, until the answer begins. It is shared with other replies until it holds: those that wait take no
    /// memory for it.
    answer: Option<Arc<Matcher>>,
    /// That of a call from its opening on, and of the calls that may follow one if the answer was constrained.
    call: Option<Arc<Matcher>>,
    more: Option<Arc<Matcher>>,
    /// The grammar that holds now.
    holds: Option<(Matcher, Part)>,
    /// Whether nothing can follow, because a call did instead of the answer.
    over: bool,
    /// The token with which the model may begin to think before its answer, and the one that ends its thinking.
    think: Option<u32>,
    think_end: Option<u32>,
    /// The last token of the reply, if the session was cut by it, or memory was too short for it, and does not hold it yet.
    missing: Option<u32>,
    /// A token that was sampled already behind so many tokens of the session, in the place of a guess that was wrong or
    /// ended the reply. The next choice takes it.
    drawn: Option<(usize, u32)>,
    /// When the last step was begun, behind which the session held so many tokens, and what it guessed.
    step: Option<(usize, Instant, Option<GuessedStep>)>,
}

/// The part of a reply that a grammar is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The answer up to the end of the reply.
    Answer,
    /// A call in an answer that is free otherwise.
    Call,
}

impl Constraining {
    /// The grammars for a reply to a prompt that a parser reads; `None` if nothing of it is constrained.
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
        // The functions that calls may be of, wherever they begin.
        let callable: Vec<_> = match &options.calls {
            Calls::None => Vec::new(),
            Calls::Function(wanted) => {
                tools.iter().filter(|tool| constrain::function_name(tool) == *wanted).cloned().collect()
            }
            Calls::Auto | Calls::Required => tools.clone(),
        };
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
        let special = |tag: Tag| {
            let text = family.text(tag);
            tokenizer.special(text).filter(|_| parser.is_some() && !text.is_empty())
        };
        let is_done = ends_thinking(prompt, tokenizer, family.text(Tag::ThinkEnd));
        let (think, think_end) = (special(Tag::Think).filter(|_| !is_done), special(Tag::ThinkEnd));
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

    /// Whether the session does not hold the last token of the reply yet.
    pub(super) fn lacks_token(&self) -> bool {
        self.missing.is_some()
    }

    /// Whether a grammar holds now.
    fn is_holding(&self) -> bool {
        self.holds.is_some()
    }

    /// Whether the reply is complete.
    pub(super) fn is_over(&self) -> bool {
        match &self.holds {
            Some((matcher, Part::Answer)) => matcher.is_over(),
            // It does instead of the answer.
            Some((matcher, Part::Call)) => self.answer.is_some() && self.more.is_none() && matcher.is_over(),
            None => self.over,
        }
    }

    /// Takes notice of the place of the reply: a grammar may hold from here on, or not any more.
    fn arrive(&mut self, place: ReplyPlace) {
        match &self.holds {
            Some((matcher, Part::Call)) if matcher.is_over() => {
                self.holds = None;
                // A call does instead of the answer; others may follow.
                if self.answer.take().is_some() {
                    self.holds = self.more.as_ref().map(|more| (more.copy(), Part::Answer));
                    self.over = self.holds.is_none();
                }
            }
            Some(_) => {}
            None if matches!(place, ReplyPlace::Start | ReplyPlace::Answer) => {
                self.holds = self.answer.take().map(|matcher| (matcher.copy(), Part::Answer));
            }
            None if place == ReplyPlace::CallBegun => {
                self.holds = self.call.as_ref().map(|call| (call.copy(), Part::Call));
            }
            None => {}
        }
    }

    /// Whether a grammar holds at a place, or begins to.
    pub(super) fn holds_at(&self, place: ReplyPlace) -> bool {
        self.is_holding() || self.begins(place)
    }

    /// Whether a grammar begins to hold at a place.
    fn begins(&self, place: ReplyPlace) -> bool {
        match place {
            _ if self.is_holding() => false,
            ReplyPlace::Start | ReplyPlace::Answer => self.answer.is_some(),
            ReplyPlace::CallBegun => self.call.is_some(),
            ReplyPlace::Thinking | ReplyPlace::Within => false,
        }
    }

    /// The token that opens the thinking, at a place where it still may.
    fn thinks_at(&self, place: ReplyPlace) -> Option<u32> {
        self.think.filter(|_| place == ReplyPlace::Start && matches!(self.holds, Some((_, Part::Answer))))
    }

    /// The model thinks before its answer, whose grammar has to wait.
    fn set_aside(&mut self) {
        self.answer = self.holds.take().map(|(matcher, _)| Arc::new(matcher));
    }

    /// Follows the beginning of a reply that is to be continued: its tokens, and the place before each.
    pub(super) fn replay(&mut self, told: &[(u32, ReplyPlace)]) -> Result<()> {
        for (token, place) in told {
            self.arrive(*place);
            if self.thinks_at(*place) == Some(*token) {
                self.set_aside();
            }
            let Some((matcher, _)) = &mut self.holds else { continue };
            if matcher.is_over() || !matcher.allows(*token)? {
                let text = self.model.tokenizer()?.decode(&[*token], true)?;
                let expected = "a beginning of the reply that the constraint allows".to_owned();
                let found = format!("{text:?} where it does not");
                return Err(Error::Argument { argument: "messages", expected, found });
            }
            matcher.accept(*token)?;
        }
        Ok(())
    }
}

/// Compiles a grammar with calls. If it is not supported, the arguments of those functions are free whose schema is not.
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

/// Compiles a grammar of calls in an answer that is free otherwise. They are free too if there is none: in a family without
/// calls, and if it is too large.
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

/// How many tokens behind its last letters a prompt may end in, which are blanks.
const BLANKS_BEHIND: usize = 4;

/// Whether a prompt ends behind the thinking of the reply, so that the model cannot think.
fn ends_thinking(prompt: &[u32], tokenizer: &Tokenizer, tag: &str) -> bool {
    // A tag that is spelled has no more tokens than letters.
    let end = tokenizer.decode(&prompt[prompt.len().saturating_sub(tag.len() + BLANKS_BEHIND)..], true);
    !tag.is_empty() && end.is_ok_and(|end| end.trim_end().ends_with(tag))
}

/// What a generation has at hand when it chooses a token.
pub(super) struct Choice<'c, 'a> {
    /// The place of the token in the reply.
    pub place: ReplyPlace,
    /// Whether a token would end the reply.
    pub ends: &'c dyn Fn(u32) -> bool,
    /// Whether the context has room for the token.
    pub room: bool,
    /// The logits of the token, if they were read back.
    pub logits: Option<&'c [f32]>,
    /// The most tokens that may be chosen at a time.
    pub most: usize,
    /// The caller's chooser.
    pub steering: Option<&'c mut Steering<'a>>,
    /// How tokens are sampled.
    pub sampling: &'c SamplerParams,
    /// Tokens that the session holds already and that were not reported yet.
    pub pending: &'c mut VecDeque<u32>,
}

impl Constraining {
    /// Before a token at a place: a grammar may hold from here on, or not any more. `pending` are tokens that the session
    /// holds already and that were not reported yet.
    pub(super) fn begin(
        &mut self,
        session: &mut Session,
        place: ReplyPlace,
        pending: &mut VecDeque<u32>,
    ) -> Result<()> {
        self.feed_missing(session)?;
        if self.begins(place) && !pending.is_empty() {
            // They were guessed when everything was allowed.
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

    /// Chooses the next token if a grammar holds, and feeds it to the session if there is room, perhaps with others that
    /// follow it. After [`Error::PoolFull`] nothing has changed, but that a chooser was asked.
    pub(super) fn choose(&mut self, session: &mut Session, choice: Choice<'_, '_>) -> Result<Option<u32>> {
        let think = self.thinks_at(choice.place);
        let Some((matcher, _)) = &mut self.holds else { return Ok(None) };
        let Choice { ends, room, logits, most, steering, sampling, pending, .. } = choice;
        if room && logits.is_none() && think.is_none() {
            let mut forced = matcher.forced();
            forced.truncate(most.min(session.context() - session.tokens().len()));
            if let [first, rest @ ..] = &forced[..] {
                session.feed(&forced)?;
                forced.iter().try_for_each(|token| matcher.accept(*token))?;
                pending.extend(rest);
                return Ok(Some(*first));
            }
        }
        let length = session.tokens().len();
        // Where the cache was computed again since, it has to be sampled again.
        let drawn = self.drawn.take().filter(|(behind, _)| *behind == length && !session.awaits_mask());
        let mut mask = matcher.mask()?.to_vec();
        if let Some(think) = think {
            set(&mut mask, think, true);
        }
        let token = match (steering, logits) {
            (Some(steering), Some(logits)) => {
                let token = steering.choose(&mut masked(logits, &mask), session.tokens(), sampling)?;
                if !is_allowed(&mask, token as usize) {
                    let (expected, found) = ("a token that the constraint allows", format!("token {token}"));
                    return Err(Error::Argument { argument: "chooser", expected: expected.to_owned(), found });
                }
                token
            }
            _ => match drawn {
                Some((_, token)) => token,
                None => {
                    ban(&mut mask, sampling)?;
                    session.sample_masked(&mask)?
                }
            },
        };
        if let Some((_, begun, guessed)) = self.step.take().filter(|(behind, ..)| *behind == length) {
            session.took_masked(begun.elapsed(), guessed);
        }
        let is_fed = room && !ends(token);
        if think == Some(token) {
            if is_fed {
                session.feed(&[token])?;
            }
            self.set_aside();
        } else if is_fed && logits.is_none() {
            self.feed_ahead(session, token, (most, sampling, ends), pending)?;
        } else {
            if is_fed {
                session.feed(&[token])?;
            }
            matcher.accept(token)?;
        }
        Ok(Some(token))
    }

    /// Has the grammar take a token, and feeds it. In the same step it feeds those that the grammar forces behind it or, if it
    /// forces none, computes guesses. What is forced, and guesses that are right, become `pending`. If memory is too short for
    /// it, or the device is lost, the token is fed before the next choice.
    fn feed_ahead(
        &mut self,
        session: &mut Session,
        token: u32,
        (most, sampling, ends): (usize, &SamplerParams, &dyn Fn(u32) -> bool),
        pending: &mut VecDeque<u32>,
    ) -> Result<()> {
        let Some((matcher, _)) = &mut self.holds else { return session.feed(&[token]) };
        let begun = Instant::now();
        matcher.accept(token)?;
        let mut certain = vec![token];
        if !matcher.is_over() {
            certain.extend(matcher.forced());
            certain.truncate(most.min(session.context() - session.tokens().len()));
        }
        let known = self.model.tokenizer()?.vocab_size();
        if certain.len() == 1
            && !matcher.is_over()
            && let Some(guesses) = allowed_behind(session, matcher, (token, known), most - 1)?
            && let Some(rows) = session.feed_with_guesses(token, &guesses.tokens)?
        {
            let (step, drawn) = accept_guesses(session, matcher, (&guesses, rows), (sampling, ends), pending)?;
            session.guessed(step);
            (self.step, self.drawn) = (Some((session.tokens().len(), begun, Some(step))), drawn);
            return Ok(());
        }
        match session.feed(&certain) {
            // It may move to another device, and the grammar has taken the token.
            Err(Error::PoolFull { .. } | Error::DeviceLost { .. }) => {
                self.missing = Some(token);
                return Ok(());
            }
            fed => fed?,
        }
        certain[1..].iter().try_for_each(|token| matcher.accept(*token))?;
        pending.extend(&certain[1..]);
        self.step = Some((session.tokens().len(), begun, None)).filter(|_| certain.len() == 1);
        Ok(())
    }

    /// Whether the reply may not end yet, because the answer that is constrained has not begun.
    pub(super) fn awaits_answer(&self) -> bool {
        !self.is_holding() && self.answer.is_some()
    }

    /// Chooses another token in the place of one that would end the reply, behind `before` tokens. A model that wants to end
    /// while it thinks is done with that: the thinking ends. Elsewhere the token is sampled as if none ended replies.
    pub(super) fn choose_no_end(
        &mut self,
        session: &mut Session,
        before: usize,
        room: bool,
        choice: Instead<'_, '_>,
    ) -> Result<u32> {
        let Instead { place, logits, steering, sampling } = choice;
        let mut mask = vec![u32::MAX; self.model.config().vocab.div_ceil(u32::BITS as usize)];
        let only = self.think_end.filter(|_| place == ReplyPlace::Thinking);
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
        let token = match (steering, logits) {
            (Some(steering), Some(logits)) => {
                steering.choose(&mut masked(logits, &mask), session.tokens(), sampling)?
            }
            _ => match only {
                Some(token) => token,
                None => session.sample_masked(&mask)?,
            },
        };
        if !is_allowed(&mask, token as usize) {
            let (expected, found) = ("a token that does not end the reply".to_owned(), format!("token {token}"));
            return Err(Error::Argument { argument: "chooser", expected, found });
        }
        session.set_masked(false);
        if room {
            session.feed(&[token])?;
        }
        Ok(token)
    }

    /// Cuts a session to its first tokens, and computes the last of them again, so that its logits are there.
    fn feed_last_again(&mut self, session: &mut Session, length: usize) -> Result<()> {
        self.missing = session.tokens()[..length].last().copied();
        session.rewind(length.saturating_sub(1));
        self.feed_missing(session)
    }

    /// Feeds the last token of the reply if the session does not hold it. There may have been no room for it.
    fn feed_missing(&mut self, session: &mut Session) -> Result<()> {
        if let Some(token) = self.missing {
            session.feed(&[token])?;
            self.missing = None;
        }
        Ok(())
    }
}

/// What a generation has at hand when it chooses a token instead of one that would end the reply.
pub(super) struct Instead<'c, 'a> {
    /// The place of the token in the reply.
    pub place: ReplyPlace,
    /// The logits of the token, if they were read back.
    pub logits: Option<&'c [f32]>,
    /// The caller's chooser.
    pub steering: Option<&'c mut Steering<'a>>,
    /// How tokens are sampled.
    pub sampling: &'c SamplerParams,
}

/// Has a mask forbid what a bias bans.
fn ban(mask: &mut [u32], sampling: &SamplerParams) -> Result<()> {
    let banned = sampling.logit_bias.iter().filter(|(_, bias)| *bias == f32::NEG_INFINITY);
    banned.for_each(|(token, _)| set(mask, *token, false));
    if mask.iter().all(|word| *word == 0) {
        let expected = "a token that the constraint allows and no bias bans".to_owned();
        return Err(Error::Argument { argument: "logit_bias", expected, found: "none".to_owned() });
    }
    Ok(())
}

/// What the text predicts behind a token that the grammar has taken, as far as that pays and is allowed: at most `most` tokens,
/// each below `known`.
fn allowed_behind(
    session: &mut Session,
    matcher: &mut Matcher,
    (token, known): (u32, usize),
    most: usize,
) -> Result<Option<Continuation>> {
    let Some(mut guesses) = session.guesses_after(token, most) else { return Ok(None) };
    let spelled = guesses.tokens.iter().take_while(|token| (**token as usize) < known).count();
    // The grammar is asked only about guesses that pay. Asked about all of them, it took 5 % of a reply's time.
    guesses.tokens.truncate(matcher.valid(&guesses.tokens[..spelled])?);
    Ok(Some(guesses).filter(|guesses| !guesses.tokens.is_empty()))
}

/// Samples behind each of the rows of a step as long as what is sampled is what was guessed, which becomes `pending`. Returns
/// what came of it, and what was sampled in the place of the first guess that was wrong, and behind how many tokens.
fn accept_guesses(
    session: &mut Session,
    matcher: &mut Matcher,
    (guesses, mut rows): (&Continuation, GuessedRows),
    (sampling, ends): (&SamplerParams, &dyn Fn(u32) -> bool),
    pending: &mut VecDeque<u32>,
) -> Result<(GuessedStep, Option<(usize, u32)>)> {
    let Continuation { tokens: guesses, matched } = guesses;
    let mut step = GuessedStep { matched: *matched, rows: 1 + guesses.len(), guessed: guesses.len(), accepted: 0 };
    for guess in guesses {
        if matcher.is_over() {
            break;
        }
        // An error of the grammar, of biases or of logits comes again with the next choice.
        let Ok(mut mask) = matcher.mask().map(<[u32]>::to_vec) else { break };
        if ban(&mut mask, sampling).is_err() {
            break;
        }
        match only(&mask) {
            Some(only) if only != *guess => break, // the same text, spelled by other tokens
            Some(_) => step.guessed -= 1,
            None => {
                let sampled = match session.sample_masked(&mask) {
                    Err(Error::NotANumber | Error::DeviceLost { .. }) => break, // comes again with the next choice
                    sampled => sampled?,
                };
                if sampled != *guess || ends(sampled) {
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

/// The token that a mask allows, if there is only one.
fn only(mask: &[u32]) -> Option<u32> {
    let place = mask.iter().position(|word| *word != 0)?;
    let alone = mask[place].is_power_of_two() && mask[place + 1..].iter().all(|word| *word == 0);
    alone.then(|| u32::BITS * place as u32 + mask[place].trailing_zeros())
}

/// Whether a mask allows a token.
fn is_allowed(mask: &[u32], token: usize) -> bool {
    mask.get(token / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
}

/// Has a mask allow a token, or forbid it.
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
