//! What all requests share: the model and its name, the limits, and what is running.

use super::body::JsonBody;
use super::client::{Caller, RequestCounts};
use super::compiling::Compiling;
use super::failure::Failure;
use super::memory::{Budgets, Share};
use super::openai::KeptResponses;
use super::others::{self, Listed, Others};
use super::pools::{Pool, Pools, Turn};
use super::ready::Progress;
use super::reload::{Absent, Reloading};
use super::reply_permits::{ReplyPermit, ReplyPermits};
use super::unread::Budget;
use axum::http::StatusCode;
use jiff::Timestamp;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use wglm_engine::catalog::LocalModel;
use wglm_engine::{DiskCache, GenerateOptions, Model, Overflow, Scheduler, SchemaOptions};

pub struct LoadedModel {
    /// Its name in replies.
    pub name: String,
    pub model: Model,
    pub scheduler: Scheduler,
    /// The options of a request that gives none.
    pub defaults: GenerateOptions,
}

#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of a body.
    pub body: usize,
    /// Messages of a conversation.
    pub messages: usize,
    /// Replies to one request, which can run or wait at the same time.
    pub choices: usize,
    /// Replies that are running or waiting.
    pub replies: usize,
    /// Replies that are waiting, for messages.
    pub queue: usize,
    /// The maximum number of requests from one client at once; 0 for no limit.
    pub requests: usize,
    /// The time from a request to the end of its reply.
    pub reply: Duration,
    /// The time for a client to send a request, or to read a part of an answer.
    pub io: Duration,
    /// The longest time that a stream sends nothing.
    pub silence: Duration,
}

pub struct Server {
    /// The model that the server was started with.
    pub loaded: Reloading<LoadedModel>,
    pub others: Others,
    /// The cache on disk, where conversations are stored.
    pub disk: Option<DiskCache>,
    /// The folder of the KV caches that clients save.
    pub slot_files: Option<PathBuf>,
    /// Allows one action on a slot at a time.
    pub slot_actions: Arc<Semaphore>,
    /// The name of the model that the server was started with.
    pub name: String,
    /// The name of its file, without folders.
    pub file_name: String,
    pub limits: Limits,
    pub overflow: Overflow,
    /// Whether the model thinks, if a request does not say so.
    pub reasoning: bool,
    /// Whether objects of all schemas are closed.
    pub json_closed: bool,
    pub started: SystemTime,
    pub counts: Counts,
    pub compiling: Compiling,
    pub permits: Arc<ReplyPermits>,
    pub pools: Pools,
    pub memory: Budgets,
    pub progress: Progress,
    pub responses: Arc<KeptResponses>,
    /// The bytes of replies that clients have not read.
    pub unread: Budget,
    pub request_counts: RequestCounts,
}

/// Counters in addition to those of the scheduler.
#[derive(Debug, Default)]
pub struct Counts {
    pub requests: AtomicU64,
    pub refused: AtomicU64,
    pub reloads: AtomicU64,
    pub cancelled: AtomicU64,
}

