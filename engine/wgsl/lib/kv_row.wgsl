// The KV row of a token, as the latent cache holds it: the normalised latent of RANK values, then the rotated rotary
// key of PAIRS pairs. One workgroup computes it, each invocation a chunk of four values.

var<storage, read> kv: array<vec4<f32>>;
var<storage, read> kv_norm: array<vec4<f32>>;

const LATENT = RANK / 4u; // chunks
const CHUNKS = LATENT + (PAIRS + 1u) / 2u;

// Chunk k of the latent of a row of the batch. Every value is multiplied by `scale` and by the norm's weight.
fn latent_chunk(row: u32, k: u32, scale: f32) -> vec4<f32> {
    return kv_chunk(row, k) * scale * kv_norm[k];
}

// Chunk k of the KV row, which is part of the rotated key: two pairs, or zeros after the last.
fn rotated_chunk(row: u32, k: u32) -> vec4<f32> {
    let pairs = kv_chunk(row, k);
    let i = 2u * (k - LATENT);
    return vec4<f32>(rotated(pairs.xy, row, i), rotated(pairs.zw, row, min(i + 1u, PAIRS - 1u)));
}

// Writes the KV row of a row of the batch.
fn write_kv_row(row: u32, i: Invocation) {
    var squares = 0.0;
    for (var k = i.local; k < LATENT; k += WORKGROUP) {
        let chunk = kv_chunk(row, k);
        squares += dot(chunk, chunk);
    }
    let mean = workgroup_sum(squares, team_of(i)) / f32(RANK);
    let scale = inverseSqrt(mean + EPSILON);
    write_chunks(row, kv_place(first_page_of(row), attended_by(row) - 1u), scale, i.local);
}
