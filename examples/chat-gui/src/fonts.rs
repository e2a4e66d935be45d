//! Fonts of the system, for letters that the fonts of the window lack.
//!
//! They are listed on a thread of their own when the window opens, and read when a letter needs them. On a Linux without
//! any font, as in a container, what lists them panics (fontique 0.11). The window then goes without, and shows boxes.

use eframe::egui::{Context, FallbackRequest, FontInsert, FontProvider};
use egui_system_font_provider::SystemFontProvider;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A provider that a panic of another ends, and nothing else.
struct Guarded<P> {
    provider: P,
    failed: AtomicBool,
}

/// Has the window ask the system for fonts.
pub fn install(window: &Context) {
    window.add_font_provider(Arc::new(guarded(SystemFontProvider::new())));
}

fn guarded<P>(provider: P) -> Guarded<P> {
    Guarded { provider, failed: AtomicBool::new(false) }
}

impl<P: FontProvider> FontProvider for Guarded<P> {
    fn font_for(&self, request: &FallbackRequest<'_>) -> Option<FontInsert> {
        if self.failed.load(Ordering::Relaxed) {
            return None;
        }
        // After a panic the provider is never asked again, so nobody sees what state it left.
        catch_unwind(AssertUnwindSafe(|| self.provider.font_for(request))).unwrap_or_else(|_| {
            self.failed.store(true, Ordering::Relaxed);
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{FallbackRequest, FontInsert, FontProvider, guarded};
    use eframe::egui::FontFamily;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_provider_that_panics_is_asked_once() {
        let asked = AtomicUsize::new(0);
        let provider = guarded(|_: &FallbackRequest<'_>| -> Option<FontInsert> {
            asked.fetch_add(1, Ordering::Relaxed);
            std::panic::resume_unwind(Box::new("told to"))
        });
        let request = FallbackRequest { cluster: "中", family: &FontFamily::Proportional };
        assert!((0..3).all(|_| provider.font_for(&request).is_none()));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }
}
