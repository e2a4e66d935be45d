//! The memory for requests, beyond what the server needs at rest.
//!
//! What a request needs is counted before it is allocated: a body while it arrives, what is parsed and rendered from it
//! by the number of its bytes and values, prompts and replies by their tokens. It is counted in a budget, of which each
//! request has a [`Share`] until the memory is freed. So whatever clients send, the process needs at most
//! `--max-memory` more than at rest. A request for which there is not enough is refused: with 413 if there never is,
//! and with 503 if others have it at the moment.
//!
//! Freed memory is not returned to the system at once: glibc keeps what is between blocks in use, in each of its
//! arenas. So a freed share stays counted until [`trim`] has returned such memory, which happens when it amounts to a
//! sixteenth of the budget or when a request is waiting; [`configure_allocator`] does the rest. The allocators of other
//! systems return large blocks by themselves.

use super::client::{Caller, ClientId};
use super::failure::Failure;
use super::lock;
use axum::body::Bytes;
use axum::http::StatusCode;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// A mebibyte in KiB, the unit of budgets.
const MIB: usize = 1 << 10;

/// The maximum memory of a connection, in KiB: its buffer, for a head of 64 KiB, and answers that are not counted.
const CONNECTION: usize = 128;

/// What is not counted for each request, in MiB: the stacks of threads, and unused parts of pages.
const REST: usize = 32;

/// The minimum memory for requests, in MiB.
const MIN_REQUEST_MIB: usize = 32;

/// The part of the budget for bodies: an eighth.
const BODIES: usize = 8;

/// A quarter of the budget. A request does not wait for a larger share, a client that has half of the budget leaves a
/// quarter to others, and a single request may have at most three quarters.
const LARGE: usize = 4;

/// Freed memory is returned to the system when it amounts to this part of the budget: a sixteenth.
const STALE: usize = 16;

/// How long a request waits for memory.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a waiting request tries to get memory.
const RETRY: Duration = Duration::from_millis(50);

pub struct Budgets {
    /// For bodies, until they are parsed.
    pub bodies: Arc<Memory>,
    /// For everything that is made from them.
    pub requests: Arc<Memory>,
}

impl Budgets {
    /// Divides `mib` MiB among bodies of at most `body` bytes, `connections` connections and requests.
    pub fn new(mib: usize, connections: usize, body: usize) -> Result<Self, String> {
        let (mib, connections) = (mib.min(u32::MAX as usize), connections.min(u32::MAX as usize));
        let fixed = REST + connections.saturating_mul(CONNECTION).div_ceil(MIB);
        let bodies = mib / BODIES;
        let left = mib.saturating_sub(bodies).saturating_sub(fixed);
        if left < MIN_REQUEST_MIB {
            let least = (fixed + MIN_REQUEST_MIB) * BODIES / (BODIES - 1) + 1;
            return Err(format!(
                "--max-memory: {mib} MiB is too little: {connections} connections may take {fixed} MiB, bodies an eighth of \
                 it, and requests need {MIN_REQUEST_MIB} MiB; set it to {least}, or lower --max-connections"
            ));
        }
        if body.div_ceil(1 << 20) > bodies {
            return Err(format!(
                "--max-body: {} KiB is more than all bodies together may take, which is an eighth of --max-memory ({bodies} \
                 MiB); lower it, or raise --max-memory",
                body >> 10
            ));
        }
        Ok(Self { bodies: Memory::new(bodies * MIB), requests: Memory::new(left * MIB) })
    }
}

pub struct Memory {
    /// All of it, in KiB.
    total: usize,
    state: Mutex<State>,
    waiting: AtomicUsize,
}

/// The state of a budget, in KiB.
struct State {
    free: usize,
    /// What was freed and may not have been returned to the system.
    stale: usize,
    /// What each client has.
    held: HashMap<ClientId, usize>,
}

/// A part of a budget that a request has. Dropping it returns it.
pub struct Share {
    memory: Arc<Memory>,
    id: ClientId,
    kib: AtomicUsize,
}

fn exhausted() -> Failure {
    Failure::unavailable("other requests are using all request memory (--max-memory); try again later", 1)
}

impl Memory {
    fn new(kib: usize) -> Arc<Self> {
        let state = State { free: kib, stale: 0, held: HashMap::new() };
        Arc::new(Self { total: kib, state: Mutex::new(state), waiting: AtomicUsize::new(0) })
    }

