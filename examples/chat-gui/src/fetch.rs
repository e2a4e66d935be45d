//! A download, on a thread of its own. Unless it is cancelled, the bytes that have arrived are kept for the next
//! attempt.

use crate::rate::Rate;
use crate::task::Task;
use eframe::egui::Context;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wglm::download::{Hub, HubOptions, PullProgress, PullStage, RemoteModel, Repository};
use wglm::{Cancel, Error};

/// How often progress is drawn.
const EVERY: Duration = Duration::from_millis(100);

/// A download that has begun.
pub struct Fetch {
    /// The repository and the label of the model.
    pub repo: String,
    pub label: String,
    state: Arc<State>,
    task: Task<End>,
}

/// What the thread and the window both know.
#[derive(Default)]
struct State {
    known: Mutex<Known>,
    /// Ends the download. `discard` says whether the bytes that have arrived are deleted then.
    cancel: Cancel,
    discard: AtomicBool,
}

/// How far a download is.
#[derive(Default)]
pub struct Known {
    pub progress: Option<PullProgress>,
    pub rate: Rate,
}

/// The end of a download.
#[derive(Debug)]
pub struct End {
    /// The number of bytes of the model that are here now.
    pub here: u64,
    pub how: How,
}

/// How a download ended.
#[derive(Debug)]
pub enum How {
    /// The model is here, in this file.
    Done(PathBuf),
    /// The bytes that have arrived are kept.
    Paused,
    /// The bytes that had arrived were deleted.
    Cancelled,
    /// The bytes that have arrived are kept, and this is the reason for the end.
    Failed(String),
}

impl Fetch {
    /// Begins or resumes a download.
    pub fn start(window: &Context, repository: Repository, model: RemoteModel) -> Self {
        let state = Arc::new(State::default());
        let (repo, label) = (repository.name.to_string(), model.label.clone());
        let (same, drawn) = (state.clone(), window.clone());
        let task = Task::start(window, move |stop| same.run(&drawn, stop, &repository, &model));
        Self { repo, label, state, task }
    }

    /// The name of the model.
    pub fn name(&self) -> String {
        format!("{}:{}", self.repo, self.label)
    }

    /// Ends the download, and keeps the bytes that have arrived.
    pub fn pause(&self) {
        self.state.cancel.cancel();
    }

    /// Ends the download, and deletes the bytes that have arrived.
    pub fn cancel(&self) {
        self.state.discard.store(true, Ordering::Relaxed);
        self.state.cancel.cancel();
    }

    /// Whether it was paused or cancelled.
    pub fn is_ending(&self) -> bool {
        self.state.is_ending()
    }

    /// How far it is.
    pub fn known(&self) -> MutexGuard<'_, Known> {
        self.state.known()
    }

    /// The part of the bytes that is here, from 0 to 1.
    pub fn share(&self) -> f32 {
        self.known().progress.as_ref().map_or(0.0, |it| it.done as f32 / it.total.max(1) as f32)
    }

    /// How it ended, if it has.
    pub fn end(&self) -> Option<End> {
        let died = || How::Failed("The download stopped: its thread ended unexpectedly.".into());
        self.task.result().map(|end| end.unwrap_or_else(|| End { here: 0, how: died() }))
    }
}

impl State {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_ending(&self) -> bool {
        self.cancel.is_cancelled()
    }

    fn run(&self, window: &Context, stop: &Cancel, repository: &Repository, model: &RemoteModel) -> End {
        let hub = match Hub::new(HubOptions::default()) {
            Ok(hub) => hub,
            Err(error) => return End { here: 0, how: How::Failed(sentence(&error)) },
        };
        let pulled = hub.pull(repository, model, &self.cancel, &mut |progress| {
            self.note(progress);
            window.request_repaint_after(EVERY);
            if stop.is_cancelled() {
                self.cancel.cancel(); // the window is closed; what has arrived is kept
            }
        });
        let how = match pulled {
            Ok(pulled) => How::Done(pulled.path),
            Err(_) if self.discard.load(Ordering::Relaxed) => match hub.discard(repository, model) {
                Ok(()) => How::Cancelled,
                Err(error) => How::Failed(sentence(&error)),
            },
            Err(Error::Cancelled) => How::Paused,
            Err(error) => How::Failed(sentence(&error)),
        };
        End { here: hub.bytes_here(repository, model), how }
    }

    fn note(&self, progress: PullProgress) {
        let mut known = self.known();
        if known.progress.as_ref().is_none_or(|before| before.stage != progress.stage) {
            known.rate = Rate::default();
        }
        if progress.stage == PullStage::Downloading {
            known.rate.note(Instant::now(), progress.done);
        }
        known.progress = Some(progress);
    }
}

/// An error as a sentence.
pub fn sentence(error: &Error) -> String {
    let text = error.to_string();
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase).into_iter().flatten();
    first.chain(letters).chain(['.']).collect()
}

#[cfg(test)]
mod tests {
    use super::{Error, sentence};

    #[test]
    fn errors_become_sentences() {
        assert_eq!(sentence(&Error::Cancelled), "Cancelled.");
    }
}
