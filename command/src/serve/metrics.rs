//! Metrics for Prometheus, in its text format. They contain only numbers, and nothing that clients sent.

use super::memory::Budgets;
use super::server::{Server, seconds};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wglm_engine::DiskCacheState;

/// The tokens of a page of the cache.
const PAGE: u64 = wglm_engine::instruments::PAGE as u64;

/// The metrics so far.
#[derive(Default)]
struct Text(String);

impl Text {
    /// Adds a number that only grows.
    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.add("counter", name, help, value);
    }

    fn gauge(&mut self, name: &str, help: &str, value: usize) {
        self.add("gauge", name, help, value as u64);
    }

    fn add(&mut self, kind: &str, name: &str, help: &str, value: u64) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP wglm_{name} {help}\n# TYPE wglm_{name} {kind}\nwglm_{name} {value}");
    }
}

pub async fn metrics(State(server): State<Arc<Server>>) -> Response {
    let mut text = Text::default();
    of_requests(&server, &mut text);
    of_memory(&server, &mut text);
    of_model(&server, &mut text);
    server.disk.iter().for_each(|disk| of_disk(disk.state(), &mut text));
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text.0).into_response()
}

fn of_requests(server: &Server, to: &mut Text) {
    let (counts, compiled) = (&server.counts, &server.compiling.counts);
    let started = "When the server was started, in seconds since 1970.";
    to.gauge("start_time_seconds", started, seconds(server.started) as usize);
    for (name, help, count) in [
        ("http_requests_total", "Requests of any kind.", &counts.requests),
        ("requests_refused_total", "Requests that were refused because the queue was full.", &counts.refused),
        ("clients_gone_total", "Requests whose client disconnected before the end.", &counts.cancelled),
        ("model_reloads_total", "Reloads after a lost GPU.", &counts.reloads),
        ("schema_processes_total", "Processes that compiled schemas.", &compiled.started),
        ("schema_limits_total", "Processes that reached a limit while compiling schemas.", &compiled.ended),
        ("schemas_known_total", "Requests whose schemas were in the cache.", &compiled.known),
    ] {
        to.counter(name, help, count.load(Ordering::Relaxed));
    }
    to.gauge("replies", "Replies that are running or waiting.", server.permits.taken());
}

fn of_memory(server: &Server, to: &mut Text) {
    let Budgets { requests, bodies } = &server.memory;
    let ((reading, to_read), (tools, waiting)) = (server.pools.prompts.state(), server.pools.tools.state());
    to.gauge("memory_bytes", "Memory for requests.", requests.total());
    to.gauge("memory_free_bytes", "Memory for requests that is free.", requests.free());
    to.gauge("body_memory_bytes", "Memory for bodies.", bodies.total());
    to.gauge("body_memory_free_bytes", "Memory for bodies that is free.", bodies.free());
    to.gauge("prompts_processing", "Requests whose prompts are being made.", reading);
    to.gauge("prompts_deferred", "Requests that wait for their prompts to be made.", to_read);
    to.gauge("tools_processing", "Requests without a reply, such as /tokenize, that are being answered.", tools);
    to.gauge("tools_deferred", "Requests without a reply that are waiting.", waiting);
}

fn of_disk(state: DiskCacheState, to: &mut Text) {
    to.gauge("disk_cache_bytes", "Bytes of the cache on disk.", state.bytes as usize);
    to.gauge("disk_cache_limit_bytes", "Maximum size of the disk cache in bytes.", state.most_bytes as usize);
    for (name, help, count) in [
        ("disk_cache_read_tokens_total", "Tokens whose KV rows were read from disk.", state.read * PAGE),
        ("disk_cache_written_tokens_total", "Tokens whose KV rows were written to disk.", state.written * PAGE),
        (
            "disk_cache_dropped_tokens_total",
            "Tokens that were not stored: the disk is too slow or too small.",
            state.dropped * PAGE,
        ),
        (
            "disk_cache_removed_tokens_total",
            "Tokens that were removed from disk to make room for others.",
            state.removed * PAGE,
        ),
        ("disk_cache_damaged_total", "Damaged files of the cache on disk.", state.damaged),
        (
            "disk_cache_failures_total",
            "Failures of the disk cache, such as files that could not be read or written.",
            state.failures,
        ),
    ] {
        to.counter(name, help, count);
    }
}

fn of_model(server: &Server, to: &mut Text) {
    let loaded = server.loaded.peek();
    to.gauge("model_loaded", "Whether the model is loaded.", loaded.is_ok().into());
    let Ok(loaded) = loaded else { return };
    let state = loaded.scheduler.state();
    let (counts, slots) = (state.counts, &state.slots);
    let busy = slots.iter().filter(|slot| slot.busy).count();
    to.gauge("requests_processing", "Replies that are being generated.", busy);
    to.gauge("requests_deferred", "Replies that wait for their turn.", state.waiting);
    to.gauge("kv_cache_tokens", "Tokens in the KV caches of all slots.", slots.iter().map(|slot| slot.tokens).sum());
    to.counter("replies_total", "Replies, and texts of embeddings, that were started.", counts.requests);
    to.counter("prompt_tokens_total", "Tokens of prompts that were computed.", counts.prompt_tokens);
    to.counter("cached_tokens_total", "Tokens of prompts that were in the cache.", counts.cached_tokens);
    to.counter("tokens_predicted_total", "Tokens that were generated.", counts.generated_tokens);
}
