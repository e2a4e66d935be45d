//! Predicts the speed of a plan on a GPU from published specifications.
//!
//! The steps of a token wait for one another, so their times add up. The time of a step is that of an empty dispatch,
//! plus the time to move its bytes at the bandwidth that a copy reaches or the time for its operations, whichever is
//! longer:
//!
//! > token = Σ over steps (dispatch + max(bytes / (bandwidth · [`REACHED_BY_A_COPY`]), operations / rate))
//!
//! This gives an upper bound on tokens per second. It ignores barriers, reductions, the latency of loads and the
//! decoding of weights. How far a kernel stays below the bound is unknown until it runs. The best other programs reach
//! [`REACHED_BY_OTHERS`] of it on Macs (docs/metal.md has the figures), so the table also shows the range that this
//! share would give.

use super::hardware::Hardware;
use super::table::{Column, head, row};
use serde::Serialize;
use wglm_engine::instruments::{Cost, Plan};

/// The share of a GPU's stated bandwidth that `wglm bench` measures for a kernel that copies a buffer: 2.90 of 3.35
/// TB/s on an H100.
const REACHED_BY_A_COPY: f64 = 0.87;
/// The measured tokens per second of other programs on Macs, as a range of shares of this prediction.
const REACHED_BY_OTHERS: [f64; 2] = [0.4, 0.7];
/// The numbers of tokens in the cache for which there is a prediction.
const DEPTHS: [u64; 3] = [0, 4096, 32768];

/// The prediction for one generated token on a GPU.
#[derive(Serialize)]
pub struct Prediction {
    pub device: &'static str,
    pub depth: u64,
    /// The bytes that the token reads and writes.
    pub bytes: u64,
    /// The operations of its matrix products and of attention.
    pub operations: u64,
    /// The time for empty dispatches, and the time for bytes and operations.
    pub dispatch_seconds: f64,
    pub work_seconds: f64,
    /// The upper bound, and the range that other programs reach.
    pub tokens_per_second_at_most: f64,
    pub tokens_per_second_of_others: [f64; 2],
}

pub fn predictions(plan: &Plan, hardware: &Hardware) -> [Prediction; 3] {
    DEPTHS.map(|depth| prediction(plan, hardware, depth))
}

fn prediction(plan: &Plan, hardware: &Hardware, depth: u64) -> Prediction {
    let cached = depth + 1;
    let cost = plan.cost();
    let seconds = |cost: &Cost| {
        let memory = cost.bytes(cached) as f64 / (hardware.bandwidth * REACHED_BY_A_COPY);
        memory.max(cost.operations(cached) as f64 / hardware.operations)
    };
    let dispatch_seconds = plan.steps.len() as f64 * hardware.dispatch;
    let work_seconds = plan.steps.iter().map(|step| seconds(&step.cost)).sum();
    let at_most = 1.0 / (dispatch_seconds + work_seconds);
    Prediction {
        device: hardware.name,
        depth,
        bytes: cost.bytes(cached),
        operations: cost.operations(cached),
        dispatch_seconds,
        work_seconds,
        tokens_per_second_at_most: at_most,
        tokens_per_second_of_others: REACHED_BY_OTHERS.map(|share| share * at_most),
    }
}

const COLUMNS: [Column; 7] = [
    Column { title: "device", width: 10, right: false },
    Column { title: "GB/s", width: 6, right: true },
    Column { title: "TFLOP/s", width: 7, right: true },
    Column { title: "us/dispatch", width: 13, right: true },
    Column { title: "depth 0", width: 15, right: true },
    Column { title: "depth 4096", width: 15, right: true },
    Column { title: "depth 32768", width: 15, right: true },
];

/// A table of tokens per second with a row for each GPU, and a line that explains it.
pub fn table(predictions: &[(&Hardware, [Prediction; 3])]) -> Vec<String> {
    let mut lines = vec![String::new()];
    lines.extend(head(&COLUMNS));
    lines.extend(predictions.iter().map(|(hardware, predictions)| row(&COLUMNS, &cells(hardware, predictions))));
    lines.push(String::new());
    lines.push(
        "predicted, not measured: an upper bound in tokens/s, and the 0.4 to 0.7 of it that other programs reach on Macs"
            .into(),
    );
    lines
}

fn cells(hardware: &Hardware, predictions: &[Prediction; 3]) -> [String; 7] {
    let [near, mid, far] = predictions.each_ref().map(|prediction| {
        let (most, [low, high]) = (prediction.tokens_per_second_at_most, prediction.tokens_per_second_of_others);
        let digits = usize::from(most < 100.0);
        format!("{most:.digits$}, {low:.0}-{high:.0}")
    });
    let bandwidth = format!("{:.0}", hardware.bandwidth / 1e9);
    let [operations, dispatch] = [hardware.operations / 1e12, hardware.dispatch * 1e6].map(|rate| format!("{rate:.1}"));
    [hardware.name.into(), bandwidth, operations, dispatch, near, mid, far]
}
