//! What all requests share: the model, its name, what the server accepts, and what runs at the moment.

use super::client::{Caller, UnderWay};
use super::compiling::{Compiling, Demand};
use super::failure::Failure;
use super::memory::{Budgets, Share};
use super::places::{Places, Reply};
use super::pools::{Pool, Pools, Turn};
use super::ready::Progress;
use super::reload::{Absent, Reloading};
use super::unread::Budget;
use axum::http::StatusCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wglm::{ChatState, GenerateOptions, Model, Overflow, PreparedChat, Scheduler};

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
    /// Compiles the schemas of requests.
    pub compiling: Compiling,
    running: Running,
    pub pools: Pools,
    pub memory: Budgets,
    pub progress: Progress,
    /// What replies have said that was not taken yet.
    pub unread: Budget,
    pub under_way: UnderWay,
}

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
        memory: Budgets,
        overflow: Overflow,
        reasoning: bool,
    ) -> Self {
        let (counts, running, started) = (Counts::default(), Running::default(), SystemTime::now());
        let (compiling, pools, progress) = (Compiling::default(), Pools::new(limits.replies), Progress::default());
        Self {
            engine,
            name,
            file_name,
            limits,
            overflow,
            reasoning,
            started,
            counts,
            compiling,
            running,
            pools,
            memory,
            progress,
            unread: Budget::default(),
            under_way: UnderWay::default(),
        }
    }

    /// Runs what would hold up other connections on another thread, of a pool, once there are so many bytes of memory for
    /// it. Returns its share of the memory too.
    pub async fn work<T: Send + 'static>(
        &self,
        pool: &Pool,
        bytes: usize,
        run: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<(T, Share), Failure> {
        let turn = pool.turn(self.limits.io).await?;
        let (turn, memory) = match self.memory.requests.try_take(bytes) {
            Ok(memory) => (turn, memory),
            // What waits for memory holds no thread.
            Err(_) => {
                drop(turn);
                let memory = self.memory.requests.take(bytes).await?;
                (pool.turn(self.limits.io).await?, memory)
            }
        };
        on_thread(turn, memory, run).await
    }

    /// As [`work`](Self::work), for a request whose replies would be refused if as many as may wait do so already.
    pub async fn prompts<T: Send + 'static>(
        &self,
        bytes: usize,
        run: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<(T, Share), Failure> {
        if !self.has_place() {
            return Err(self.refused());
        }
        self.work(&self.pools.prompts, bytes, run).await
    }

    /// Reads a conversation to reply to, has its schemas compiled, and makes the prompt. `read` returns whatever else was
    /// asked for too. No thread of the pool is held while a schema is compiled.
    pub async fn conversation<T: Send + 'static>(
        &self,
        engine: &Arc<Engine>,
        bytes: usize,
        read: impl FnOnce() -> Result<(ChatState, Demand, T), Failure> + Send + 'static,
    ) -> Result<(PreparedChat, T, Share), Failure> {
        let with = engine.clone();
        let read = move || {
            let (chat, demand, rest) = read()?;
            let asked = match demand {
                Demand::Met => Asked::Prepared(with.scheduler.prepare(chat)?),
                demand => Asked::Open(Box::new(chat), demand),
            };
            Ok((asked, rest))
        };
        let ((asked, rest), memory) = self.prompts(bytes, read).await?;
        let (mut chat, demand) = match asked {
            Asked::Prepared(chat) => return Ok((chat, rest, memory)),
            Asked::Open(chat, demand) => (chat, demand),
        };
        self.compiling.settle(&mut chat, demand).await?;
        let (engine, turn) = (engine.clone(), self.pools.prompts.turn(self.limits.io).await?);
        let (chat, memory) = on_thread(turn, memory, move || Ok(engine.scheduler.prepare(*chat)?)).await?;
        Ok((chat, rest, memory))
    }

    /// Whether the client that asks would get a place for a reply.
    pub fn has_place(&self) -> bool {
        self.places().has_one_for(Caller::current().client.who, self.limits.replies)
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
        if self.is_closed() {
            return Err(Failure::unavailable("the server is shutting down", 5));
        }
        let taken = self.places().take(Caller::current().client, self.limits.replies);
        let (number, reply) = taken.ok_or_else(|| self.refused())?;
        Ok(Place { server: self.clone(), number, reply })
    }

    fn refused(&self) -> Failure {
        self.counts.refused.fetch_add(1, Ordering::Relaxed);
        Failure::busy(self.limits.queue)
    }

    /// Whether no more replies are accepted.
    pub fn is_closed(&self) -> bool {
        self.running.closed.load(Ordering::SeqCst)
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

/// A conversation to reply to.
enum Asked {
    /// Its prompt is made.
    Prepared(PreparedChat),
    /// A schema of it has to be compiled first.
    Open(Box<ChatState>, Demand),
}

/// Runs something on a thread of a pool. Nobody can end it there: it goes on if the client goes away, and so it keeps its
/// thread and its memory until it ends.
async fn on_thread<T: Send + 'static>(
    turn: Turn,
    memory: Share,
    run: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<(T, Share), Failure> {
    let work = move || {
        let _turn = turn;
        run().map(|result| (result, memory))
    };
    let lost = |_| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the thread for the request ended");
    tokio::task::spawn_blocking(work).await.map_err(lost)?
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
