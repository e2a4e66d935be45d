//! The command `pull`: lists the models of a repository and which of them fit, downloads a model, and compares files
//! with the hashes that the hub lists.

use super::args::PullArgs;
use super::interrupts::{self, OnInterrupt};
use super::listing::{self, Entry};
use super::verify::{CHECKING, Comparison};
use super::{fits, output, progress, terminal};
use anyhow::Context;
use std::process::ExitCode;
use wglm_engine::Error;
use wglm_engine::catalog::{ModelName, Places, find_model};
use wglm_engine::download::{Hub, HubOptions, PullProgress, PullStage, RemoteModel, Repository};
use wglm_engine::offers::{Judged, Offer, Offers, offers};

pub fn pull(args: &PullArgs) -> anyhow::Result<ExitCode> {
    interrupts::begin(OnInterrupt::ExitAfterGrace);
    interrupts::listen(false)?;
    let usual = HubOptions::default();
    if usual.offline {
        return offline(args);
    }
    let connections = args.connections.map_or(usual.connections, |count| count as usize);
    let hub = Hub::new(HubOptions { connections, ..usual })?;
    let ModelName { repo, label, .. } = &args.name;
    let repository = hub.list(repo, &args.revision, &interrupts::cancel())?;
    anyhow::ensure!(
        !repository.models.is_empty(),
        "{repo} has no GGUF file; look for a repository whose name has GGUF in it"
    );
    if args.list {
        let offers = judged(&hub, &repository, args)?;
        if args.json {
            output::lines([serde_json::to_string_pretty(&offers.models)?])?;
        } else {
            output::lines(table(&offers, output::columns()))?;
            listing::explain();
            offers.failed.into_iter().for_each(|error| output::note(format_args!("note: {error}")));
        }
        return Ok(ExitCode::SUCCESS);
    }
    if args.verify {
        return verify(&hub, &repository, label.as_deref(), args.json);
    }
    let model = match label {
        Some(label) => {
            // If the repository lacks the model, it cannot be downloaded, so the hints for models on this machine do
            // not help.
            let model = repository.model(label).map_err(|error| anyhow::anyhow!("{error}"))?;
            warn(&hub, &repository, model, args)?;
            model
        }
        None => choose(&hub, &repository, args)?,
    };
    download(&hub, &repository, model, args)?;
    Ok(ExitCode::SUCCESS)
}

/// Uses the models on this machine, since no server may be contacted.
fn offline(args: &PullArgs) -> anyhow::Result<ExitCode> {
    let command = output::command();
    anyhow::ensure!(
        !args.list && !args.verify,
        "the hub is not contacted while HF_HUB_OFFLINE is set; `{command} models` lists the models on this machine, \
         and `{command} models --verify` compares them with their hashes"
    );
    let name = args.name.to_string();
    let model = find_model(&name, &Places::default())
        .map_err(|error| not_here(&error).context("nothing can be downloaded while HF_HUB_OFFLINE is set"))?;
    if args.json {
        let object = serde_json::json!({ "name": model.name, "path": model.path, "received": 0, "verified": false });
        output::lines([object])?;
    } else {
        let name = &model.name;
        output::note(format_args!(
            "offline (HF_HUB_OFFLINE): using {name} on this machine; to chat with it:\n  {command} chat -m {name}"
        ));
        output::lines([model.path.display()])?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The error for a model that is not on this machine, without the advice to download it.
fn not_here(error: &Error) -> anyhow::Error {
    match error {
        Error::NoModel { name, found, .. } => {
            anyhow::anyhow!("no model `{name}` on this machine: found {found}; unset HF_HUB_OFFLINE to download it")
        }
        error => anyhow::anyhow!("{error}"),
    }
}

/// Compares a model with the hashes that the hub lists, or without a label all models with files on this machine.
fn verify(hub: &Hub, repository: &Repository, label: Option<&str>, json: bool) -> anyhow::Result<ExitCode> {
    let models: Vec<&RemoteModel> = match label {
        Some(label) => vec![repository.model(label).map_err(|error| anyhow::anyhow!("{error}"))?],
        None => repository.models.iter().filter(|model| hub.bytes_here(repository, model) > 0).collect(),
    };
    anyhow::ensure!(!models.is_empty(), "no model of {} is on this machine", repository.name);
    let mut comparison = Comparison::of(models.iter().map(|model| model.bytes()).fold(0, u64::saturating_add));
    for model in models {
        let name = format!("{}:{}", repository.name, model.label);
        comparison.model(&name, model.bytes(), |tell| hub.verify(repository, model, &interrupts::cancel(), tell))?;
    }
    comparison.tell(json)
}

/// Judges all models of a repository by their headers, and shows a line meanwhile.
fn judged(hub: &Hub, repository: &Repository, args: &PullArgs) -> anyhow::Result<Offers> {
    let gpu = fits::device(&args.needs.gpu);
    let line = progress::ProgressLine::new(0);
    line.doing(format!("reading the headers of {}", output::count(repository.models.len(), "model")));
    Ok(offers(hub, repository, &args.needs.options(), gpu.as_ref(), &interrupts::cancel())?)
}

fn table(offers: &Offers, width: Option<usize>) -> Vec<String> {
    let titles = [("model", false), ("size", true), ("bits", true), ("needs", true), ("fits", false), ("", false)];
    let entry = |offer: &Offer| {
        let bits = offer.judged.bits_per_weight.map(|bits| format!("{bits:.1}")).unwrap_or_default();
        let mark = if offer.chosen { "<- suggested" } else { "" };
        let (fits, below) = fits::verdict(&offer.judged);
        let (label, size, needs) = (offer.model.label.clone(), output::bytes(offer.bytes), fits::needed(&offer.judged));
        Entry { cells: vec![label, size, bits, needs, fits, mark.into()], below }
    };
    listing::lines(&titles, &offers.models.iter().map(entry).collect::<Vec<_>>(), width)
}

/// Shows the models and chooses the one that suits this machine.
fn choose<'a>(hub: &Hub, repository: &'a Repository, args: &PullArgs) -> anyhow::Result<&'a RemoteModel> {
    let offers = judged(hub, repository, args)?;
    table(&offers, terminal::columns_for_asides()).iter().for_each(|line| output::note(format_args!("{line}")));
    listing::explain();
    let chosen = offers.chosen().map(|offer| offer.model.label.clone());
    offers.failed.map_or(Ok(()), Err)?; // a model that could not be judged may be the best
    let label = chosen
        .with_context(|| format!("no model of {} fits; to get one anyway, name it after a colon", repository.name))?;
    let chosen = repository.model(&label)?;
    output::note(format_args!(
        "{}:{} suits this machine; to get another, name it after a colon",
        repository.name, chosen.label
    ));
    Ok(chosen)
}

