//! Makes frames and tokens take turns if both are computed on the CPU.
//!
//! A software driver does all work of a submission in the very call that submits it, while wgpu holds its locks. A
//! frame takes such locks several times, to fill buffers, to submit and to present, and would each time wait for a part
//! of a token that came in between. Before every submission the worker therefore waits until the frame that has begun
//! is presented, so that a frame waits for at most one submission. A GPU works in parallel, and nothing has to wait.
//!
//! That a frame was presented is only known when the next one begins. With a software driver frames therefore follow
//! each other at once, and each begins with a pause that is the worker's time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wglm::Gpu;

/// The time from the beginning of a frame to that of the next, while something moves.
pub const FRAME: Duration = Duration::from_millis(16);
/// The shortest pause between frames, so that slow frames leave time for tokens.
const REST: Duration = Duration::from_millis(6);
/// The longest time that a submission waits for a frame. The window may have been hidden in the middle of a frame, in
/// which case submissions need not wait any longer.
const LONGEST: Duration = Duration::from_millis(500);
/// The interval at which a submission checks whether the frame has ended.
const LOOK: Duration = Duration::from_micros(200);

/// Decides whose turn it is. Clones share the state.
#[derive(Clone)]
pub struct Turns {
    drawing: Arc<AtomicBool>,
    /// The number of dispatches that wglm had submitted when the current frame began.
    before: Arc<AtomicU64>,
    gpu: Gpu,
    software: bool,
}

impl Turns {
    /// Turns on the device that the window and wglm share.
    pub fn new(gpu: &Gpu) -> Self {
        let software = gpu.report().is_software();
        Self { drawing: Arc::default(), before: Arc::default(), gpu: gpu.clone(), software }
    }

    /// Called by the window when the previous frame, which began at `begun` while something moved, has ended. Pauses
    /// until it is time for the next frame. Returns how many dispatches wglm submitted while the frame was drawn, each
    /// of which may have delayed it; `None` if the two do not take turns, or if the frame took so long that wglm went
    /// on without waiting.
    pub fn rest(&self, begun: Option<Instant>) -> Option<u64> {
        let during = self.gpu.work().dispatches - self.before.load(Ordering::Relaxed);
        let kept = self.drawing.swap(false, Ordering::AcqRel);
        if let Some(begun) = begun.filter(|_| self.software) {
            std::thread::sleep(FRAME.saturating_sub(begun.elapsed()).max(REST));
        }
        (self.software && kept).then_some(during)
    }

    /// Called by the window when a frame begins.
    pub fn draw(&self) {
        self.drawing.store(true, Ordering::Release);
        self.before.store(self.gpu.work().dispatches, Ordering::Relaxed);
    }

    /// The bytes that models and sessions have on the device.
    pub fn memory(&self) -> u64 {
        self.gpu.memory().held
    }

    /// How long after a frame the window begins the next one while something moves.
    pub fn delay(&self) -> Duration {
        if self.software { Duration::ZERO } else { FRAME }
    }

    /// Called before a submission: waits until the frame that is being drawn has ended.
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
