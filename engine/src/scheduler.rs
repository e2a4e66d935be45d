//! Conversations side by side: requests from any thread share a model, a KV cache and the steps of the GPU.
//!
//! A thread that waits for an event generates for all replies, unless another thread does (`scheduler/shared.rs`). For
//! replies that are polled, the scheduler has a thread of its own (`scheduler/background.rs`). A round computes a part
//! of one prompt and then takes a step with all replies whose prompts are complete (`scheduler/engine.rs`). So no reply
//! waits longer than a part of a prompt takes, and a reply that is alone is generated as
//! [`Generation`](crate::Generation) generates it.
//!
//! The scheduler uses generations and the pool of their sessions, which do not know about it.
//!
//! The thread that makes a request renders its prompt and compiles its grammars before the request enters the queue.
//! Greedy replies are those that each conversation would get alone, except for the rounding of sums. If the device is
//! lost, all replies and all waiting requests end with that error.
//!
//! Tenants ([`Scheduler::for_tenant`]) share no cache: a slot is emptied when another tenant takes it over, and pages
//! are found by tenant.

#[cfg(feature = "schema")]
mod ask;
mod background;
mod embed;
mod engine;
mod memory;
mod prompts;
mod reading;
mod shared;
mod state;
mod steps;
mod storing;
mod turns;
mod visits;

pub use state::{SchedulerCounts, SchedulerState, SlotState};

use crate::cancel::Cancel;
use crate::chat::{CallIds, ChatState, PromptMaker, drop_before, take_beginning};
use crate::disk::DiskCache;
use crate::error::{Error, Result};
use crate::generate::{Chooser, Event, GenerateOptions, GenerationTask};
use crate::gpu::Process;
use crate::kernels::CacheType;
use crate::model::{CacheShape, Model};
use crate::session::Pool;
use crate::text::{Message, ReplyParser};
use background::Owner;
use engine::{Engine, Request};
use shared::Shared;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The options of a [`Scheduler`]: how many conversations it has, and how much memory they get. Fields may be added, so
/// construct it as `SchedulerOptions { …, ..SchedulerOptions::default() }`.
#[derive(Debug, Clone)]
pub struct SchedulerOptions {
    /// How many conversations are generated at a time. Each has a slot, which keeps its KV cache for the next turn.
    pub sessions: usize,
    /// The context of each conversation in tokens; `None` for the model's usual one.
    pub context: Option<usize>,
    /// How many tokens the KV cache holds for all conversations together, in whole pages of 256; `None` for all
    /// contexts in full, or for less if memory is short. A context is never larger than this. If the cache is smaller
    /// than all contexts and runs full, the caches of conversations whose replies have ended are dropped first, then
    /// those of the newest replies, which wait and are computed again once there is memory.
    pub tokens: Option<usize>,
    /// How many requests may wait for a slot. Further ones are refused with [`Error::Busy`].
    pub queue: usize,
    /// The type of the cache's values; `None` for the model's usual one.
    pub cache: Option<CacheType>,
    /// Whether all kernels for steps of several conversations are compiled when the scheduler is created, so that no
    /// step waits for them; `None` for yes on a GPU, as for
    /// [`LoadOptions::compile_all`](crate::LoadOptions::compile_all).
    pub compile_all: Option<bool>,
    /// The maximum number of rows of a step of several conversations in which guesses are verified: a row for the token
    /// of each conversation, and one for each guess, at most 32 in total. With 0 only a conversation that is alone
    /// guesses; `None` for as many as are known to pay off. Whether a conversation guesses is up to its
    /// [`speculation`](GenerateOptions::speculation).
    pub drafted_rows: Option<usize>,
    /// Where conversations are stored: their prompts when replies end, and all of them when they lose their slot and
    /// when the scheduler is dropped; `None` for nowhere.
    pub disk: Option<DiskCache>,
    /// Makes the ids of function calls to which the model gives none, for programs in which they have to be unique
    /// among all conversations; `None` for `call_0`, `call_1` and so on, which are unique within a conversation. An id
    /// that the conversation already has is replaced by an id made in this way.
    pub call_ids: Option<fn() -> String>,
}

