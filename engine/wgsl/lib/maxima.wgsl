// The output of slice_max: the bits of the largest logit of each slice of a row, and its token.

var<storage, read> maxima: array<vec2<u32>>;

fn maximum_of(slice: u32) -> Candidate {
    let bits = maxima[row * params.slices + slice];
    return Candidate(bitcast<f32>(bits.x), bits.y);
}

// The likeliest token, in every invocation of the workgroup.
fn likeliest(slices: u32, local: u32) -> Candidate {
    var best = NO_CANDIDATE;
    for (var slice = local; slice < slices; slice += WORKGROUP) {
        best = better(best, maximum_of(slice));
    }
    return best_of_workgroup(best, local);
}
