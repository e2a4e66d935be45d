//! Activations that plans for batches of different sizes share.

use super::{LocalId, Plan, Purpose};
use std::collections::HashMap;

/// The key of an activation: its name, and its index among those with the same name.
pub type ScratchKey = (String, usize);

impl Plan {
    /// The caches, layer by layer.
    pub fn caches(&self) -> impl Iterator<Item = LocalId> {
        self.locals_by_id().filter(|(_, local)| local.purpose == Purpose::Cache).map(|(id, _)| id)
    }

    /// The activations: their ids, keys, and sizes in bytes.
    pub fn scratch(&self) -> impl Iterator<Item = (LocalId, ScratchKey, u64)> {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        let locals = self.locals_by_id().filter(|(_, local)| local.purpose == Purpose::Scratch);
        locals.map(move |(id, local)| {
            let count = seen.entry(&local.name).or_default();
            *count += 1;
            (id, (local.name.clone(), *count), local.bytes)
        })
    }
}