impl Default for SchedulerOptions {
    /// Four conversations with the model's usual context, 64 waiting requests, and nothing on disk.
    fn default() -> Self {
        Self {
            sessions: 4,
            context: None,
            tokens: None,
            queue: 64,
            cache: None,
            compile_all: None,
            drafted_rows: None,
            disk: None,
            call_ids: None,
        }
    }
}

/// The party that makes requests: see [`Scheduler::for_tenant`]. Fields may be added, so construct it as `Tenant { …,
/// ..Tenant::default() }`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Tenant {
    /// The number under which it takes turns: requests with the same number wait for each other, and those with
    /// different numbers are served in turn, however many of them wait.
    pub turns: u64,
    /// The number under which it shares the KV cache: what was computed for a request is used by later requests with
    /// the same number, and by no others, also in a [`DiskCache`] after the program was started again. Parties that
    /// share a cache can learn from [`Stats::prompt`](crate::Stats::prompt), and from the time to the first token,
    /// which prompts the others sent.
    pub cache: u64,
}

/// Generates replies to requests from any thread, several at a time: each step of the GPU computes a token of every
/// conversation, which takes little longer than a token of one conversation. Clones share it.
///
/// A request waits in a queue until a slot is free; [tenants](Scheduler::for_tenant) take turns. A slot keeps the KV
/// cache of its conversation. The next request goes to the slot whose last prompt it continues, or otherwise to the one
/// that has been unused for longest. Full pages of 256 tokens with which several conversations begin are shared. Greedy
/// replies are those that each conversation gets alone.
///
/// A reply is generated while a thread waits for its events, by any of the threads that wait. For replies that are
/// polled ([`ScheduledReply::try_next`]) the scheduler has a thread, which lives no longer than the scheduler and its
/// replies, and ends when none of them is polled. A reply whose events are not taken pauses after 64 of them, and the
/// others continue.
///
/// ```
/// # fn main() -> wglm::Result<()> {
/// # use wglm::{Gguf, Gpu, GpuOptions, LoadOptions, Model};
/// # let gpu = Gpu::open(&GpuOptions::default())?;
/// # let model = Model::load(&Gguf::from_static(wglm::DEMO_MODEL)?, &gpu, &LoadOptions::default())?;
/// use wglm::{ChatState, Event, GenerateOptions, Message, Scheduler, SchedulerOptions};
///
/// let scheduler = Scheduler::new(&model, &SchedulerOptions { sessions: 2, ..SchedulerOptions::default() })?;
/// let options = GenerateOptions { max_tokens: Some(8), ..GenerateOptions::default() };
/// std::thread::scope(|scope| {
///     for animal in ["an owl", "a fox", "a hare"] {
///         let (scheduler, options) = (&scheduler, options.clone());
///         scope.spawn(move || -> wglm::Result<()> {
///             let messages = vec![Message::user(format!("Tell me a story about {animal}."))];
///             for event in scheduler.chat(ChatState { messages, options, ..ChatState::default() })? {
///                 if let Event::Text(text) = event? {
///                     println!("{animal}: {text}");
///                 }
///             }
///             Ok(())
///         });
///     }
/// });
/// assert_eq!(scheduler.state().counts.requests, 3);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Scheduler {
    model: Model,
    shared: Arc<Owner>,
    tenant: Tenant,
    call_ids: Option<fn() -> String>,
}

