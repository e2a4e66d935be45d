//! Saves the results of `wglm tune` in the user's configuration folder, one file for each GPU and model, and finds them
//! there.

use super::args::{ModelArgs, TuningArg};
use super::tune::{bar, show};
use super::{interrupts, output};
use anyhow::Context;
use directories::ProjectDirs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wglm_engine::instruments::{Readers, replace};
use wglm_engine::tune::{TuneOptions, Tuning, TuningSubject, first_tuning};
use wglm_engine::{Gguf, Gpu, Model};

/// The tuning that a command should load a model with: the named one, or else the saved one, which is ignored with a
/// note if it cannot be read.
///
/// # Errors
/// A named file cannot be read, or is not a tuning.
pub fn wanted(args: &ModelArgs, gpu: &Gpu, file: &Gguf) -> anyhow::Result<Option<Tuning>> {
    let (path, named) = match &args.tuning {
        Some(TuningArg::Off) => return Ok(None),
        Some(TuningArg::File(path)) => (Some(path.clone()), true),
        None => (usual_path(gpu, file), false),
    };
    let Some(path) = path.filter(|path| named || path.exists()) else { return Ok(None) };
    match read(&path) {
        Ok(mut tuning) => {
            if args.file.ubatch_size.is_some() {
                tuning.choices.chunk = None;
            }
            Ok(Some(tuning))
        }
        Err(reason) if named => Err(reason.context(format!("--tuning: cannot use {}", path.display()))),
        Err(reason) => {
            output::note(format_args!("note: the tuning {} is not used: {reason:#}", path.display()));
            Ok(None)
        }
    }
}

fn read(path: &Path) -> anyhow::Result<Tuning> {
    let text = std::fs::read_to_string(path)?;
    Ok(text.parse()?)
}

/// The file for a new tuning, unless it should not be written.
pub fn destination(args: &ModelArgs, gpu: &Gpu, file: &Gguf) -> anyhow::Result<Option<PathBuf>> {
    match &args.tuning {
        Some(TuningArg::Off) => Ok(None),
        Some(TuningArg::File(path)) => Ok(Some(path.clone())),
        None => {
            let path = usual_path(gpu, file)
                .context("no home folder, so no default place for the tuning: name a file with --tuning")?;
            Ok(Some(path))
        }
    }
}

/// The file for a GPU and a model; none for a file of another architecture, for which the load gives a better error.
fn usual_path(gpu: &Gpu, file: &Gguf) -> Option<PathBuf> {
    let name = TuningSubject::of(gpu, file).ok()?.file_name();
    Some(ProjectDirs::from("", "", "wglm")?.config_dir().join("tunings").join(name))
}

/// Writes a tuning. The file is replaced atomically, because other processes may read it at any time.
pub fn keep(tuning: &Tuning, path: &Path) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let written = folder.map_or(Ok(()), std::fs::create_dir_all);
    let written = written.and_then(|()| replace(path, tuning.to_string().as_bytes(), Readers::Usual));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Tunes a model that was loaded for a conversation, once and for a few seconds, on an unmeasured GPU
/// ([`first_tuning`]). The result is saved for later loads. This does not happen if options change the computation, if
/// a tuning is named or turned off, or if output is quiet, since then nothing would explain the wait.
pub fn at_first_start(model: &Model, args: &ModelArgs) {
    let options = match args.first_tuning {
        None => first_tuning(model),
        Some(seconds) => model
            .tuning()
            .is_none()
            .then(|| TuneOptions { budget: Duration::try_from_secs_f32(seconds).ok(), strict: true }),
    };
    let asked = args.tuning.is_none() && args.is_usual() && !output::is_quiet();
    let Some(options) = options.filter(|_| asked) else { return };
    let (gpu, file) = (model.gpu(), model.file());
    let Some(path) = usual_path(gpu, file) else { return };
    let (name, seconds) = (&gpu.report().name, options.budget.unwrap_or_default().as_secs_f32());
    let announcement = format!(
        "wglm has no measurements for `{name}`: measuring it now, once, for at most {seconds} s; Ctrl-C skips it"
    );
    let outcome = match tuned(model, &options, &announcement) {
        Ok((tuning, skipped)) => {
            keep(&tuning, &path).map(|()| if skipped { "skipped".to_owned() } else { came_of(&tuning) })
        }
        Err(error) => Err(error.into()),
    };
    match outcome {
        Ok(outcome) => {
            output::note(format_args!("{outcome}; `{} tune` with the same -m measures more", output::command()))
        }
        Err(error) => output::note(format_args!("note: nothing was measured: {error:#}")),
    }
}

/// Tunes until the time is over or Ctrl-C is pressed, and returns whether it was pressed. `announcement` names the key,
/// so it is printed when a press already skips the tuning instead of ending the process.
fn tuned(model: &Model, options: &TuneOptions, announcement: &str) -> wglm_engine::Result<(Tuning, bool)> {
    let bar = bar();
    let tuning = interrupts::meanwhile(|cancel| {
        output::note(format_args!("{announcement}"));
        let tuning = wglm_engine::tune::tune(model, options, cancel, &mut |progress| {
            show(&bar, progress, cancel.is_cancelled())
        });
        tuning.map(|tuning| (tuning, cancel.is_cancelled()))
    });
    bar.finish_and_clear();
    tuning
}

fn came_of(tuning: &Tuning) -> String {
    let gains = tuning.comparison.iter().map(|work| format!("{} {:.1} %", work.figure.work, 100.0 * work.gain));
    match gains.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "nothing faster was found".to_owned(),
        gains => format!("faster from the next start on, by {gains}"),
    }
}

/// Prints that tuning may help, on an unmeasured GPU that was not tuned.
pub fn hint(model: &Model, args: &ModelArgs) {
    let adapter = model.gpu().report();
    let tuned = model.tuning().is_some() || args.tuning.is_some();
    if !tuned && !adapter.is_measured() && !adapter.is_software() {
        output::note(format_args!(
            "note: wglm has no measurements for `{}`; `wglm tune` with the same -m may make it faster",
            adapter.name
        ));
    }
}
