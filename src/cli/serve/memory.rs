//! The memory that requests may take beyond what the server takes at rest.
//!
//! Whatever a request makes the server hold is counted before it is made: a body as it comes, what is parsed and rendered
//! of it by the number of its bytes and values, prompts and replies by their tokens. It is counted in a budget, of which
//! each request has a [`Share`] until what it stands for is dropped. So the process stays below its size at rest and
//! `--max-memory`, whatever clients send. A request for which there is not enough is refused: with 413 if there never is,
//! and with 503 if others have it at the moment.
//!
//! Memory that is freed is not at once the system's again: glibc keeps what lies between blocks in use, for each of its
//! arenas. So what a share stood for stays counted until [`trim`] has given such memory back, which happens when it has
//! come to a sixteenth of the budget, or when somebody waits; [`settle_allocator`] does the rest. Other systems'
//! allocators give large blocks back by themselves.

use super::client::{Caller, Who};
use super::failure::Failure;
use axum::http::StatusCode;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::time::sleep;

/// A mebibyte in KiB, which is the unit of budgets.
const MIB: usize = 1 << 10;

/// What a connection takes at most, in KiB: its buffer, which holds a head of 64 KiB, and answers that are not counted.
const CONNECTION: usize = 128;

/// What is not counted for each request, in MiB: stacks of threads, and the remainders of pages.
const REST: usize = 32;

/// The least memory for requests with which the server starts, in MiB.
const LEAST: usize = 32;

/// Bodies get this part of the budget: an eighth.
const BODIES: usize = 8;

/// A quarter of the budget. A request does not wait for a larger share, a client that has half of the budget leaves a
/// quarter to others, and a single request may have at most three quarters.
const LARGE: usize = 4;

/// Freed memory is returned to the system when it amounts to this part of the budget: a sixteenth.
const STALE: usize = 16;

/// How long a request waits for memory that others have.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a waiting request tries again.
const LOOK: Duration = Duration::from_millis(50);

/// The budgets of a server.
pub struct Budgets {
    /// For bodies, until they are read.
    pub bodies: Arc<Memory>,
    /// For everything that is made of them.
    pub requests: Arc<Memory>,
}

impl Budgets {
    /// Divides `mib` MiB among bodies of at most `body` bytes, `connections` connections and requests.
    ///
    /// # Errors
    /// A message if that is too little.
    pub fn new(mib: usize, connections: usize, body: usize) -> Result<Self, String> {
        let (mib, connections) = (mib.min(u32::MAX as usize), connections.min(u32::MAX as usize));
        let fixed = REST + connections.saturating_mul(CONNECTION).div_ceil(MIB);
        let bodies = mib / BODIES;
        let left = mib.saturating_sub(bodies).saturating_sub(fixed);
        if left < LEAST {
            let least = (fixed + LEAST) * BODIES / (BODIES - 1) + 1;
            return Err(format!(
                "--max-memory: {mib} MiB are too little: {connections} connections may take {fixed} MiB of it, an eighth is \
                 for bodies, and requests need {LEAST}; give it {least}, or lower --max-connections"
            ));
        }
        if body.div_ceil(1 << 20) > bodies {
            return Err(format!(
                "--max-body: {} KiB are more than all bodies may take together, which is an eighth of --max-memory ({bodies} \
                 MiB); lower it, or raise --max-memory",
                body >> 10
            ));
        }
        Ok(Self { bodies: Memory::new(bodies * MIB), requests: Memory::new(left * MIB) })
    }
}

/// A budget.
pub struct Memory {
    /// A permit for each KiB.
    free: Semaphore,
    total: usize,
    /// What each client has, in KiB.
    held: Mutex<HashMap<Who, usize>>,
    /// What was freed, in KiB, and may not be the system's yet.
    stale: AtomicUsize,
    /// How many requests wait.
    waiting: AtomicUsize,
}

