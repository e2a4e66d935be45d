//! Calls Metal directly: makes a buffer of a mapped file's pages without a copy, and compiles on all cores. The code is
//! type-checked, but has not been run on a Mac yet.

use crate::gguf::Gguf;
use block2::RcBlock;
use objc2::runtime::NSObjectProtocol;
use objc2::sel;
use objc2_metal::{MTLDevice, MTLResourceOptions};
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use wgpu::hal::api::Metal;

/// Whether the GPU shares the system's memory.
pub(super) fn unified(device: &wgpu::Device) -> bool {
    // SAFETY: the device is only queried, and no reference to it is kept.
    let device = unsafe { device.as_hal::<Metal>() };
    device.is_some_and(|device| device.raw_device().hasUnifiedMemory())
}

/// The memory in bytes that the GPU should not exceed.
pub(super) fn memory(adapter: &wgpu::Adapter) -> Option<u64> {
    // SAFETY: the adapter is only queried, and no reference to it is kept.
    let adapter = unsafe { adapter.as_hal::<Metal>() };
    adapter.map(|adapter| adapter.raw_device().recommendedMaxWorkingSetSize())
}

/// Makes Metal compile on all cores; by default it leaves most of them idle. macOS supports this since 13.3; on older
/// versions nothing changes.
pub(super) fn compile_on_all_cores(device: &wgpu::Device) {
    // SAFETY: one property of the device is set, and no reference to it is kept.
    let Some(device) = (unsafe { device.as_hal::<Metal>() }) else { return };
    let device = device.raw_device();
    if device.respondsToSelector(sel!(setShouldMaximizeConcurrentCompilation:)) {
        device.setShouldMaximizeConcurrentCompilation(true);
    }
}

/// A buffer whose memory is that of the mapped file; `None` if the file is not mapped, or Metal refuses.
pub(super) fn wrap(device: &wgpu::Device, label: &str, file: &Gguf, pages: Range<usize>) -> Option<wgpu::Buffer> {
    let size = pages.len() as u64;
    let start = file.mapped(pages.start)?.cast::<c_void>();
    if !start.addr().get().is_multiple_of(super::pages::PAGE) {
        return None;
    }
    // Intel Macs have smaller pages, so the map of the file may end before the range does.
    if pages.end > file.first_bytes() && !cfg!(target_arch = "aarch64") {
        return None;
    }
    let kept = file.clone();
    // The block holds the file. Metal releases it together with the buffer, once no work can use the buffer any more.
    let free = RcBlock::new(move |_: NonNull<c_void>, _: usize| drop(kept.clone()));
    let raw = {
        // SAFETY: the device creates a buffer, and no reference to it is kept.
        let device = unsafe { device.as_hal::<Metal>() }?;
        // SAFETY: the pages start inside the map and end with its last page at the latest, because the plan's ranges
        // lie in the first file and are rounded to pages. `free` keeps the map alive, and captures nothing that is
        // bound to a thread. Kernels bind weights read-only, so nothing writes to the map.
        unsafe {
            device.raw_device().newBufferWithBytesNoCopy_length_options_deallocator(
                start,
                pages.len(),
                MTLResourceOptions::StorageModeShared,
                Some(&free),
            )
        }?
    };
    let usage = wgpu::BufferUsages::STORAGE;
    let descriptor = wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation: false };
    // SAFETY: the buffer was just created on this device with this size, and its bytes are those of the file.
    let buffer = unsafe {
        let raw = <Metal as wgpu::hal::Api>::Device::buffer_from_raw(raw, size);
        device.create_buffer_from_hal::<Metal>(raw, &descriptor)
    };
    Some(buffer)
}
