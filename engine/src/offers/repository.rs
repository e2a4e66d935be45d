//! The models of a repository, and which of them to choose.

use super::Judged;
use crate::cancel::Cancel;
use crate::download::{Hub, RemoteModel, Repository};
use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::model::LoadOptions;
use serde::Serialize;

/// The maximum number of bits per weight of the chosen model: more make a model slower, and hardly better.
const ENOUGH_BITS: f64 = 5.2;

/// A model of a repository, and what is known about it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Offer {
    /// The model.
    #[serde(flatten)]
    pub model: RemoteModel,
    /// The size of its files.
    pub bytes: u64,
    /// Whether it fits.
    #[serde(flatten)]
    pub judged: Judged,
    /// Whether it is the one that suits the machine best.
    pub chosen: bool,
}

/// The models of a repository.
#[derive(Debug)]
#[non_exhaustive]
pub struct Offers {
    /// All models, the smallest first.
    pub models: Vec<Offer>,
    /// Why a header could not be fetched. Then nothing is chosen, since the model that could not be judged may be the
    /// best.
    pub failed: Option<Error>,
}

impl Offers {
    /// The model that suits the machine best, if one does.
    pub fn chosen(&self) -> Option<&Offer> {
        self.models.iter().find(|offer| offer.chosen)
    }
}

/// Judges all models of a repository by their headers, which are fetched for it, and chooses one of them: the largest
/// that fits and does not exceed the useful number of bits, otherwise the smallest that fits.
///
/// # Errors
/// [`Error::Cancelled`].
pub fn offers(
    hub: &Hub,
    repository: &Repository,
    options: &LoadOptions,
    gpu: Option<&Gpu>,
    cancel: &Cancel,
) -> Result<Offers> {
    let models: Vec<&RemoteModel> = repository.models.iter().collect();
    // A header takes megabytes, so each is dropped once it is judged.
    let judge = |header| (Judged::of(&header, options, gpu), header.err());
    let found = hub.each_header(repository, &models, &judge, cancel)?;
    let (judged, errors): (Vec<Judged>, Vec<Option<Error>>) = found.into_iter().unzip();
    let failed = errors.into_iter().flatten().find(|error| matches!(error, Error::Download { .. }));
    let chosen = if failed.is_none() { best(&judged) } else { None };
    let offer = |(index, (model, judged)): (usize, (&RemoteModel, Judged))| Offer {
        model: model.clone(),
        bytes: model.bytes(),
        judged,
        chosen: chosen == Some(index),
    };
    Ok(Offers { models: models.into_iter().zip(judged).enumerate().map(offer).collect(), failed })
}

/// Chooses one of several models, the smallest first. A model whose fit is unknown counts as fitting.
fn best(judged: &[Judged]) -> Option<usize> {
    let enough = |judged: &Judged| judged.may_fit() && judged.bits_per_weight.is_some_and(|bits| bits <= ENOUGH_BITS);
    judged.iter().rposition(enough).or_else(|| judged.iter().position(Judged::may_fit))
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
