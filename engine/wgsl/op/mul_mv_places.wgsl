// y = W · x, or y += W · x, as in op/mul_mv.wgsl and with bit-identical results, for the rows of a larger batch: a lane
// decodes each group of a row of W once for PLACES of them.

var<storage, read_write> y: array<f32>; // the output, whose vectors are Y_STRIDE apart

var<private> first_vector: u32;

fn start_of_place(place: u32) -> u32 {
    return (first_vector + place) * INPUT_PITCH;
}

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    let team = team_of(i);
    first_vector = in_grid(i.workgroup).z * PLACES;
    if first_vector >= row_count() {
        return;
    }
    let count = min(PLACES, row_count() - first_vector);
    let row = first_row(i.workgroup, team);
    let place = place_of_lane(team.lane);
    let own_row = row + row_of_lane(team.lane);
    let own = leads(team.lane) && place < count && own_row < w_ROWS;
    let at = (first_vector + place) * Y_STRIDE + own_row;
    var before = 0.0;
    if ACCUMULATE && own {
        before = y[at];
    }
    epilogue_load(row, w_ROWS);
    var sums: PlaceSums;
    for (var first = 0u; first < INPUT_GROUPS; first += TILE) {
        let groups = min(TILE, INPUT_GROUPS - first);
        if first > 0u {
            workgroupBarrier(); // what was staged before was read
        }
        stage_places(count, first, groups, i.local);
        if first == 0u {
            leave_factors(count, team);
        }
        workgroupBarrier();
        w_add_places(&sums, count, row, first, groups, team);
    }
    let sum = sums_of_lane(sums, team.lane).x;
    if own {
        let v = before + factor_left(place) * sum;
        y[at] = v;
        epilogue_sum(row_of_lane(team.lane), own_row, place, i, v);
    }
    epilogue(first_vector * Y_STRIDE, Y_STRIDE, count, w_ROWS, i);
}