    /// All of it, in bytes.
    pub fn total(&self) -> usize {
        self.total << 10
    }

    /// The free part, in bytes.
    pub fn free(&self) -> usize {
        let state = lock(&self.state);
        (state.free + state.stale) << 10
    }

    /// A share of nothing yet, for the client whose request is being answered.
    pub fn empty(self: &Arc<Self>) -> Share {
        Share { memory: self.clone(), id: Caller::current().client.id, kib: AtomicUsize::new(0) }
    }

    /// A share of `bytes` bytes, if they are free now.
    pub fn try_take(self: &Arc<Self>, bytes: usize) -> Result<Share, Failure> {
        let share = self.empty();
        share.resize(bytes)?;
        Ok(share)
    }

    /// A share of `bytes` bytes. A request that does not need much of the budget waits for them for a while.
    pub async fn take(self: &Arc<Self>, bytes: usize) -> Result<Share, Failure> {
        let (share, kib) = (self.empty(), self.checked(bytes)?);
        if !self.try_acquire(share.id, kib) {
            self.wait_for(share.id, kib).await?;
        }
        share.kib.store(kib, Ordering::SeqCst);
        Ok(share)
    }

    /// Tries again and again, and takes all or nothing, so that smaller requests succeed meanwhile.
    async fn wait_for(&self, id: ClientId, kib: usize) -> Result<(), Failure> {
        if kib > self.total / LARGE {
            return Err(exhausted());
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let (_waiting, start) = (Waiting(self), Instant::now());
        while !self.try_acquire(id, kib) {
            if start.elapsed() > PATIENCE {
                return Err(exhausted());
            }
            sleep(RETRY).await;
        }
        Ok(())
    }

    /// The number of KiB for `bytes` bytes, or the failure of a request that may never have them.
    fn checked(&self, bytes: usize) -> Result<usize, Failure> {
        let (kib, most) = (bytes.div_ceil(1 << 10), self.total - self.total / LARGE);
        if kib <= most {
            return Ok(kib);
        }
        let message = format!(
            "the request may need {} MiB of memory; at most {} are allowed for one (--max-memory); make it shorter, or ask \
             for fewer or shorter replies",
            kib / MIB,
            most / MIB
        );
        Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, message))
    }

    /// Takes memory for a client. A client that would have more than half of the budget leaves a quarter free.
    fn try_acquire(&self, id: ClientId, kib: usize) -> bool {
        let mut state = lock(&self.state);
        let own = state.held.get(&id).copied().unwrap_or(0);
        let reserve = if own + kib > self.total / 2 { self.total / LARGE } else { 0 };
        if state.free + state.stale < kib + reserve {
            return false;
        }
        if state.free < kib {
            state.reclaim();
        }
        if kib > 0 {
            state.free -= kib;
            state.held.insert(id, own + kib);
        }
        true
    }

    fn give_back(&self, id: ClientId, kib: usize) {
        let mut state = lock(&self.state);
        if let Some(own) = state.held.get_mut(&id) {
            *own = own.saturating_sub(kib);
            if *own == 0 {
                state.held.remove(&id);
            }
        }
        state.stale += kib;
        if state.stale >= self.total / STALE || self.waiting.load(Ordering::SeqCst) > 0 {
            state.reclaim();
        }
    }
}

impl State {
    /// Returns freed memory to the system, and then to the budget.
    fn reclaim(&mut self) {
        if self.stale > 0 {
            trim();
            self.free += std::mem::take(&mut self.stale);
        }
    }
}

/// A request that waits, counted until it is dropped.
struct Waiting<'a>(&'a Memory);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Share {
    pub fn bytes(&self) -> usize {
        self.kib.load(Ordering::SeqCst) << 10
    }

    /// Changes its size, unless there is not enough memory.
    pub fn resize(&self, bytes: usize) -> Result<(), Failure> {
        let (kib, before) = (self.memory.checked(bytes)?, self.kib.load(Ordering::SeqCst));
        if kib > before && !self.memory.try_acquire(self.id, kib - before) {
            return Err(exhausted());
        }
        self.kib.store(kib, Ordering::SeqCst);
        if kib < before {
            self.memory.give_back(self.id, before - kib);
        }
        Ok(())
    }
}

/// A text or bytes, and the memory that stays counted with them.
struct Counted<T, M> {
    bytes: T,
    _memory: M,
}