/// A conversation with its rendered prompt: [`Scheduler::prepare`] returns it, and [`Scheduler::reply`] generates any
/// number of replies to it. Clones share it, and its replies share everything except their tokens.
///
/// ```
/// # fn main() -> wglm::Result<()> {
/// # use wglm::{Gguf, Gpu, GpuOptions, LoadOptions, Model};
/// # let gpu = Gpu::open(&GpuOptions::default())?;
/// # let model = Model::load(&Gguf::from_static(wglm::DEMO_MODEL)?, &gpu, &LoadOptions::default())?;
/// use wglm::{ChatState, GenerateOptions, Message, Scheduler, SchedulerOptions};
///
/// let scheduler = Scheduler::new(&model, &SchedulerOptions { sessions: 2, ..SchedulerOptions::default() })?;
/// let options = GenerateOptions { max_tokens: Some(8), ..GenerateOptions::default() };
/// let messages = vec![Message::user("Tell me a story.")];
/// let prepared = scheduler.prepare(ChatState { messages, options, ..ChatState::default() })?;
/// for seed in 0..2 {
///     let reply = scheduler.reply(&prepared, Some(seed))?;
///     assert_eq!(reply.prompt_tokens(), prepared.prompt_tokens());
///     assert!(reply.count() > 0);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PreparedChat {
    made: Arc<MadePrompt>,
}

/// The data that replies to the same conversation share.
struct MadePrompt {
    prompt: Vec<u32>,
    parser: ReplyParser,
    options: GenerateOptions,
    ids: CallIds,
    /// The messages that were dropped because the context is too small.
    dropped: Vec<Message>,
}

impl PreparedChat {
    /// The number of tokens of the prompt.
    pub fn prompt_tokens(&self) -> usize {
        self.made.prompt.len()
    }

    /// The options of generation.
    pub fn options(&self) -> &GenerateOptions {
        &self.made.options
    }

    /// The messages that were dropped because of [`Overflow`](crate::Overflow), oldest first.
    pub fn dropped(&self) -> &[Message] {
        &self.made.dropped
    }
}

impl std::fmt::Debug for PreparedChat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PreparedChat").field("prompt", &self.prompt_tokens()).finish_non_exhaustive()
    }
}

/// A reply that waits for its turn or is being generated: an iterator of events, which ends after an error or
/// [`Event::Done`]. [`next`](Iterator::next) waits; [`try_next`](Self::try_next) and [`poll_next`](Self::poll_next) do
/// not, and with the feature `stream` `ScheduledReply::into_stream` makes an asynchronous stream of it. It can be used
/// from any thread. Dropping it cancels the reply.
///
/// ```
/// # fn main() -> wglm::Result<()> {
/// # use wglm::{Gguf, Gpu, GpuOptions, LoadOptions, Model};
/// # let gpu = Gpu::open(&GpuOptions::default())?;
/// # let model = Model::load(&Gguf::from_static(wglm::DEMO_MODEL)?, &gpu, &LoadOptions::default())?;
/// use std::task::Poll;
/// use wglm::{ChatState, GenerateOptions, Message, Scheduler, SchedulerOptions};
///
/// let scheduler = Scheduler::new(&model, &SchedulerOptions::default())?;
/// let options = GenerateOptions { max_tokens: Some(8), ..GenerateOptions::default() };
/// let messages = vec![Message::user("Tell me a story.")];
/// let mut reply = scheduler.chat(ChatState { messages, options, ..ChatState::default() })?;
/// loop {
///     match reply.try_next() {
///         Poll::Ready(Some(event)) => println!("{:?}", event?),
///         Poll::Ready(None) => break,
///         Poll::Pending => std::thread::sleep(std::time::Duration::from_millis(1)), // an app draws a frame here
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct ScheduledReply {
    shared: Arc<Owner>,
    id: u64,
    cancel: Cancel,
    prompt_tokens: usize,
    opens_thinking: bool,
    process: Process,
    /// Whether it has ended because this process was forked.
    forked: bool,
}

impl Scheduler {
    /// Creates a scheduler for replies of a model. This allocates the KV cache for all of them, and compiles kernels.
    ///
    /// # Errors
    /// [`Error::Argument`] for no sessions, a context of no tokens or no tokens at all, [`Error::Unsupported`] for a
    /// type of cache that cannot hold the model's latents; [`Error::OutOfMemory`] or [`Error::ContextTooLarge`] if the
    /// cache does not fit; any error from the device.
    pub fn new(model: &Model, options: &SchedulerOptions) -> Result<Self> {
        Self::new_with(model, options, &Cancel::default())
    }

