//! Metrics for Prometheus, in its text format. They have numbers only, and nothing that clients sent.

use super::memory::Budgets;
use super::server::{Server, seconds};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A metric: its name, whether it is a counter, its help text and its value.
type Metric = (&'static str, bool, &'static str, u64);

pub async fn metrics(State(server): State<Arc<Server>>) -> Response {
    let (counts, compiled) = (&server.counts, &server.compiling.counts);
    let mut figures: Vec<Metric> = vec![
        ("start_time_seconds", false, "When the server was started, in seconds since 1970.", seconds(server.started)),
        ("http_requests_total", true, "Requests of any kind.", counts.requests.load(Ordering::Relaxed)),
        (
            "requests_refused_total",
            true,
            "Requests that were refused because the queue was full.",
            counts.refused.load(Ordering::Relaxed),
        ),
        (
            "clients_gone_total",
            true,
            "Requests whose client disconnected before the end.",
            counts.cancelled.load(Ordering::Relaxed),
        ),
        ("model_reloads_total", true, "Reloads after a lost GPU.", counts.reloads.load(Ordering::Relaxed)),
        ("schema_processes_total", true, "Processes that compiled schemas.", compiled.started.load(Ordering::Relaxed)),
        (
            "schema_limits_total",
            true,
            "Processes that reached a limit while compiling schemas.",
            compiled.ended.load(Ordering::Relaxed),
        ),
        (
            "schemas_known_total",
            true,
            "Requests whose schemas were in the cache.",
            compiled.known.load(Ordering::Relaxed),
        ),
        ("replies", false, "Replies that are running or waiting.", server.places.taken() as u64),
    ];
    let Budgets { requests, bodies } = &server.memory;
    let ((reading, to_read), (tools, waiting)) = (server.pools.prompts.state(), server.pools.tools.state());
    figures.extend([
        ("memory_bytes", false, "Memory for requests.", requests.total() as u64),
        ("memory_free_bytes", false, "Memory for requests that is free.", requests.free() as u64),
        ("body_memory_bytes", false, "Memory for bodies.", bodies.total() as u64),
        ("body_memory_free_bytes", false, "Memory for bodies that is free.", bodies.free() as u64),
        ("prompts_processing", false, "Requests whose prompts are being made.", reading as u64),
        ("prompts_deferred", false, "Requests that wait for their prompts to be made.", to_read as u64),
        (
            "tools_processing",
            false,
            "Requests without a reply, such as /tokenize, that are being answered.",
            tools as u64,
        ),
        ("tools_deferred", false, "Requests without a reply that are waiting.", waiting as u64),
    ]);
    let loaded = server.loaded.peek();
    figures.push(("model_loaded", false, "Whether the model is loaded.", u64::from(loaded.is_ok())));
    if let Ok(loaded) = loaded {
        let state = loaded.scheduler.state();
        let busy = state.slots.iter().filter(|slot| slot.busy).count();
        let held: usize = state.slots.iter().map(|slot| slot.tokens).sum();
        let counts = state.counts;
        figures.extend([
            ("requests_processing", false, "Replies that are being generated.", busy as u64),
            ("requests_deferred", false, "Replies that wait for their turn.", state.waiting as u64),
            ("kv_cache_tokens", false, "Tokens in the KV caches of all slots.", held as u64),
            ("replies_total", true, "Replies that were started.", counts.requests),
            ("prompt_tokens_total", true, "Tokens of prompts that were computed.", counts.prompt_tokens),
            ("cached_tokens_total", true, "Tokens of prompts that were in the cache.", counts.cached_tokens),
            ("tokens_predicted_total", true, "Tokens that were generated.", counts.generated_tokens),
        ]);
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text(&figures)).into_response()
}

fn text(figures: &[Metric]) -> String {
    figures.iter().fold(String::new(), |mut text, (name, grows, help, value)| {
        let kind = if *grows { "counter" } else { "gauge" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP wglm_{name} {help}\n# TYPE wglm_{name} {kind}\nwglm_{name} {value}");
        text
    })
}
