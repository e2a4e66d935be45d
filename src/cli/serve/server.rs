//! What all requests share: the model, its name, what the server accepts, and what runs at the moment.

use super::client::{Caller, UnderWay};
use super::failure::Failure;
use super::places::{Places, Reply};
use super::reload::{Absent, Reloading};
use super::unread::Budget;
use axum::http::StatusCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Semaphore;
use wglm::{GenerateOptions, Model, Overflow, Scheduler};

/// A model that is ready to answer.
pub struct Engine {
    pub model: Model,
    pub scheduler: Scheduler,
    /// The options of a request that names none.
    pub defaults: GenerateOptions,
}

/// What the server accepts of a request.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of a body.
    pub body: usize,
    /// Messages of a conversation.
    pub messages: usize,
    /// Replies to one request.
    pub choices: usize,
    /// Replies at a time, those that wait included.
    pub replies: usize,
    /// Of them those that wait, for the message to whom comes too many.
    pub queue: usize,
    /// Requests of one client at a time; 0 for any number.
    pub requests: usize,
    /// From a request to the end of its reply.
    pub reply: Duration,
    /// For a client to send a request, or to take a part of a reply.
    pub io: Duration,
}

/// The server.
pub struct Server {
    pub engine: Reloading<Engine>,
    /// The name of the model in replies.
    pub name: String,
    /// The name of its file, without folders.
    pub file_name: String,
    pub limits: Limits,
    pub overflow: Overflow,
    /// Whether the model thinks before it answers, where a request does not say.
    pub reasoning: bool,
    pub started: SystemTime,
    pub counts: Counts,
    running: Running,
    /// Places for work that takes a processor for a moment.
    work: Arc<Semaphore>,
    /// The bytes that there are for the bodies of requests, until they are read and their prompts made.
    pub bodies: Arc<Semaphore>,
    /// What replies have said that was not taken yet.
    pub unread: Budget,
    pub under_way: UnderWay,
}

/// How many of such may work at a time.
const WORKERS: usize = 4;

/// The bytes of all bodies together, or of one if a single one may be longer.
const BODIES: usize = 64 << 20;

/// What the scheduler does not count.
#[derive(Debug, Default)]
pub struct Counts {
    pub requests: AtomicU64,
    pub refused: AtomicU64,
    pub reloads: AtomicU64,
    pub cancelled: AtomicU64,
}

/// The replies that run or wait.
#[derive(Default)]
struct Running {
    places: Mutex<Places>,
    closed: AtomicBool,
}

/// A place among the replies that run or wait. Dropping it cancels the reply and frees the place.
pub struct Place {
    server: Arc<Server>,
    number: u64,
    pub reply: Reply,
}

impl Server {
    pub fn new(
        engine: Reloading<Engine>,
        (name, file_name): (String, String),
        limits: Limits,
        overflow: Overflow,
        reasoning: bool,
    ) -> Self {
        let (counts, running, started) = (Counts::default(), Running::default(), SystemTime::now());
        let bodies = Arc::new(Semaphore::new(limits.body.clamp(BODIES, Semaphore::MAX_PERMITS)));
        Self {
            engine,
            name,
            file_name,
            limits,
            overflow,
            reasoning,
            started,
            counts,
            running,
            work: Arc::new(Semaphore::new(WORKERS)),
            bodies,
            unread: Budget::default(),
            under_way: UnderWay::default(),
        }
    }

    /// Runs what would hold up other connections on another thread. Nobody can end it there: it goes on if the client
    /// goes away, and so it keeps its place until it ends.
    pub async fn work<T: Send + 'static>(
        &self,
        run: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let lost = || Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the thread for the request ended");
        let place = self.work.clone().acquire_owned().await.map_err(|_| lost())?;
        let work = move || {
            let _place = place;
            run()
        };
        tokio::task::spawn_blocking(work).await.map_err(|_| lost())?
    }

    /// The model.
    ///
    /// # Errors
    /// A [`Failure`] with status 503 while it is not loaded.
    pub fn engine(&self) -> Result<Arc<Engine>, Failure> {
        self.engine.get().map_err(absent)
    }

    /// The model lost its GPU: load it again.
    pub fn lost(&self, engine: &Arc<Engine>) {
        if self.engine.lost(engine) {
            self.counts.reloads.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.running.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many replies run or wait.
    pub fn busy(&self) -> usize {
        self.places().len()
    }

    /// A place for a reply to the request that the task answers.
    ///
    /// # Errors
    /// A [`Failure`] if as many as may wait do so and no other client has more, or if the server is closing.
    pub fn place(self: &Arc<Self>) -> Result<Place, Failure> {
        if self.running.closed.load(Ordering::SeqCst) {
            return Err(Failure::unavailable("the server is shutting down", 5));
        }
        let taken = self.places().take(Caller::current().client, self.limits.replies);
        let Some((number, reply)) = taken else {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Failure::busy(self.limits.queue));
        };
        Ok(Place { server: self.clone(), number, reply })
    }

    /// Accepts no more replies.
    pub fn close(&self) {
        self.running.closed.store(true, Ordering::SeqCst);
    }

    /// Cancels all replies.
    pub fn cancel_all(&self) {
        self.places().cancel_all();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.reply.cancel.cancel();
        self.server.places().leave(self.number);
    }
}

/// Why the model cannot answer.
pub fn absent(absent: Absent) -> Failure {
    match absent {
        Absent::Loading => Failure::unavailable("Loading model", 2),
        Absent::Failed(reason) => Failure::unavailable(format!("the model cannot be loaded: {reason}"), 10),
    }
}

/// The time in seconds since 1970.
pub fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The time now, in seconds since 1970.
pub fn now() -> u64 {
    seconds(SystemTime::now())
}

/// A new id: a prefix and 24 random characters.
pub fn id(prefix: &str) -> String {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // The standard library's hash keys are random: no other source of randomness is needed.
    let random = || RandomState::new().build_hasher().finish();
    format!("{prefix}{:016x}{:08x}", random(), random() as u32)
}