    /// Like [`Scheduler::new`]. `cancel` stops it while kernels compile.
    ///
    /// # Errors
    /// The errors of [`Scheduler::new`], and [`Error::Cancelled`].
    pub fn new_with(model: &Model, options: &SchedulerOptions, cancel: &Cancel) -> Result<Self> {
        let (usual, sessions) = (model.cache(), options.sessions);
        let context = options.context.unwrap_or(usual.context).min(options.tokens.unwrap_or(usize::MAX));
        let cache = CacheShape { context, ty: options.cache.unwrap_or(usual.ty) };
        cache.check(model.config())?;
        let mut tokens = options.tokens.unwrap_or(sessions.saturating_mul(context));
        let pool_of = |model: &Model, tokens| -> Result<Pool> {
            let pool = Pool::new(model, sessions, cache, tokens)?;
            options.drafted_rows.into_iter().for_each(|rows| pool.set_drafted_rows(rows));
            Ok(pool)
        };
        let mut pool = loop {
            match pool_of(model, tokens) {
                Err(Error::OutOfMemory { .. } | Error::ContextTooLarge { .. } | Error::TooLarge { .. })
                    if options.tokens.is_none() && tokens > context =>
                {
                    tokens = (tokens / 2).max(context);
                }
                pool => break pool?,
            }
        };
        let compiles = options.compile_all.unwrap_or(!model.gpu().report().is_software());
        let other = if compiles { pool.compile(&mut || cancel.check())? } else { None };
        let model = other.unwrap_or_else(|| model.clone());
        if !pool.model().plans_as(&model) {
            drop(pool); // frees its memory first
            pool = pool_of(&model, tokens)?;
        }
        let engine = Engine::new(pool, options.disk.clone());
        let shared = Arc::new(Owner::new(Shared::new(engine, sessions, options.queue), model.gpu().process()));
        Ok(Self { model, shared, tenant: Tenant::default(), call_ids: options.call_ids })
    }

    /// The same scheduler for requests of a tenant, for several parties that share a model and do not trust each other.
    /// They take turns, and none of them learns from the cache what another has sent. A new scheduler is that of the
    /// default tenant.
    ///
    /// ```
    /// # fn main() -> wglm::Result<()> {
    /// # use wglm::{Gguf, Gpu, GpuOptions, LoadOptions, Model, Scheduler, SchedulerOptions};
    /// # let gpu = Gpu::open(&GpuOptions::default())?;
    /// # let model = Model::load(&Gguf::from_static(wglm::DEMO_MODEL)?, &gpu, &LoadOptions::default())?;
    /// use wglm::Tenant;
    ///
    /// let scheduler = Scheduler::new(&model, &SchedulerOptions { sessions: 1, ..SchedulerOptions::default() })?;
    /// let anna = scheduler.for_tenant(Tenant { turns: 1, cache: 1, ..Tenant::default() });
    /// let ben = scheduler.for_tenant(Tenant { turns: 2, cache: 2, ..Tenant::default() });
    /// assert_eq!(anna.state(), ben.state());
    /// # Ok(())
    /// # }
    /// ```
    pub fn for_tenant(&self, tenant: Tenant) -> Self {
        Self { tenant, ..self.clone() }
    }

    /// The model that it was created with. Its [verdict](Model::verdict) also lists the kernels that were replaced when
    /// the scheduler was created.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The context of each conversation in tokens.
    pub fn context(&self) -> usize {
        self.shared.context
    }

    /// Requests a reply to a conversation. Nothing is computed before an event of it is requested.
    ///
    /// # Errors
    /// The errors of [`Chat::send`](crate::Chat::send); [`Error::Argument`] or [`Error::Message`] if the reply cannot
    /// [continue](ChatState::continues) the last message; [`Error::Busy`] if too many requests wait.
    pub fn chat(&self, request: ChatState) -> Result<ScheduledReply> {
        let seed = request.options.sampling.seed;
        self.reply(&self.prepare(request)?, seed)
    }

