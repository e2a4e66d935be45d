//! What is asked of Metal itself: pages of a mapped file as a buffer, without a copy, and to compile on all cores.
//! Type-checked, and not run on a Mac so far.

use crate::gguf::Gguf;
use block2::RcBlock;
use objc2::runtime::NSObjectProtocol;
use objc2::sel;
use objc2_metal::{MTLDevice, MTLResourceOptions};
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use wgpu::hal::api::Metal;

/// True if the GPU has the system's memory for its own.
pub(super) fn unified(device: &wgpu::Device) -> bool {
    // SAFETY: the device is asked one question and not kept.
    let device = unsafe { device.as_hal::<Metal>() };
    device.is_some_and(|device| device.raw_device().hasUnifiedMemory())
}

/// Bytes that the GPU is best not to exceed.
pub(super) fn memory(adapter: &wgpu::Adapter) -> Option<u64> {
    // SAFETY: the adapter is asked one question and not kept.
    let adapter = unsafe { adapter.as_hal::<Metal>() };
    adapter.map(|adapter| adapter.raw_device().recommendedMaxWorkingSetSize())
}

/// Has Metal compile on as many cores as there are; unasked it leaves most of them idle. Metal knows of this from macOS
/// 13.3 on, and nothing changes before.
pub(super) fn compile_on_all_cores(device: &wgpu::Device) {
    // SAFETY: the device is told one thing and not kept.
    let Some(device) = (unsafe { device.as_hal::<Metal>() }) else { return };
    let device = device.raw_device();
    if device.respondsToSelector(sel!(setShouldMaximizeConcurrentCompilation:)) {
        device.setShouldMaximizeConcurrentCompilation(true);
    }
}

/// A buffer whose memory is the file's own; none where the file is not mapped, or Metal will not have it.
pub(super) fn wrap(device: &wgpu::Device, label: &str, file: &Gguf, pages: Range<usize>) -> Option<wgpu::Buffer> {
    let size = pages.len() as u64;
    let start = file.mapped(pages.start)?.cast::<c_void>();
    if !start.addr().get().is_multiple_of(super::pages::PAGE) {
        return None;
    }
    // An Intel Mac's pages are smaller, so that its map of the file may end before the range does.
    if pages.end > file.first_bytes() && !cfg!(target_arch = "aarch64") {
        return None;
    }
    let kept = file.clone();
    // Metal lets go of the block with the buffer, when no work can use it any more, and with the block goes the file.
    let free = RcBlock::new(move |_: NonNull<c_void>, _: usize| drop(kept.clone()));
    let raw = {
        // SAFETY: the device is asked for a buffer and not kept.
        let device = unsafe { device.as_hal::<Metal>() }?;
        // SAFETY: the pages start inside a map and end with its last page at the latest, for the plan's ranges lie in
        // the first file and are rounded to pages; `free` keeps the map, and holds nothing that is bound to a thread.
        // Kernels bind weights read-only, so nothing writes to the map.
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
    // SAFETY: the buffer was just made on this device, with this size, and its bytes are those of the file.
    let buffer = unsafe {
        let raw = <Metal as wgpu::hal::Api>::Device::buffer_from_raw(raw, size);
        device.create_buffer_from_hal::<Metal>(raw, &descriptor)
    };
    Some(buffer)
}
