//! Shows the progress of a measurement on stderr.

use super::output;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};
use wglm_engine::instruments::visible;

/// A progress bar that is drawn only on a terminal, and removed at the end.
pub fn bar(total: u64) -> ProgressBar {
    let target = if output::draws_progress() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    ProgressBar::with_draw_target(Some(total), target).with_finish(ProgressFinish::AndClear)
}

/// A line that shows the current task and its number, k of n. It is drawn only on a terminal, and removed when this is
/// dropped.
pub struct ProgressLine(ProgressBar);

impl ProgressLine {
    /// Creates a line for `total` tasks.
    pub fn new(total: usize) -> Self {
        let style = ProgressStyle::with_template("{msg} {bar:20} {pos}/{len}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Self(bar(total as u64).with_style(style))
    }

    /// Shows the name of the current task.
    pub fn doing(&self, what: impl Into<String>) {
        self.0.set_message(visible(&what.into()).into_owned());
    }

    /// Counts another task as done.
    pub fn advance(&self) {
        self.0.inc(1);
    }

    /// Removes the line while something else is written.
    pub fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.0.suspend(write)
    }
}
