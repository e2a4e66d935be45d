// Rows of a pair of matrices, gate and up, decoded once for all places of a tile.

fn w_gated_decoded(matrix: u32, row: u32, g: u32) -> GatedGroups {
    let at = (matrix * w_gate_ROWS + min(row, w_gate_ROWS - 1u)) * w_gate_GROUPS + g;
    return GatedGroups(Decoded(w_gate_bytes(at), w_gate_affine(at)), Decoded(w_up_bytes(at), w_up_affine(at)));
}

// Adds this lane's share of the products of a team's row with the `groups` staged groups, the first of which is group
// `first`, to the sums of the first `count` places.
fn w_add_places(
    sums: ptr<function, PlaceSums>, count: u32, matrix: u32, row: u32, first: u32, groups: u32, team: Team,
) {
    for (var g = team.lane; g < groups; g += LANES) {
        let both = w_gated_decoded(matrix, row, first + g);
        (*sums)[0] += gated_products(both, 0u, g);
        if PLACES > 1u && count > 1u { (*sums)[1] += gated_products(both, 1u, g); }
        if PLACES > 2u && count > 2u { (*sums)[2] += gated_products(both, 2u, g); }
        if PLACES > 3u && count > 3u { (*sums)[3] += gated_products(both, 3u, g); }
        if PLACES > 4u && count > 4u { (*sums)[4] += gated_products(both, 4u, g); }
        if PLACES > 5u && count > 5u { (*sums)[5] += gated_products(both, 5u, g); }
        if PLACES > 6u && count > 6u { (*sums)[6] += gated_products(both, 6u, g); }
        if PLACES > 7u && count > 7u { (*sums)[7] += gated_products(both, 7u, g); }
    }
}
