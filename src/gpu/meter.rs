//! How much memory is held on a device.

use super::Gpu;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory of one device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// In the buffers there are.
    pub held: u64,
    /// The most there has been in buffers at once.
    pub most: u64,
    /// What wgpu's allocator has taken from the driver for all of its clients' buffers; none where it does not tell.
    pub reserved: Option<u64>,
}

/// Counts the bytes of buffers as they come and go.
#[derive(Debug, Default)]
pub(super) struct Meter {
    held: AtomicU64,
    most: AtomicU64,
}

/// A buffer's entry in the meter, for as long as it lives.
#[derive(Debug)]
pub(super) struct Held {
    meter: Arc<Meter>,
    bytes: u64,
}

impl Meter {
    pub fn hold(self: &Arc<Self>, bytes: u64) -> Held {
        let held = self.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.most.fetch_max(held, Ordering::Relaxed);
        Held { meter: self.clone(), bytes }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.meter.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Gpu {
    /// What is held on the device: buffers of every model and session that was made on it.
    pub fn memory(&self) -> Memory {
        let meter = &self.shared.meter;
        let [held, most] = [&meter.held, &meter.most].map(|bytes| bytes.load(Ordering::Relaxed));
        Memory { held, most, reserved: self.device().generate_allocator_report().map(|r| r.total_reserved_bytes) }
    }
}
