// The selected experts of a row of the batch, in workgroup memory: visible to all after the next barrier.

var<storage, read> ids: array<u32>;

var<workgroup> selected: array<u32, TOP_K>;

fn keep_chosen(token: u32, local: u32) {
    for (var k = local; k < TOP_K; k += WORKGROUP) {
        selected[k] = ids[token * TOP_K + k];
    }
}

fn chosen_expert(token: u32, slot: u32) -> u32 {
    return selected[slot];
}
