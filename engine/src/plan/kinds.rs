//! Groups the steps of a plan by their kind, over all layers.

use super::{Plan, Step};

/// The steps of one name, in all layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepKind<'a> {
    /// The label of the steps without the layer.
    pub name: &'a str,
    /// The indices of the steps in [`Plan::steps`], ascending.
    pub steps: Vec<usize>,
}

impl Step {
    /// The name of a step's kind: its label without the layer and, if it is a part of a split step, without the number
    /// of the part.
    pub fn kind(&self) -> &str {
        let label = self.label.split(' ').next().unwrap_or_default();
        match label.split_once('.') {
            Some((layer, name)) if layer.starts_with('L') => name,
            _ => label,
        }
    }
}

impl Plan {
    /// All kinds of steps, in the order of their first steps.
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
