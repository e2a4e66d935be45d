// The experts of a row of the batch, which every workgroup selects by itself. One workgroup of each slot writes its
// expert's id for the following steps.

var<storage, read_write> ids: array<u32>; // [row][slot]

fn logit(e: u32) -> f32 {
    return logits[first_logit + e];
}

fn begin_choice(local: u32) {
    first_logit = token * LOGITS_PITCH;
    score_experts(local);
}

fn end_choice(local: u32) {
    rank_experts(local);
    workgroupBarrier();
}

fn expert_of(slot: u32) -> u32 {
    return atomicLoad(&selected[slot]);
}

fn leave_choice(slot: u32) {
    ids[token * TOP_K + slot] = expert_of(slot);
}
