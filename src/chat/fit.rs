//! Conversations that outgrow the context.

use super::Chat;
use crate::error::{Error, Result};
use crate::text::Message;

impl Chat {
    /// Drops the oldest turns until the prompt for the next reply takes so little of the context that `reserve` tokens
    /// are left for the reply, and returns the messages that went, oldest first.
    ///
    /// A turn is what a user says and all that follows it: answers, calls of functions and their results, which go
    /// together. Messages of the system stay, functions too, and the newest turn stays whole. What the user says next is
    /// to be there: [`push`](Chat::push) it, then `fit`, then [`reply`](Chat::reply). The next reply reads what follows
    /// the gap anew, so a larger reserve than one reply needs makes that rarer.
    ///
    /// # Errors
    /// [`Error::ContextFull`] if the newest turn alone is too long: the messages are then as they were. Otherwise as
    /// [`Chat::prompt`].
    pub fn fit(&mut self, reserve: usize) -> Result<Vec<Message>> {
        let turns = turns(&self.messages);
        let newest = turns.iter().flatten().max().copied().unwrap_or(0);
        // The fewest turns to drop: each try costs a prompt.
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

    /// Tokens of the prompt without the turns before one, and of the reply to it.
    fn needed(&self, turns: &[Option<usize>], first: usize, reserve: usize) -> Result<usize> {
        let kept = self.messages.iter().zip(turns).filter(|(_, turn)| stays(**turn, first));
        let kept: Vec<Message> = kept.map(|(message, _)| message.clone()).collect();
        Ok(self.render(&kept)?.0.len().saturating_add(reserve))
    }
}

fn stays(turn: Option<usize>, first: usize) -> bool {
    turn.is_none_or(|turn| turn >= first)
}

/// The turn of each message, from 0 for what was said before the user said anything; none for the system's.
fn turns(messages: &[Message]) -> Vec<Option<usize>> {
    let mut turn = 0;
    let of = |message: &Message| {
        turn += usize::from(message.role == "user");
        (!["system", "developer"].contains(&message.role.as_str())).then_some(turn)
    };
    messages.iter().map(of).collect()
}
