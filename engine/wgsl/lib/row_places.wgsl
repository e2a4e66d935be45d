// Rows of a matrix, decoded once for all places of a tile.

fn w_decoded(row: u32, g: u32) -> Decoded {
    let at = min(row, w_ROWS - 1u) * w_GROUPS + g;
    return Decoded(w_bytes(at), w_affine(at));
}

// The products of a group of up to four rows with the staged group of a place.
fn w_products(a: Decoded, b: Decoded, c: Decoded, d: Decoded, place: u32, g: u32) -> vec4<f32> {
    let x = group_of_place(place, g);
    var products = vec4<f32>(decoded_dot(a, x), 0.0, 0.0, 0.0);
    if ROWS > 1u { products.y = decoded_dot(b, x); }
    if ROWS > 2u { products.z = decoded_dot(c, x); }
    if ROWS > 3u { products.w = decoded_dot(d, x); }
    return products;
}

// Adds this lane's share of the products of a team's rows with the `groups` staged groups, the first of which is group
// `first`, to the sums of the first `count` places.
fn w_add_places(sums: ptr<function, PlaceSums>, count: u32, row: u32, first: u32, groups: u32, team: Team) {
    for (var g = team.lane; g < groups; g += LANES) {
        let a = w_decoded(row, first + g);
        var b = a;
        var c = a;
        var d = a;
        if ROWS > 1u { b = w_decoded(row + 1u, first + g); }
        if ROWS > 2u { c = w_decoded(row + 2u, first + g); }
        if ROWS > 3u { d = w_decoded(row + 3u, first + g); }
        (*sums)[0] += w_products(a, b, c, d, 0u, g);
        if PLACES > 1u && count > 1u { (*sums)[1] += w_products(a, b, c, d, 1u, g); }
        if PLACES > 2u && count > 2u { (*sums)[2] += w_products(a, b, c, d, 2u, g); }
        if PLACES > 3u && count > 3u { (*sums)[3] += w_products(a, b, c, d, 3u, g); }
        if PLACES > 4u && count > 4u { (*sums)[4] += w_products(a, b, c, d, 4u, g); }
        if PLACES > 5u && count > 5u { (*sums)[5] += w_products(a, b, c, d, 5u, g); }
        if PLACES > 6u && count > 6u { (*sums)[6] += w_products(a, b, c, d, 6u, g); }
        if PLACES > 7u && count > 7u { (*sums)[7] += w_products(a, b, c, d, 7u, g); }
    }
}
