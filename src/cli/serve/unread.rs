//! Buffers what clients have not read of their replies. A reply never waits for its client: all of it is kept until it is
//! read, so its slot is free when the reply ends, however slowly it is read.
//!
//! How much that can be is bounded. A reply has at most as many tokens as the context. The first events that wait are
//! kept as they are, and text behind these is joined, so a token takes its bytes of text and nothing else. Only where
//! log-probabilities are asked for, each token keeps an event of its own (`bytes`). All replies together have
//! [`MOST`] bytes: beyond that, a client that has left more than [`OWN`] of its reply unread loses it.

use std::collections::VecDeque;
use std::mem::size_of;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use wglm::{Error, Event, Logprob};

/// How many events wait as they are before text is joined.
const APART: usize = 64;

/// The bytes that all replies together may have waiting: the text of three million tokens.
const MOST: usize = 16 << 20;

/// The bytes that a reply may have waiting in any case, so that nobody loses a reply for what others left unread. With
/// the default of 512 connections this is 32 MiB more at the very most.
const OWN: usize = 64 << 10;

/// A message from the thread of a reply.
pub enum Told {
    /// The reply was accepted; its prompt has this many tokens.
    Started(usize),
    Event(Event),
    Failed(Error),
    /// The client has left too much of it unread.
    Unread,
}

/// The bytes that all replies together have waiting.
#[derive(Debug, Clone, Default)]
pub struct Budget(Arc<AtomicUsize>);

/// The sending side, for the threads of a request's replies.
pub struct Sender(Arc<Shared>);

/// The receiving side, for the task that answers the request.
pub struct Receiver(Arc<Shared>);

struct Shared {
    queue: Mutex<Queue>,
    changed: Notify,
    budget: Budget,
}

/// What waits, with the number of the reply.
struct Queue {
    told: VecDeque<(usize, Told)>,
    bytes: usize,
    senders: usize,
    /// Whether nobody takes it any more.
    closed: bool,
}

/// A channel for what is told of the replies to one request.
pub fn channel(budget: &Budget) -> (Sender, Receiver) {
    let queue = Queue { told: VecDeque::new(), bytes: 0, senders: 1, closed: false };
    let shared = Shared { queue: Mutex::new(queue), changed: Notify::new(), budget: budget.clone() };
    let shared = Arc::new(shared);
    (Sender(shared.clone()), Receiver(shared))
}

/// About how many bytes something takes that waits.
fn bytes(told: &Told) -> usize {
    let heap = match told {
        Told::Event(Event::Text(text) | Event::Thinking(text) | Event::ToolCallPiece(text)) => text.len(),
        Told::Event(Event::ToolCallFailed { text, .. }) => text.len(),
        // Values of JSON take several times their text.
        Told::Event(Event::ToolCall(call)) => 4 * serde_json::to_string(call).map_or(0, |text| text.len()),
        Told::Event(Event::Token(token)) => token.bytes.len() + token.top.len() * size_of::<Logprob>(),
        _ => 0,
    };
    size_of::<(usize, Told)>() + heap
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Joins a text with the last thing that the same reply said, if that is a text of the same kind.
    fn joins(&mut self, index: usize, told: &Told) -> bool {
        if self.told.len() < APART {
            return false;
        }
        let last = self.told.iter_mut().rev().take(APART).find(|(of, _)| *of == index);
        match (last.map(|(_, last)| last), told) {
            (Some(Told::Event(Event::Text(text))), Told::Event(Event::Text(more)))
            | (Some(Told::Event(Event::Thinking(text))), Told::Event(Event::Thinking(more)))
            | (Some(Told::Event(Event::ToolCallPiece(text))), Told::Event(Event::ToolCallPiece(more))) => {
                text.push_str(more);
                true
            }
            _ => false,
        }
    }
}

