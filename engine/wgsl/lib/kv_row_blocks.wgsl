// Writes a KV row in blocks (lib/kv_blocks.wgsl). Blocks of 32 values are rounded to bytes together, so eight
// invocations first find the largest magnitude.

const BLOCKS = RANK / 32u;

var<storage, read_write> cache: array<u32>;

// The bits of the largest magnitudes. They are ordered like the magnitudes, and NaN is the largest.
var<workgroup> block_tops: array<atomic<u32>, BLOCKS>;

// The scales of blocks 2k and 2k + 1; zero for a block that does not exist.
fn block_scales(k: u32) -> u32 {
    let first = bitcast<f32>(atomicLoad(&block_tops[2u * k]));
    let second = bitcast<f32>(atomicLoad(&block_tops[min(2u * k + 1u, BLOCKS - 1u)]));
    let tops = vec2<f32>(first, select(0.0, second, 2u * k + 1u < BLOCKS));
    return pack2x16float(in_half_range(vec4<f32>(tops * (128.0 / 127.0), 0.0, 0.0)).xy);
}

// Four values of a block rounded to bytes, with the second and the third exchanged.
fn block_word(v: vec4<f32>, scale: f32) -> u32 {
    let rounded = clamp(round(v * select(0.0, 128.0 / scale, scale > 0.0)), vec4<f32>(-127.0), vec4<f32>(127.0));
    let bytes = vec4<u32>(rounded + 128.0);
    return bytes.x | bytes.z << 8u | bytes.y << 16u | bytes.w << 24u;
}

// Writes the KV row of a row of the batch to index `place` in the pool. Multiplies the latent with `scale`.
fn write_chunks(row: u32, place: u32, scale: f32, local: u32) {
    for (var k = local; k < BLOCKS; k += WORKGROUP) {
        atomicStore(&block_tops[k], 0u);
    }
    workgroupBarrier();
    for (var k = local; k < LATENT; k += WORKGROUP) {
        let sizes = bitcast<vec4<u32>>(abs(latent_chunk(row, k, scale)));
        atomicMax(&block_tops[k / 8u], max(max(sizes.x, sizes.y), max(sizes.z, sizes.w)));
    }
    workgroupBarrier();
    let to = place * KV_WORDS;
    for (var k = local; k < CHUNKS; k += WORKGROUP) {
        if k < LATENT {
            let scales = block_scales(k / 16u);
            let halves = unpack2x16float(scales);
            let own = select(halves.x, halves.y, k / 8u % 2u == 1u);
            cache[to + k] = block_word(latent_chunk(row, k, scale), own);
            if k % 16u == 0u {
                cache[to + SCALES + k / 16u] = scales;
            }
        } else {
            let key = in_half_range(rotated_chunk(row, k));
            cache[to + 2u * k - LATENT] = pack2x16float(key.xy);
            cache[to + 2u * k - LATENT + 1u] = pack2x16float(key.zw);
        }
    }
}
