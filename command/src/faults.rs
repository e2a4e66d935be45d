//! Faults for tests, only in debug builds: `WGLM_DROP_WORK=N` makes the first device of the process drop all
//! submissions from the Nth after the load on, and with `WGLM_DROP_WORK=load` it drops all from the beginning of the
//! load on. Metal does that after an error, and reports nothing. The next device works.
//!
//! With `WGLM_COMPILE_FAULT`, the process that compiles a schema uses up `memory`, `time` or `stack`, or waits, as the
//! schema's `$comment` says.

#[cfg(feature = "serve")]
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use wglm_engine::Gpu;

/// Whether a device has had the fault.
static SPENT: AtomicBool = AtomicBool::new(false);

fn asked() -> Option<String> {
    let may_ask = cfg!(debug_assertions) && !SPENT.load(Ordering::Relaxed);
    may_ask.then(|| std::env::var("WGLM_DROP_WORK").ok()).flatten()
}

/// For the process that compiles schemas.
#[cfg(feature = "serve")]
pub fn while_compiling(schema: Option<&Value>) {
    if !cfg!(debug_assertions) || std::env::var_os("WGLM_COMPILE_FAULT").is_none() {
        return;
    }
    match schema.and_then(|schema| schema.get("$comment")?.as_str()) {
        Some("memory") => {
            let mut taken = Vec::new();
            loop {
                taken.push(vec![1u8; 1 << 20]);
            }
        }
        Some("time") => loop {
            std::hint::spin_loop();
        },
        Some("stack") => drop(deeper(&[0; 1024])),
        Some("wait") => std::thread::sleep(std::time::Duration::from_secs(600)),
        _ => {}
    }
}

#[cfg(feature = "serve")]
#[allow(unconditional_recursion, reason = "an overflow of the stack is the fault")]
fn deeper(above: &[u8; 1024]) -> u8 {
    let here = std::hint::black_box(*above);
    deeper(&here).wrapping_add(here[0])
}

/// For the device of a model that is about to be loaded.
pub fn during_load(gpu: &Gpu) {
    if asked().is_some_and(|asked| asked == "load") {
        SPENT.store(true, Ordering::Relaxed);
        gpu.drop_work(true);
    }
}

/// For the device of a model that was loaded.
pub fn after_load(gpu: &Gpu) {
    let Some(first) = asked().and_then(|asked| asked.parse::<u64>().ok()) else { return };
    SPENT.store(true, Ordering::Relaxed);
    let (count, device) = (AtomicU64::new(0), gpu.clone());
    gpu.before_submissions(move || {
        device.drop_work(count.fetch_add(1, Ordering::Relaxed) + 1 >= first);
    });
}
