//! The models in a repository on the hub, and which of them suits this machine. The hub is asked on a thread.

use crate::engine;
use crate::fetch::sentence;
use crate::task::Task;
use eframe::egui::Context;
use wglm::catalog::ModelName;
use wglm::download::{Hub, HubOptions, Repository};
use wglm::offers::{Offer, offers};
use wglm::{Cancel, Error, Gpu};

/// A repository whose models are known.
#[derive(Debug)]
pub struct Listing {
    pub repository: Repository,
    pub models: Vec<Offer>,
    /// The number of bytes of each that are here.
    pub here: Vec<u64>,
    /// The one that is shown.
    pub shown: usize,
    /// Why some of it is not known.
    pub trouble: Option<String>,
}

impl Listing {
    /// The model that is shown.
    pub fn offer(&self) -> Option<&Offer> {
        self.models.get(self.shown)
    }

    /// The number of its bytes that are here.
    pub fn here(&self) -> u64 {
        self.here.get(self.shown).copied().unwrap_or(0)
    }
}

/// Asks which models a repository has. Shown at first is the one that is named, or else one whose download is
/// unfinished, or else the one that suits the machine best.
pub fn ask(window: &Context, gpu: &Gpu, name: ModelName) -> Task<Result<Listing, String>> {
    let gpu = gpu.clone();
    Task::start(window, move |cancel| asked(&gpu, &name, cancel).map_err(|error| sentence(&error)))
}

fn asked(gpu: &Gpu, name: &ModelName, cancel: &Cancel) -> Result<Listing, Error> {
    let hub = Hub::new(HubOptions::default())?;
    let repository = hub.list(&name.repo, "main", cancel)?;
    let found = offers(&hub, &repository, &engine::options(gpu, None), Some(gpu), cancel)?;
    let here: Vec<u64> = found.models.iter().map(|offer| hub.bytes_here(&repository, &offer.model)).collect();
    let place = |label: &str| found.models.iter().position(|offer| offer.model.label == label);
    let named = name.label.as_ref().map(|label| repository.model(label)).transpose()?;
    let begun = || found.models.iter().zip(&here).position(|(offer, here)| (1..offer.bytes).contains(here));
    let best = || found.models.iter().position(|offer| offer.chosen);
    let shown = named.and_then(|model| place(&model.label)).or_else(begun).or_else(best).unwrap_or(0);
    let trouble = found.failed.map(|error| sentence(&error));
    Ok(Listing { repository, models: found.models, here, shown, trouble })
}
