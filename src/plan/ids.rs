//! Places in the lists of a plan. Each list has a type of its own for them, so that the place of a weight is never taken
//! for that of a local buffer.

/// The place of a weight in [`Plan::weights`](super::Plan::weights), and of its buffer among those of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WeightId(usize);

/// The place of a buffer in [`Plan::locals`](super::Plan::locals), and of what an executor makes for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LocalId(usize);

impl WeightId {
    /// The place `index` of a list of weights.
    pub const fn new(index: usize) -> Self {
        Self(index)
    }

    /// The place as a number.
    pub const fn index(self) -> usize {
        self.0
    }
}

impl LocalId {
    /// The place `index` of a list of local buffers.
    pub const fn new(index: usize) -> Self {
        Self(index)
    }

    /// The place as a number.
    pub const fn index(self) -> usize {
        self.0
    }
}
