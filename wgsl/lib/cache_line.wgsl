// One token's line of the latent cache: the normalised latent of RANK values, then the turned rotary key of
// PAIRS pairs. The work of one workgroup, a chunk of four values an invocation.

var<storage, read> kv: array<vec4<f32>>;
var<storage, read> kv_norm: array<vec4<f32>>;
var<storage, read_write> cache: array<CacheChunk>;

const LATENT = RANK / 4u; // chunks
const CHUNKS = LATENT + (PAIRS + 1u) / 2u;

// Two pairs of the turned key, from pair i on; behind the last there are zeros.
fn turned_pairs(pairs: vec4<f32>, i: u32) -> vec4<f32> {
    return vec4<f32>(rotated(pairs.xy, i), rotated(pairs.zw, min(i + 1u, PAIRS - 1u)));
}

fn write_line(i: Invocation) {
    var squares = 0.0;
    for (var k = i.local; k < LATENT; k += WORKGROUP) {
        squares += dot(kv[k], kv[k]);
    }
    let mean = workgroup_sum(squares, team_of(i)) / f32(RANK);
    let scale = inverseSqrt(mean + EPSILON);
    let line = state.position * LINE;
    for (var k = i.local; k < CHUNKS; k += WORKGROUP) {
        if k < LATENT {
            cache[line + k] = cache_packed(kv[k] * scale * kv_norm[k]);
        } else {
            cache[line + k] = cache_packed(turned_pairs(kv[k], 2u * (k - LATENT)));
        }
    }
}
