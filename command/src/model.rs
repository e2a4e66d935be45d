//! Opens files and loads models, with a progress bar on a terminal.

use super::args::{FileArgs, ModelArgs};
use super::{failure, faults, fits, interrupts, output, progress, tunings, verdicts};
use indicatif::ProgressBar;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use wglm_engine::catalog::{ModelName, Places, find_model};
use wglm_engine::offers::Judged;
use wglm_engine::tune::Tuning;
use wglm_engine::{DraftKind, Gguf, Gpu, LoadOptions, LoadProgress, LoadStage, Model, Verdict};

/// Opens a file by its path, or by the name of a model on this machine, or the demonstration model if neither is given.
pub fn open(path: Option<&Path>) -> anyhow::Result<Gguf> {
    match path {
        Some(path) => Ok(Gguf::open(located(path)?)?),
        None => demonstration(),
    }
}

/// The file that a path or name means. A name that neither exists as a file nor is or looks like that of a model is
/// taken as a path, so that the error is about a file.
fn located(path: &Path) -> wglm_engine::Result<PathBuf> {
    let Some(name) = path.to_str().filter(|_| !path.exists()) else { return Ok(path.into()) };
    // The label after the colon may be the name of a file.
    let labelled = name.parse::<ModelName>().is_ok_and(|name| name.label.is_some());
    let is_file = name.ends_with(".gguf") && !labelled || name.contains('\\') || name.starts_with(['.', '/', '~']);
    let is_name = !is_file && (name.contains(':') || name.parse::<ModelName>().is_ok());
    match find_model(name, &Places::default()) {
        Ok(model) => Ok(model.path),
        Err(error) if is_name => Err(error),
        Err(_) => Ok(path.into()),
    }
}

/// The bytes of the demonstration model, if the program has one.
static DEMONSTRATION: OnceLock<&'static [u8]> = OnceLock::new();

/// Makes these bytes the demonstration model of this process.
pub fn set_demonstration(bytes: &'static [u8]) {
    DEMONSTRATION.get_or_init(|| bytes);
}

pub fn demonstration() -> anyhow::Result<Gguf> {
    match DEMONSTRATION.get() {
        Some(bytes) => Ok(Gguf::from_static(bytes)?),
        None => anyhow::bail!("no model given; name a GGUF file with -m, or build with the feature `demo-model`"),
    }
}

/// The name of the file in messages.
pub fn name(args: &FileArgs) -> String {
    args.model.as_ref().map_or("the demonstration model".into(), |path| path.display().to_string())
}

/// The name of an open file in messages.
pub fn title(file: &Gguf) -> String {
    file.path().map_or("the demonstration model".into(), |path| path.display().to_string())
}

/// Loads the model of a file with the options in `args` and the kind of drafts. If the GPU is lost meanwhile, opens it
/// again and loads the model once more.
pub fn load(file: &Gguf, args: &ModelArgs, guesses: DraftKind) -> anyhow::Result<Model> {
    let gpu = Gpu::open(&args.gpu.options()?)?;
    faults::during_load(&gpu);
    let model = match load_on(&gpu, file, args, guesses) {
        Err(error) if is_lost(&error) => {
            output::note(format_args!("note: {error}; trying once more"));
            load_on(&gpu.reopen()?, file, args, guesses)
        }
        loaded => loaded,
    }?;
    faults::after_load(model.gpu());
    Ok(model)
}

pub fn load_again(lost: &Model, args: &ModelArgs, guesses: DraftKind) -> anyhow::Result<Model> {
    load_on(&lost.gpu().reopen()?, lost.file(), args, guesses)
}

pub fn is_lost(error: &anyhow::Error) -> bool {
    error
        .downcast_ref()
        .is_some_and(|error: &wglm_engine::Error| matches!(error.cause(), wglm_engine::Error::DeviceLost { .. }))
}

/// Loads the model of a file onto a device, with the tuning that belongs to them.
pub fn load_on(gpu: &Gpu, file: &Gguf, args: &ModelArgs, guesses: DraftKind) -> anyhow::Result<Model> {
    load_tuned(gpu, file, args, guesses, tunings::wanted(args, gpu, file)?)
}

