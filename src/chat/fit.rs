//! Removes old turns from conversations that outgrow the context.

use super::Chat;
use crate::error::{Error, Result};
use crate::text::Message;

impl Chat {
    /// Drops the oldest turns until the prompt for the next reply leaves `reserve` tokens of the context free for that
    /// reply. Returns the dropped messages, oldest first.
    ///
    /// A turn is a message of the user and everything up to the next one: answers, calls of functions and their
    /// results. A turn is dropped as a whole. Messages of the system, the descriptions of functions and the newest turn
    /// are never dropped. The user's next message has to be present: [`push`](Chat::push) it, then call `fit`, then
    /// [`reply`](Chat::reply). Everything after the gap has to be computed again by the next reply; to make that rarer,
    /// pass a larger reserve than one reply needs.
    ///
    /// # Errors
    /// [`Error::ContextFull`] if the newest turn alone is too long, with the messages unchanged; otherwise those of
    /// [`Chat::prompt`].
    pub fn fit(&mut self, reserve: usize) -> Result<Vec<Message>> {
        let turns = turns(&self.messages);
        let newest = turns.iter().flatten().max().copied().unwrap_or(0);
        // A binary search for the fewest turns to drop, since every attempt renders a prompt.
        let (mut least, mut most) = (0, newest);
        if self.needed(&turns, 0, reserve)? <= self.session.context() {
            return Ok(Vec::new());
        }
        let needed = self.needed(&turns, newest, reserve)?;
        if needed > self.session.context() {
            return Err(Error::ContextFull { needed, context: self.session.context() });
        }
        while least + 1 < most {
            let middle = least + (most - least) / 2;
            match self.needed(&turns, middle, reserve)? <= self.session.context() {
                true => most = middle,
                false => least = middle,
            }
        }
        let all = std::mem::take(&mut self.messages).into_iter().zip(turns);
        let (kept, gone): (Vec<_>, Vec<_>) = all.partition(|(_, turn)| stays(*turn, most));
        self.messages = kept.into_iter().map(|(message, _)| message).collect();
        Ok(gone.into_iter().map(|(message, _)| message).collect())
    }

    /// The number of tokens needed for the prompt without the turns before `first`, and for a reply of `reserve`
    /// tokens.
    fn needed(&self, turns: &[Option<usize>], first: usize, reserve: usize) -> Result<usize> {
        let kept = self.messages.iter().zip(turns).filter(|(_, turn)| stays(**turn, first));
        let kept: Vec<Message> = kept.map(|(message, _)| message.clone()).collect();
        Ok(self.render(&kept)?.0.len().saturating_add(reserve))
    }
}

/// Whether a message is kept when all turns before `first` are dropped.
fn stays(turn: Option<usize>, first: usize) -> bool {
    turn.is_none_or(|turn| turn >= first)
}

/// The number of the turn that each message belongs to. Turn 0 is everything before the first message of the user;
/// messages of the system belong to none.
fn turns(messages: &[Message]) -> Vec<Option<usize>> {
    let mut turn = 0;
    let of = |message: &Message| {
        turn += usize::from(message.role == "user");
        (!["system", "developer"].contains(&message.role.as_str())).then_some(turn)
    };
    messages.iter().map(of).collect()
}
