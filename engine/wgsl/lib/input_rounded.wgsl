// The input of a product as the previous step wrote it: rounded to bytes, after multiplication with the weights of a
// norm if it is NORMED. There is nothing to stage: all groups are one tile.

const X_GROUPS = X_STRIDE / 8u; // from one vector to the next if there are no squares between them

// A group: bytes, bytes, scales and sums. A NORMED input has a vector's squares INPUT_SQUARES after the start of its
// groups. The next vector starts INPUT_PITCH after this one.
var<storage, read> rounded_input: array<vec4<u32>>;

var<private> input_start: u32; // of the first vector
var<private> last_column: u32;

fn stage(start: u32, columns: u32, first: u32, count: u32, i: Invocation) {
    input_start = start / X_STRIDE * INPUT_PITCH;
    last_column = columns - 1u;
    workgroupBarrier(); // as in the files that stage
}

// The index of group g of a vector. INPUT_SLOTS is as in lib/input.wgsl.
fn input_group(g: u32) -> u32 {
    if INPUT_SLOTS == 0u {
        return g;
    }
    let slot = min(g / SLOT_GROUPS, INPUT_SLOTS);
    return slot * X_GROUPS + g - slot * SLOT_GROUPS;
}

fn staged_group(column: u32, g: u32) -> Group {
    let at = input_start + column * INPUT_PITCH + GROUP_WORDS / 4u * input_group(g);
    let scales = bitcast<vec4<f32>>(rounded_input[at + 2u]);
    return Group(rounded_input[at], rounded_input[at + 1u], scales.xy, scales.zw);
}

// The factor that a normed input does not include.
fn column_factor(column: u32, team: Team) -> f32 {
    if !NORMED {
        return 1.0;
    }
    let first = input_start + select(min(column, last_column), 0u, COLUMNS == 1u) * INPUT_PITCH + INPUT_SQUARES;
    return factor_of_squares(first, TILE, team);
}