impl<T: AsRef<[u8]>, M> AsRef<[u8]> for Counted<T, M> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// Bytes whose memory stays counted until the last reference to them is dropped.
pub fn counted(bytes: impl AsRef<[u8]> + Send + 'static, memory: impl Send + 'static) -> Bytes {
    Bytes::from_owner(Counted { bytes, _memory: memory })
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.give_back(self.id, self.kib.load(Ordering::SeqCst));
    }
}

/// Makes glibc return what is free at the end of an arena beyond 2 MiB, and map blocks of 4 MiB and more separately, so
/// that they are returned when they are freed. By default glibc learns from freed blocks to keep up to 64 MiB at the
/// end of each arena, which [`trim`] does not return. Smaller blocks, such as the logits of a token, are still reused.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn configure_allocator() {
    for (which, bytes) in [(libc::M_TRIM_THRESHOLD, 2 << 20), (libc::M_MMAP_THRESHOLD, 4 << 20)] {
        // SAFETY: it takes no pointer, and an invalid value changes nothing.
        unsafe { libc::mallopt(which, bytes) };
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn configure_allocator() {}

/// Returns freed memory to the system.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn trim() {
    // SAFETY: it takes no pointer and locks the arenas.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() {}

/// What the replies to a request take until they have ended.
pub struct ReplyMemory {
    pub replies: usize,
    /// The number of tokens in the longest prompt.
    pub prompt: usize,
    /// The maximum number of tokens in each reply.
    pub generated: usize,
    /// How many alternatives are reported for each token, if any are.
    pub alternatives: Option<usize>,
    /// The same for the tokens of the prompts.
    pub prompt_alternatives: Option<usize>,
    /// Bytes of everything else.
    pub other: usize,
}

/// What a reply takes besides its tokens: the state of its generation and its thread.
const REPLY: usize = 64 << 10;

/// What a token of a reply takes: its text in several forms, on the way to the client. Longer texts are counted as they
/// are generated.
const TOKEN: usize = 128;

/// What one alternative takes.
const ALTERNATIVE: usize = 256;

impl ReplyMemory {
    fn bytes(&self) -> usize {
        let alternatives = |reported: Option<usize>| reported.map_or(0, |top| (top + 1) * ALTERNATIVE);
        let prompt = self.prompt * (2 * size_of::<u32>() + alternatives(self.prompt_alternatives));
        let reply = REPLY + prompt + self.generated.saturating_mul(TOKEN + alternatives(self.alternatives));
        self.replies.saturating_mul(reply).saturating_add(self.other)
    }

    /// Resizes a request's share to what its replies need.
    pub fn reserve(&self, share: Share) -> Result<Arc<Reserve>, Failure> {
        share.resize(self.bytes())?;
        let text = self.replies.saturating_mul(self.generated).saturating_mul(TOKEN);
        Ok(Arc::new(Reserve(Mutex::new(Reserved { share, used: 0, text }))))
    }
}

/// The memory of the replies to a request. It grows if their texts are longer than usual for their number of tokens.
pub struct Reserve(Mutex<Reserved>);

struct Reserved {
    share: Share,
    /// The bytes that texts take so far, and the bytes that the share has for them.
    used: usize,
    text: usize,
}

/// The maximum number of copies of a reply's text.
const REPLY_COPIES: usize = 6;

/// By how much a reserve grows.
const STEP: usize = 1 << 20;

impl Reserve {
    /// Counts more bytes of a reply's text.
    pub fn add_text(&self, bytes: usize) -> Result<(), Failure> {
        let mut reserved = lock(&self.0);
        reserved.used += bytes * REPLY_COPIES;
        if reserved.used > reserved.text {
            let more = (reserved.used - reserved.text).max(STEP);
            reserved.share.resize(reserved.share.bytes() + more)?;
            reserved.text += more;
        }
        Ok(())
    }
}

/// The approximate size of a JSON value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// The number of values and keys.
    pub values: usize,
    /// Bytes of its strings.
    pub text: usize,
}

impl Size {
    pub fn of(value: &Value) -> Self {
        let own = Self { values: 1, text: 0 };
        match value {
            Value::String(text) => own + Self { values: 0, text: text.len() },
            Value::Array(items) => items.iter().map(Self::of).fold(own, |all, item| all + item),
            Value::Object(map) => own + Self::of_map(map),
            Value::Null | Value::Bool(_) | Value::Number(_) => own,
        }
    }

