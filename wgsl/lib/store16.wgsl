// Leaves sums of a product in the output from value `at` on, the unit of the weights taken out of them.

fn store_sums(sums: Sums, at: u32) {
    let pitch = Y_PITCH;
    coopStoreT(sums * (1.0 / WEIGHT_UNIT), &y[at], pitch);
}
