//! Asks the native interface how much memory an adapter has, because wgpu does not report it.

/// The memory of an adapter in bytes: the size of its largest device-local heap on Vulkan, and the recommended limit on
/// Metal. `None` if it is not reported.
pub(super) fn memory(adapter: &wgpu::Adapter) -> Option<u64> {
    #[cfg(target_os = "macos")]
    return super::metal::memory(adapter);
    #[cfg(not(target_vendor = "apple"))]
    return vulkan(adapter);
    #[cfg(all(target_vendor = "apple", not(target_os = "macos")))]
    return None;
}

#[cfg(not(target_vendor = "apple"))]
fn vulkan(adapter: &wgpu::Adapter) -> Option<u64> {
    const DEVICE_LOCAL: u32 = 1; // VK_MEMORY_HEAP_DEVICE_LOCAL_BIT
    // SAFETY: the adapter is only queried, and no reference to it is kept.
    let adapter = unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }?;
    let instance = adapter.shared_instance().raw_instance();
    // SAFETY: the physical device belongs to this instance.
    let properties = unsafe { instance.get_physical_device_memory_properties(adapter.raw_physical_device()) };
    let heaps = properties.memory_heaps.iter().take(properties.memory_heap_count as usize);
    heaps.filter(|heap| heap.flags.as_raw() & DEVICE_LOCAL != 0).map(|heap| heap.size).max()
}
