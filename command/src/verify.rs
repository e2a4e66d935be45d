//! Compares the files of models with their hashes, for `pull --verify` and `models --verify`.

use super::args::ModelsArgs;
use super::interrupts::{self, OnInterrupt};
use super::{output, progress};
use indicatif::ProgressBar;
use serde::Serialize;
use std::process::ExitCode;
use wglm_engine::catalog::LocalModel;
use wglm_engine::download::{FileState, PullProgress, VerifiedFile, verify_local};

/// The style of a progress bar while files are read for their hash.
pub const CHECKING: &str = "checking {bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}";

/// The files of several models, compared one model after the other.
pub struct Comparison {
    bar: ProgressBar,
    /// The bytes of the finished models.
    before: u64,
    found: Vec<Compared>,
}

#[derive(Serialize)]
struct Compared {
    model: String,
    #[serde(flatten)]
    file: VerifiedFile,
}

/// Compares the selected models on this machine with the hashes in the names of their files.
pub fn local(found: &[LocalModel], args: &ModelsArgs) -> anyhow::Result<ExitCode> {
    interrupts::begin(OnInterrupt::ExitAfterGrace);
    interrupts::listen(false)?;
    let is_meant = |model: &&LocalModel| {
        let name = args.name.as_deref();
        let repo = model.name.rsplit_once(':').map_or(model.name.as_str(), |(repo, _)| repo);
        name.is_none_or(|name| [&model.name, repo].iter().any(|own| own.eq_ignore_ascii_case(name)))
    };
    let models: Vec<&LocalModel> = found.iter().filter(is_meant).collect();
    match &args.name {
        Some(name) => anyhow::ensure!(!models.is_empty(), "no model `{name}` is on this machine"),
        None => anyhow::ensure!(!models.is_empty(), "no models are on this machine"),
    }
    let mut comparison = Comparison::of(models.iter().map(|model| model.bytes).fold(0, u64::saturating_add));
    for model in models {
        comparison.model(&model.name, model.bytes, |tell| verify_local(model, &interrupts::cancel(), tell))?;
    }
    comparison.tell(args.json)
}

impl Comparison {
    /// Begins a comparison of models with `total` bytes.
    pub fn of(total: u64) -> Self {
        Self { bar: progress::bar(total, CHECKING), before: 0, found: Vec::new() }
    }

    pub fn model(
        &mut self,
        name: &str,
        bytes: u64,
        verify: impl FnOnce(&mut dyn FnMut(PullProgress)) -> wglm_engine::Result<Vec<VerifiedFile>>,
    ) -> wglm_engine::Result<()> {
        let files = verify(&mut |progress| {
            self.bar.set_position(self.before.saturating_add(progress.done));
        })?;
        self.before = self.before.saturating_add(bytes);
        self.found.extend(files.into_iter().map(|file| Compared { model: name.to_owned(), file }));
        Ok(())
    }

    /// Writes the results. The exit status says whether all files with known hashes are right.
    pub fn tell(self, json: bool) -> anyhow::Result<ExitCode> {
        self.bar.finish_and_clear();
        if json {
            output::lines([serde_json::to_string_pretty(&self.found)?])?;
        } else {
            output::lines(self.found.iter().map(|compared| {
                let VerifiedFile { path, state, .. } = &compared.file;
                format!("{:<8} {}  {}", word(*state), compared.model, path.display())
            }))?;
            self.advise();
        }
        let bad = |compared: &Compared| matches!(compared.file.state, FileState::Wrong | FileState::Missing);
        Ok(if self.found.iter().any(bad) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// Prints the remedies for files that are not right.
    fn advise(&self) {
        let any = |state| self.found.iter().any(|compared| compared.file.state == state);
        let command = output::command();
        if any(FileState::Wrong) {
            output::note(format_args!("delete the wrong files, and `{command} pull` downloads them again"));
        }
        if any(FileState::Missing) {
            output::note(format_args!("`{command} pull` downloads the missing files"));
        }
        if any(FileState::Unknown) {
            output::note(format_args!(
                "this machine has no hash for the unknown files; `{command} pull --verify` asks the hub"
            ));
        }
    }
}

fn word(state: FileState) -> &'static str {
    match state {
        FileState::Right => "right",
        FileState::Wrong => "wrong",
        FileState::Missing => "missing",
        _ => "unknown",
    }
}