/// Warns if a named model will not run here, before it is downloaded.
fn warn(hub: &Hub, repository: &Repository, model: &RemoteModel, args: &PullArgs) -> anyhow::Result<()> {
    let header = hub.header(repository, model, &interrupts::cancel());
    if let Err(error @ (Error::Cancelled | Error::Download { .. })) = header {
        return Err(error.into());
    }
    let judged = Judged::of(&header, &args.needs.options(), fits::device(&args.needs.gpu).as_ref());
    if judged.fits == Some(false) {
        output::note(format_args!("note: {} does not run here: {}", model.label, judged.why_not.unwrap_or_default()));
    }
    Ok(())
}

fn download(hub: &Hub, repository: &Repository, model: &RemoteModel, args: &PullArgs) -> anyhow::Result<()> {
    let name = format!("{}:{}", repository.name, model.label);
    let bar = progress::bar(model.bytes(), form(PullStage::Downloading));
    let mut shown = PullStage::Downloading;
    let mut trouble = None;
    let mut tell = |progress: PullProgress| {
        if std::mem::replace(&mut shown, progress.stage) != progress.stage {
            bar.set_style(progress::style(form(progress.stage)));
            bar.reset_eta();
        }
        bar.set_position(progress.done);
        if trouble != progress.trouble {
            if let Some(reason) = &progress.trouble {
                bar.suspend(|| output::note(format_args!("note: {reason}; trying again")));
            }
            trouble = progress.trouble;
        }
    };
    if !output::draws_progress() {
        output::note(format_args!("downloading {name}, {}", output::bytes(model.bytes())));
    }
    let pulled = hub.pull(repository, model, &interrupts::cancel(), &mut tell);
    bar.finish_and_clear();
    let pulled = pulled.inspect_err(|error| {
        if matches!(error, Error::Cancelled) {
            output::note(format_args!("stopped; the same command resumes the download"));
        }
    })?;
    if args.json {
        let object = serde_json::json!({ "name": name, "path": pulled.path, "received": pulled.received, "verified": pulled.verified });
        return output::lines([object]);
    }
    let listed = model.files.iter().all(|file| file.sha256.is_some());
    let what = match (pulled.verified, pulled.received) {
        (true, _) if listed => "is downloaded, and its SHA-256 matches",
        (true, _) => "is downloaded, and its hash matches",
        (false, 0) => "was here already",
        (false, _) => "is downloaded, and the received files match their hashes",
    };
    output::note(format_args!("{name} {what}; to chat with it:\n  {} chat -m {name}", output::command()));
    output::lines([pulled.path.display()])
}

fn form(stage: PullStage) -> &'static str {
    match stage {
        PullStage::Checking => CHECKING,
        _ => "downloading {bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}",
    }
}
