//! Writes and deletes the files of conversations on a thread of its own, because that waits for the disk.
//!
//! Jobs are done in the order in which they were given. The window shows which failed, and waits for all of them before
//! the program ends.

use crate::conversation::Conversation;
use crate::store::Store;
use eframe::egui::Context;
use std::io::{Error, Result};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// The window's end of the thread.
pub struct Saver {
    jobs: Jobs,
    failures: Receiver<Failure>,
}

/// Gives jobs to the thread.
#[derive(Debug, Clone)]
pub struct Jobs(Sender<Job>);

/// A job. Conversations are shared with the list, which makes a copy if it changes one meanwhile.
#[derive(Debug)]
pub enum Job {
    Write(Arc<Conversation>),
    Delete(Arc<Conversation>),
    /// Answers when all jobs before this one are done.
    Answer(Sender<()>),
}

/// A job that failed.
#[derive(Debug)]
pub struct Failure {
    pub error: Error,
    pub conversation: Arc<Conversation>,
    /// Whether it could not be deleted, rather than written.
    pub deleting: bool,
}

impl Saver {
    /// Starts the thread. The window draws itself again when a job has failed.
    ///
    /// # Errors
    /// The error of the operating system if it refuses the thread.
    pub fn start(store: Store, window: Context) -> Result<Self> {
        let ((jobs, received), (failed, failures)) = (channel::<Job>(), channel());
        let run = move || {
            for job in received {
                if let Some(failure) = done(&store, job) {
                    let _ = failed.send(failure); // on failure the window is closed
                    window.request_repaint();
                }
            }
        };
        std::thread::Builder::new().name("saver".into()).spawn(run)?;
        Ok(Self { jobs: Jobs(jobs), failures })
    }

    /// A way to give the thread jobs.
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// The jobs that have failed since the last call.
    pub fn failures(&self) -> impl Iterator<Item = Failure> {
        self.failures.try_iter()
    }
}

impl Jobs {
    /// Gives the thread a job, without waiting for it.
    ///
    /// # Errors
    /// If the thread has ended, which it does only by a panic.
    pub fn give(&self, job: Job) -> Result<()> {
        self.0.send(job).map_err(|_| Error::other("the thread that saves conversations ended unexpectedly"))
    }

    /// Waits until all jobs so far are done.
    pub fn wait(&self) {
        let (answer, answered) = channel();
        if self.give(Job::Answer(answer)).is_ok() {
            let _ = answered.recv(); // it also returns if the thread ends
        }
    }
}

fn done(store: &Store, job: Job) -> Option<Failure> {
    match job {
        Job::Write(conversation) => {
            let error = store.write(&conversation).err()?;
            Some(Failure { error, conversation, deleting: false })
        }
        Job::Delete(conversation) => {
            let error = store.delete(&conversation.id).err()?;
            Some(Failure { error, conversation, deleting: true })
        }
        Job::Answer(answer) => {
            let _ = answer.send(()); // the receiver may have stopped waiting
            None
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Arc, Context, Conversation, Job, Saver, Store};
    use crate::settings::Settings;
    use std::fs;

    fn saver(folder: &std::path::Path) -> Saver {
        Saver::start(Store::open(folder.to_owned()).unwrap(), Context::default()).unwrap()
    }

    #[test]
    fn jobs_are_done_in_order_and_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let saver = saver(folder.path());
        let [mut kept, gone] = [(); 2].map(|()| Arc::new(Conversation::new(Settings::default())));
        for number in 0..50 {
            Arc::make_mut(&mut kept).ask(&number.to_string());
            saver.jobs().give(Job::Write(kept.clone())).unwrap();
            saver.jobs().give(Job::Write(gone.clone())).unwrap();
        }
        saver.jobs().give(Job::Delete(gone)).unwrap();
        saver.jobs().wait();
        let (read, _) = Store::open(folder.path().to_owned()).unwrap().read().unwrap();
        assert_eq!(read, [(*kept).clone()], "the last state of the one, and nothing of the other");
        assert_eq!(saver.failures().count(), 0);
    }

    #[test]
    fn failures_are_reported_with_the_name_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let saver = saver(folder.path());
        let one = Arc::new(Conversation::new(Settings::default()));
        // A folder with the name of the file can be neither replaced nor deleted as a file.
        fs::create_dir_all(folder.path().join(format!("{}.json/x", one.id))).unwrap();
        saver.jobs().give(Job::Write(one.clone())).unwrap();
        saver.jobs().give(Job::Delete(one.clone())).unwrap();
        saver.jobs().wait();
        let failures: Vec<_> = saver.failures().collect();
        assert!(failures.iter().all(|failure| failure.error.to_string().contains(&one.id)), "{failures:?}");
        assert!(failures.iter().all(|failure| failure.conversation == one));
        assert_eq!(failures.iter().map(|failure| failure.deleting).collect::<Vec<_>>(), [false, true]);
    }
}
