// A cache in f16, read eight values at a time.

var<storage, read> cache: array<vec4<u32>>;

// Values 8k to 8k + 7 of the latent at a place, to be made values of as soon as they are needed.
fn latent_eight(place: u32, k: u32) -> vec4<u32> {
    return cache[place * (KV_ROW / 8u) + k];
}

// The first four values of eight, and the others.
fn first_of_eight(eight: vec4<u32>) -> vec4<f16> {
    return first_of(eight);
}

fn second_of_eight(eight: vec4<u32>) -> vec4<f16> {
    return second_of(eight);
}

// The same values of the rotary key, in f16.
fn rotary_eight(place: u32, k: u32) -> vec4<u32> {
    return cache[place * (KV_ROW / 8u) + RANK / 8u + k];
}
