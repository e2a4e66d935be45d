//! Makes frames and tokens take turns if both are computed on the CPU.
//!
//! A software driver does all work of a submission in the call that submits it, while wgpu holds its locks. A frame
//! takes these locks several times, to fill buffers, to submit and to present, and could wait for a part of a token
//! each time. So with such a driver wglm is paused from the beginning of a frame until it is presented (`surface.rs`),
//! and a frame waits for at most one submission. A GPU works in parallel, and nothing has to wait.
//!
//! With a software driver frames follow each other immediately, and each begins with a rest that leaves time for the
//! worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wglm::Gpu;

/// The time from the beginning of a frame to that of the next, while something moves.
pub const FRAME: Duration = Duration::from_millis(16);
/// The shortest rest between frames, so that slow frames leave time for tokens.
const REST: Duration = Duration::from_millis(6);

/// Decides whose turn it is. Clones share the state.
#[derive(Clone)]
pub struct Turns {
    shared: Arc<Shared>,
    gpu: Gpu,
    software: bool,
}

#[derive(Default)]
struct Shared {
    drawing: AtomicBool,
    /// The number of dispatches that wglm had submitted when the current frame began.
    before: AtomicU64,
    /// The number of dispatches that it submitted during the last frame.
    during: AtomicU64,
}

impl Turns {
    /// Turns on the device that the window and wglm share.
    pub fn new(gpu: &Gpu) -> Self {
        Self { shared: Arc::default(), gpu: gpu.clone(), software: gpu.report().is_software() }
    }

    /// Whether frames and tokens take turns.
    pub fn are_taken(&self) -> bool {
        self.software
    }

    /// Called by the window before a frame. Rests until it is time for it, if the previous one began at `begun` while
    /// something moved. Returns how many dispatches wglm submitted during the previous frame, each of which may have
    /// delayed it; `None` if the two do not take turns.
    pub fn rest(&self, begun: Option<Instant>) -> Option<u64> {
        if let Some(begun) = begun.filter(|_| self.software) {
            std::thread::sleep(FRAME.saturating_sub(begun.elapsed()).max(REST));
        }
        self.software.then(|| self.shared.during.load(Ordering::Relaxed))
    }

    /// Called by the window when a frame begins.
    pub fn draw(&self) {
        self.shared.before.store(self.gpu.work().dispatches, Ordering::Relaxed);
        self.shared.drawing.store(true, Ordering::Relaxed);
    }

    /// Called when the frame is presented, if there is one.
    pub fn drawn(&self) {
        if self.shared.drawing.swap(false, Ordering::Relaxed) {
            let during = self.gpu.work().dispatches - self.shared.before.load(Ordering::Relaxed);
            self.shared.during.store(during, Ordering::Relaxed);
        }
    }

    /// The bytes that models and sessions have on the device.
    pub fn memory(&self) -> u64 {
        self.gpu.memory().held
    }

    /// How long after a frame the window begins the next one while something moves.
    pub fn delay(&self) -> Duration {
        if self.software { Duration::ZERO } else { FRAME }
    }
}
