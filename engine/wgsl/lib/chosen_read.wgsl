// The selected experts of a row of the batch, which lanes read from memory: for products without a barrier.

var<storage, read> ids: array<u32>;

fn keep_chosen(token: u32, local: u32) {}

fn chosen_expert(token: u32, slot: u32) -> u32 {
    return ids[token * TOP_K + slot];
}
