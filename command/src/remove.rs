//! The command `models rm`: deletes a model from the Hugging Face cache.

use super::args::RemoveArgs;
use super::failure::Usage;
use super::{output, terminal};
use std::process::ExitCode;
use wglm_engine::Error;
use wglm_engine::catalog::{LocalModel, Places, Source, find_model};
use wglm_engine::download::Removal;

pub fn remove(args: &RemoveArgs, json: bool, places: &Places, found: &[LocalModel]) -> anyhow::Result<ExitCode> {
    let model = meant(&args.name, places, found)?;
    let removal = Removal::of(&model, places)?;
    let what = match model.whole {
        true => model.name.clone(),
        false => format!("the files of {}, which is incomplete,", model.name),
    };
    let bytes = output::bytes(removal.bytes());
    if !args.yes {
        if json || !terminal::is_typed() {
            return Err(Usage(format!("nothing was deleted; --yes deletes {what} and frees {bytes}")).into());
        }
        output::note(format_args!("This deletes {what} and frees {bytes}. Programs that share the cache lose it too:"));
        removal.files().for_each(|path| output::note(format_args!("  {}", path.display())));
        if !confirmed()? {
            output::note(format_args!("nothing was deleted"));
            return Ok(ExitCode::FAILURE);
        }
    }
    let (freed, files) = (removal.bytes(), removal.files().map(Into::into).collect::<Vec<std::path::PathBuf>>());
    removal.run()?;
    if json {
        let object = serde_json::json!({ "name": model.name, "freed": freed, "files": files });
        output::lines([object])?;
    } else {
        output::lines([format!("deleted {what} and freed {bytes}")])?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The model that a name means. A model in the cache takes precedence over those of other programs with the same name.
fn meant(name: &str, places: &Places, found: &[LocalModel]) -> anyhow::Result<LocalModel> {
    let named = || found.iter().filter(|model| model.name.eq_ignore_ascii_case(name));
    let in_cache = || named().filter(|model| model.source == Source::HuggingFace);
    // Two names may differ only in case.
    let exact = in_cache().find(|model| model.name == name).or_else(|| in_cache().next()).or_else(|| named().next());
    // The library would suggest downloading a missing model, which does not help to delete it.
    let missing = || anyhow::anyhow!("no model `{name}` is on this machine; `{} models` lists them", output::command());
    exact.cloned().map_or_else(
        || {
            find_model(name, places).map_err(|error| match error {
                Error::NoModel { .. } => missing(),
                other => other.into(),
            })
        },
        Ok,
    )
}

fn confirmed() -> anyhow::Result<bool> {
    output::prompt("Delete? [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(["y", "yes"].iter().any(|yes| answer.trim().eq_ignore_ascii_case(yes)))
}
