//! Counts the work that is submitted to the GPU. A token should be one encoder, one pass and one submission, which
//! tests check, because on Metal each of these is a command buffer or more.

use super::{Dispatch, Gpu, Prepared, Submission};
use crate::error::{Result, unpoisoned};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The work of a device since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// The number of encoders, each of which is a submission of its own.
    pub submissions: u64,
    /// The number of compute passes in them.
    pub passes: u64,
    /// The number of dispatches in those.
    pub dispatches: u64,
    /// The number of writes from the host to buffers, each of which is a copy on the device.
    pub writes: u64,
    /// The number of results that the host waited for and read.
    pub reads: u64,
    /// The number of compiled pipelines.
    pub pipelines: u64,
    /// The maximum number of pipelines that were being compiled at once.
    pub pipelines_at_once: u64,
    /// How often a thread that wanted to submit found a [`Pause`](super::Pause), at first and each time it looked
    /// again.
    pub held_back: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    submissions: AtomicU64,
    passes: AtomicU64,
    dispatches: AtomicU64,
    writes: AtomicU64,
    reads: AtomicU64,
    pipelines: AtomicU64,
    compiling: AtomicU64,
    pipelines_at_once: AtomicU64,
    held_back: AtomicU64,
}

/// The callback that is called before each submission.
#[derive(Default)]
pub(super) struct Before(Mutex<Option<Arc<dyn Fn() + Send + Sync>>>);

fn add(count: &AtomicU64, more: u64) -> u64 {
    count.fetch_add(more, Ordering::Relaxed) + more
}

impl Gpu {
    /// The work of the device so far, by all users of this [`Gpu`] and its clones.
    #[doc(hidden)]
    pub fn work(&self) -> Work {
        let counts = &self.shared.counts;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Work {
            submissions: read(&counts.submissions),
            passes: read(&counts.passes),
            dispatches: read(&counts.dispatches),
            writes: read(&counts.writes),
            reads: read(&counts.reads),
            pipelines: read(&counts.pipelines),
            pipelines_at_once: read(&counts.pipelines_at_once),
            held_back: read(&counts.held_back),
        }
    }

    /// Sets a callback that is called before each submission, on the thread that submits: one that loads, generates or
    /// saves a session. The pool of that session is locked meanwhile, so the callback must not use the pool or any of
    /// its sessions. Another call replaces the callback. To block submissions, use [`Gpu::pause`].
    pub fn before_submissions(&self, wait: impl Fn() + Send + Sync + 'static) {
        *unpoisoned(self.shared.before.0.lock()) = Some(Arc::new(wait));
    }

    fn call_before(&self) {
        let wait = unpoisoned(self.shared.before.0.lock()).clone();
        wait.into_iter().for_each(|wait| wait());
    }

    /// Records work with an encoder of its own and submits it. Encoders are created nowhere else.
    ///
    /// # Errors
    /// Errors that the driver reports for this work or for the device; `doing` and `bytes` as for [`Gpu::attempt`].
    pub(super) fn record(
        &self,
        doing: &str,
        bytes: u64,
        record: impl FnOnce(&mut wgpu::CommandEncoder),
    ) -> Result<Submission> {
        self.call_before();
        self.attempt(doing, bytes, |device| self.hand_in(Some(self.encoded(device, record))))?
    }

    /// Counts a submission that a pause holds back.
    pub(super) fn note_held_back(&self) {
        add(&self.shared.counts.held_back, 1);
    }

    /// The commands that `record` records.
    fn encoded(&self, device: &wgpu::Device, record: impl FnOnce(&mut wgpu::CommandEncoder)) -> wgpu::CommandBuffer {
        let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        if !self.drops() {
            record(&mut encoder);
        }
        encoder.finish()
    }

    /// Submits commands, after a [`Pause`](super::Pause) if there is one. Nothing else submits.
    fn hand_in(&self, commands: Option<wgpu::CommandBuffer>) -> Result<Submission> {
        self.admitted(|| {
            add(&self.shared.counts.submissions, 1);
            let index = self.shared.queue.submit(commands);
            Submission { index, done: self.done() }
        })
    }

    fn drops(&self) -> bool {
        self.shared.drops_work.load(Ordering::Relaxed)
    }

    /// Records work that is submitted later, and then works on what the buffers contain by then.
    ///
    /// # Errors
    /// Errors that the driver reports for this work.
    pub(super) fn record_ahead(&self, record: impl FnOnce(&mut wgpu::CommandEncoder)) -> Result<Prepared> {
        let raw = self.attempt("preparing a submission", 0, |device| self.encoded(device, record))?;
        Ok(Prepared { raw })
    }

    /// Submits recorded work.
    ///
    /// # Errors
    /// See [`Gpu::submit`].
    #[doc(hidden)]
    pub fn submit_prepared(&self, work: Prepared) -> Result<Submission> {
        self.call_before();
        self.attempt("a submission", 0, |_| self.hand_in((!self.drops()).then_some(work.raw)))?
    }

    /// Records a pass of dispatches. Passes are created nowhere else.
    pub(super) fn pass<'a>(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        timestamp_writes: Option<wgpu::ComputePassTimestampWrites<'_>>,
        dispatches: impl IntoIterator<Item = Dispatch<'a>>,
    ) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes });
        let mut count = 0;
        for dispatch in dispatches {
            dispatch.record(&mut pass);
            count += 1;
        }
        add(&self.shared.counts.passes, 1);
        add(&self.shared.counts.dispatches, count);
    }

    /// Counts a write from the host to a buffer.
    pub(super) fn count_write(&self) {
        add(&self.shared.counts.writes, 1);
    }

    /// Counts a result that the host waits for.
    pub(super) fn count_read(&self) {
        add(&self.shared.counts.reads, 1);
    }

    /// Calls `compile`, and counts the pipeline that it compiles.
    pub(crate) fn compiling<T>(&self, compile: impl FnOnce() -> T) -> T {
        let counts = &self.shared.counts;
        counts.pipelines_at_once.fetch_max(add(&counts.compiling, 1), Ordering::Relaxed);
        let compiled = compile();
        counts.compiling.fetch_sub(1, Ordering::Relaxed);
        add(&counts.pipelines, 1);
        compiled
    }

    /// Makes the device behave as Metal does if memory runs out while a command buffer runs: from now on all work is
    /// accepted, dropped, and reported as done. Tests use this.
    #[doc(hidden)]
    pub fn drop_work(&self, drop: bool) {
        self.shared.drops_work.store(drop, Ordering::Relaxed);
    }
}
