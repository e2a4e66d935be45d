// The KV row of a token, as the latent cache holds it: the normalised latent of RANK values, then the rotated rotary
// key of PAIRS pairs. One workgroup computes it, each invocation a chunk of four values.

var<storage, read> kv: array<vec4<f32>>;
var<storage, read> kv_norm: array<vec4<f32>>;
var<storage, read_write> cache: array<CacheChunk>;

const LATENT = RANK / 4u; // chunks
const CHUNKS = LATENT + (PAIRS + 1u) / 2u;

// Two pairs of the rotated key of a row of the batch, from pair i on; behind the last there are zeros.
fn rotated_pairs(pairs: vec4<f32>, row: u32, i: u32) -> vec4<f32> {
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
    let kv_row = kv_place(first_page_of(row), attended_by(row) - 1u) * KV_ROW;
    for (var k = i.local; k < CHUNKS; k += WORKGROUP) {
        let chunk = kv_chunk(row, k);
        if k < LATENT {
            cache[kv_row + k] = cache_packed(chunk * scale * kv_norm[k]);
        } else {
            cache[kv_row + k] = cache_packed(rotated_pairs(chunk, row, 2u * (k - LATENT)));
        }
    }
}
