//! How far a measurement is, on stderr, for whoever watches.

use super::output;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};

/// A bar that is drawn where somebody can see it, and leaves nothing behind.
pub fn bar(total: u64) -> ProgressBar {
    let target = if output::draws_progress() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    ProgressBar::with_draw_target(Some(total), target).with_finish(ProgressFinish::AndClear)
}

/// A line that says what is being done, k of n: drawn on a terminal only, and gone when this is dropped.
pub struct ProgressLine(ProgressBar);

impl ProgressLine {
    /// Of `total` parts, none of which is done.
    pub fn new(total: usize) -> Self {
        let style = ProgressStyle::with_template("{msg} {bar:20} {pos}/{len}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Self(bar(total as u64).with_style(style))
    }

    /// Says what is being done now.
    pub fn doing(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
    }

    /// Counts another part as done.
    pub fn advance(&self) {
        self.0.inc(1);
    }

    /// Takes the line away while something else is written.
    pub fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.0.suspend(write)
    }
}
