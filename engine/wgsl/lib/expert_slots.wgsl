// Finds the slots that a workgroup computes: a slot is a row of the batch and an expert that it selected, and has a
// vector of the output. The first layers of the grid are for the shared experts, with PLACES rows of the batch each;
// each layer after them is for one expert, and all rows that selected it. A row selects an expert once at most, so
// there are never more than MAX_SLOTS.

const SLOTS = TOP_K + 1u; // of a row of the batch, the last for the shared experts

var<storage, read> ids: array<u32>; // [row][slot]

var<workgroup> found: array<atomic<u32>, MAX_SLOTS>; // row · SLOTS + slot
var<workgroup> found_count: atomic<u32>;

// Finds the slots of a layer. Called by the whole workgroup. Returns their number.
fn find_slots(layer: u32, local: u32) -> u32 {
    if local == 0u {
        atomicStore(&found_count, 0u);
    }
    workgroupBarrier();
    if is_shared(layer) {
        let row = layer * PLACES + local;
        if local < PLACES && row < row_count() {
            atomicStore(&found[local], row * SLOTS + TOP_K);
            atomicAdd(&found_count, 1u);
        }
    } else {
        for (var n = local; n < row_count() * TOP_K; n += WORKGROUP) {
            if ids[n] == expert_of(layer) {
                atomicStore(&found[atomicAdd(&found_count, 1u) % MAX_SLOTS], n / TOP_K * SLOTS + n % TOP_K);
            }
        }
    }
    workgroupBarrier();
    return min(atomicLoad(&found_count), MAX_SLOTS);
}

fn shared_layers() -> u32 {
    return (row_count() + PLACES - 1u) / PLACES;
}

fn is_shared(layer: u32) -> bool {
    return layer < shared_layers();
}

fn expert_of(layer: u32) -> u32 {
    return layer - shared_layers();
}
