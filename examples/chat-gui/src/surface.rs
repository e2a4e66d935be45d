//! Pauses wglm while eframe configures the window's surface.
//!
//! wgpu fails to configure a surface, by default with a panic, if something is submitted to the device meanwhile. wglm
//! submits from other threads, so it is [paused](Gpu::pause) for that time. eframe configures:
//!
//! - when the window has a new size or scale, while it handles that event or, on macOS, the one that follows.
//!   [`Guarded`] pauses during these, but not during other events, such as mouse moves, which need not wait for a
//!   submission;
//! - in a frame, when the surface turns out to be outdated or lost. eframe asks [`on_status`](Surface::on_status)
//!   first;
//! - in the frame after one whose surface was only suboptimal, which eframe does not report. If wglm submits at that
//!   very moment, configuring fails. [`on_error`](Surface::on_error) then prevents a panic, and pauses in the next
//!   frame, in which eframe tries again.

use crate::turns::Turns;
use eframe::egui_wgpu::{SurfaceErrorAction, WgpuConfiguration};
use eframe::{EframeWinitApplication, UserEvent};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use wglm::wgpu::{CurrentSurfaceTexture, Error};
use wglm::{Gpu, Pause};
use winit::application::ApplicationHandler;
use winit::event::{DeviceEvent, DeviceId, StartCause, WindowEvent};
use winit::event_loop::ActiveEventLoop;
use winit::window::WindowId;

/// The words by which an error of configuring is recognised.
const CONFIGURING: &str = "Surface::configure";

/// The pauses for the window's surface. Clones share them.
#[derive(Clone, Default)]
pub struct Surface {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The device, once eframe has opened it.
    gpu: OnceLock<(Gpu, Turns)>,
    /// Lives until the current event is handled. eframe may draw a frame in any event.
    pause: Mutex<Option<Pause>>,
    /// Whether the next frame will configure the surface.
    next: AtomicBool,
    /// Whether the event before this one was a new size.
    sized: AtomicBool,
    /// See [`Surface::met`].
    met: AtomicU64,
}

impl Surface {
    /// Begins to pause a device.
    pub fn guard(&self, gpu: &Gpu, turns: &Turns) {
        let _ = self.shared.gpu.set((gpu.clone(), turns.clone())); // the window has one device
    }

    /// Pauses until the current event is handled.
    pub fn pause(&self) {
        let Some((gpu, _)) = self.shared.gpu.get() else { return };
        let mut pause = self.shared.pause.lock().unwrap_or_else(PoisonError::into_inner);
        pause.get_or_insert_with(|| gpu.pause());
    }

    /// Whether the window may configure the surface while it handles an event.
    fn pauses(&self, event: &WindowEvent) -> bool {
        let sizes = matches!(event, WindowEvent::Resized(_) | WindowEvent::ScaleFactorChanged { .. });
        let follows = self.shared.sized.swap(sizes, Ordering::Relaxed) && cfg!(target_os = "macos");
        match event {
            WindowEvent::RedrawRequested => self.shared.next.swap(false, Ordering::Relaxed) || follows,
            // The worker ends here, and saves the session before it does.
            WindowEvent::CloseRequested | WindowEvent::Destroyed => false,
            _ => sizes || follows,
        }
    }

    /// How often wglm was about to submit while the window handled a new size, and was held back.
    pub fn met(&self) -> u64 {
        self.shared.met.load(Ordering::Relaxed)
    }

    /// The number of submissions that pauses have held back.
    fn held_back(&self) -> u64 {
        self.shared.gpu.get().map_or(0, |(gpu, _)| gpu.work().held_back)
    }

