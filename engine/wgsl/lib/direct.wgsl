// Lanes read the input of a product from memory into registers: each lane the groups that it multiplies, once for all
// rows of its team. Nothing is staged, so this needs no workgroup memory and no barrier. All groups are one tile. An
// input provides
//   input(column, start, at)  vec4 `at` of the vector of a column, which starts at vec4 `start`
//   column_factor(c, team)    the factor of all values of a column that `input` does not include

var<private> input_start: u32; // of the first vector

fn stage(start: u32, columns: u32, first: u32, count: u32, i: Invocation) {
    input_start = start;
}

// The vec4 at which group g of a vector begins. INPUT_SLOTS is as in lib/input.wgsl.
fn start_of_group(g: u32) -> u32 {
    if INPUT_SLOTS == 0u {
        return 8u * g;
    }
    let slot = min(g / SLOT_GROUPS, INPUT_SLOTS);
    return slot * X_STRIDE + 8u * (g - slot * SLOT_GROUPS);
}

// The vec4s are separate variables: some compilers keep an array in memory if a loop indexes it.
fn staged_group(column: u32, group: u32) -> Group {
    let start = input_start + column * X_STRIDE;
    let at = start_of_group(group);
    let a = input(column, start, at);
    let b = input(column, start, at + 1u);
    let c = input(column, start, at + 2u);
    let d = input(column, start, at + 3u);
    let e = input(column, start, at + 4u);
    let f = input(column, start, at + 5u);
    let g = input(column, start, at + 6u);
    let h = input(column, start, at + 7u);
    return Group(
        array<vec4<f32>, 8>(a, b, c, d, e, f, g, h),
        vec2<f32>(dot(a + b + c + d, vec4<f32>(1.0)), dot(e + f + g + h, vec4<f32>(1.0))),
    );
}
