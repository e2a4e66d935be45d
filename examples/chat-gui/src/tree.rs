//! The messages of a conversation as a tree: when a message is replaced, the old one is kept as another version.
//!
//! A [`Turn`] is a message and a reference to the one that it follows. Turns that follow the same one are versions of
//! each other, and each turn remembers which of the versions after it was shown last. The conversation that the user
//! sees is the path from the first turn along these. Positions are positions on this path.
//!
//! Regenerating a reply and sending an edited message need no operation of their own: the path [ends](Tree::end_at)
//! before the message, and what is [pushed](Tree::push) then is another version of it.

use serde::{Deserialize, Serialize};
use wglm::{Message, Stop};

/// A message in the tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    pub message: Message,
    /// Why a reply ended; `None` if that is not known, or the message is not a reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// The turn that this one follows; `None` for those that begin the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<usize>,
    /// The version that is shown after this turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<usize>,
}

impl Turn {
    fn is_result(&self) -> bool {
        self.message.role == "tool"
    }
}

/// The messages of a conversation. A turn comes after the one that it follows, so there are no cycles.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct Tree {
    turns: Vec<Turn>,
    /// The version of the first message that is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first: Option<usize>,
}

/// A tree as it is read from a file.
#[derive(Deserialize)]
struct Stored {
    turns: Vec<Turn>,
    first: Option<usize>,
}

impl TryFrom<Stored> for Tree {
    type Error = String;

    /// Checks that every turn follows an earlier one. If no version is shown after a turn, as in the file of a program
    /// that was killed during a reply, the newest is shown from now on, because the user could not reach it otherwise.
    fn try_from(Stored { turns, first }: Stored) -> Result<Self, String> {
        let mut tree = Self { turns, first };
        if let Some(at) = (0..tree.turns.len()).find(|at| tree.turns[*at].after.is_some_and(|after| after >= *at)) {
            return Err(format!("message {at} does not follow one before it"));
        }
        let all = std::iter::once(None).chain((0..tree.turns.len()).map(Some));
        for after in all {
            let versions = tree.following(after);
            let shown = tree.next(after).filter(|shown| versions.contains(shown)).or(versions.last().copied());
            tree.show_after(after, shown);
        }
        Ok(tree)
    }
}

impl FromIterator<Message> for Tree {
    /// Messages without versions.
    fn from_iter<T: IntoIterator<Item = Message>>(messages: T) -> Self {
        let mut tree = Self::default();
        messages.into_iter().for_each(|message| tree.push(message, None));
        tree
    }
}

impl Tree {
    /// The turns that are shown, in order.
    pub fn shown(&self) -> impl Iterator<Item = &Turn> {
        self.path().map(|id| &self.turns[id])
    }

    /// The messages that are shown.
    pub fn messages(&self) -> impl Iterator<Item = &Message> {
        self.shown().map(|turn| &turn.message)
    }

    /// All turns, including those that are not shown, with their numbers for [`Tree::show`].
    pub fn all(&self) -> impl Iterator<Item = (usize, &Turn)> {
        self.turns.iter().enumerate()
    }

    /// The number of messages that are shown.
    pub fn len(&self) -> usize {
        self.path().count()
    }

    /// Whether there is no message at all.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// The turn at a position.
    pub fn get(&self, position: usize) -> Option<&Turn> {
        self.shown().nth(position)
    }

    /// The turn at a position, to change it in place.
    pub fn get_mut(&mut self, position: usize) -> Option<&mut Turn> {
        self.id(position).map(|id| &mut self.turns[id])
    }

    /// The last turn that is shown.
    pub fn last(&self) -> Option<&Turn> {
        self.shown().last()
    }

    /// Appends a message to those that are shown.
    pub fn push(&mut self, message: Message, stop: Option<Stop>) {
        let (after, id) = (self.path().last(), self.turns.len());
        self.turns.push(Turn { message, stop, after, next: None });
        self.show_after(after, Some(id));
    }

    /// Ends the path before a position. Nothing is lost: the message there becomes another version of the one that is
    /// pushed next.
    pub fn end_at(&mut self, position: usize) {
        match position.checked_sub(1) {
            None => self.first = None,
            Some(before) => {
                if let Some(id) = self.id(before) {
                    self.turns[id].next = None;
                }
            }
        }
    }

