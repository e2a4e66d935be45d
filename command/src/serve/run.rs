//! Starts and ends the server.

use super::access::Access;
use super::client::RequestCounts;
use super::compiling::Compiling;
use super::connection::Serving;
use super::keys::keys;
use super::listen::{ConnectionLimiter, accept, listen};
use super::loader::Loader;
use super::memory::{self, Budgets};
use super::openai::KeptResponses;
use super::others::Others;
use super::pools::{self, Pools};
use super::ready::Progress;
use super::reload::Reloading;
use super::reply_permits::ReplyPermits;
use super::router::router;
use super::server::{Counts, Limits, LoadedModel, Server, blocking};
use super::unread::Budget;
use crate::args::{ServeArgs, Switch};
use crate::interrupts::{self, INTERRUPTED, OnInterrupt};
use crate::{failure, fits, model, output, terminal};
use anyhow::Context;
use std::ffi::OsStr;
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, mpsc, watch};
use wglm_engine::{DiskCache, Gguf, Model};

/// How long cancelled replies may take to end.
const END: Duration = Duration::from_secs(3);

/// Threads for short work, in addition to those of replies and pools.
const SPARE: usize = 16;

/// Threads that serve connections. Blocking work has threads of its own.
const THREADS: usize = 2;

pub fn serve(args: ServeArgs) -> anyhow::Result<ExitCode> {
    memory::configure_allocator();
    // Ctrl-C during the load ends it: `model::load` asks `interrupts::asked`.
    let cancel = interrupts::begin(OnInterrupt::CancelWork);
    let file = model::open(args.model.file.model.as_deref())?;
    let keys = keys(&args.api_key, args.api_key_file.as_deref())?;
    let mut access = Access { keys, origins: args.cors.clone(), names: None, share_cache: args.share_cache };
    let disk = args.cache_dir.as_ref().map(|folder| DiskCache::open(folder, args.cache_disk)).transpose()?;
    if let Some(folder) = &args.slot_save_path {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {} (--slot-save-path)", folder.display()))?;
    }
    let loader = Arc::new(Loader::new(&args, disk));
    loader.defaults(&file)?; // an error in them is reported before anybody can connect
    let server = Arc::new(server(&args, &file, loader.clone())?);
    let runtime = runtime(server.limits.replies)?;
    let listener = runtime.block_on(async { listen(&args.host, args.port) })?;
    let address = listener.local_addr().context("the address of the server")?;
    access.names = names(&args, address.ip());
    output::lines([format!("listening at http://{address}")])?;
    if !address.ip().is_loopback() && access.keys.is_empty() {
        output::note(format_args!("note: anybody who can reach {address} can use the model; --api-key sets a key"));
    }
    let (close, closing) = watch::channel(false);
    let (open, opened) = mpsc::channel(1);
    let router = router(server.clone(), access, !args.no_page);
    let (limiter, serving) =
        (ConnectionLimiter::new(args.max_connections, share(&args)), Serving { router, io: server.limits.io });
    runtime.spawn(accept(listener, limiter, serving, closing, open));
    let (presses, pressed) = mpsc::channel(4);
    runtime.spawn(signals(presses, cancel));
    if server.others.are_allowed() {
        runtime.spawn(expiry(server.clone()));
    }
    let served = loader.load(&file, &server.name).map(|loaded| {
        begin(&args, &file, &server, loaded);
        runtime.block_on(end(&server, pressed, close, opened, Duration::from_secs(args.grace.into())))
    });
    runtime.shutdown_timeout(END);
    served
}

/// The server, whose model is still to be loaded.
fn server(args: &ServeArgs, file: &Gguf, loader: Arc<Loader>) -> anyhow::Result<Server> {
    let (body, replies) = (args.max_body << 10, args.parallel.saturating_add(args.queue));
    let memory = Budgets::new(args.max_memory, args.max_connections, body).map_err(anyhow::Error::msg)?;
    let name = args.alias.clone().unwrap_or_else(|| named(file, Path::file_stem, "fable-10m"));
    let keep = Duration::from_secs(args.keep_alive);
    let others = Others::new(args.models_max - 1, keep, loader.clone(), (name.clone(), file.path()));
    let disk = loader.disk();
    let loaded = Reloading::new(loader.of_file(file.clone(), name.clone()));
    Ok(Server {
        loaded,
        others,
        disk,
        slot_files: args.slot_save_path.clone(),
        slot_actions: Arc::new(Semaphore::new(1)),
        name,
        file_name: named(file, Path::file_name, "fable-10m-q4_0.gguf"),
        overflow: args.overflow,
        reasoning: args.reasoning == Switch::On,
        json_closed: args.json_closed,
        started: SystemTime::now(),
        counts: Counts::default(),
        compiling: Compiling::new(share(args) > 0),
        permits: ReplyPermits::new(replies),
        pools: Pools::new(replies, share(args) > 0),
        memory,
        progress: Progress::default(),
        responses: Arc::new(KeptResponses::new(args.keep_responses << 20)),
        unread: Budget::default(),
        request_counts: RequestCounts::default(),
        limits: Limits {
            body,
            messages: args.max_messages,
            choices: args.max_choices.min(replies),
            replies,
            queue: args.queue,
            requests: share(args),
            reply: Duration::from_secs(args.timeout),
            io: Duration::from_secs(args.io_timeout),
            silence: Duration::from_millis(args.silence),
        },
    })
}

/// Answers requests with a model from now on, and reports it.
fn begin(args: &ServeArgs, file: &Gguf, server: &Server, loaded: LoadedModel) {
    let slots = output::count(args.parallel, "conversation");
    let context = output::count(loaded.scheduler.context(), "token");
    let needs = needs(args, file, &loaded.model);
    server.loaded.set(loaded);
    output::note(format_args!("{} is ready: up to {slots} at a time, {context} of context each", server.name));
    needs.into_iter().for_each(|line| output::note(format_args!("{line}")));
}

