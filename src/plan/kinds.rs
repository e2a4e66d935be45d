//! The steps of a plan by what they do, whatever the layer.

use super::{Plan, Step};

/// The steps of one name, over all layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepKind<'a> {
    /// Their label without the layer.
    pub name: &'a str,
    /// Their places in [`Plan::steps`], ascending.
    pub steps: Vec<usize>,
}

impl Step {
    /// Its label without the layer, and without its number where it is a part of a step: the name of its kind.
    pub fn kind(&self) -> &str {
        let label = self.label.split(' ').next().unwrap_or_default();
        match label.split_once('.') {
            Some((layer, name)) if layer.starts_with('L') => name,
            _ => label,
        }
    }
}

impl Plan {
    /// The kinds of steps there are, in the order of each one's first.
    pub fn kinds(&self) -> Vec<StepKind<'_>> {
        let mut kinds: Vec<StepKind<'_>> = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            let name = step.kind();
            match kinds.iter_mut().find(|kind| kind.name == name) {
                Some(kind) => kind.steps.push(index),
                None => kinds.push(StepKind { name, steps: vec![index] }),
            }
        }
        kinds
    }
}
