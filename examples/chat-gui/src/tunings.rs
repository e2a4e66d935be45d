//! The folder of tunings: a file for each GPU and model.

use crate::files;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use wglm::tune::{TuneOptions, Tuning, TuningSubject, first_tuning};
use wglm::{Gguf, Gpu, Model};

/// The folder.
pub struct Tunings {
    pub folder: PathBuf,
    /// The seconds of a tuning at the first start with any model on any GPU, for tests.
    pub first: Option<f32>,
}

impl Tunings {
    /// The tuning for a model, if one is kept. A file that cannot be read counts as absent.
    pub fn of(&self, gpu: &Gpu, file: &Gguf) -> Option<Tuning> {
        let path = self.folder.join(TuningSubject::of(gpu, file).ok()?.file_name());
        fs::read_to_string(path).ok()?.parse().ok()
    }

    /// How a model should be tuned before it is used, if at all.
    pub fn first(&self, model: &Model) -> Option<TuneOptions> {
        let asked = |seconds| {
            let options = TuneOptions { budget: Duration::try_from_secs_f32(seconds).ok(), strict: true };
            model.tuning().is_none().then_some(options)
        };
        self.first.map_or_else(|| first_tuning(model), asked)
    }

    /// Keeps a tuning. One without any choices is kept only after a `first` tuning, so that it is not repeated.
    ///
    /// # Errors
    /// The errors of the file system.
    pub fn keep(&self, tuning: &Tuning, first: bool) -> std::io::Result<()> {
        if tuning.choices.is_empty() && !first {
            return Ok(());
        }
        fs::create_dir_all(&self.folder)?;
        files::replace(&self.folder.join(tuning.subject.file_name()), tuning.to_string().as_bytes())
    }
}

/// The result of tuning in words.
pub fn summary(tuning: &Tuning) -> String {
    let tried = format!("{} candidates were tried", tuning.trials.len());
    let gains: Vec<String> =
        tuning.comparison.iter().map(|work| format!("{} {:.1} %", work.figure.work, 100.0 * work.gain)).collect();
    match gains.is_empty() {
        true => format!("Tuning has finished: {tried}, and none is faster."),
        false => format!("Tuning has finished: {tried}. Faster by: {}.", gains.join(", ")),
    }
}
