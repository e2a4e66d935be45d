//! Turns wgpu's three ways of reporting failure into results.

use super::Gpu;
use crate::error::{Error, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Whether the device was lost, and why.
#[derive(Default, Clone)]
pub(super) struct Failures {
    lost: Arc<Mutex<Option<String>>>,
}

impl Failures {
    /// Listens to the device. What an operation does wrong comes back to its caller through error scopes;
    /// what is left is logged, where wgpu would panic.
    pub(super) fn watch(device: &wgpu::Device) -> Self {
        device.on_uncaptured_error(Arc::new(|error| tracing::error!("the GPU reports: {error}")));
        let failures = Self::default();
        let on_loss = failures.clone();
        device.set_device_lost_callback(move |reason, message| {
            let message = if message.is_empty() { format!("{reason:?}") } else { message };
            on_loss.lock().get_or_insert(message);
        });
        failures
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn check(&self) -> Result<()> {
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
    /// Runs an operation on the device and returns what it reports. `bytes` is what the operation
    /// allocates, for the message.
    pub(crate) fn attempt<T>(&self, doing: &str, bytes: u64, operation: impl FnOnce(&wgpu::Device) -> T) -> Result<T> {
        let device = self.device();
        let filters = [wgpu::ErrorFilter::Internal, wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Validation];
        let scopes = filters.map(|filter| device.push_error_scope(filter));
        let value = operation(device);
        let mut first = None;
        for scope in scopes.into_iter().rev() {
            first = first.or(pollster::block_on(scope.pop())); // each one, or those below would not be on top
        }
        match first.map(|error| translate(doing, bytes, error)) {
            Some(error @ Error::OutOfMemory { .. }) => Err(error), // the reason, where the device went with it
            first => {
                self.check()?;
                first.map_or(Ok(value), Err)
            }
        }
    }
}
