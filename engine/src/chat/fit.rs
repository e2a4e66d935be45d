//! Removes old turns from conversations that outgrow the context.
//!
//! More turns are removed than necessary: the length of the removed part is rounded up to a multiple of a quarter of
//! the context. Later requests, each of which has the whole conversation, are therefore cut at the same turn for a
//! while and find the rest in the cache.

use super::prompt::PromptMaker;
use super::{Chat, Overflow};
use crate::error::{Error, Result};
use crate::text::Message;
use std::collections::{BTreeMap, HashMap};

/// When turns are dropped because of [`Overflow`](super::Overflow), the length of the dropped part is rounded up to a
/// multiple of the context divided by this.
const PARTS: usize = 4;

impl Chat {
    /// Drops the oldest turns until the prompt for the next reply leaves `reserve` tokens of the context free for that
    /// reply. Returns the dropped messages, oldest first.
    ///
    /// A turn is a user message and everything up to the next one: answers and function calls, with the results of
    /// these calls wherever they are. A turn is dropped as a whole. System messages, the descriptions of functions and
    /// the newest turn are never dropped. The user's next message has to be present: [`push`](Chat::push) it, then call
    /// `fit`, then [`reply`](Chat::reply). The next reply computes everything after the gap again; to make that rarer,
    /// pass a larger reserve than one reply needs.
    ///
    /// # Errors
    /// [`Error::ContextFull`] if the newest turn alone is too long, with the messages unchanged; otherwise the errors
    /// of [`Chat::prompt`].
    pub fn fit(&mut self, reserve: usize) -> Result<Vec<Message>> {
        let first = fewest(&self.maker(), &self.messages, reserve)?;
        Ok(drop_before(&mut self.messages, first))
    }
}

/// The first turn to keep if as few turns as possible are dropped.
///
/// # Errors
/// See [`Chat::fit`].
fn fewest(maker: &PromptMaker<'_>, messages: &[Message], reserve: usize) -> Result<usize> {
    maker.check(messages)?;
    let turns = turns(messages);
    let (newest, context) = (newest(&turns), maker.context);
    let mut lengths = Lengths::new(|first| length(maker, messages, &turns, first));
    let needed = lengths.without(0)?.saturating_add(reserve);
    if needed <= context {
        return Ok(0);
    }
    let needed = lengths.without(newest)?.saturating_add(reserve);
    if needed > context {
        return Err(Error::ContextFull { needed, context });
    }
    lengths.first_within(context - reserve, 1, newest)
}

/// The first turn to keep of a conversation whose prompt, of `whole` tokens, leaves less than `reserve` of the context
/// free. If the newest turn alone leaves less, only that turn is kept, provided that it leaves `least`.
///
/// # Errors
/// [`Error::ContextFull`] if it does not; otherwise the errors of [`Chat::prompt`].
pub(super) fn overflow(
    maker: &PromptMaker<'_>,
    messages: &[Message],
    whole: usize,
    reserve: usize,
    least: usize,
) -> Result<usize> {
    let turns = turns(messages);
    let (newest, context) = (newest(&turns), maker.context);
    let mut lengths = Lengths::new(|first| length(maker, messages, &turns, first));
    lengths.known.insert(0, whole);
    let shortest = lengths.without(newest)?;
    if shortest.saturating_add(reserve) <= context {
        return lengths.first_after_mark(context - reserve, newest, (context / PARTS).max(1));
    }
    match shortest.saturating_add(least) {
        needed if needed > context => Err(Error::ContextFull { needed, context }),
        _ => Ok(newest),
    }
}

/// The first turn to keep of a conversation whose texts are longer than a context full of the longest tokens, of
/// `longest` bytes each; 0 if they are not longer.
///
/// # Errors
/// [`Error::ContextFull`] if no turn may be dropped, or if the newest one alone is too long.
pub(super) fn first_possible(
    messages: &[Message],
    overflow: Overflow,
    context: usize,
    longest: usize,
) -> Result<usize> {
    let most = context.saturating_mul(longest);
    // Templates remove spaces at the ends.
    let length = |message: &Message| message.text().trim().len();
    let turns = turns(messages);
    let newest = newest(&turns);
    let mut by_turn = vec![0_usize; newest + 1];
    let mut needed = 0;
    for (message, turn) in messages.iter().zip(turns) {
        match turn {
            Some(turn) => by_turn[turn] += length(message),
            None => needed += length(message),
        }
    }
    let mut first = newest + 1;
    while first > 0 && needed + by_turn[first - 1] <= most {
        first -= 1;
        needed += by_turn[first];
    }
    if first == 0 {
        return Ok(0);
    }
    if overflow != Overflow::Refuse && first <= newest {
        return Ok(first);
    }
    let needed = (needed + by_turn[..first].iter().sum::<usize>()).div_ceil(longest.max(1));
    Err(Error::ContextFull { needed, context })
}