/// The memory that the model needs, as other commands report it, and that of further conversations.
fn needs(args: &ServeArgs, file: &Gguf, model: &Model) -> Option<String> {
    let judged = fits::judged(file, &args.model.file, args.sampling.speculate, model.gpu());
    let estimate = judged.estimate?;
    let needed = output::bytes(estimate.most());
    let tokens = args.kv_tokens.unwrap_or(estimate.shape.context.saturating_mul(args.parallel));
    let other = tokens.saturating_sub(estimate.shape.context) as u64;
    let more = output::bytes(other.saturating_mul(estimate.cache / estimate.shape.context.max(1) as u64));
    let others =
        if other == 0 { String::new() } else { format!(", and the KV caches of the others up to {more} more") };
    Some(format!("GPU memory: the model and one conversation need {needed}{others}"))
}

/// A part of the name of a file, without the folder, which clients need not know; `demonstration` for the built-in
/// model, which has no file.
fn named(file: &Gguf, part: fn(&Path) -> Option<&OsStr>, demonstration: &str) -> String {
    let name = file.path().and_then(part);
    name.map_or_else(|| demonstration.into(), |name| name.to_string_lossy().into_owned())
}

/// The maximum number of connections from one address, and of simultaneous requests with one key; 0 for no limit. The
/// default leaves half of the connections to others, and a single user needs fewer than 256.
fn share(args: &ServeArgs) -> usize {
    args.max_per_client.unwrap_or(args.max_connections.div_ceil(2))
}

/// The host names of a server that listens at an address: at a loopback address those of this machine, elsewhere any,
/// unless they are given.
fn names(args: &ServeArgs, address: IpAddr) -> Option<Vec<String>> {
    let checked = address.is_loopback() || !args.allow_host.is_empty();
    checked.then(|| {
        let given = [&args.host].into_iter().chain(&args.allow_host).cloned();
        ["localhost".to_owned()].into_iter().chain(given).collect()
    })
}

fn runtime(replies: usize) -> anyhow::Result<Runtime> {
    // One for each reply and for each thread of a pool, so that none waits for another, and some for other blocking
    // work.
    let threads = replies.saturating_add(pools::THREADS + SPARE);
    let runtime =
        Builder::new_multi_thread().worker_threads(THREADS).max_blocking_threads(threads).enable_all().build();
    runtime.context("cannot start the threads of the server")
}

/// A signal. If it was ignored when the program started, it stays ignored.
#[cfg(unix)]
struct Listened(Option<tokio::signal::unix::Signal>);

#[cfg(unix)]
impl Listened {
    fn to(kind: tokio::signal::unix::SignalKind) -> Self {
        let heeded = !interrupts::is_ignored(kind.as_raw_value());
        Self(heeded.then(|| tokio::signal::unix::signal(kind).ok()).flatten())
    }

    async fn next(&mut self) {
        match &mut self.0 {
            Some(signal) => drop(signal.recv().await),
            None => std::future::pending().await,
        }
    }
}

/// Unloads the models that have had no requests for too long.
async fn expiry(server: Arc<Server>) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let of = server.clone();
        let _ = blocking(move || of.others.expire()).await; // a panic there must not end this task
    }
}

/// Forwards each Ctrl-C and each SIGTERM. The third one ends the process at once.
async fn signals(presses: mpsc::Sender<()>, load: wglm_engine::Cancel) {
    #[cfg(unix)]
    let [mut interrupt, mut term] = {
        use tokio::signal::unix::SignalKind;
        [SignalKind::interrupt(), SignalKind::terminate()].map(Listened::to)
    };
    for count in 1.. {
        #[cfg(unix)]
        tokio::select! {
            () = interrupt.next() => {}
            () = term.next() => {}
        }
        #[cfg(not(unix))]
        if tokio::signal::ctrl_c().await.is_err() {
            return;
        }
        if count == 3 {
            terminal::leave(INTERRUPTED);
        }
        load.cancel();
        // During the load nobody receives this.
        let _ = presses.try_send(());
    }
}

/// Serves until the first signal. Running replies then have until `grace` is over or the second signal arrives. What
/// their conversations leave in the KV cache is stored.
async fn end(
    server: &Server,
    mut pressed: mpsc::Receiver<()>,
    close: watch::Sender<bool>,
    mut opened: mpsc::Receiver<()>,
    grace: Duration,
) -> ExitCode {
    pressed.recv().await;
    server.permits.close();
    close.send_replace(true);
    let running = server.permits.taken();
    if running > 0 {
        let replies = if running == 1 { "reply" } else { "replies" };
        output::note(format_args!(
            "waiting up to {} s for {running} {replies} to end; Ctrl-C cancels",
            grace.as_secs()
        ));
    }
    // The channel closes when no connection is left.
    let ended = tokio::select! {
        _ = opened.recv() => true,
        _ = pressed.recv() => false,
        () = tokio::time::sleep(grace) => false,
    };
    if !ended {
        server.permits.cancel_all();
        // The clients get the reason.
        let left = tokio::time::timeout(END, opened.recv()).await;
        if let Err(elapsed) = left {
            failure::tell(&anyhow::anyhow!("some replies did not end: {elapsed}"));
            return INTERRUPTED.into(); // the replies hold the caches that would be stored
        }
    }
    let models = server.loaded.peek().into_iter().chain(server.others.loaded());
    models.for_each(|loaded| loaded.scheduler.store());
    if ended { ExitCode::SUCCESS } else { INTERRUPTED.into() }
}
