//! Shows the progress of a measurement on stderr.

use super::output;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};
use wglm_engine::instruments::visible;

/// A progress bar that is drawn only on a terminal, and removed at the end.
pub fn bar(total: u64, template: &str) -> ProgressBar {
    let target = if output::draws_progress() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(total), target).with_finish(ProgressFinish::AndClear);
    bar.with_style(style(template))
}

pub fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// A line that shows the current task and its number, k of n. It is drawn only on a terminal, and removed when this is
/// dropped.
pub struct ProgressLine(ProgressBar);

impl ProgressLine {
    pub fn new(total: usize) -> Self {
        Self(bar(total as u64, "{msg} {bar:20} {pos}/{len}"))
    }

    pub fn doing(&self, what: impl Into<String>) {
        self.0.set_message(visible(&what.into()).into_owned());
    }

    pub fn advance(&self) {
        self.0.inc(1);
    }

    /// Removes the line while something else is written.
    pub fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.0.suspend(write)
    }
}