    /// Which version is shown at a position, counted from 0, and how many there are.
    pub fn version(&self, position: usize) -> (usize, usize) {
        let Some(id) = self.id(position) else { return (0, 0) };
        let versions = self.following(self.turns[id].after);
        (versions.iter().position(|version| *version == id).unwrap_or(0), versions.len())
    }

    /// Shows another version at a position, with what followed it when it was shown last.
    pub fn switch(&mut self, position: usize, version: usize) {
        let Some(id) = self.id(position) else { return };
        let after = self.turns[id].after;
        if let Some(other) = self.following(after).get(version) {
            self.show_after(after, Some(*other));
        }
    }

    /// Shows a turn of any version, and returns its position.
    pub fn show(&mut self, id: usize) -> Option<usize> {
        let mut turn = self.turns.get(id).map(|_| id);
        while let Some(id) = turn {
            turn = self.turns[id].after;
            self.show_after(turn, Some(id));
        }
        self.path().position(|shown| shown == id)
    }

    /// Removes the shown version of the message at a position, with the results of its calls, which would be
    /// meaningless alone. All that followed it stays. If nothing did, another version is shown.
    pub fn remove(&mut self, position: usize) {
        let Some(id) = self.id(position) else { return };
        if !self.turns[id].is_result() {
            self.remove_results(id);
        }
        self.cut_out(id);
    }

    /// Removes the results that follow a turn.
    fn remove_results(&mut self, id: usize) {
        // All results come after `id`, so its number does not change.
        while let Some(result) = self.following(Some(id)).into_iter().find(|next| self.turns[*next].is_result()) {
            self.cut_out(result);
        }
    }

    /// Removes a turn. Those that follow it follow the one before it.
    fn cut_out(&mut self, id: usize) {
        let Turn { after, next, .. } = self.turns[id];
        let versions = self.following(after);
        let place = versions.iter().position(|version| *version == id).unwrap_or(0);
        let neighbour = place.checked_sub(1).or(Some(place + 1)).and_then(|place| versions.get(place));
        if self.next(after) == Some(id) {
            self.show_after(after, next.or(neighbour.copied()));
        }
        self.turns.remove(id);
        let moved = |other: usize| if other > id { other - 1 } else { other };
        for turn in &mut self.turns {
            turn.after = if turn.after == Some(id) { after } else { turn.after.map(moved) };
            turn.next = turn.next.map(moved);
        }
        self.first = self.first.map(moved);
    }

    /// The numbers of the turns that are shown.
    fn path(&self) -> impl Iterator<Item = usize> {
        std::iter::successors(self.first, |id| self.turns[*id].next)
    }

    fn id(&self, position: usize) -> Option<usize> {
        self.path().nth(position)
    }

    /// The turns that follow one, which are versions of each other, oldest first.
    fn following(&self, after: Option<usize>) -> Vec<usize> {
        (0..self.turns.len()).filter(|id| self.turns[*id].after == after).collect()
    }

    /// What is shown after a turn.
    fn next(&self, after: Option<usize>) -> Option<usize> {
        after.map_or(self.first, |after| self.turns[after].next)
    }

