// Brings the input of a product to workgroup memory, where every team of the workgroup reads it. An input
// provides
//   input(at)            vec4 `at` of it
//   input_staged(local)  called by every invocation once it has staged its share of a tile
//   input_factor(team)   what is common to all its values and left out of them
// and the arithmetic `stage_half` and `staged_group`.

// Stages groups first..first + count, TILE at most, of the vector that starts at vec4 `start` of the input. For
// the whole workgroup, tile after tile; what it left in workgroup memory before is seen by all behind.
fn stage(start: u32, first: u32, count: u32, i: Invocation) {
    if first > 0u {
        workgroupBarrier(); // the tile before is read
    }
    for (var h = i.local; h < 2u * count; h += WORKGROUP) {
        let at = start + 8u * first + 4u * h;
        stage_half(h, array<vec4<f32>, 4>(input(at), input(at + 1u), input(at + 2u), input(at + 3u)));
    }
    input_staged(i.local);
    workgroupBarrier();
}
