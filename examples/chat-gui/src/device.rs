//! One device for the window and for wglm: eframe opens it with everything that wglm asks for.

use crate::surface::Surface;
use eframe::egui_wgpu::{RenderState, SurfaceConfig, WgpuConfiguration, WgpuSetupCreateNew};
use std::sync::Arc;
use wglm::wgpu::InstanceFlags;
use wglm::{Gpu, GpuOptions};

/// The device that eframe opens. wglm already asks for all limits of the adapter, so nothing has to be added for egui.
pub fn setup(surface: &Surface) -> WgpuConfiguration {
    let mut setup = WgpuSetupCreateNew::without_display_handle(); // eframe adds the handle of the window
    // Turns off the driver's validation layers, which debug builds have by default and which would check every
    // submission, those of wglm included.
    setup.instance_descriptor.flags = InstanceFlags::empty().with_env();
    setup.device_descriptor = Arc::new(|adapter| Gpu::descriptor(adapter, &options()));
    let usual =
        WgpuConfiguration { surface: SurfaceConfig::LOW_LATENCY, wgpu_setup: setup.into(), ..Default::default() };
    surface.configure(usual)
}

/// The window's device as wglm's. Errors of the window's own work on the device are reported and cause no panic.
///
/// # Errors
/// The errors of [`Gpu::from_wgpu`].
pub fn shared_gpu(window: &RenderState, surface: &Surface) -> wglm::Result<Gpu> {
    let surface = surface.clone();
    window.device.on_uncaptured_error(Arc::new(move |error| surface.on_error(&error)));
    Gpu::from_wgpu(&window.adapter, window.device.clone(), window.queue.clone(), &options())
}

/// Turns off index checks in shaders, so that debug builds are as fast as others.
fn options() -> GpuOptions {
    GpuOptions { checks: false, ..GpuOptions::default() }
}
