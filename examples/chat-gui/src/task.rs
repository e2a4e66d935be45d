//! Work on threads of its own, so that the window waits for nothing.

use eframe::egui::Context;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

/// Work on a thread, which is told to stop when this is dropped.
pub struct Task<T> {
    result: Receiver<T>,
    stop: Stop,
}

/// Tells the work whether it should stop.
#[derive(Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// What wglm's calls ask while they wait.
    pub fn go_on(&self) -> ControlFlow<()> {
        if self.0.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl<T: Send + 'static> Task<T> {
    /// Starts the work. The window draws itself again when it is done.
    pub fn start(window: &Context, job: impl FnOnce(&Stop) -> T + Send + 'static) -> Self {
        let (sender, result) = channel();
        let task = Self { result, stop: Stop::default() };
        let (window, stop) = (window.clone(), task.stop.clone());
        // If the system refuses the thread, the receiver reports that the sender is gone.
        let _ = std::thread::Builder::new().spawn(move || {
            if sender.send(job(&stop)).is_ok() {
                window.request_repaint();
            }
        });
        task
    }

    /// The result, once there is one; `Some(None)` if there will be none because the thread died or never ran.
    pub fn result(&self) -> Option<Option<T>> {
        match self.result.try_recv() {
            Ok(result) => Some(Some(result)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(None),
        }
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.stop.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{Context, Task};
    use std::sync::mpsc::channel;

    #[test]
    fn a_dropped_task_is_told() {
        let (sender, told) = channel();
        let task = Task::start(&Context::default(), move |stop| {
            while stop.go_on().is_continue() {
                std::thread::yield_now();
            }
            sender.send(())
        });
        assert!(task.result().is_none());
        drop(task);
        assert!(told.recv().is_ok());
    }

    #[test]
    fn a_task_that_dies_has_no_result() {
        let task = Task::<()>::start(&Context::default(), |_| std::panic::resume_unwind(Box::new("told to")));
        while task.result().is_none() {
            std::thread::yield_now();
        }
    }
}
