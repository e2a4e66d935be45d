//! The command `models`: lists the models on this machine, and tells which of them fit.

use super::args::ModelsArgs;
use super::{fits, output};
use serde::Serialize;
use wglm::{Gguf, Judged, LoadOptions, LocalModel, Places, local_models};

/// A model, and what is known of it.
#[derive(Serialize)]
struct Listed {
    #[serde(flatten)]
    model: LocalModel,
    #[serde(flatten)]
    judged: Judged,
}

pub fn models(args: &ModelsArgs) -> anyhow::Result<()> {
    let places = Places::default();
    let found = local_models(&places);
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
