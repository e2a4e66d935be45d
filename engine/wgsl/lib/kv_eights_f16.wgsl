// A cache in f16, read eight values at a time.

var<storage, read> cache: array<vec4<u32>>;

// Values 8k to 8k + 7 of the latent at index `place`, not yet unpacked.
fn latent_eight(place: u32, k: u32) -> vec4<u32> {
    return cache[place * (KV_ROW / 8u) + k];
}

// The first four of eight values, and the others.
fn first_of_eight(eight: vec4<u32>) -> vec4<f16> {
    return first_of(eight);
}

fn second_of_eight(eight: vec4<u32>) -> vec4<f16> {
    return second_of(eight);
}

// The same for the rotary key, in f16.
fn rotary_eight(place: u32, k: u32) -> vec4<u32> {
    return cache[place * (KV_ROW / 8u) + RANK / 8u + k];
}
