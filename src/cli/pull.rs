//! The command `pull`: lists what a repository holds and what of it fits, and downloads a model.

use super::args::PullArgs;
use super::fits::{self, Judged};
use super::interrupts::{self, OnInterrupt};
use super::{output, progress};
use anyhow::Context;
use indicatif::ProgressStyle;
use serde::Serialize;
use std::ops::ControlFlow;
use wglm::{Error, Hub, HubOptions, ModelName, PullProgress, PullStage, RemoteModel, Repository};

/// The most bits a weight of what is chosen where no model is named: more of them make a model slower, and hardly better.
const ENOUGH_BITS: f64 = 5.2;

/// A model of a repository, and what is known of it.
#[derive(Serialize)]
struct Offer<'a> {
    #[serde(flatten)]
    model: &'a RemoteModel,
    bytes: u64,
    #[serde(flatten)]
    judged: Judged,
    /// Whether it is what `pull` downloads where no model is named.
    chosen: bool,
}

pub fn pull(args: &PullArgs) -> anyhow::Result<()> {
    interrupts::begin(OnInterrupt::ExitAfterGrace);
    interrupts::listen(false)?;
    let usual = HubOptions::default();
    let connections = args.connections.map_or(usual.connections, |count| count as usize);
    let hub = Hub::new(HubOptions { connections, ..usual })?;
    let ModelName { repo, label, .. } = &args.name;
    let repository = hub.list(repo, &args.revision, &mut go_on)?;
    anyhow::ensure!(
        !repository.models.is_empty(),
        "{repo} has no GGUF file; look for a repository whose name has GGUF in it"
    );
    if args.list {
        let (offers, _) = offers(&hub, &repository, args)?;
        if args.json {
            return output::lines([serde_json::to_string_pretty(&offers)?]);
        }
        return output::lines(table(&offers));
    }
    let model = match label {
        Some(label) => {
            // What the repository lacks cannot be downloaded either, so the hints for models on this machine do not help.
            let model = repository.model(label).map_err(|error| anyhow::anyhow!("{error}"))?;
            warn(&hub, &repository, model, args)?;
            model
        }
        None => choose(&hub, &repository, args)?,
    };
    download(&hub, &repository, model, args)
}

fn go_on() -> ControlFlow<()> {
    if interrupts::asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Judges all models of a repository by their headers. If some could not be fetched, nothing is chosen, and the second is
/// the error.
fn offers<'a>(
    hub: &Hub,
    repository: &'a Repository,
    args: &PullArgs,
) -> anyhow::Result<(Vec<Offer<'a>>, Option<Error>)> {
    let models: Vec<&RemoteModel> = repository.models.iter().collect();
    let line = progress::ProgressLine::new(0);
    line.doing(format!("reading the headers of {}", output::count(models.len(), "model")));
    let headers = hub.headers(repository, &models, &mut go_on)?;
    drop(line);
    let gpu = fits::device(&args.gpu);
    let judged: Vec<Judged> = headers.iter().map(|header| fits::judge(header, gpu.as_ref())).collect();
    let failed = headers.into_iter().filter_map(Result::err).find(|error| matches!(error, Error::Download { .. }));
    let chosen = if failed.is_none() { best(&judged) } else { None };
    let offer = |(index, (model, judged)): (usize, (&'a RemoteModel, Judged))| Offer {
        model,
        bytes: model.bytes(),
        judged,
        chosen: chosen == Some(index),
    };
    Ok((models.into_iter().zip(judged).enumerate().map(offer).collect(), failed))
}

/// Which of several models, the smallest first, to take: the largest that fits and has no more bits than are of use,
/// otherwise the smallest that fits. One of which nobody knows whether it fits counts as fitting.
fn best(judged: &[Judged]) -> Option<usize> {
    let fit = |judged: &Judged| judged.fits != Some(false);
    let enough = |judged: &Judged| fit(judged) && judged.bits_per_weight.is_some_and(|bits| bits <= ENOUGH_BITS);
    judged.iter().rposition(enough).or_else(|| judged.iter().position(fit))
}

fn table(offers: &[Offer<'_>]) -> Vec<String> {
    let titles = [("", false), ("model", false), ("size", true), ("bits", true), ("needs", true), ("fits", false)];
    let row = |offer: &Offer<'_>| {
        let bits = offer.judged.bits_per_weight.map(|bits| format!("{bits:.1}")).unwrap_or_default();
        let mark = if offer.chosen { "*" } else { "" };
        let cells = [
            mark,
            &offer.model.label,
            &output::bytes(offer.bytes),
            &bits,
            &offer.judged.needed(),
            &offer.judged.words(),
        ];
        cells.map(str::to_owned).to_vec()
    };
    fits::table(&titles, &offers.iter().map(row).collect::<Vec<_>>())
}

/// Shows what there is and takes what suits this machine.
fn choose<'a>(hub: &Hub, repository: &'a Repository, args: &PullArgs) -> anyhow::Result<&'a RemoteModel> {
    let (offers, failed) = offers(hub, repository, args)?;
    table(&offers).iter().for_each(|line| output::note(format_args!("{line}")));
    failed.map_or(Ok(()), Err)?; // what could not be judged may be what suits best
    let chosen = offers.iter().find(|offer| offer.chosen).map(|offer| offer.model);
    let chosen = chosen
        .with_context(|| format!("nothing of {} fits; name one after a colon to get it anyway", repository.name))?;
    output::note(format_args!(
        "{}:{} suits this machine; name another after a colon to get that",
        repository.name, chosen.label
    ));
    Ok(chosen)
}

