//! The queue between the thread that generates a reply and the task that writes it. A reply never waits for its client:
//! what the client has not read stays in the queue, so the slot is free when the reply ends, however slowly it is read.
//!
//! The queue is bounded. A reply has at most as many tokens as the context. The first [`MAX_SEPARATE_EVENTS`] events
//! that wait stay as they are, and text after them is joined, so a token takes the bytes of its text and nothing else.
//! Only if log-probabilities are requested does each token have its own event ([`bytes`]). All replies together may
//! have [`MAX_UNREAD_BYTES`] bytes waiting: beyond that, a request with more than [`GUARANTEED_BYTES`] bytes waiting
//! loses its replies.

use super::lock;
use std::collections::VecDeque;
use std::mem::size_of;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use wglm_engine::{Error, Event, Logprob};

/// How many events can wait before text is joined.
const MAX_SEPARATE_EVENTS: usize = 64;

/// The maximum bytes that may wait, of all replies together: the text of three million tokens.
const MAX_UNREAD_BYTES: usize = 16 << 20;

/// The bytes of a request's replies that may wait in any case, so that no client loses a reply because of what others
/// have not read. With the default of 512 connections these are at most 32 MiB more.
const GUARANTEED_BYTES: usize = 64 << 10;

/// A message from the thread of a reply.
pub enum Message {
    /// The reply was accepted.
    Accepted {
        prompt_tokens: usize,
    },
    Event(Event),
    Failed(Error),
    /// Too much of it waited, so there is nothing more.
    Overflow,
}

/// The number of bytes that wait, for all replies together.
#[derive(Debug, Clone, Default)]
pub struct Budget(Arc<AtomicUsize>);

/// The sending side, for the threads of a request's replies.
#[derive(Clone)]
pub struct Sender(Arc<Sending>);

/// What all clones of a sender share. The queue ends with it.
struct Sending(Arc<Shared>);

/// The receiving side, for the task that answers the request.
pub struct Receiver(Arc<Shared>);

struct Shared {
    queue: Mutex<Queue>,
    changed: Notify,
    budget: Budget,
}

/// The messages that wait, each with the number of its reply.
struct Queue {
    messages: VecDeque<(usize, Message)>,
    bytes: usize,
    /// Whether nobody sends any more.
    ended: bool,
    /// Whether nobody receives any more.
    closed: bool,
}

/// A queue for the replies to one request.
pub fn channel(budget: &Budget) -> (Sender, Receiver) {
    let queue = Queue { messages: VecDeque::new(), bytes: 0, ended: false, closed: false };
    let shared = Shared { queue: Mutex::new(queue), changed: Notify::new(), budget: budget.clone() };
    let shared = Arc::new(shared);
    (Sender(Arc::new(Sending(shared.clone()))), Receiver(shared))
}

/// About how many bytes a message takes.
fn bytes(message: &Message) -> usize {
    let heap = match message {
        Message::Event(Event::Text(text) | Event::Thinking(text) | Event::ToolCallPiece(text)) => text.len(),
        Message::Event(Event::ToolCallFailed { text, .. }) => text.len(),
        Message::Event(Event::Token(token) | Event::PromptToken(token)) => {
            token.bytes.len() + token.top.len() * size_of::<Logprob>()
        }
        _ => 0,
    };
    size_of::<(usize, Message)>() + heap
}

impl Queue {
    /// Joins a text with the last message of the same reply, if that is a text of the same kind.
    fn joins(&mut self, index: usize, message: &Message) -> bool {
        if self.messages.len() < MAX_SEPARATE_EVENTS {
            return false;
        }
        let last = self.messages.iter_mut().rev().take(MAX_SEPARATE_EVENTS).find(|(of, _)| *of == index);
        match (last.map(|(_, last)| last), message) {
            (Some(Message::Event(Event::Text(text))), Message::Event(Event::Text(more)))
            | (Some(Message::Event(Event::Thinking(text))), Message::Event(Event::Thinking(more)))
            | (Some(Message::Event(Event::ToolCallPiece(text))), Message::Event(Event::ToolCallPiece(more))) => {
                text.push_str(more);
                true
            }
            _ => false,
        }
    }
}

impl Sender {
    /// Sends a message about a reply. Returns false if nobody receives it, or if too much waits.
    pub fn send(&self, (index, message): (usize, Message)) -> bool {
        let Shared { budget: Budget(all), changed, queue } = &*self.0.0;
        let mut queue = lock(queue);
        if queue.closed {
            return false;
        }
        let is_joined = queue.joins(index, &message);
        let more = bytes(&message) - if is_joined { size_of::<(usize, Message)>() } else { 0 };
        queue.bytes += more;
        if !is_joined {
            queue.messages.push_back((index, message));
        }
        let too_much =
            all.fetch_add(more, Ordering::Relaxed) + more > MAX_UNREAD_BYTES && queue.bytes > GUARANTEED_BYTES;
        if too_much {
            queue.clear(all);
            queue.messages.push_back((index, Message::Overflow));
            queue.closed = true;
        }
        drop(queue);
        changed.notify_one();
        !too_much
    }
}

