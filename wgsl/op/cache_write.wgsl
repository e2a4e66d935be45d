// Writes one token's line of the latent cache: the normalised latent, then the turned rotary key. One
// workgroup, a chunk of four values an invocation.

struct Params {
    rank: u32,  // values of the latent; a multiple of 4
    pairs: u32, // pairs of the rotary key
    line: u32,  // chunks from one token's line to the next's
    epsilon: f32,
}

var<uniform> params: Params;
var<storage, read> kv: array<f32>;
var<storage, read> weight: array<f32>;
var<storage, read_write> cache: array<CacheChunk>;

fn latent_chunk(at: u32, scale: f32) -> vec4<f32> {
    let values = vec4<f32>(kv[at], kv[at + 1u], kv[at + 2u], kv[at + 3u]);
    return values * scale * vec4<f32>(weight[at], weight[at + 1u], weight[at + 2u], weight[at + 3u]);
}

// Pair i of the turned key; zeros past the last.
fn key_pair(i: u32) -> vec2<f32> {
    if i >= params.pairs {
        return vec2<f32>(0.0);
    }
    let at = params.rank + 2u * i;
    return rotated(vec2<f32>(kv[at], kv[at + 1u]), i);
}

@compute @workgroup_size(WORKGROUP)
fn main(i: Invocation) {
    var squares = 0.0;
    for (var k = i.local; k < params.rank; k += WORKGROUP) {
        squares += kv[k] * kv[k];
    }
    let mean = workgroup_sum(squares, team_of(i)) / f32(params.rank);
    let scale = inverseSqrt(mean + params.epsilon);

    let line = state.position * params.line;
    let latent = params.rank / 4u;
    let chunks = latent + (params.pairs + 1u) / 2u;
    for (var k = i.local; k < chunks; k += WORKGROUP) {
        if k < latent {
            cache[line + k] = cache_packed(latent_chunk(4u * k, scale));
        } else {
            let pair = 2u * (k - latent);
            cache[line + k] = cache_packed(vec4<f32>(key_pair(pair), key_pair(pair + 1u)));
        }
    }
}
