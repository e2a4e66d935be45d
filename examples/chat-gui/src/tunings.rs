//! The folder of tunings: a file for each GPU and model.

use std::fs;
use std::path::PathBuf;
use wglm::{Gguf, Gpu, Tuning, TuningSubject};

/// The folder.
pub struct Tunings(pub PathBuf);

impl Tunings {
    /// The tuning for a model, if one is kept. A file that cannot be read counts as absent.
    pub fn of(&self, gpu: &Gpu, file: &Gguf) -> Option<Tuning> {
        let path = self.0.join(TuningSubject::of(gpu, file).ok()?.file_name());
        fs::read_to_string(path).ok()?.parse().ok()
    }

    /// Keeps a tuning, unless nothing was found.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn keep(&self, tuning: &Tuning) -> std::io::Result<()> {
        if tuning.choices.is_empty() {
            return Ok(());
        }
        let path = self.0.join(tuning.subject.file_name());
        let beside = path.with_extension("new");
        fs::create_dir_all(&self.0)?;
        fs::write(&beside, tuning.to_string()).and_then(|()| fs::rename(beside, path))
    }
}

/// What came of tuning, in words.
pub fn told(tuning: &Tuning) -> String {
    let tried = format!("{} candidates were tried", tuning.trials.len());
    let gains: Vec<String> =
        tuning.comparison.iter().map(|work| format!("{} {:.1} %", work.figure.work, 100.0 * work.gain)).collect();
    match gains.is_empty() {
        true => format!("Tuning is over: {tried}, and nothing is faster."),
        false => format!("Tuning is over: {tried}. Faster by: {}.", gains.join(", ")),
    }
}
