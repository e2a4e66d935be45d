// Finds the bin of a histogram at which the sum reaches a target. A kernel provides
//   count_of(bin, level)               the number of tokens in a bin
//   mass_of(bin, count, level, first)  their weight; first is the first position of the level's first bin

struct Tokens {
    count: u32,
    mass: f32,
}

struct Found {
    bin: u32,
    reached: bool,
    before: Tokens, // in the bins before it
    inside: Tokens,
    all: Tokens,
}

// The number of bins of an invocation. Below they are separate variables: compilers that do not unroll loops would keep
// an array in memory.
const SHARE = 4u;
const_assert BINS == SHARE * WORKGROUP;
const BLOCK = 16u;              // invocations whose tokens are summed for those after them
const BLOCKS = WORKGROUP / BLOCK;

var<workgroup> part_counts: array<u32, WORKGROUP>;
var<workgroup> part_masses: array<f32, WORKGROUP>;
var<workgroup> block_counts: array<u32, BLOCKS>;
var<workgroup> block_masses: array<f32, BLOCKS>;
var<workgroup> first_reaching: atomic<u32>;
var<workgroup> last_filled: atomic<u32>;
var<workgroup> found: array<atomic<u32>, 4>; // counts and the bits of masses: before the bin, and in it

fn plus(a: Tokens, b: Tokens) -> Tokens {
    return Tokens(a.count + b.count, a.mass + b.mass);
}

// Writes the tokens of each invocation, and their sums over blocks of invocations.
fn put_parts(mine: Tokens, local: u32) {
    part_counts[local] = mine.count;
    part_masses[local] = mine.mass;
    workgroupBarrier();
    let block = local % BLOCKS; // several invocations compute the same sum
    var sum = Tokens(0u, 0.0);
    for (var i = block * BLOCK; i < (block + 1u) * BLOCK; i++) {
        sum = plus(sum, Tokens(part_counts[i], part_masses[i]));
    }
    block_counts[block] = sum.count;
    block_masses[block] = sum.mass;
    workgroupBarrier();
}

// The sum of what invocations 0..end have written.
fn sum_before(end: u32) -> Tokens {
    var sum = Tokens(0u, 0.0);
    for (var block = 0u; block < end / BLOCK; block++) {
        sum = plus(sum, Tokens(block_counts[block], block_masses[block]));
    }
    for (var i = end / BLOCK * BLOCK; i < end; i++) {
        sum = plus(sum, Tokens(part_counts[i], part_masses[i]));
    }
    return sum;
}

fn tokens_in(bin: u32, level: u32, first: vec2<u32>) -> Tokens {
    let count = count_of(bin, level);
    return Tokens(count, mass_of(bin, count, level, first));
}

// The tokens of a bin plus `before`, those of the bins before it. Stores the bin if it has any tokens and the sum
// reaches the target.
fn through(before: Tokens, inside: Tokens, bin: u32, want: Tokens) -> Tokens {
    let sum = plus(before, inside);
    if inside.count > 0u {
        atomicMax(&last_filled, bin);
        if sum.count >= want.count || sum.mass >= want.mass {
            atomicMin(&first_reaching, bin);
        }
    }
    return sum;
}

fn leave_found(before: Tokens, inside: Tokens) {
    atomicStore(&found[0], before.count);
    atomicStore(&found[1], bitcast<u32>(before.mass));
    atomicStore(&found[2], inside.count);
    atomicStore(&found[3], bitcast<u32>(inside.mass));
}

// The first bin that, together with those before it, reaches the target's count or mass; otherwise the last one with a
// token.
fn find_bin(level: u32, first: vec2<u32>, want: Tokens, local: u32) -> Found {
    workgroupBarrier(); // the result of an earlier search may still be read
    if local == 0u {
        atomicStore(&first_reaching, BINS);
        atomicStore(&last_filled, 0u);
    }
    let own = local * SHARE;
    let bin0 = tokens_in(own, level, first);
    let bin1 = tokens_in(own + 1u, level, first);
    let bin2 = tokens_in(own + 2u, level, first);
    let bin3 = tokens_in(own + 3u, level, first);
    put_parts(plus(plus(plus(bin0, bin1), bin2), bin3), local);
    let before0 = sum_before(local);
    let before1 = through(before0, bin0, own, want);
    let before2 = through(before1, bin1, own + 1u, want);
    let before3 = through(before2, bin2, own + 2u, want);
    through(before3, bin3, own + 3u, want);
    workgroupBarrier();
    let reaching = atomicLoad(&first_reaching);
    let bin = select(atomicLoad(&last_filled), reaching, reaching < BINS);
    if bin == own { leave_found(before0, bin0); }
    if bin == own + 1u { leave_found(before1, bin1); }
    if bin == own + 2u { leave_found(before2, bin2); }
    if bin == own + 3u { leave_found(before3, bin3); }
    workgroupBarrier();
    let before = Tokens(atomicLoad(&found[0]), bitcast<f32>(atomicLoad(&found[1])));
    let inside = Tokens(atomicLoad(&found[2]), bitcast<f32>(atomicLoad(&found[3])));
    return Found(bin, reaching < BINS, before, inside, sum_before(WORKGROUP));
}
