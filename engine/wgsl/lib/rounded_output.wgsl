// The rounded output of a step, for lib/input_rounded.wgsl.

var<storage, read_write> rounded_output: array<u32>;

// Half `side` of the group that starts at word `group`.
fn write_half(group: u32, side: u32, half: Half) {
    for (var k = 0u; k < 4u; k++) {
        rounded_output[group + 4u * side + k] = half.words[k];
    }
    rounded_output[group + 8u + side] = bitcast<u32>(half.scale);
    rounded_output[group + 10u + side] = bitcast<u32>(half.sum);
}
