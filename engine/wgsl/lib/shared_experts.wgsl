// The entry of a workgroup's tile, and its block of rows, if the first tiles are for the shared experts. Entry 0 has
// the number of these tiles and of all. The workgroups with these tiles come first, because they take longest: their
// tiles are full. If they came last, they would still run long after the others.

fn tile_and_block(workgroup: vec3<u32>) -> vec2<u32> {
    let shared_tiles = tiles[0].x;
    let others = tiles[0].y - shared_tiles;
    let n = workgroup.y * (shared_tiles + others) + workgroup.x;
    let first = shared_tiles * BLOCKS; // workgroup of the others
    if n < first {
        return vec2<u32>(1u + n % shared_tiles, n / shared_tiles);
    }
    return vec2<u32>(1u + shared_tiles + (n - first) % others, (n - first) / others);
}
