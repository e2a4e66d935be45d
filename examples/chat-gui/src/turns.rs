//! Frames and tokens take turns where both are computed on the CPU.
//!
//! A software driver works on what is submitted in the very call that submits it, and wgpu holds its locks meanwhile. A
//! frame takes such locks several times, to fill buffers, to submit and to present, and would wait each time for whatever
//! part of a token comes in between. So the worker waits before a submission until the frame that has begun is presented:
//! a frame then waits for one of them at most. A GPU works on its own, and nobody has to wait.
//!
//! That a frame is presented shows when the next one is begun, so in software these follow each other at once, and the
//! next one begins with a rest, which is the worker's time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wglm::Gpu;

/// From the beginning of a frame to that of the next one, while something moves.
pub const FRAME: Duration = Duration::from_millis(16);
/// The least rest between frames, lest slow ones leave no time for tokens.
const REST: Duration = Duration::from_millis(6);
/// The longest that a submission waits for a frame: the window may have been hidden in the middle of it, and then those
/// behind it need not wait.
const LONGEST: Duration = Duration::from_millis(500);
/// Between two looks whether the frame is over.
const LOOK: Duration = Duration::from_micros(200);

/// Whose turn it is. Clones share it.
#[derive(Clone)]
pub struct Turns {
    drawing: Arc<AtomicBool>,
    /// Dispatches that wglm had submitted when the frame that is being drawn began.
    before: Arc<AtomicU64>,
    gpu: Gpu,
    software: bool,
}

impl Turns {
    /// On the device of both.
    pub fn new(gpu: &Gpu) -> Self {
        let software = gpu.report().is_software();
        Self { drawing: Arc::default(), before: Arc::default(), gpu: gpu.clone(), software }
    }

    /// The window: the frame before, which was begun at `begun` while something moved, is over. Rests until it is time
    /// for another. Returns how many dispatches wglm submitted while the frame was drawn, each of which it may have
    /// waited for; none where the two do not take turns, or where the frame took so long that wglm went on without it.
    pub fn rest(&self, begun: Option<Instant>) -> Option<u64> {
        let during = self.gpu.work().dispatches - self.before.load(Ordering::Relaxed);
        let kept = self.drawing.swap(false, Ordering::AcqRel);
        if let Some(begun) = begun.filter(|_| self.software) {
            std::thread::sleep(FRAME.saturating_sub(begun.elapsed()).max(REST));
        }
        (self.software && kept).then_some(during)
    }

    /// The window: a frame begins.
    pub fn draw(&self) {
        self.drawing.store(true, Ordering::Release);
        self.before.store(self.gpu.work().dispatches, Ordering::Relaxed);
    }

    /// The window: how long after a frame to begin the next, while something moves.
    pub fn delay(&self) -> Duration {
        if self.software { Duration::ZERO } else { FRAME }
    }

    /// Whoever submits: lets the frame that is being drawn pass.
    pub fn pass(&self) {
        let since = Instant::now();
        while self.software && self.drawing.load(Ordering::Acquire) {
            if since.elapsed() > LONGEST {
                self.drawing.store(false, Ordering::Release);
            }
            std::thread::sleep(LOOK);
        }
    }
}
