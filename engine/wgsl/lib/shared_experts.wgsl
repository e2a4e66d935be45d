// The entry of a workgroup's tile, and its block of rows, if the first tiles are for the shared experts. Entry 0 has
// the number of these tiles and of all. The workgroups with these tiles come first, because they take longest: their
// tiles are full. If they came last, they would still run long after the others.

fn block_of(workgroup: vec3<u32>) -> vec2<u32> {
    let of_shared = tiles[0].x;
    let others = tiles[0].y - of_shared;
    let n = workgroup.y * (of_shared + others) + workgroup.x;
    let first = of_shared * BLOCKS; // workgroup of the others
    if n < first {
        return vec2<u32>(1u + n % of_shared, n / of_shared);
    }
    return vec2<u32>(1u + of_shared + (n - first) % others, (n - first) / others);
}