    /// Ends the pause.
    pub fn resume(&self) {
        if let Some((_, turns)) = self.shared.gpu.get() {
            turns.drawn();
        }
        self.shared.pause.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// What eframe should do about a surface that gave no texture: the same as usual, but in a pause.
    fn on_status(&self, status: &CurrentSurfaceTexture, usual: &WgpuConfiguration) -> SurfaceErrorAction {
        let action = (usual.on_surface_status)(status);
        match action {
            SurfaceErrorAction::Reconfigure => self.pause(),
            SurfaceErrorAction::RecreateSurface => self.shared.next.store(true, Ordering::Relaxed),
            SurfaceErrorAction::SkipFrame => {}
        }
        action
    }

    /// Reports an error of the window's own work on the device, and configures again in the next frame if that has
    /// failed.
    #[allow(clippy::print_stderr)] // where wgpu's own handler would write it
    pub fn on_error(&self, error: &Error) {
        let again = error.to_string().contains(CONFIGURING);
        self.shared.next.fetch_or(again, Ordering::Relaxed);
        eprintln!("the GPU reports: {error}");
    }

    /// A configuration of eframe in which the surface is guarded.
    pub fn configure(&self, usual: WgpuConfiguration) -> WgpuConfiguration {
        let (surface, before) = (self.clone(), usual.clone());
        WgpuConfiguration { on_surface_status: Arc::new(move |status| surface.on_status(status, &before)), ..usual }
    }
}

/// eframe's application, which pauses wglm where eframe may configure the surface.
pub struct Guarded<'a> {
    pub app: EframeWinitApplication<'a>,
    pub surface: Surface,
}

impl ApplicationHandler<UserEvent> for Guarded<'_> {
    fn window_event(&mut self, event_loop: &ActiveEventLoop, id: WindowId, event: WindowEvent) {
        if self.surface.pauses(&event) {
            self.surface.pause();
        }
        let (sizes, before) = (matches!(event, WindowEvent::Resized(_)), self.surface.held_back());
        self.app.window_event(event_loop, id, event);
        if sizes && self.surface.held_back() > before {
            self.surface.shared.met.fetch_add(1, Ordering::Relaxed);
        }
        self.surface.resume();
    }

    fn resumed(&mut self, event_loop: &ActiveEventLoop) {
        self.surface.pause();
        self.app.resumed(event_loop);
        self.surface.resume();
    }

    fn new_events(&mut self, event_loop: &ActiveEventLoop, cause: StartCause) {
        self.app.new_events(event_loop, cause);
        self.surface.resume();
    }

    fn user_event(&mut self, event_loop: &ActiveEventLoop, event: UserEvent) {
        self.app.user_event(event_loop, event);
        self.surface.resume();
    }

    fn device_event(&mut self, event_loop: &ActiveEventLoop, id: DeviceId, event: DeviceEvent) {
        self.app.device_event(event_loop, id, event);
    }

    fn about_to_wait(&mut self, event_loop: &ActiveEventLoop) {
        self.app.about_to_wait(event_loop);
        self.surface.resume();
    }

    fn suspended(&mut self, event_loop: &ActiveEventLoop) {
        self.app.suspended(event_loop);
    }

    fn exiting(&mut self, event_loop: &ActiveEventLoop) {
        self.app.exiting(event_loop);
    }

    fn memory_warning(&mut self, event_loop: &ActiveEventLoop) {
        self.app.memory_warning(event_loop);
    }
}

#[cfg(test)]
mod tests {
    use super::{Ordering, Surface, WindowEvent};
    use winit::dpi::PhysicalSize;

    #[test]
    fn only_new_sizes_and_their_frames_pause() {
        let (surface, macos) = (Surface::default(), cfg!(target_os = "macos"));
        assert!(!surface.pauses(&WindowEvent::Focused(true)) && !surface.pauses(&WindowEvent::RedrawRequested));
        assert!(surface.pauses(&WindowEvent::Resized(PhysicalSize::new(700, 500))));
        assert_eq!(surface.pauses(&WindowEvent::RedrawRequested), macos);
        assert!(!surface.pauses(&WindowEvent::Focused(true)));
        surface.shared.next.store(true, Ordering::Relaxed);
        assert!(!surface.pauses(&WindowEvent::CloseRequested));
        assert!(surface.pauses(&WindowEvent::RedrawRequested) && !surface.pauses(&WindowEvent::RedrawRequested));
    }
}