/// The same with this tuning.
pub fn load_tuned(
    gpu: &Gpu,
    file: &Gguf,
    args: &ModelArgs,
    guesses: DraftKind,
    tuning: Option<Tuning>,
) -> anyhow::Result<Model> {
    let bar = progress::bar(0, form(LoadStage::Weights));
    let mut shown = LoadStage::Weights;
    let mut tell = |progress: LoadProgress| show(&bar, &mut shown, progress);
    let draft_model = args.file.model_draft.as_deref().map(|path| open(Some(path))).transpose()?;
    let verdicts = verdicts::kept();
    let options =
        LoadOptions { check: args.check, verdicts, speculation: guesses, draft_model, tuning, ..args.file.options() };
    let loaded = Model::load_with(file, gpu, &options, &interrupts::cancel(), &mut tell);
    let found = loaded.as_ref().err().and_then(wglm_engine::Error::verdict);
    found.filter(|found| !found.replaced().is_empty()).into_iter().for_each(verdicts::keep);
    let model = loaded.map_err(|error| refused(error, || fits::judged(file, &args.file, guesses, gpu)))?;
    bar.finish_and_clear();
    model.verdict().into_iter().for_each(verdict);
    model.config().notices.iter().for_each(|notice| output::note(format_args!("note: {notice}")));
    if gpu.report().is_software() && args.file.model.is_some() {
        output::note(format_args!("note: `{}` runs on the CPU; expect it to be slow", gpu.report().name));
    }
    if args.file.zero_copy {
        zero_copy(&model);
    }
    let (context, made_for) = (model.cache().context, model.config().context);
    failure::set_made_for(made_for);
    if context > made_for {
        output::note(format_args!(
            "note: a context of {context} tokens exceeds the model's {made_for}; long replies may be worse"
        ));
    }
    Ok(model)
}

/// The error of a load, with what the model needs if that was the reason.
fn refused(error: wglm_engine::Error, judged: impl FnOnce() -> Judged) -> anyhow::Error {
    if !matches!(error.cause(), wglm_engine::Error::OutOfMemory { .. }) {
        return error.into();
    }
    let judged = judged();
    let Some(needed) = judged.needs.map(output::bytes) else { return error.into() };
    let why = match judged.why_not.filter(|_| judged.fits == Some(false)) {
        Some(why) => format!(" ({why})"),
        None => ", and other programs use a part of it".to_owned(),
    };
    anyhow::Error::new(error).context(format!("the model and one conversation need {needed} of GPU memory{why}"))
}

/// Saves the result of the kernel check, and prints a note if a kernel had to be replaced.
fn verdict(verdict: &Verdict) {
    verdicts::keep(verdict);
    if !verdict.replaced().is_empty() {
        output::note(format_args!("note: {verdict}"));
    }
}

fn zero_copy(model: &Model) {
    let in_place = output::bytes(model.weights_in_place());
    match model.gpu().shares_pages() {
        true => output::note(format_args!("note: {in_place} of weights are used in place")),
        false => output::note(format_args!(
            "note: --zero-copy has no effect: `{}` cannot use mapped files",
            model.gpu().report().name
        )),
    }
}

/// Shows the progress of a load. Length and position are set in one update, so that a stage is never drawn with the
/// numbers of another.
fn show(bar: &ProgressBar, shown: &mut LoadStage, LoadProgress { stage, done, total, .. }: LoadProgress) {
    if std::mem::replace(shown, stage) != stage {
        bar.set_style(progress::style(form(stage)));
    }
    if total == 0 {
        return; // a bar without a total would be drawn as full
    }
    bar.update(|state| {
        state.set_len(total);
        state.set_pos(done);
    });
}

fn form(stage: LoadStage) -> &'static str {
    match stage {
        LoadStage::Weights => "loading {bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}",
        LoadStage::Kernels => "compiling {bar:30} {pos}/{len}",
        _ => "checking {bar:30} {pos}/{len}",
    }
}
