//! Counts the memory that is allocated on a device.

use super::Gpu;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory of one device in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// The bytes in all existing buffers.
    pub held: u64,
    /// The maximum number of bytes that were in buffers at the same time.
    pub most: u64,
    /// The limit: see [`GpuOptions::memory_limit`](super::GpuOptions::memory_limit).
    pub limit: Option<u64>,
    /// The bytes that wgpu's allocator has reserved from the driver, for all users of the device; `None` if it does not
    /// report them.
    pub reserved: Option<u64>,
}

/// Counts the bytes of buffers as they are created and dropped.
#[derive(Debug)]
pub(super) struct MemoryMeter {
    held: AtomicU64,
    most: AtomicU64,
    limit: Option<u64>,
}

/// The entry of a buffer in the meter. Dropped together with the buffer.
#[derive(Debug)]
pub(super) struct HeldMemory {
    meter: Arc<MemoryMeter>,
    bytes: u64,
}

impl MemoryMeter {
    /// Creates a meter with a limit.
    pub fn up_to(limit: Option<u64>) -> Self {
        Self { held: AtomicU64::new(0), most: AtomicU64::new(0), limit }
    }

    /// Counts bytes that are about to be allocated; `None` if they exceed the limit.
    pub fn hold(self: &Arc<Self>, bytes: u64) -> Option<HeldMemory> {
        let limit = self.limit.unwrap_or(u64::MAX);
        let more = |held: u64| held.checked_add(bytes).filter(|sum| *sum <= limit);
        let before = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        self.most.fetch_max(before + bytes, Ordering::Relaxed);
        Some(HeldMemory { meter: self.clone(), bytes })
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.meter.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Gpu {
    /// The memory in the buffers of all models and sessions on the device. In a forked process, the parent's at the
    /// fork.
    pub fn memory(&self) -> Memory {
        let meter = &self.shared.meter;
        let [held, most] = [&meter.held, &meter.most].map(|bytes| bytes.load(Ordering::Relaxed));
        let limit = meter.limit;
        Memory { held, most, limit, reserved: self.reserved() }
    }

    fn reserved(&self) -> Option<u64> {
        self.check_process().ok()?; // another thread of the parent may hold the allocator's lock forever
        self.device().generate_allocator_report().map(|report| report.total_reserved_bytes)
    }
}