impl Queue {
    fn clear(&mut self, all: &AtomicUsize) {
        self.messages = VecDeque::new();
        all.fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        lock(&self.0.queue).ended = true;
        self.0.changed.notify_one();
    }
}

impl Receiver {
    /// The next message, or nothing if there will be none. A message is not lost when the future is dropped.
    pub async fn recv(&mut self) -> Option<(usize, Message)> {
        loop {
            {
                let mut queue = lock(&self.0.queue);
                if let Some((index, message)) = queue.messages.pop_front() {
                    let less = bytes(&message).min(queue.bytes);
                    queue.bytes -= less;
                    self.0.budget.0.fetch_sub(less, Ordering::Relaxed);
                    return Some((index, message));
                }
                if queue.ended {
                    return None;
                }
            }
            self.0.changed.notified().await; // this includes what was sent since the lock was released
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut queue = lock(&self.0.queue);
        queue.clear(&self.0.budget.0);
        queue.closed = true;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::{Budget, GUARANTEED_BYTES, MAX_SEPARATE_EVENTS, MAX_UNREAD_BYTES, Message, channel};
    use std::sync::atomic::Ordering;
    use wglm_engine::Event;

    fn text(text: &str) -> Message {
        Message::Event(Event::Text(text.to_owned()))
    }

    fn wait<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    /// Nothing is lost, and the text of each reply stays in order.
    #[test]
    fn text_that_waits_is_joined() {
        let budget = Budget::default();
        let (sender, mut receiver) = channel(&budget);
        for number in 0..4 * MAX_SEPARATE_EVENTS {
            assert!(sender.send((0, text(&format!("{number} ")))) && sender.send((1, text("x"))));
        }
        drop(sender);
        let (mut said, mut events) = ([String::new(), String::new()], 0);
        while let Some((index, message)) = wait(receiver.recv()) {
            let Message::Event(Event::Text(text)) = message else { panic!("no text") };
            said[index].push_str(&text);
            events += 1;
        }
        let wanted: String = (0..4 * MAX_SEPARATE_EVENTS).map(|number| format!("{number} ")).collect();
        assert_eq!(said, [wanted, "x".repeat(4 * MAX_SEPARATE_EVENTS)]);
        assert!((MAX_SEPARATE_EVENTS..MAX_SEPARATE_EVENTS + 3).contains(&events), "{events}");
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
    }

    /// A token that waits takes the bytes of its text.
    #[test]
    fn what_waits_is_counted() {
        let budget = Budget::default();
        let (sender, receiver) = channel(&budget);
        (0..MAX_SEPARATE_EVENTS).for_each(|_| assert!(sender.send((0, text("abcd")))));
        let first = budget.0.load(Ordering::Relaxed);
        assert!(first <= MAX_SEPARATE_EVENTS * 256, "{first} bytes for {MAX_SEPARATE_EVENTS} events");
        (0..10_000).for_each(|_| assert!(sender.send((0, text("abcd")))));
        assert_eq!(budget.0.load(Ordering::Relaxed) - first, 40_000);
        drop(receiver);
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
        assert!(!sender.send((0, text("abcd"))), "no one receives it");
    }

    /// A reply with more than its own share unread is lost, and no other.
    #[test]
    fn too_much_ends_the_reply_that_is_not_read() {
        let budget = Budget::default();
        let ((slow, mut unread), (good, mut read)) = (channel(&budget), channel(&budget));
        let piece = "x".repeat(1 << 10);
        let sent =
            (0..2 * MAX_UNREAD_BYTES / piece.len()).take_while(|_| slow.send((0, text(&piece)))).count() * piece.len();
        assert!((MAX_UNREAD_BYTES - (1 << 20)..=MAX_UNREAD_BYTES).contains(&sent), "{sent}");
        assert!(matches!(wait(unread.recv()), Some((0, Message::Overflow))));
        budget.0.fetch_add(MAX_UNREAD_BYTES, Ordering::Relaxed);
        assert!(good.send((0, text(&piece))), "{GUARANTEED_BYTES} bytes are always allowed");
        assert!(matches!(wait(read.recv()), Some((0, Message::Event(Event::Text(_))))));
    }
}
