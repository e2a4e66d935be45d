// A token's line of the latent cache: the normalised latent of RANK values, then the turned rotary key of
// PAIRS pairs. The work of one workgroup, a chunk of four values an invocation.

var<storage, read> kv: array<vec4<f32>>;
var<storage, read> kv_norm: array<vec4<f32>>;
var<storage, read_write> cache: array<CacheChunk>;

const LATENT = RANK / 4u; // chunks
const CHUNKS = LATENT + (PAIRS + 1u) / 2u;

// Two pairs of the turned key of a token, from pair i on; behind the last there are zeros.
fn turned_pairs(pairs: vec4<f32>, token: u32, i: u32) -> vec4<f32> {
    let first = token * PAIRS;
    return vec4<f32>(rotated(pairs.xy, first + i), rotated(pairs.zw, first + min(i + 1u, PAIRS - 1u)));
}

// Writes the line of a token, counted from the first that the host told of.
fn write_line_of(token: u32, i: Invocation) {
    let source = token * KV_PITCH;
    var squares = 0.0;
    for (var k = i.local; k < LATENT; k += WORKGROUP) {
        squares += dot(kv[source + k], kv[source + k]);
    }
    let mean = workgroup_sum(squares, team_of(i)) / f32(RANK);
    let scale = inverseSqrt(mean + EPSILON);
    let line = (batch.position + token) * LINE;
    for (var k = i.local; k < CHUNKS; k += WORKGROUP) {
        let chunk = kv[source + k];
        if k < LATENT {
            cache[line + k] = cache_packed(chunk * scale * kv_norm[k]);
        } else {
            cache[line + k] = cache_packed(turned_pairs(chunk, token, 2u * (k - LATENT)));
        }
    }
}
