//! Runs work on threads of its own, so that the window does not wait for it.

use eframe::egui::Context;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use wglm::Cancel;

/// Work on a thread. It is asked to stop when this is dropped.
pub struct Task<T> {
    result: Receiver<T>,
    stop: Cancel,
}

impl<T: Send + 'static> Task<T> {
    /// Starts the work. When it is done, the window draws a frame.
    pub fn start(window: &Context, job: impl FnOnce(&Cancel) -> T + Send + 'static) -> Self {
        let (sender, result) = channel();
        let task = Self { result, stop: Cancel::default() };
        let (window, stop) = (window.clone(), task.stop.clone());
        // If the system refuses the thread, the receiver reports that the sender is gone.
        let _ = std::thread::Builder::new().spawn(move || {
            if sender.send(job(&stop)).is_ok() {
                window.request_repaint();
            }
        });
        task
    }

    /// The result, once there is one; `Some(None)` if there will be none because the thread panicked or never ran.
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
        self.stop.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::{Context, Task};
    use std::sync::mpsc::channel;

    #[test]
    fn a_dropped_task_is_stopped() {
        let (sender, stopped) = channel();
        let task = Task::start(&Context::default(), move |stop| {
            while !stop.is_cancelled() {
                std::thread::yield_now();
            }
            sender.send(())
        });
        assert!(task.result().is_none());
        drop(task);
        assert!(stopped.recv().is_ok());
    }

    #[test]
    fn a_task_that_panics_has_no_result() {
        let task = Task::<()>::start(&Context::default(), |_| std::panic::resume_unwind(Box::new("on purpose")));
        while task.result().is_none() {
            std::thread::yield_now();
        }
    }
}
