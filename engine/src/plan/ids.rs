//! Indices into the lists of a plan. Each list has its own index type, so that the index of a weight is never mistaken
//! for that of a local buffer.

/// The index of a weight in [`Plan::weights`](super::Plan::weights), and of its buffer in the model's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WeightId(usize);

/// The index of a buffer in [`Plan::locals`](super::Plan::locals), and in the executor's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LocalId(usize);

impl WeightId {
    /// The id of the weight at `index`.
    pub const fn new(index: usize) -> Self {
        Self(index)
    }

    /// The index as a number.
    pub const fn index(self) -> usize {
        self.0
    }
}

impl LocalId {
    /// The id of the local buffer at `index`.
    pub const fn new(index: usize) -> Self {
        Self(index)
    }

    /// The index as a number.
    pub const fn index(self) -> usize {
        self.0
    }
}
