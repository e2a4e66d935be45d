// A cache in blocks (lib/kv_blocks.wgsl), read eight values at a time.

var<storage, read> cache: array<vec4<u32>>;

// Values 8k to 8k + 7 of the latent at index `place`, not yet unpacked: two words, the word with their block's scale,
// and 1 if the block is odd.
fn latent_eight(place: u32, k: u32) -> vec4<u32> {
    let row = place * (KV_WORDS / 4u);
    let piece = cache[row + k / 2u];
    let scales = cache[row + SCALES / 4u + k / 32u][k / 8u % 4u];
    return vec4<u32>(select(piece.xy, piece.zw, k % 2u == 1u), scales, k / 4u % 2u);
}

// The first four of eight values, and the others.
fn first_of_eight(eight: vec4<u32>) -> vec4<f16> {
    return block_values(eight.x, block_scale(eight.z, eight.w == 1u));
}

fn second_of_eight(eight: vec4<u32>) -> vec4<f16> {
    return block_values(eight.y, block_scale(eight.z, eight.w == 1u));
}

// The same for the rotary key, in f16.
fn rotary_eight(place: u32, k: u32) -> vec4<u32> {
    return cache[place * (KV_WORDS / 4u) + RANK / 16u + k];
}