impl Sender {
    /// Says something about a reply. Returns false if nobody takes it, or too much of it was not taken.
    pub fn send(&self, (index, told): (usize, Told)) -> bool {
        let Shared { budget: Budget(all), changed, .. } = &*self.0;
        let mut queue = self.0.lock();
        if queue.closed {
            return false;
        }
        let is_joined = queue.joins(index, &told);
        let more = bytes(&told) - if is_joined { size_of::<(usize, Told)>() } else { 0 };
        queue.bytes += more;
        if !is_joined {
            queue.told.push_back((index, told));
        }
        let too_much = all.fetch_add(more, Ordering::Relaxed) + more > MOST && queue.bytes > OWN;
        if too_much {
            queue.clear(all);
            queue.told.push_back((index, Told::Unread));
            queue.closed = true;
        }
        drop(queue);
        changed.notify_one();
        !too_much
    }
}

impl Queue {
    fn clear(&mut self, all: &AtomicUsize) {
        self.told = VecDeque::new();
        all.fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }
}

impl Clone for Sender {
    fn clone(&self) -> Self {
        self.0.lock().senders += 1;
        Self(self.0.clone())
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.lock().senders -= 1;
        self.0.changed.notify_one();
    }
}

impl Receiver {
    /// The next thing that was said, or nothing when all has been said.
    pub async fn recv(&mut self) -> Option<(usize, Told)> {
        loop {
            {
                let mut queue = self.0.lock();
                if let Some((index, told)) = queue.told.pop_front() {
                    let less = bytes(&told).min(queue.bytes);
                    queue.bytes -= less;
                    self.0.budget.0.fetch_sub(less, Ordering::Relaxed);
                    return Some((index, told));
                }
                if queue.senders == 0 {
                    return None;
                }
            }
            self.0.changed.notified().await; // also for what was said since the lock was given back
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.clear(&self.0.budget.0);
        queue.closed = true;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::{APART, Budget, MOST, OWN, Told, channel};
    use std::sync::atomic::Ordering;
    use wglm::Event;

    fn text(text: &str) -> Told {
        Told::Event(Event::Text(text.to_owned()))
    }

    fn wait<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    /// Nothing is lost, and each reply's text stays in order.
    #[test]
    fn text_that_waits_is_joined() {
        let budget = Budget::default();
        let (sender, mut receiver) = channel(&budget);
        for number in 0..4 * APART {
            assert!(sender.send((0, text(&format!("{number} ")))) && sender.send((1, text("x"))));
        }
        drop(sender);
        let (mut said, mut events) = ([String::new(), String::new()], 0);
        while let Some((index, told)) = wait(receiver.recv()) {
            let Told::Event(Event::Text(text)) = told else { panic!("no text") };
            said[index].push_str(&text);
            events += 1;
        }
        let wanted: String = (0..4 * APART).map(|number| format!("{number} ")).collect();
        assert_eq!(said, [wanted, "x".repeat(4 * APART)]);
        assert!((APART..APART + 3).contains(&events), "{events}");
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
    }

    /// A token that waits takes the bytes of its text.
    #[test]
    fn what_waits_is_counted() {
        let budget = Budget::default();
        let (sender, receiver) = channel(&budget);
        (0..APART).for_each(|_| assert!(sender.send((0, text("abcd")))));
        let first = budget.0.load(Ordering::Relaxed);
        assert!(first <= APART * 256, "{first} bytes for {APART} events");
        (0..10_000).for_each(|_| assert!(sender.send((0, text("abcd")))));
        assert_eq!(budget.0.load(Ordering::Relaxed) - first, 40_000);
        drop(receiver);
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
        assert!(!sender.send((0, text("abcd"))), "nobody takes it");
    }

    /// Who leaves most unread loses its reply, and others none.
    #[test]
    fn too_much_ends_the_reply_that_is_not_read() {
        let budget = Budget::default();
        let ((slow, mut unread), (good, mut read)) = (channel(&budget), channel(&budget));
        let piece = "x".repeat(1 << 10);
        let sent = (0..2 * MOST / piece.len()).take_while(|_| slow.send((0, text(&piece)))).count() * piece.len();
        assert!((MOST - (1 << 20)..=MOST).contains(&sent), "{sent}");
        assert!(matches!(wait(unread.recv()), Some((0, Told::Unread))));
        budget.0.fetch_add(MOST, Ordering::Relaxed);
        assert!(good.send((0, text(&piece))), "{OWN} bytes are its own");
        assert!(matches!(wait(read.recv()), Some((0, Told::Event(Event::Text(_))))));
    }
}
