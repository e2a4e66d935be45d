//! Turns wgpu's three ways of reporting failures into results.

use super::Gpu;
use crate::error::{Error, Result, unpoisoned};
use std::sync::{Arc, Mutex, MutexGuard};

/// The reason for the loss of a device that [`Gpu::close`] closed.
const CLOSED: &str = "it was closed";

/// Records whether the device was lost, and why.
#[derive(Clone)]
pub(super) struct Failures {
    lost: Arc<Mutex<Option<String>>>,
    /// Whether wglm opened the device, and so set the callback that reports a loss.
    ours: bool,
    process: Process,
}

/// The process that opened a device. Drivers do not work, and may hang, in a process that was forked from it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Process(u32);

impl Process {
    fn current() -> Self {
        Self(std::process::id())
    }

    /// Checks that this is the process that opened the device. That costs one system call of a tenth of a microsecond.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn check(self) -> Result<()> {
        if self.0 == std::process::id() { Ok(()) } else { Err(Error::Forked) }
    }
}

impl Failures {
    /// Sets the callbacks of a device that wglm opened. Errors of operations are returned to their callers through
    /// error scopes. Other errors, for which wgpu would panic, are logged.
    pub(super) fn watch(device: &wgpu::Device) -> Self {
        device.on_uncaptured_error(Arc::new(|error| tracing::error!("the GPU reports: {error}")));
        let failures = Self { lost: Arc::default(), ours: true, process: Process::current() };
        let on_loss = failures.clone();
        device.set_device_lost_callback(move |reason, message| {
            let message = if message.is_empty() { format!("{reason:?}") } else { message };
            on_loss.lock().get_or_insert(message);
        });
        failures
    }

    /// Sets no callbacks: a device has only one of each kind, and they belong to its owner.
    pub(super) fn found() -> Self {
        Self { lost: Arc::default(), ours: false, process: Process::current() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        unpoisoned(self.lost.lock())
    }

    /// Whether the device is known to be lost, or belongs to another process.
    pub(super) fn check(&self) -> Result<()> {
        self.process.check()?;
        let lost = |reason: &String| Err(Error::DeviceLost { reason: reason.clone() });
        self.lock().as_ref().map_or(Ok(()), lost)
    }
}

fn translate(doing: &str, bytes: u64, error: wgpu::Error) -> Error {
    match error {
        wgpu::Error::OutOfMemory { .. } => Error::OutOfMemory { doing: doing.into(), bytes },
        wgpu::Error::Validation { description, .. } | wgpu::Error::Internal { description, .. } => {
            Error::Gpu { doing: doing.into(), message: description }
        }
    }
}

impl Gpu {
    /// Runs an operation on the device, and returns the error that the device reports for it. `bytes` is the size of
    /// the allocation, for the message.
    pub(crate) fn attempt<T>(&self, doing: &str, bytes: u64, operation: impl FnOnce(&wgpu::Device) -> T) -> Result<T> {
        self.check_process()?;
        let (value, error) = self.scoped(operation);
        match error.map(|error| translate(doing, bytes, error)) {
            None => self.shared.failures.check().map(|()| value),
            Some(error @ Error::OutOfMemory { .. }) => Err(error), // even if the device was lost because of it
            Some(error) => {
                self.check()?;
                Err(error)
            }
        }
    }

    /// Runs an operation on the device, and returns its first error. Errors of other threads are not included, because
    /// error scopes belong to a thread.
    fn scoped<T>(&self, operation: impl FnOnce(&wgpu::Device) -> T) -> (T, Option<wgpu::Error>) {
        let device = self.device();
        let filters = [wgpu::ErrorFilter::Internal, wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Validation];
        let scopes = filters.map(|filter| device.push_error_scope(filter));
        let value = operation(device);
        let mut first = None;
        for scope in scopes.into_iter().rev() {
            first = first.or(pollster::block_on(scope.pop())); // pops every scope, in order
        }
        (value, first)
    }

    /// Whether wglm opened the device. wglm detects the loss of an app's device by failing operations, because the
    /// callbacks are the app's.
    pub(crate) fn is_ours(&self) -> bool {
        self.shared.failures.ours
    }

    /// Checks that the device is not lost.
    ///
    /// # Errors
    /// [`Error::DeviceLost`] if it is; [`Error::Forked`] in a process that was forked after it was opened.
    pub fn check(&self) -> Result<()> {
        self.shared.failures.check()?;
        if self.is_ours() || self.makes_buffers() { Ok(()) } else { Err(self.lost("it no longer creates buffers")) }
    }

    /// Checks that this process opened the device.
    ///
    /// # Errors
    /// [`Error::Forked`] in one that was forked since.
    pub(crate) fn check_process(&self) -> Result<()> {
        self.process().check()
    }

    /// The process that opened the device.
    pub(crate) fn process(&self) -> Process {
        self.shared.failures.process
    }

    /// Whether the device can create a buffer. A lost device creates none and reports no error.
    fn makes_buffers(&self) -> bool {
        let usage = wgpu::BufferUsages::COPY_SRC;
        let descriptor = wgpu::BufferDescriptor { label: Some("probe"), size: 4, usage, mapped_at_creation: true };
        let (made, error) = self.scoped(|device| device.create_buffer(&descriptor).get_mapped_range_mut(..).is_ok());
        made || error.is_some()
    }

    /// Records that wglm closed the device, unless it was lost before.
    pub(super) fn record_closed(&self) {
        self.lost(CLOSED);
    }

    /// Whether the device was lost because wglm closed it.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.failures.lock().as_deref() == Some(CLOSED)
    }

    /// Records that the device was lost, unless that is recorded already.
    pub(super) fn lost(&self, reason: &str) -> Error {
        let reason = self.shared.failures.lock().get_or_insert_with(|| reason.to_owned()).clone();
        Error::DeviceLost { reason }
    }
}
