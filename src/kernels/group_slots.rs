//! A chunk's slots by expert: each chosen expert of each token is a slot.

use super::reference::Grouped;
use super::{Case, CaseBuilder, Kernel, ValueType, params};
use crate::error::Result;
use crate::plan::{Builder, Cost, Target, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/group_slots.wgsl");
const WORKGROUP: usize = 256;

params! { places: u32, tiles: u32 }

pub(super) const KERNEL: Kernel =
    Kernel { name: "group_slots", op: OP, params: Params::FIELDS, matrices: &[], several: false, cases };

/// Slots in order of their experts, and the tiles that products cut them into.
pub struct Groups {
    /// Slots by expert {slots}, u32: token times chosen experts of a token, plus rank.
    pub slots: Tensor,
    /// Of each tile, u32: its expert, its first place in `slots`, and how many places it has, maybe none.
    pub tiles: Tensor,
    /// Places of a tile at most.
    pub places: usize,
}

impl Builder {
    /// Groups the slots of ids {`top_k`, tokens}, u32 below `experts`, and cuts them into tiles of up to `places`.
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
        let variant = self.state_files(variant);
        let buffers = [("ids", ids.buffer), ("slots", slots.buffer), ("tiles", tiles.buffer)];
        let mut bindings = vec![self.bound_state()];
        bindings.extend(buffers.map(|(name, buffer)| self.bound(name, buffer)));
        let params = Params { places: places as u32, tiles: most as u32 };
        let activations = ids.bytes() + slots.bytes() + tiles.bytes();
        let groups = Groups { slots, tiles, places };
        self.computes(KERNEL.name, Grouped::new(*ids, experts, &groups));
        self.step(label, variant, bindings, &params, [experts, 1, 1], Cost::of_activations(activations))?;
        Ok(groups)
    }
}

fn cases(target: Target) -> Result<Vec<Case>> {
    let shapes = [(5, 2, (40, 33), 16), (64, 4, (512, 512), 32), (3, 1, (17, 16), 16), (70, 2, (9, 0), 16)];
    shapes.into_iter().map(|(experts, top_k, tokens, places)| case(target, experts, top_k, tokens, places)).collect()
}

/// Every fourth token chooses as the one before, and no one the second expert.
fn chosen(experts: usize, top_k: usize, tokens: usize) -> Vec<u32> {
    let expert = |slot: usize| {
        let (token, rank) = (slot / top_k, slot % top_k);
        let expert = (7 * (token - token % 4 / 3) + rank * (experts / top_k)) % experts;
        if expert == 1 { 0 } else { expert as u32 }
    };
    (0..tokens * top_k).map(expert).collect()
}

/// Slots of these chosen experts in order of them, and the words of the tiles, of which there is room for so many.
pub(super) fn grouped(chosen: &[u32], experts: usize, places: usize, room: usize) -> (Vec<usize>, Vec<usize>) {
    let (mut slots, mut tiles) = (Vec::new(), Vec::new());
    for expert in 0..experts {
        let own: Vec<usize> = (0..chosen.len()).filter(|&slot| chosen[slot] as usize == expert).collect();
        for (n, tile) in own.chunks(places).enumerate() {
            tiles.push([expert, slots.len() + n * places, tile.len(), 0]);
        }
        slots.extend(own);
    }
    tiles.resize(room, [0; 4]);
    (slots, tiles.concat())
}

fn case(target: Target, experts: usize, top_k: usize, tokens: (usize, usize), places: usize) -> Result<Case> {
    let (tokens, count) = tokens;
    let mut case = CaseBuilder::for_chunk(target, 1, tokens);
    case.chunk(0, count);
    let ids = case.plan.tensor_with_stride("ids", [top_k, tokens], top_k);
    let chosen = chosen(experts, top_k, count);
    case.fill_bytes(ids.buffer, bytemuck::cast_slice(&chosen).to_vec());
    let groups = case.plan.group_slots("groups", &ids, experts, places)?;
    let (slots, tiles) = grouped(&chosen, experts, places, groups.tiles.shape[1]);
    let wide = |values: Vec<usize>| values.into_iter().map(|v| v as f64).collect();
    case.expect_at(groups.tiles.buffer, ValueType::U32, 0, wide(tiles), 0.0);
    case.expect_at(groups.slots.buffer, ValueType::U32, 0, wide(slots), 0.0);
    Ok(case.finish(format!("{experts} experts, {top_k} of {count} of {tokens} tokens, tiles of {places}")))
}
