// The groups of a rounded input are those of the chosen experts, w_GROUPS each, and behind them those of the shared
// ones, a vector a slot.
fn input_group(g: u32) -> u32 {
    let slot = min(g / w_GROUPS, TOP_K);
    return slot * X_GROUPS + g - slot * w_GROUPS;
}
