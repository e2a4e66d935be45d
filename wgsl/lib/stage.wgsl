// Brings the input of a product to workgroup memory, where every team of the workgroup reads it. An input
// provides
//   input(at)            vec4 `at` of it
//   input_staged(local)  called by every invocation once it has staged its share of a tile
//   input_factor(team)   what is common to all its values and left out of them
// and the arithmetic `stage_half` and `staged_group`.

// Stages `count` groups, TILE at most, from vec4 `at` of the input on. For the whole workgroup, which must be
// done with what was staged before.
fn stage(at: u32, count: u32, local: u32) {
    for (var h = local; h < 2u * count; h += WORKGROUP) {
        let place = at + 4u * h;
        var values = array<vec4<f32>, 4>(input(place), input(place + 1u), input(place + 2u), input(place + 3u));
        stage_half(h, &values);
    }
    input_staged(local);
    workgroupBarrier();
}