/// Says of a model that was named if it will not run here, before it is downloaded.
fn warn(hub: &Hub, repository: &Repository, model: &RemoteModel, args: &PullArgs) -> anyhow::Result<()> {
    let header = hub.header(repository, model, &mut go_on);
    if let Err(error @ (Error::Cancelled | Error::Download { .. })) = header {
        return Err(error.into());
    }
    let judged = fits::judge(&header, fits::device(&args.gpu).as_ref());
    if judged.fits == Some(false) {
        output::note(format_args!("note: {} does not run here: {}", model.label, judged.why_not.unwrap_or_default()));
    }
    Ok(())
}

fn download(hub: &Hub, repository: &Repository, model: &RemoteModel, args: &PullArgs) -> anyhow::Result<()> {
    let name = format!("{}:{}", repository.name, model.label);
    let bar = progress::bar(model.bytes()).with_style(style(PullStage::Downloading));
    let mut shown = PullStage::Downloading;
    let mut trouble = None;
    let mut tell = |progress: PullProgress| {
        if std::mem::replace(&mut shown, progress.stage) != progress.stage {
            bar.set_style(style(progress.stage));
            bar.reset_eta();
        }
        bar.set_position(progress.done);
        if trouble != progress.trouble {
            if let Some(reason) = &progress.trouble {
                bar.suspend(|| output::note(format_args!("note: {reason}; trying again")));
            }
            trouble = progress.trouble;
        }
        go_on()
    };
    if !output::draws_progress() {
        output::note(format_args!("downloading {name}, {}", output::bytes(model.bytes())));
    }
    let pulled = hub.pull(repository, model, &mut tell);
    bar.finish_and_clear();
    let pulled = pulled.inspect_err(|error| {
        if matches!(error, Error::Cancelled) {
            output::note(format_args!("stopped; the same command goes on from here"));
        }
    })?;
    if args.json {
        let object = serde_json::json!({ "name": name, "path": pulled.path, "received": pulled.received, "verified": pulled.verified });
        return output::lines([object]);
    }
    let listed = model.files.iter().all(|file| file.sha256.is_some());
    let what = match (pulled.verified, pulled.received) {
        (true, _) => "is here, and its SHA-256 is right",
        (false, 0) => "was here already",
        (false, _) if listed => "is here, and the SHA-256 of what came is right",
        (false, _) => "is here, as far as its size shows, for the hub lists no SHA-256 of all of it",
    };
    output::note(format_args!("{name} {what}; to talk with it:\n  {} chat -m {name}", output::command()));
    output::lines([pulled.path.display()])
}

fn style(stage: PullStage) -> ProgressStyle {
    let template = match stage {
        PullStage::Checking => "checking {bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}",
        _ => "downloading {bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}",
    };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::{Judged, best};

    #[test]
    fn the_largest_of_use_that_fits_is_chosen() {
        let of = |bits, fits| Judged { bits_per_weight: Some(bits), fits, ..Judged::default() };
        let (yes, no) = (Some(true), Some(false));
        for (judged, chosen) in [
            (vec![of(2.6, yes), of(4.5, yes), of(5.1, yes), of(8.5, yes)], Some(2)),
            (vec![of(2.6, yes), of(4.5, no), of(8.5, no)], Some(0)),
            (vec![of(2.6, no), of(4.5, None), of(8.5, None)], Some(1)),
            (vec![of(8.5, yes), of(16.0, yes)], Some(0)),
            (vec![of(2.6, no)], None),
            (vec![], None),
        ] {
            assert_eq!(best(&judged), chosen, "{judged:?}");
        }
    }
}