/// Removes the turns before one. Returns their messages, oldest first.
pub(crate) fn drop_before(messages: &mut Vec<Message>, first: usize) -> Vec<Message> {
    let turns = turns(messages);
    let all = std::mem::take(messages).into_iter().zip(turns);
    let (kept, gone): (Vec<_>, Vec<_>) = all.partition(|(_, turn)| stays(*turn, first));
    *messages = kept.into_iter().map(|(message, _)| message).collect();
    gone.into_iter().map(|(message, _)| message).collect()
}

/// The messages that are left without the turns before one.
pub(super) fn kept(messages: &[Message], first: usize) -> Vec<Message> {
    kept_of(messages, &turns(messages), first)
}

/// The same for messages of known turns.
fn kept_of(messages: &[Message], turns: &[Option<usize>], first: usize) -> Vec<Message> {
    let kept = messages.iter().zip(turns).filter(|(_, turn)| stays(**turn, first));
    kept.map(|(message, _)| message.clone()).collect()
}

/// The tokens of the prompt without the turns before one.
fn length(maker: &PromptMaker<'_>, messages: &[Message], turns: &[Option<usize>], first: usize) -> Result<usize> {
    Ok(maker.render_rest(&kept_of(messages, turns, first))?.0.len())
}

/// Whether a message is kept when all turns before `first` are dropped.
fn stays(turn: Option<usize>, first: usize) -> bool {
    turn.is_none_or(|turn| turn >= first)
}

/// The newest of these turns.
fn newest(turns: &[Option<usize>]) -> usize {
    turns.iter().flatten().max().copied().unwrap_or(0)
}

/// The number of the turn that each message belongs to. Turn 0 is everything before the first user message; system
/// messages belong to none. The result of a function belongs to the turn of its call, even if the user said something
/// in between: a result without its call would be refused.
fn turns(messages: &[Message]) -> Vec<Option<usize>> {
    let (mut turn, mut calls) = (0, CallTurns::default());
    let mut of = Vec::with_capacity(messages.len());
    for message in messages {
        turn += usize::from(message.role == "user");
        message.tool_calls.iter().for_each(|call| calls.add(call.id.as_deref(), turn));
        of.push(match message.role.as_str() {
            "system" | "developer" => None,
            "tool" => Some(calls.turn(message.tool_call_id.as_deref()).unwrap_or(turn)),
            _ => Some(turn),
        });
    }
    of
}

/// The turns of the newest calls.
#[derive(Default)]
struct CallTurns<'a> {
    /// By the id of the call, if it has one.
    by_id: HashMap<Option<&'a str>, usize>,
    newest: Option<usize>,
}

impl<'a> CallTurns<'a> {
    fn add(&mut self, id: Option<&'a str>, turn: usize) {
        self.by_id.insert(id, turn);
        self.newest = Some(turn);
    }

    /// The turn of the newest call with an id, or, if there is none, of the newest call that may be meant.
    fn turn(&self, id: Option<&str>) -> Option<usize> {
        match id.filter(|id| !id.is_empty()) {
            None => self.newest,
            id => self.by_id.get(&id).or_else(|| self.by_id.get(&None)).copied(),
        }
    }
}

/// The lengths of prompts without the oldest turns, in tokens. Each is computed once, because that requires rendering a
/// prompt.
struct Lengths<F> {
    known: BTreeMap<usize, usize>,
    find: F,
}

impl<F: FnMut(usize) -> Result<usize>> Lengths<F> {
    fn new(find: F) -> Self {
        Self { known: BTreeMap::new(), find }
    }

    /// The length without the turns before `first`.
    fn without(&mut self, first: usize) -> Result<usize> {
        if let Some(known) = self.known.get(&first) {
            return Ok(*known);
        }
        let length = (self.find)(first)?;
        self.known.insert(first, length);
        Ok(length)
    }

    /// The first turn, from `from` on, that a prompt of at most `capacity` tokens can begin with, or `newest`. This is
    /// a binary search, since every attempt requires rendering a prompt.
    fn first_within(&mut self, capacity: usize, from: usize, newest: usize) -> Result<usize> {
        let (mut least, mut most) = (from, newest);
        while least < most {
            let middle = least + (most - least) / 2;
            match self.without(middle)? <= capacity {
                true => most = middle,
                false => least = middle + 1,
            }
        }
        Ok(most)
    }