    /// Renders the prompt of a conversation, once for any number of calls of [`reply`](Self::reply). Nothing is
    /// requested yet, so a prepared conversation takes no place in the queue.
    ///
    /// # Errors
    /// The errors of [`chat`](Self::chat), except for constraints that cannot be enforced, which [`reply`](Self::reply)
    /// reports.
    pub fn prepare(&self, mut request: ChatState) -> Result<PreparedChat> {
        request.options.check()?;
        self.model.gpu().check_process()?;
        self.shared.check_queue()?; // before the work on the prompt
        let begun = take_beginning(&mut request, &self.model, self.context())?;
        let maker = PromptMaker::new(&self.model, self.context(), &request, begun.as_ref());
        let ((prompt, parser), first) =
            maker.prepare(&request.messages, request.overflow, request.options.max_tokens)?;
        let ChatState { mut messages, options, .. } = request;
        let ids = CallIds::after(&messages, &[]).made_by(self.call_ids); // the dropped messages have ids as well
        let dropped = drop_before(&mut messages, first);
        Ok(PreparedChat { made: Arc::new(MadePrompt { prompt, parser, options, ids, dropped }) })
    }

    /// Returns the number of tokens of the prompt for a reply to a conversation, including those of the beginning of
    /// the reply if the conversation ends with [one](ChatState::continues). The conversation may be longer than the
    /// context: nothing is dropped.
    ///
    /// # Errors
    /// The errors of [`prepare`](Self::prepare) for messages and tools from which no prompt can be made.
    pub fn prompt_tokens(&self, mut request: ChatState) -> Result<usize> {
        let begun = take_beginning(&mut request, &self.model, usize::MAX)?;
        let maker = PromptMaker::new(&self.model, usize::MAX, &request, begun.as_ref());
        Ok(maker.render(&request.messages)?.0.len())
    }

    /// Requests a reply to a conversation that this scheduler [prepared](Self::prepare), with this seed instead of the
    /// one in the conversation's options. Nothing is computed before an event of it is requested.
    ///
    /// # Errors
    /// [`Error::Constraint`] for a constraint that cannot be enforced; [`Error::ContextFull`] for a conversation of
    /// another scheduler with a larger context; [`Error::Busy`] if too many requests wait.
    pub fn reply(&self, prepared: &PreparedChat, seed: Option<u64>) -> Result<ScheduledReply> {
        self.replied(prepared, seed, None)
    }

    /// Like [`reply`](Self::reply), with a `chooser` that takes part in the choice of tokens: see
    /// [`Reply::with_chooser`](crate::Reply::with_chooser). Such a reply takes steps of its own, between those that the
    /// others take together. The chooser is called on whichever thread does the work, and must not wait for an event of
    /// this scheduler; an error that it returns ends only this reply.
    ///
    /// # Errors
    /// See [`reply`](Self::reply).
    pub fn reply_with_chooser(
        &self,
        prepared: &PreparedChat,
        seed: Option<u64>,
        chooser: impl Chooser + Send + 'static,
    ) -> Result<ScheduledReply> {
        self.replied(prepared, seed, Some(Box::new(chooser)))
    }

    fn replied(
        &self,
        prepared: &PreparedChat,
        seed: Option<u64>,
        chooser: Option<Box<dyn Chooser + Send>>,
    ) -> Result<ScheduledReply> {
        let MadePrompt { prompt, parser, options, ids, dropped } = &*prepared.made;
        self.check_prompt(prompt)?;
        self.shared.check_queue()?; // before the constraint is compiled
        let mut options = options.clone();
        options.sampling.seed = seed;
        let mut task = GenerationTask::new(&self.model, prompt.clone(), Some(parser.clone()), options)?;
        chooser.into_iter().for_each(|chooser| task.set_chooser(chooser));
        if !dropped.is_empty() {
            task.push(Event::Dropped { messages: dropped.clone() });
        }
        self.submit(task, ids.clone(), prompt.len(), parser.is_thinking())
    }

