//! How much GPU memory a model needs, and whether it fits: one number for all commands. It is the library's estimate
//! for the model and one conversation, with the options of the command, on the GPU that it would use. It ignores
//! tunings, which listings do not load.

use super::args::{FileArgs, GpuArgs};
use super::output;
use wglm_engine::offers::Judged;
use wglm_engine::{DraftKind, Gguf, Gpu, LoadOptions};

/// Opens the GPU for which models are judged, if there is one.
pub fn device(args: &GpuArgs) -> Option<Gpu> {
    let opened = args.options().and_then(|options| Gpu::open(&options));
    opened.inspect_err(|error| output::note(format_args!("note: {error}"))).ok()
}

/// Judges a model for a load with these options.
pub fn judged(file: &Gguf, args: &FileArgs, guesses: DraftKind, gpu: &Gpu) -> Judged {
    let options = LoadOptions { speculation: guesses, ..args.options() };
    Judged::of(&Ok(file.clone()), &options, Some(gpu))
}

/// The memory that a model needs, for a table.
pub fn needed(judged: &Judged) -> String {
    judged.needs.map(output::bytes).unwrap_or_default()
}

/// Whether a model fits, as one word for a table, and an explanation if one is needed.
pub fn verdict(judged: &Judged) -> (String, Option<String>) {
    let word = match judged.fits {
        Some(true) => "yes",
        Some(false) => "no",
        None => "?",
    };
    (word.to_owned(), judged.why_not.clone())
}
