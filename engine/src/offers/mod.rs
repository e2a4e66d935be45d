//! Which models suit this machine: what is known about a file before it is loaded, which repositories are worth a look,
//! and which of a repository's models to choose.

mod judged;
mod repositories;
#[cfg(feature = "download")]
mod repository;

pub use crate::model::Fit;
pub use judged::Judged;
pub use repositories::{Recommended, recommended};
#[cfg(feature = "download")]
pub use repository::{Offer, Offers, offers};