    /// Requests what follows the tokens of a prompt, as text without thinking and calls. Nothing is computed before an
    /// event of it is requested.
    ///
    /// # Errors
    /// [`Error::Argument`] if an option is out of range or there are no tokens; [`Error::TokenOutOfRange`],
    /// [`Error::ContextFull`]; [`Error::Busy`] if too many requests wait.
    pub fn generate(&self, prompt: Vec<u32>, options: GenerateOptions) -> Result<ScheduledReply> {
        let needed = prompt.len();
        if needed == 0 {
            return Err(Error::argument("prompt", "at least one token", "none"));
        }
        self.check_prompt(&prompt)?;
        let task = GenerationTask::new(&self.model, prompt, None, options)?;
        self.submit(task, CallIds::default(), needed, false)
    }

    /// Checks that the model has the tokens of a prompt, that they fit the context, and that this process has the
    /// device.
    fn check_prompt(&self, prompt: &[u32]) -> Result<()> {
        self.model.gpu().check_process()?;
        let (vocab, context, needed) = (self.model.config().vocab, self.context(), prompt.len());
        if let Some(&token) = prompt.iter().find(|token| **token as usize >= vocab) {
            return Err(Error::TokenOutOfRange { token, vocab });
        }
        if needed > context {
            return Err(Error::ContextFull { needed, context });
        }
        Ok(())
    }

    fn submit(
        &self,
        task: GenerationTask<'static>,
        ids: CallIds,
        prompt_tokens: usize,
        opens_thinking: bool,
    ) -> Result<ScheduledReply> {
        let cancel = task.cancel();
        let tenant = self.tenant;
        let id = self.shared.submit(|id| Request { id, tenant, task, ids, waits_since: None })?;
        let (shared, process) = (self.shared.clone(), self.model.gpu().process());
        Ok(ScheduledReply { shared, id, cancel, prompt_tokens, opens_thinking, process, forked: false })
    }

    /// Stores what the conversations in all slots hold in [`SchedulerOptions::disk`], as far as it has no page of it,
    /// and waits until it is on disk. Replies continue meanwhile, on this thread if no other one generates them. The
    /// last drop of the scheduler and its replies stores everything too; a program that ends in another way calls this
    /// first. It does nothing in a waker, a chooser, or a process that was forked from the one with the scheduler.
    pub fn store(&self) {
        self.shared.store(false);
    }

    /// Drops the KV cache that this tenant has left in a slot, given by its place in [`SchedulerState::slots`], and
    /// returns the number of its tokens: 0 if the slot is empty or holds those of another tenant. `None` while a reply
    /// is generated in it or the conversation is being stored on disk, and in a waker or a chooser; it can be called
    /// again then.
    pub fn forget(&self, slot: usize) -> Option<usize> {
        let forgotten = self.shared.visit(|engine| engine.forget(slot, self.tenant.cache));
        self.shared.store_later(); // if the conversation in the slot takes longer to store than one visit
        forgotten.flatten()
    }

    /// Writes the KV cache that this tenant has left in a slot to a file, as
    /// [`Session::save_snapshot`](crate::Session::save_snapshot) does, and returns the number of its tokens. Only the
    /// user can read the file. Nothing is written, and 0 returned, if the slot is empty or holds those of another
    /// tenant. `None` while a reply is generated in it, and in a waker or a chooser. Other replies wait meanwhile.
    ///
    /// # Errors
    /// The errors of [`Session::save_snapshot`](crate::Session::save_snapshot).
    pub fn save_slot(&self, slot: usize, path: impl AsRef<Path>) -> Result<Option<usize>> {
        let saved = self.shared.visit(|engine| engine.save(slot, self.tenant.cache, path.as_ref()));
        saved.transpose().map(Option::flatten)
    }

