// A token's KV row of the latent cache: the normalised latent of RANK values, then the rotated rotary key of
// PAIRS pairs. The work of one workgroup, a chunk of four values an invocation.

var<storage, read> kv: array<vec4<f32>>;
var<storage, read> kv_norm: array<vec4<f32>>;
var<storage, read_write> cache: array<CacheChunk>;

const LATENT = RANK / 4u; // chunks
const CHUNKS = LATENT + (PAIRS + 1u) / 2u;

// Two pairs of the rotated key of a token, from pair i on; behind the last there are zeros.
fn rotated_pairs(pairs: vec4<f32>, token: u32, i: u32) -> vec4<f32> {
    let first = token * PAIRS;
    return vec4<f32>(rotated(pairs.xy, first + i), rotated(pairs.zw, first + min(i + 1u, PAIRS - 1u)));
}

// Writes the KV row of a token, counted from the first that the host told of.
fn write_kv_row(token: u32, i: Invocation) {
    let source = token * KV_PITCH;
    var squares = 0.0;
    for (var k = i.local; k < LATENT; k += WORKGROUP) {
        squares += dot(kv[source + k], kv[source + k]);
    }
    let mean = workgroup_sum(squares, team_of(i)) / f32(RANK);
    let scale = inverseSqrt(mean + EPSILON);
    let kv_row = (batch.position + token) * KV_ROW;
    for (var k = i.local; k < CHUNKS; k += WORKGROUP) {
        let chunk = kv[source + k];
        if k < LATENT {
            cache[kv_row + k] = cache_packed(chunk * scale * kv_norm[k]);
        } else {
            cache[kv_row + k] = cache_packed(rotated_pairs(chunk, token, 2u * (k - LATENT)));
        }
    }
}
