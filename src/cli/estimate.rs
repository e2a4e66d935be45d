//! How fast a plan would be on a GPU that is known on paper only.
//!
//! The steps of a token wait for one another, so their times add up. A step takes what a dispatch takes, and then as
//! long as its bytes need at the bandwidth that a copy reaches:
//!
//! > token = Σ over steps (dispatch + bytes / (bandwidth · [`REACHED_BY_A_COPY`]))
//!
//! That is a bound from above on tokens a second: it knows nothing of barriers, of sums, of loads that wait, of
//! arithmetic. How far a kernel stays below it is not known before it runs. On an H100 wglm is at [`REACHED_ON_H100`]
//! of it (docs/metal.md has the figures), so a second figure says what it would be with that share.

use super::hardware::Hardware;
use super::table::{Column, head, row};
use serde::Serialize;
use wglm::plan::Plan;

/// Of a GPU's stated bandwidth, what `wglm bench` finds when a kernel copies a buffer: 2.90 of 3.35 TB/s on an H100.
const REACHED_BY_A_COPY: f64 = 0.87;
/// Of the tokens a second predicted for an H100, those measured on the f32 path: 0.48 at depth 0, 0.44 at 4096, 0.43 at
/// 32768.
const REACHED_ON_H100: f64 = 0.45;
/// Tokens in the cache.
const DEPTHS: [u64; 3] = [0, 4096, 32768];

/// A token of a plan on a GPU.
#[derive(Serialize)]
pub struct Estimate {
    pub device: &'static str,
    pub depth: u64,
    /// Bytes it moves.
    pub bytes: u64,
    /// What its dispatches and its bytes take.
    pub dispatch_seconds: f64,
    pub memory_seconds: f64,
    /// At most, and were it as far below that as on an H100.
    pub tokens_per_second_at_most: f64,
    pub tokens_per_second_as_on_h100: f64,
}

/// A token at every depth.
pub fn estimates(plan: &Plan, hardware: &Hardware) -> [Estimate; 3] {
    DEPTHS.map(|depth| estimate(plan, hardware, depth))
}

fn estimate(plan: &Plan, hardware: &Hardware, depth: u64) -> Estimate {
    let bytes = plan.cost().bytes(depth + 1);
    let dispatch_seconds = plan.steps.len() as f64 * hardware.dispatch;
    let memory_seconds = bytes as f64 / (hardware.bandwidth * REACHED_BY_A_COPY);
    let at_most = 1.0 / (dispatch_seconds + memory_seconds);
    Estimate {
        device: hardware.name,
        depth,
        bytes,
        dispatch_seconds,
        memory_seconds,
        tokens_per_second_at_most: at_most,
        tokens_per_second_as_on_h100: at_most * REACHED_ON_H100,
    }
}

const COLUMNS: [Column; 6] = [
    Column { title: "device", width: 9, right: false },
    Column { title: "GB/s", width: 6, right: true },
    Column { title: "us a dispatch", width: 13, right: true },
    Column { title: "depth 0", width: 12, right: true },
    Column { title: "depth 4096", width: 12, right: true },
    Column { title: "depth 32768", width: 12, right: true },
];

/// A table of tokens a second, a row a GPU, and what it means.
pub fn table<'a>(plan: &Plan, hardware: impl Iterator<Item = &'a Hardware>) -> Vec<String> {
    let mut lines = vec![String::new()];
    lines.extend(head(&COLUMNS));
    lines.extend(hardware.map(|one| row(&COLUMNS, &cells(plan, one))));
    lines.push(String::new());
    lines.push("predicted, not measured: tokens a second at most, and were it as far below that as on an H100".into());
    lines
}

fn cells(plan: &Plan, hardware: &Hardware) -> [String; 6] {
    let [near, mid, far] = estimates(plan, hardware).map(|estimate| {
        let Estimate { tokens_per_second_at_most: most, tokens_per_second_as_on_h100: less, .. } = estimate;
        let digits = usize::from(most < 100.0);
        format!("{most:.digits$}, {less:.digits$}")
    });
    let [bandwidth, dispatch] = [hardware.bandwidth / 1e9, hardware.dispatch * 1e6];
    [hardware.name.into(), format!("{bandwidth:.0}"), format!("{dispatch:.1}"), near, mid, far]
}