    /// Replaces the contents of a slot, of any tenant, by the KV cache in a file that [`save_slot`](Self::save_slot)
    /// or [`Session::save_snapshot`](crate::Session::save_snapshot) has written, and returns the number of its tokens.
    /// The next request of this tenant that begins with them continues from there. `None` while a reply is generated in
    /// the slot or its conversation is being stored on disk, and in a waker or a chooser. Other replies wait meanwhile.
    ///
    /// # Errors
    /// [`Error::Argument`] for a slot that does not exist; [`Error::PoolFull`] if replies use the memory; the errors of
    /// [`Session::load_snapshot`](crate::Session::load_snapshot). If the file cannot be used or does not fit, the slot
    /// keeps its contents.
    pub fn load_slot(&self, slot: usize, path: impl AsRef<Path>) -> Result<Option<usize>> {
        let slots = self.state().slots.len();
        if slot >= slots {
            return Err(Error::argument("slot", format!("a number below {slots}"), slot.to_string()));
        }
        let loaded = self.shared.visit(|engine| engine.load(slot, self.tenant.cache, path.as_ref()));
        self.shared.store_later(); // if the conversation in the slot takes longer to store than one visit
        loaded.transpose().map(Option::flatten)
    }

    /// The state of its slots, its queue and its counters at this moment.
    pub fn state(&self) -> SchedulerState {
        self.shared.state()
    }
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler").field("state", &self.state()).finish_non_exhaustive()
    }
}

impl ScheduledReply {
    /// A handle that stops this reply from any thread.
    pub fn cancel(&self) -> Cancel {
        self.cancel.clone()
    }

    /// Lets `cancel` stop this reply, even if it was cancelled before this call.
    pub fn with_cancel(self, cancel: &Cancel) -> Self {
        self.cancel.join(cancel);
        self
    }

    /// The next event, if one is ready. This does not wait: `None` means that the reply has ended, and
    /// [`Poll::Pending`] that there is no event yet. From the first call on, the scheduler's thread generates the
    /// reply; the reply ends with [`Error::NoThread`] if the system refuses the thread.
    pub fn try_next(&mut self) -> Poll<Option<Result<Event>>> {
        self.poll(None)
    }

    /// Like [`try_next`](Self::try_next), and wakes the task of `context` when there is an event. The waker is called
    /// on the scheduler's thread, or on one that waits for an event. It may do anything but wait for an event of this
    /// scheduler, even drop the reply or the scheduler. If it panics, the replies continue.
    ///
    /// The last drop of the scheduler and its replies waits for the scheduler's thread, so a waker should not wait for
    /// a lock that the app holds meanwhile. If it does, that drop takes half a second, and the GPU's memory is released
    /// once the waker has returned.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Event>>> {
        self.poll(Some(context.waker()))
    }

    pub(crate) fn poll(&mut self, waker: Option<&Waker>) -> Poll<Option<Result<Event>>> {
        match self.ended_by_fork() {
            Some(ended) => Poll::Ready(ended),
            None => self.shared.poll(self.id, &self.cancel, waker),
        }
    }

    /// In a forked process the error, once, and then the end: the threads that generate exist only in the parent.
    fn ended_by_fork(&mut self) -> Option<Option<Result<Event>>> {
        if self.forked {
            return Some(None);
        }
        let error = self.process.check().err()?;
        self.forked = true;
        Some(Some(Err(error)))
    }

    /// The number of tokens of the prompt.
    pub fn prompt_tokens(&self) -> usize {
        self.prompt_tokens
    }

    /// Whether the prompt ends inside thinking, so that the reply begins with it.
    pub fn opens_thinking(&self) -> bool {
        self.opens_thinking
    }
}

impl Iterator for ScheduledReply {
    type Item = Result<Event>;

    /// The next event. Waits for it, and meanwhile generates for all replies unless another thread does.
    fn next(&mut self) -> Option<Self::Item> {
        self.ended_by_fork().unwrap_or_else(|| self.shared.next(self.id))
    }
}

impl std::fmt::Debug for ScheduledReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScheduledReply").field("prompt", &self.prompt_tokens).finish_non_exhaustive()
    }
}

impl Drop for ScheduledReply {
    fn drop(&mut self) {
        self.cancel.cancel();
        if self.process.check().is_ok() {
            self.shared.leave(self.id);
            self.shared.store_later();
        }
    }
}
