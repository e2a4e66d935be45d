//! The command `models`: lists the models on this machine, and tells which of them fit, or compares their files with
//! their hashes.

use super::args::ModelsArgs;
#[cfg(feature = "download")]
use super::interrupts::{self, OnInterrupt};
#[cfg(feature = "download")]
use super::verify::Comparison;
use super::{fits, output};
use serde::Serialize;
use std::process::ExitCode;
#[cfg(feature = "download")]
use wglm::verify_local;
use wglm::{Gguf, Judged, LoadOptions, LocalModel, Places, local_models};

/// A model, and what is known of it.
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
    if args.verify {
        return verify(&found, args);
    }
    list(args, places, found)?;
    Ok(ExitCode::SUCCESS)
}

/// Compares the models that are meant with the hashes that their files are named by.
#[cfg(feature = "download")]
fn verify(found: &[LocalModel], args: &ModelsArgs) -> anyhow::Result<ExitCode> {
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

fn list(args: &ModelsArgs, places: Places, found: Vec<LocalModel>) -> anyhow::Result<()> {
    let gpu = if found.is_empty() { None } else { fits::device(&args.gpu) };
    let listed: Vec<Listed> = found
        .into_iter()
        .map(|model| {
            let judged = match model.whole {
                true => Judged::of(&Gguf::open(&model.path), &LoadOptions::default(), gpu.as_ref()),
                false => Judged::unfit("not all of it is here"),
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
    let titles = [
        ("model", false),
        ("size", true),
        ("architecture", false),
        ("format", false),
        ("needs", true),
        ("of", false),
        ("fits", false),
    ];
    let rows: Vec<Vec<String>> = listed
        .iter()
        .map(|Listed { model, judged }| {
            vec![
                model.name.clone(),
                output::bytes(model.bytes),
                judged.architecture.clone().unwrap_or_default(),
                judged.format.clone().unwrap_or_default(),
                fits::needed(judged),
                model.source.name().into(),
                judged.to_string(),
            ]
        })
        .collect();
    output::lines(fits::table(&titles, &rows))?;
    if let Some(usable) = listed.iter().find(|listed| listed.judged.may_fit()) {
        let command = output::command();
        output::note(format_args!("\n-m takes these names, such as `{command} chat -m {}`", usable.model.name));
    }
    Ok(())
}
