//! Orders slots by expert. Each selected expert of each row of a batch is a slot. If the shared experts are computed
//! with the others, each row has one more slot for them, its first.

use super::computes::Grouped;
use super::{Kernel, params};
use crate::error::Result;
use crate::plan::{Builder, Cost, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/group_slots.wgsl");
const WORKGROUP: usize = 256;

params! { places: u32, shared_tiles: u32, tiles: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "group_slots", op: OP, params: Params::FIELDS, matrices: &[] };

/// Slots ordered by expert, and the tiles into which they are divided for products.
pub struct Groups {
    /// The slots ordered by expert {slots}, u32: token · `per_row` + slot of the token. The last slots of a token are
    /// those of its selected experts, in their order.
    pub slots: Tensor,
    /// The number of slots of a token.
    pub per_row: usize,
    /// For each tile, u32: its expert, its first index in `slots`, and its number of slots, which may be 0. If there
    /// are shared experts, an entry with the number of their tiles, which come first, and that of all tiles precedes
    /// them.
    pub tiles: Tensor,
    /// The number of tiles for the shared experts.
    pub shared_tiles: usize,
    /// The maximum number of slots in a tile.
    pub places: usize,
}

impl Groups {
    /// The number of tiles.
    pub fn tiles(&self) -> usize {
        self.tiles.shape[1] - usize::from(self.shared_tiles > 0)
    }
}

impl Builder {
    /// Groups the slots of ids {`top_k`, tokens}, u32 below `experts`, and divides them into tiles of up to `places`
    /// slots. If there are `shared` experts, each token has a slot for them, too: they count as expert `experts`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if there are more experts than workgroups.
    pub fn group_slots(
        &mut self,
        label: &str,
        ids: &Tensor,
        (experts, shared): (usize, bool),
        places: usize,
    ) -> Result<Groups> {
        let [top_k, tokens] = ids.shape;
        let (selected, per_row) = (top_k * tokens, top_k + usize::from(shared));
        let shared_tiles = if shared { tokens.div_ceil(places) } else { 0 };
        let (count, most) = (per_row * tokens, selected / places + experts.min(selected) + shared_tiles);
        let slots = self.tensor_with_stride(&format!("{label}.slots"), [count, 1], count);
        let tiles = self.tensor_with_stride(&format!("{label}.tiles"), [4, most + usize::from(shared)], 4);
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP)
            .constant("EXPERTS", "e", experts)
            .constant("TOP_K", "k", top_k)
            .constant("SLOTS", if shared { "s" } else { "" }, per_row);
        let variant = self.batch_files(variant);
        let buffers = [("ids", ids.buffer), ("slots", slots.buffer), ("tiles", tiles.buffer)];
        let mut bindings = vec![self.bound_batch()];
        bindings.extend(buffers.map(|(name, buffer)| self.bound(name, buffer)));
        let params = Params { places: places as u32, shared_tiles: shared_tiles as u32, tiles: most as u32 };
        let activations = ids.bytes() + slots.bytes() + tiles.bytes();
        let groups = Groups { slots, per_row, tiles, shared_tiles, places };
        self.computes(KERNEL.name, Grouped::new(*ids, experts, &groups));
        let grid = [experts + usize::from(shared), 1, 1];
        self.step(label, variant, bindings, &params, grid, Cost::of_activations(activations))?;
        Ok(groups)
    }
}
