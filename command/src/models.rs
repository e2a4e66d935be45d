//! The command `models`: lists the models on this machine and which of them fit, or compares their files with their
//! hashes.

use super::args::ModelsArgs;
#[cfg(feature = "download")]
use super::args::ModelsCommand;
use super::listing::{self, Entry};
#[cfg(feature = "download")]
use super::{failure, remove, verify};
use super::{fits, output};
use serde::Serialize;
use std::process::ExitCode;
use wglm_engine::Gguf;
use wglm_engine::catalog::{LocalModel, Places, local_models};
use wglm_engine::offers::Judged;

#[derive(Serialize)]
struct Listed {
    #[serde(flatten)]
    model: LocalModel,
    #[serde(flatten)]
    judged: Judged,
}

pub fn models(args: &ModelsArgs) -> anyhow::Result<ExitCode> {
    let places = Places::default();
    let found = local_models(&places);
    #[cfg(feature = "download")]
    if let Some(ModelsCommand::Rm(removed)) = &args.command {
        if args.verify || args.name.is_some() {
            return Err(failure::Usage("models rm takes neither --verify nor a name before `rm`".to_owned()).into());
        }
        return remove::remove(removed, args.is_json(), &places, &found);
    }
    #[cfg(feature = "download")]
    match (&args.name, args.verify) {
        (_, true) => return verify::local(&found, args),
        (Some(name), false) => return Err(failure::Usage(unexpected(name)).into()),
        (None, false) => {}
    }
    list(args, places, found)?;
    Ok(ExitCode::SUCCESS)
}

/// The error for a name without the option that needs it.
#[cfg(feature = "download")]
fn unexpected(name: &str) -> String {
    let command = output::command();
    format!(
        "`{command} models` lists all models and accepts no name, found `{name}`; `{command} models --verify NAME` compares a \
         model, `{command} models rm NAME` deletes one"
    )
}

fn list(args: &ModelsArgs, places: Places, found: Vec<LocalModel>) -> anyhow::Result<()> {
    let gpu = if found.is_empty() { None } else { fits::device(&args.needs.gpu) };
    let options = args.needs.options();
    let listed: Vec<Listed> = found
        .into_iter()
        .map(|model| {
            let judged = match model.whole {
                true => Judged::of(&Gguf::open(&model.path), &options, gpu.as_ref()),
                false => Judged::unfit("it is incomplete"),
            };
            Listed { model, judged }
        })
        .collect();
    if args.json {
        return output::lines([serde_json::to_string_pretty(&listed)?]);
    }
    if listed.is_empty() {
        let folders = places.hub.into_iter().chain(places.lm_studio).chain(places.llama_cpp).chain(places.ollama);
        output::note(format_args!("no models in"));
        folders.for_each(|folder| output::note(format_args!("  {}", folder.display())));
        return Ok(());
    }
    output::lines(table(&listed, args.verbose))?;
    output::note(format_args!(""));
    listing::explain();
    if let Some(usable) = listed.iter().find(|listed| listed.judged.may_fit()) {
        let command = output::command();
        output::note(format_args!("-m accepts these names, such as `{command} chat -m {}`", usable.model.name));
    }
    Ok(())
}

/// A line for each model; if `verbose`, with everything that is known, regardless of width.
fn table(listed: &[Listed], verbose: bool) -> Vec<String> {
    let mut titles = vec![("model", false), ("size", true), ("needs", true), ("fits", false), ("of", false)];
    if verbose {
        titles.extend([("architecture", false), ("format", false)]);
    }
    let entry = |Listed { model, judged }: &Listed| {
        let (fits, below) = fits::verdict(judged);
        let (size, needs) = (output::bytes(model.bytes), fits::needed(judged));
        let mut cells = vec![model.name.clone(), size, needs, fits, model.source.name().into()];
        if verbose {
            cells.extend([&judged.architecture, &judged.format].map(|known| known.clone().unwrap_or_default()));
        }
        Entry { cells, below }
    };
    let entries: Vec<Entry> = listed.iter().map(entry).collect();
    listing::lines(&titles, &entries, if verbose { None } else { output::columns() })
}
