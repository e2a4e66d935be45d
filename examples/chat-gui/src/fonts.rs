//! The system's fonts, for letters that the window's own fonts lack.
//!
//! They are listed on a separate thread when the window opens, and read when a letter needs them. On a Linux without
//! any fonts, as in a container, listing them panics (fontique 0.11), and so might a damaged font. The window then does
//! without the system's fonts and shows boxes, and the panic is not reported: it is expected, and nothing is lost by
//! it.

use eframe::egui::{Context, FallbackRequest, FontInsert, FontProvider};
use egui_system_font_provider::SystemFontProvider;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The name of the thread that lists the fonts.
const LISTS: &str = "egui_system_font_provider";

thread_local! {
    /// Whether this thread is asking for a font, so that a panic is contained.
    static ASKS: Cell<bool> = const { Cell::new(false) };
}

/// A provider that is not asked again after a panic.
struct Guarded<P> {
    provider: P,
    failed: AtomicBool,
}

/// Lets the window use the system's fonts.
pub fn install(window: &Context) {
    report_other_panics();
    window.add_font_provider(Arc::new(guarded(SystemFontProvider::new())));
}

fn guarded<P>(provider: P) -> Guarded<P> {
    Guarded { provider, failed: AtomicBool::new(false) }
}

/// Reports all panics as before, except those that are contained here.
fn report_other_panics() {
    let report = take_hook();
    set_hook(Box::new(move |panic| {
        if !ASKS.get() && std::thread::current().name() != Some(LISTS) {
            report(panic);
        }
    }));
}

impl<P: FontProvider> FontProvider for Guarded<P> {
    fn font_for(&self, request: &FallbackRequest<'_>) -> Option<FontInsert> {
        if self.failed.load(Ordering::Relaxed) {
            return None;
        }
        ASKS.set(true);
        // After a panic the provider is never asked again, so the state that it left does not matter.
        let font = catch_unwind(AssertUnwindSafe(|| self.provider.font_for(request)));
        ASKS.set(false);
        font.unwrap_or_else(|_| {
            self.failed.store(true, Ordering::Relaxed);
            None
        })
    }
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;
    use eframe::egui::FontFamily;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn a_provider_that_panics_is_asked_once_and_in_silence() {
        let (reported, here) = (Arc::new(AtomicUsize::new(0)), std::thread::current().id());
        let count = reported.clone();
        let before = take_hook();
        set_hook(Box::new(move |_| {
            count.fetch_add(usize::from(std::thread::current().id() == here), Ordering::Relaxed);
        }));
        report_other_panics();
        let asked = AtomicUsize::new(0);
        let provider = guarded(|_: &FallbackRequest<'_>| -> Option<FontInsert> {
            asked.fetch_add(1, Ordering::Relaxed);
            panic!("no font")
        });
        let request = FallbackRequest { cluster: "中", family: &FontFamily::Proportional };
        assert!((0..3).all(|_| provider.font_for(&request).is_none()));
        assert_eq!((asked.load(Ordering::Relaxed), reported.load(Ordering::Relaxed)), (1, 0));
        assert!(catch_unwind(|| panic!("another")).is_err());
        assert_eq!(reported.load(Ordering::Relaxed), 1, "other panics are reported");
        set_hook(before);
    }
}