/// Memory that something has. Dropping it gives it back.
pub struct Share {
    memory: Arc<Memory>,
    /// Who has it.
    who: Who,
    kib: AtomicUsize,
}

/// Why there is no memory.
fn exhausted() -> Failure {
    Failure::unavailable("other requests fill the memory of the server (--max-memory); try again later", 1)
}

impl Memory {
    fn new(kib: usize) -> Arc<Self> {
        let total = kib.min(Semaphore::MAX_PERMITS).min(u32::MAX as usize);
        let (stale, waiting, held) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::default());
        Arc::new(Self { free: Semaphore::new(total), total, held, stale, waiting })
    }

    /// All of it, in bytes.
    pub fn total(&self) -> usize {
        self.total << 10
    }

    /// What nobody has, in bytes.
    pub fn free(&self) -> usize {
        (self.free.available_permits() + self.stale.load(Ordering::SeqCst)) << 10
    }

    /// A share of nothing yet, for the client whose request is being answered.
    pub fn empty(self: &Arc<Self>) -> Share {
        Share { memory: self.clone(), who: Caller::current().client.who, kib: AtomicUsize::new(0) }
    }

    /// A share of so many bytes, now.
    pub fn try_take(self: &Arc<Self>, bytes: usize) -> Result<Share, Failure> {
        let share = self.empty();
        share.resize(bytes)?;
        Ok(share)
    }

    /// A share of so many bytes, for which a request that does not need much of the whole waits a moment.
    pub async fn take(self: &Arc<Self>, bytes: usize) -> Result<Share, Failure> {
        let (share, kib) = (self.empty(), self.fits(bytes)?);
        if !self.try_acquire(share.who, kib) {
            self.wait_for(share.who, kib).await?;
        }
        share.kib.store(kib, Ordering::SeqCst);
        Ok(share)
    }

    /// Tries again and again, and takes all or nothing, so that smaller requests succeed meanwhile.
    async fn wait_for(&self, who: Who, kib: usize) -> Result<(), Failure> {
        if kib > self.total / LARGE {
            return Err(exhausted());
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let (_waiting, start) = (Waiting(self), Instant::now());
        while !self.try_acquire(who, kib) {
            if start.elapsed() > PATIENCE {
                return Err(exhausted());
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// KiB for so many bytes.
    fn fits(&self, bytes: usize) -> Result<usize, Failure> {
        let (kib, most) = (bytes.div_ceil(1 << 10), self.total - self.total / LARGE);
        if kib <= most {
            return Ok(kib);
        }
        let message = format!(
            "the request may take {} MiB of memory, of which one may have {} (--max-memory); make it shorter, or ask for \
             fewer or shorter replies",
            kib / MIB,
            most / MIB
        );
        Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, message))
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Who, usize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes memory for a client. A client that would have more than half of the budget leaves a quarter free.
    fn try_acquire(&self, who: Who, kib: usize) -> bool {
        let mut held = self.held();
        let own = held.get(&who).copied().unwrap_or(0);
        let reserve = if own + kib > self.total / 2 { self.total / LARGE } else { 0 };
        if (self.free() >> 10) < kib + reserve {
            return false;
        }
        let acquire = || self.free.try_acquire_many(kib as u32).map(|permit| permit.forget()).is_ok();
        let acquired = acquire() || self.reclaim() && acquire();
        if acquired && kib > 0 {
            held.insert(who, own + kib);
        }
        acquired
    }

    fn give_back(&self, who: Who, kib: usize) {
        let mut held = self.held();
        if let Some(own) = held.get_mut(&who) {
            *own = own.saturating_sub(kib);
            if *own == 0 {
                held.remove(&who);
            }
        }
        drop(held);
        let stale = self.stale.fetch_add(kib, Ordering::SeqCst) + kib;
        if stale >= self.total / STALE || self.waiting.load(Ordering::SeqCst) > 0 {
            self.reclaim();
        }
    }

    /// Returns freed memory to the system, then to the budget. Returns whether there was any.
    fn reclaim(&self) -> bool {
        let kib = self.stale.swap(0, Ordering::SeqCst);
        if kib > 0 {
            trim();
            self.free.add_permits(kib);
        }
        kib > 0
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
    /// How many bytes it has.
    pub fn bytes(&self) -> usize {
        self.kib.load(Ordering::SeqCst) << 10
    }

    /// Makes it as large as that.
    ///
    /// # Errors
    /// A [`Failure`] if there is not enough, with the share as it was.
    pub fn resize(&self, bytes: usize) -> Result<(), Failure> {
        let (kib, before) = (self.memory.fits(bytes)?, self.kib.load(Ordering::SeqCst));
        if kib > before && !self.memory.try_acquire(self.who, kib - before) {
            return Err(exhausted());
        }
        self.kib.store(kib, Ordering::SeqCst);
        if kib < before {
            self.memory.give_back(self.who, before - kib);
        }
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.give_back(self.who, self.kib.load(Ordering::SeqCst));
    }
}

/// Has what is freed at the end of an arena given back beyond 2 MiB, and blocks of 4 MiB and more made apart, each of which
/// goes back when it is freed. By default glibc learns from freed blocks to keep up to 64 MiB at the end of each arena, which
/// [`trim`] does not reach. Smaller blocks, such as the logits of a token, are still taken again without the system.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn settle_allocator() {
    for (which, bytes) in [(libc::M_TRIM_THRESHOLD, 2 << 20), (libc::M_MMAP_THRESHOLD, 4 << 20)] {
        // SAFETY: it takes no pointer, and a value that it does not like changes nothing.
        unsafe { libc::mallopt(which, bytes) };
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn settle_allocator() {}

/// Gives memory that was freed back to the system.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn trim() {
    // SAFETY: it takes no pointer, and locks what it looks at.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() {}

/// What a request has until its replies have ended.
pub struct Kept {
    /// How many replies there are.
    pub replies: usize,
    /// Tokens of each one's prompt.
    pub prompt: usize,
    /// Tokens that each may have at most.
    pub generated: usize,
    /// How many of the likeliest tokens are told of each, if any are.
    pub likeliest: Option<usize>,
    /// Bytes of everything else.
    pub other: usize,
}

/// What a reply takes beside its tokens: the state of its generation and the thread that it has.
const REPLY: usize = 64 << 10;

/// What a token of a reply takes: its text in several forms, on the way to the client. Longer texts are counted as they come.
const TOKEN: usize = 128;

/// What is told of one likely token takes.
const LIKELY: usize = 256;

impl Kept {
    fn bytes(&self) -> usize {
        let likely = self.likeliest.map_or(0, |top| (top + 1) * LIKELY);
        let reply = REPLY + self.prompt * 2 * size_of::<u32>() + self.generated.saturating_mul(TOKEN + likely);
        self.replies.saturating_mul(reply).saturating_add(self.other)
    }

    /// Makes a request's share what its replies need.
    ///
    /// # Errors
    /// A [`Failure`] if there is not enough.
    pub fn reserve(&self, share: Share) -> Result<Arc<Reserve>, Failure> {
        share.resize(self.bytes())?;
        let room = self.replies.saturating_mul(self.generated).saturating_mul(TOKEN);
        Ok(Arc::new(Reserve { share: Mutex::new(share), said: AtomicUsize::new(0), room: AtomicUsize::new(room) }))
    }
}

/// The memory of the replies to a request, which grows if their texts are longer than texts of as many tokens usually are.
pub struct Reserve {
    share: Mutex<Share>,
    said: AtomicUsize,
    room: AtomicUsize,
}

/// How many copies of a reply's text there are at most.
const REPLY_COPIES: usize = 6;

/// By how much a reserve grows.
const STEP: usize = 1 << 20;

impl Reserve {
    /// Counts so many bytes more of a reply's text.
    ///
    /// # Errors
    /// A [`Failure`] if there is no memory for them.
    pub fn said(&self, bytes: usize) -> Result<(), Failure> {
        let said = self.said.fetch_add(bytes * REPLY_COPIES, Ordering::SeqCst) + bytes * REPLY_COPIES;
        let share = self.share.lock().unwrap_or_else(PoisonError::into_inner);
        let room = self.room.load(Ordering::SeqCst);
        if said > room {
            let more = (said - room).max(STEP);
            share.resize(share.bytes() + more)?;
            self.room.store(room + more, Ordering::SeqCst);
        }
        Ok(())
    }
}

/// About how many values a JSON value is made of, and how many bytes of memory it takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
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

    /// Bytes of memory for it.
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

/// What a value or a key of JSON takes at most in a tree of them: an object of one entry takes 560 bytes for three, a list
/// of one 430 for two.
pub const VALUE: usize = 256;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Budgets, Kept, Memory, Size, Who};
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn a_budget_is_divided_or_refused() {
        let budgets = Budgets::new(512, 512, 8 << 20).unwrap();
        assert_eq!((budgets.bodies.total() >> 20, budgets.requests.total() >> 20), (64, 352));
        for (mib, connections, body, named) in [
            (64, 512, 1 << 20, "--max-connections"),
            (1, 1, 1, "--max-memory"),
            (512, 512, 65 << 20, "--max-body"),
            (usize::MAX, 1, usize::MAX, "--max-body"),
        ] {
            let told = Budgets::new(mib, connections, body).err().unwrap();
            assert!(told.contains(named), "{told}");
        }
        let told = Budgets::new(64, 512, 1 << 20).err().unwrap();
        let least = told.split("give it ").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
        assert!(Budgets::new(least.parse().unwrap(), 512, 1 << 20).is_ok(), "{told}");
    }

    #[test]
    fn what_is_taken_comes_back() {
        let memory = Memory::new(1024);
        let share = memory.try_take(1 << 19).unwrap();
        assert_eq!(memory.free(), 1 << 19);
        assert_eq!(memory.try_take((1 << 19) + 1).err().unwrap().status, 503);
        assert_eq!(memory.try_take((1 << 20) + 1).err().unwrap().status, 413, "which never is there");
        share.resize(1 << 10).unwrap();
        let rest = memory.try_take((3 << 18) - (1 << 10)).unwrap();
        let refused = share.resize(2 << 10).err().unwrap().status.as_u16();
        assert_eq!((memory.free(), refused), (1 << 18, 503), "a quarter is left for others");
        let other = Who::Key(1);
        assert!(memory.try_acquire(other, 256) && memory.free() == 0);
        memory.give_back(other, 256);
        assert_eq!(share.bytes(), 1 << 10);
        drop((share, rest));
        assert_eq!(memory.free(), 1 << 20);
    }

    #[test]
    fn who_needs_little_waits_and_who_needs_much_does_not() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
        runtime.block_on(async {
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
        });
    }

    #[test]
    fn replies_of_long_tokens_take_more() {
        let memory = Memory::new(8 << 10);
        let kept = Kept { replies: 2, prompt: 100, generated: 1000, likeliest: None, other: 0 };
        let reserve = kept.reserve(memory.empty()).unwrap();
        let free = memory.free();
        assert!(free < (8 << 20) - 2 * 1000 * 128, "{free}");
        reserve.said(2 * 1000 * 4).unwrap();
        assert_eq!(memory.free(), free, "what tokens usually are");
        reserve.said(1 << 19).unwrap();
        assert!(memory.free() <= free - (2 << 20), "{}", memory.free());
        assert_eq!(reserve.said(4 << 20).err().unwrap().status, 413);
        drop(reserve);
        assert_eq!(memory.free(), 8 << 20);
    }

    #[test]
    fn sizes_count_keys_and_values() {
        let size = Size::of(&json!({"ab": [1, "xyz", {}], "c": null}));
        assert_eq!(size, Size { values: 8, text: 6 });
    }
}