    /// The same, but with the length of the dropped part rounded up to a multiple of `step` tokens, so that it stays
    /// the same while the conversation grows. The text after the gap therefore stays in the cache for some turns, even
    /// if each request has the whole conversation.
    fn first_after_mark(&mut self, capacity: usize, newest: usize, step: usize) -> Result<usize> {
        let first = self.first_within(capacity, newest.min(1), newest)?;
        let whole = self.without(0)?;
        let before = whole.saturating_sub(self.without(first.saturating_sub(1))?);
        let mark = (before / step + 1) * step;
        self.first_within(whole.saturating_sub(mark), first, newest)
    }
}

#[cfg(test)]
mod tests {
    use super::{Error, Lengths, Message, Overflow, Result, drop_before, first_possible, turns};
    use crate::text::ToolCall;

    /// The first turns that are kept while a conversation grows. `turn` is the number of tokens of a turn; the system
    /// prompt has 100.
    fn gone(turn: impl Fn(usize) -> usize, turns: usize) -> Result<Vec<usize>> {
        let grown = |newest: usize| {
            let mut lengths = Lengths::new(|first| Ok(100 + (first.max(1)..=newest).map(&turn).sum::<usize>()));
            match lengths.without(0)? {
                0..=750 => Ok(0),
                _ => lengths.first_after_mark(750, newest, 250),
            }
        };
        (1..=turns).map(grown).collect()
    }

    #[test]
    fn the_gap_grows_in_steps() -> Result<()> {
        let first = gone(|_| 50, 30)?;
        assert_eq!(first[..13], [0; 13]);
        assert_eq!(first[13..18], [6; 5], "five turns have 250 tokens");
        assert_eq!(first[18..23], [11; 5]);
        assert_eq!(first[23..28], [16; 5]);
        Ok(())
    }

    #[test]
    fn texts_that_cannot_fit_are_known_by_their_bytes() -> Result<()> {
        let said = |bytes: usize| Message::assistant("x".repeat(bytes));
        let asked = |bytes: usize| Message::user("x".repeat(bytes));
        let messages = [Message::system("x".repeat(100)), asked(300), said(300), asked(200), said(100), asked(50)];
        let (drop, refuse) = (Overflow::DROP_OLDEST, Overflow::Refuse);
        let full = |found| matches!(found, Err(Error::ContextFull { .. }));
        assert_eq!(first_possible(&messages, refuse, 105, 10)?, 0, "1050 bytes");
        assert!(full(first_possible(&messages, refuse, 104, 10)));
        assert_eq!(first_possible(&messages, drop, 104, 10)?, 2);
        assert_eq!(first_possible(&messages, drop, 15, 10)?, 3);
        assert!(full(first_possible(&messages, drop, 14, 10)), "the system and the newest turn stay");
        let blank = [Message::user(" ".repeat(5000))];
        assert_eq!(first_possible(&blank, refuse, 10, 10)?, 0, "templates remove spaces");
        Ok(())
    }

    #[test]
    fn a_result_goes_with_its_call() {
        let call = |id: Option<&str>| {
            let call = ToolCall { id: id.map(str::to_owned), ..ToolCall::new("owls", Default::default()) };
            Message::assistant("").with_tool_calls(vec![call])
        };
        let (user, result) = (Message::user, |id: &str| Message::tool(id, "7"));
        let mut messages =
            vec![user("1"), call(Some("c1")), user("2"), result("c1"), Message::assistant("Seven."), user("3")];
        assert_eq!(turns(&messages), [1, 1, 2, 1, 2, 3].map(Some));
        assert_eq!(drop_before(&mut messages, 2), [user("1"), call(Some("c1")), result("c1")]);
        assert_eq!(messages, [user("2"), Message::assistant("Seven."), user("3")]);
        let nameless = [user("1"), call(None), user("2"), call(Some("c2")), user("3"), result("c1"), result("")];
        assert_eq!(turns(&nameless), [1, 1, 2, 2, 3, 1, 2].map(Some), "a call without an id may be meant");
    }

    #[test]
    fn turns_of_any_length_leave_enough_room() -> Result<()> {
        let turn = |number: usize| [30, 310, 7, 90, 150, 44, 600][number % 7];
        let (first, mut before) = (gone(turn, 60)?, 0);
        for (newest, first) in (1..).zip(first) {
            let length = 100 + (first.max(1)..=newest).map(turn).sum::<usize>();
            assert!(length <= 750 && first <= newest && first >= before, "{first} of {newest}: {length} tokens");
            before = first;
        }
        Ok(())
    }
}
