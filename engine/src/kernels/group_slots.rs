//! Orders slots by expert. Each selected expert of each row of a batch is a slot.

use super::computes::Grouped;
use super::{Kernel, params};
use crate::error::Result;
use crate::plan::{Builder, Cost, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/group_slots.wgsl");
const WORKGROUP: usize = 256;

params! { places: u32, tiles: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "group_slots", op: OP, params: Params::FIELDS, matrices: &[] };

/// Slots ordered by expert, and the tiles into which they are divided for products.
pub struct Groups {
    /// The slots ordered by expert {slots}, u32: token · `top_k` + rank of the expert.
    pub slots: Tensor,
    /// For each tile, u32: its expert, its first index in `slots`, and its number of slots, which may be 0.
    pub tiles: Tensor,
    /// The most slots of a tile.
    pub places: usize,
}

impl Builder {
    /// Groups the slots of ids {`top_k`, tokens}, u32 below `experts`, and divides them into tiles of up to `places`
    /// slots.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if there are more experts than workgroups.
    pub fn group_slots(&mut self, label: &str, ids: &Tensor, experts: usize, places: usize) -> Result<Groups> {
        let [top_k, tokens] = ids.shape;
        let count = top_k * tokens;
        let most = count / places + experts.min(count);
        let slots = self.tensor_with_stride(&format!("{label}.slots"), [count, 1], count);
        let tiles = self.tensor_with_stride(&format!("{label}.tiles"), [4, most], 4);
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP)
            .constant("EXPERTS", "e", experts)
            .constant("TOP_K", "k", top_k);
        let variant = self.batch_files(variant);
        let buffers = [("ids", ids.buffer), ("slots", slots.buffer), ("tiles", tiles.buffer)];
        let mut bindings = vec![self.bound_batch()];
        bindings.extend(buffers.map(|(name, buffer)| self.bound(name, buffer)));
        let params = Params { places: places as u32, tiles: most as u32 };
        let activations = ids.bytes() + slots.bytes() + tiles.bytes();
        let groups = Groups { slots, tiles, places };
        self.computes(KERNEL.name, Grouped::new(*ids, experts, &groups));
        self.step(label, variant, bindings, &params, [experts, 1, 1], Cost::of_activations(activations))?;
        Ok(groups)
    }
}