impl Server {
    /// Runs, on a thread of a pool, work that would delay other connections, once `bytes` bytes of memory are free for
    /// it. Also returns its share of the memory.
    pub async fn work<T: Send + 'static>(
        &self,
        pool: &Pool,
        bytes: usize,
        run: impl FnOnce(&Share) -> Result<T, Failure> + Send + 'static,
    ) -> Result<(T, Share), Failure> {
        let mut turn = pool.turn(self.limits.io).await?;
        let memory = match self.memory.requests.try_take(bytes) {
            Ok(memory) => memory,
            Err(_) => {
                drop(turn); // a request that waits for memory holds no thread
                let memory = self.memory.requests.take(bytes).await?;
                turn = pool.turn(self.limits.io).await?;
                memory
            }
        };
        turn.run(memory, run).await
    }

    /// How the JSON of an answer is written, for the field `json_whitespace` of a request.
    pub fn schema_options(&self, whitespace: Option<bool>) -> SchemaOptions {
        SchemaOptions::default().with_whitespace(whitespace == Some(true)).with_closed(self.json_closed)
    }

    /// Refuses a request early if its replies would be refused because the queue is full.
    pub fn check_queue(&self) -> Result<(), Failure> {
        if self.has_place() { Ok(()) } else { Err(self.refused(1)) }
    }

    /// Whether the client of the current request would get a place for a reply.
    pub fn has_place(&self) -> bool {
        self.permits.has_one_for(Caller::current().client.id)
    }

    /// The model that the server was started with, or a failure with status 503 while it is not loaded.
    pub fn loaded(&self) -> Result<Arc<LoadedModel>, Failure> {
        self.loaded.get().map_err(absent)
    }

    /// The model for a request: the one that its body names, which is loaded if it is on this machine, or else the one
    /// that the server was started with.
    pub async fn named(self: &Arc<Self>, body: &JsonBody) -> Result<Arc<LoadedModel>, Failure> {
        if !self.others.are_allowed() {
            return self.loaded();
        }
        let bytes = body.bytes.clone();
        let Some(name) = blocking(move || others::named(&bytes)).await?.filter(|name| !self.others.is_own_name(name))
        else {
            return self.loaded();
        };
        let models = self.local_models(Some(&name)).await?;
        let Some(model) = others::called(&name, &models)? else {
            return self.loaded();
        };
        if let Some(other) = self.others.requested(model) {
            return other.wait(self.limits.reply).await;
        }
        let asked = move |server: &Self, turn| server.others.asked(&name, &models, server.loaded(), turn);
        match self.read_models(asked).await?? {
            Some(other) => other.wait(self.limits.reply).await,
            None => self.loaded(),
        }
    }

    /// The models on this machine, as they were a moment ago; or as they are now, if `name` is not among those.
    pub async fn local_models(&self, name: Option<&str>) -> Result<Arc<[LocalModel]>, Failure> {
        let slow = |_| Failure::unavailable("listing the models takes too long; try again later", 2);
        timeout(self.limits.io, self.others.local(name)).await.map_err(slow)?
    }

    /// The models that requests can name besides the server's own.
    pub async fn listed_models(self: &Arc<Self>) -> Result<Vec<Listed>, Failure> {
        let models = self.local_models(None).await?;
        if models.is_empty() {
            return Ok(Vec::new());
        }
        self.read_models(move |server, _turn| server.others.listed(&models)).await
    }

    /// Runs, on a thread, short work that reads files of models. Only a few threads do so at once. The turn ends when
    /// `run` drops it, even if the client has left.
    pub async fn read_models<T: Send + 'static>(
        self: &Arc<Self>,
        run: impl FnOnce(&Self, Turn) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let (server, turn) = (self.clone(), self.pools.models.turn(self.limits.io).await?);
        blocking(move || run(&server, turn)).await
    }

    /// Reports that a model has lost its GPU, so that it is loaded again.
    pub fn lost(&self, loaded: &Arc<LoadedModel>) {
        if self.loaded.lost(loaded) || self.others.lost(loaded) {
            self.counts.reloads.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Places for the replies to the current request: all of them, or a failure.
    pub fn take_permits(&self, count: usize) -> Result<Vec<ReplyPermit>, Failure> {
        if self.permits.is_closed() {
            return Err(Failure::shutting_down());
        }
        self.permits.take(Caller::current().client, count).ok_or_else(|| self.refused(count))
    }

    fn refused(&self, count: usize) -> Failure {
        self.counts.refused.fetch_add(1, Ordering::Relaxed);
        match count {
            ..=1 => Failure::queue_full(self.limits.queue),
            _ => Failure::rate_limited(format!("the queue has no room for {count} replies; try again later")),
        }
    }
}

/// Runs short work that would delay other connections.
pub async fn blocking<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    let failed = |_| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the server failed");
    tokio::task::spawn_blocking(run).await.map_err(failed)
}

/// The failure of a request while the model is not loaded.
pub fn absent(absent: Absent) -> Failure {
    match absent {
        Absent::Loading => Failure::unavailable("Loading model", 2),
        Absent::Failed(reason) => Failure::unavailable(format!("cannot load the model: {reason}"), 10),
    }
}

/// The time in seconds since 1970.
pub fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The time as text in the form of RFC 3339.
pub fn timestamp(time: SystemTime) -> String {
    Timestamp::try_from(time).unwrap_or_default().to_string()
}

/// The time now, in seconds since 1970.
pub fn now() -> u64 {
    seconds(SystemTime::now())
}

/// A new id of a function call. Clients that collect the calls of several conversations expect all ids to differ.
pub fn call_id() -> String {
    id("call_")
}

/// A new id: a prefix and 24 random characters.
pub fn id(prefix: &str) -> String {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // The keys of the standard library's hashes are random, so no other source of randomness is needed.
    let random = || RandomState::new().build_hasher().finish();
    format!("{prefix}{:016x}{:08x}", random(), random() as u32)
}