    fn show_after(&mut self, after: Option<usize>, id: Option<usize>) {
        match after {
            None => self.first = id,
            Some(after) => self.turns[after].next = id,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Message, Stop, Tree};
    use wglm::ToolCall;

    /// A question and its answer, and another question and its answer.
    fn talk() -> Tree {
        let turns = [("user", "q1"), ("assistant", "a1"), ("user", "q2"), ("assistant", "a2")];
        turns.into_iter().map(|(role, text)| Message::new(role, text)).collect()
    }

    fn texts(tree: &Tree) -> Vec<String> {
        tree.messages().map(|message| message.text().into_owned()).collect()
    }

    fn stored(tree: &Tree) -> Tree {
        serde_json::from_str(&serde_json::to_string(tree).unwrap()).unwrap()
    }

    #[test]
    fn a_reply_has_versions() {
        let mut tree = talk();
        tree.end_at(3);
        assert_eq!(texts(&tree), ["q1", "a1", "q2"]);
        tree.push(Message::assistant("b2"), Some(Stop::Length));
        assert_eq!((texts(&tree).pop().unwrap().as_str(), tree.version(3), tree.version(2)), ("b2", (1, 2), (0, 1)));
        assert_eq!(tree.last().unwrap().stop, Some(Stop::Length));
        tree.switch(3, 0);
        assert_eq!((texts(&tree).pop().unwrap().as_str(), tree.version(3)), ("a2", (0, 2)));
        tree.switch(3, 2);
        assert_eq!(tree.version(3), (0, 2), "there is no third");
        assert_eq!(stored(&tree), tree);
    }

    #[test]
    fn an_edited_message_keeps_what_followed_it_before() {
        let mut tree = talk();
        tree.end_at(0);
        tree.push(Message::user("other"), None);
        tree.push(Message::assistant("answer"), None);
        assert_eq!((texts(&tree), tree.version(0)), (vec!["other".into(), "answer".into()], (1, 2)));
        tree.switch(0, 0);
        assert_eq!(texts(&tree), ["q1", "a1", "q2", "a2"]);
        tree.end_at(3);
        tree.push(Message::assistant("b2"), None);
        tree.switch(0, 1);
        tree.switch(0, 0);
        assert_eq!(texts(&tree).last().unwrap(), "b2", "what was shown last is shown again");
        assert_eq!(tree.show(3), Some(3));
        assert_eq!(texts(&tree).last().unwrap(), "a2");
        assert_eq!(tree.show(4), Some(0));
        assert_eq!(texts(&tree), ["other", "answer"]);
        assert_eq!(tree.show(99), None);
        assert_eq!(stored(&tree), tree);
    }

    #[test]
    fn what_follows_a_removed_message_stays() {
        let mut tree = talk();
        tree.remove(1);
        assert_eq!(texts(&tree), ["q1", "q2", "a2"]);
        tree.remove(0);
        assert_eq!(texts(&tree), ["q2", "a2"]);
        assert_eq!(stored(&tree), tree);
        tree.remove(1);
        tree.remove(0);
        tree.remove(0);
        assert!(tree.is_empty() && tree.last().is_none());
        tree.push(Message::user("again"), None);
        assert_eq!(texts(&tree), ["again"]);
    }

    #[test]
    fn a_removed_version_leaves_the_others() {
        let mut tree = talk();
        for text in ["b2", "c2"] {
            tree.end_at(3);
            tree.push(Message::assistant(text), None);
        }
        tree.switch(3, 1);
        tree.remove(3);
        assert_eq!((texts(&tree).pop().unwrap().as_str(), tree.version(3)), ("a2", (0, 2)));
        tree.remove(3);
        assert_eq!((texts(&tree).pop().unwrap().as_str(), tree.version(3)), ("c2", (0, 1)));
        tree.remove(3);
        assert_eq!(texts(&tree), ["q1", "a1", "q2"]);
        assert_eq!(stored(&tree), tree);
    }

    #[test]
    fn results_go_with_their_calls() {
        let call = || ToolCall::new("owls", Default::default());
        let mut tree: Tree = [
            Message::user("q"),
            Message::assistant("").with_tool_calls(vec![call(), call()]),
            Message::tool("1", "one"),
            Message::tool("2", "two"),
            Message::assistant("a"),
        ]
        .into_iter()
        .collect();
        let whole = tree.clone();
        tree.remove(2);
        assert_eq!(texts(&tree), ["q", "", "two", "a"], "a result can go alone");
        tree = whole;
        tree.end_at(3);
        tree.push(Message::tool("2", "three"), None);
        tree.remove(1);
        assert_eq!(texts(&tree), ["q", "a"]);
        assert_eq!(tree.all().count(), 2);
    }

    #[test]
    fn a_damaged_tree_is_refused_and_an_unfinished_one_completed() {
        let turn = |after: &str| format!(r#"{{"message": {{"role": "user", "content": "x"}} {after}}}"#);
        let tree = |turns: &[String], first: &str| {
            serde_json::from_str::<Tree>(&format!(r#"{{"turns": [{}] {first}}}"#, turns.join(",")))
        };
        for (after, found) in [(r#", "after": 0"#, "message 0"), (r#", "after": 7"#, "message 0")] {
            assert!(tree(&[turn(after)], "").unwrap_err().to_string().contains(found));
        }
        let two = [turn(""), turn(r#", "after": 0, "next": 0"#)];
        assert_eq!(tree(&two, "").unwrap().len(), 2, "nothing said which is shown");
        assert_eq!(tree(&two, r#", "first": 1"#).unwrap().len(), 2, "the first cannot be what follows another");
        assert_eq!(tree(&two, r#", "first": 9"#).unwrap().len(), 2);
    }
}
