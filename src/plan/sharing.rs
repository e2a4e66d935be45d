//! Activations that plans for chunks of different sizes share.

use super::{Plan, Purpose};
use std::collections::HashMap;

/// The key of an activation: its name, and its number among those with the same name.
pub type ScratchKey = (String, usize);

impl Plan {
    /// The caches, layer by layer, as indices in [`Plan::locals`].
    pub fn caches(&self) -> impl Iterator<Item = usize> {
        let locals = self.locals.iter().enumerate();
        locals.filter(|(_, local)| local.purpose == Purpose::Cache).map(|(index, _)| index)
    }

    /// The activations: their indices in [`Plan::locals`], their keys, and their sizes in bytes.
    pub fn scratch(&self) -> impl Iterator<Item = (usize, ScratchKey, u64)> {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        let locals = self.locals.iter().enumerate().filter(|(_, local)| local.purpose == Purpose::Scratch);
        locals.map(move |(index, local)| {
            let count = seen.entry(&local.name).or_default();
            *count += 1;
            (index, (local.name.clone(), *count), local.bytes)
        })
    }
}