    pub fn of_map(map: &Map<String, Value>) -> Self {
        let entry = |(key, value): (&String, &Value)| Self { values: 1, text: key.len() } + Self::of(value);
        map.iter().map(entry).fold(Self::default(), |all, one| all + one)
    }

    /// The bytes of memory that it takes.
    pub fn bytes(self) -> usize {
        self.values * VALUE + self.text
    }
}

impl std::ops::Add for Size {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { values: self.values + other.values, text: self.text + other.text }
    }
}

/// The maximum bytes of a JSON value or key in a tree: an object with one entry takes 560 bytes for three, a list with
/// one item 430 for two.
pub const VALUE: usize = 256;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Budgets, ClientId, Memory, ReplyMemory, Size};
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn a_budget_is_divided_or_too_small() {
        let budgets = Budgets::new(512, 512, 8 << 20).unwrap();
        assert_eq!((budgets.bodies.total() >> 20, budgets.requests.total() >> 20), (64, 352));
        for (mib, connections, body, named) in [
            (64, 512, 1 << 20, "--max-connections"),
            (1, 1, 1, "--max-memory"),
            (512, 512, 65 << 20, "--max-body"),
            (usize::MAX, 1, usize::MAX, "--max-body"),
        ] {
            let error = Budgets::new(mib, connections, body).err().unwrap();
            assert!(error.contains(named), "{error}");
        }
        let error = Budgets::new(64, 512, 1 << 20).err().unwrap();
        let least = error.split("set it to ").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
        assert!(Budgets::new(least.parse().unwrap(), 512, 1 << 20).is_ok(), "{error}");
    }

    #[test]
    fn shares_are_returned() {
        let memory = Memory::new(1024);
        let share = memory.try_take(1 << 19).unwrap();
        assert_eq!(memory.free(), 1 << 19);
        assert_eq!(memory.try_take((1 << 19) + 1).err().unwrap().status, 503);
        assert_eq!(memory.try_take((1 << 20) + 1).err().unwrap().status, 413, "more than there ever is");
        share.resize(1 << 10).unwrap();
        let rest = memory.try_take((3 << 18) - (1 << 10)).unwrap();
        let refused = share.resize(2 << 10).err().unwrap().status.as_u16();
        assert_eq!((memory.free(), refused), (1 << 18, 503), "a quarter is left for others");
        let other = ClientId::Key(1);
        assert!(memory.try_acquire(other, 256) && memory.free() == 0);
        memory.give_back(other, 256);
        assert_eq!(share.bytes(), 1 << 10);
        drop((share, rest));
        assert_eq!(memory.free(), 1 << 20);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn small_requests_wait_and_large_ones_do_not() {
        let memory = Memory::new(1024);
        assert_eq!(memory.take((3 << 18) + 1).await.err().unwrap().status, 413);
        let all = memory.take(3 << 18).await.unwrap();
        assert_eq!(memory.take(1 << 19).await.err().unwrap().status, 503);
        let waits = tokio::spawn({
            let memory = memory.clone();
            async move { memory.take(1 << 10).await.map(|share| share.bytes()) }
        });
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(all);
        assert_eq!(waits.await.unwrap().unwrap(), 1 << 10);
        assert_eq!(memory.free(), 1 << 20);
    }

    #[test]
    fn replies_of_long_tokens_take_more() {
        let memory = Memory::new(8 << 10);
        let replies = ReplyMemory {
            replies: 2,
            prompt: 100,
            generated: 1000,
            alternatives: None,
            other: 0,
            prompt_alternatives: None,
        };
        let reserve = replies.reserve(memory.empty()).unwrap();
        let free = memory.free();
        assert!(free < (8 << 20) - 2 * 1000 * 128, "{free}");
        reserve.add_text(2 * 1000 * 4).unwrap();
        assert_eq!(memory.free(), free, "tokens of the usual length");
        reserve.add_text(1 << 19).unwrap();
        assert!(memory.free() <= free - (2 << 20), "{}", memory.free());
        assert_eq!(reserve.add_text(4 << 20).err().unwrap().status, 413);
        drop(reserve);
        assert_eq!(memory.free(), 8 << 20);
    }

    #[test]
    fn sizes_count_keys_and_values() {
        let size = Size::of(&json!({"ab": [1, "xyz", {}], "c": null}));
        assert_eq!(size, Size { values: 8, text: 6 });
    }
}
