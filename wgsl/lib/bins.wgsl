// Finds among the bins of a histogram the one that reaches a target. A kernel provides
//   count_of(bin, level)               tokens in a bin
//   mass_of(bin, count, level, first)  what they weigh; first is the first place of the level's first bin

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

const SHARE = BINS / WORKGROUP; // bins of an invocation
const BLOCK = 16u;              // invocations whose tokens are summed for those behind them
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

// Leaves what each invocation brings, and the sums of blocks of them.
fn put_parts(mine: Tokens, local: u32) {
    part_counts[local] = mine.count;
    part_masses[local] = mine.mass;
    workgroupBarrier();
    let block = local % BLOCKS; // several invocations sum the same
    var sum = Tokens(0u, 0.0);
    for (var i = block * BLOCK; i < (block + 1u) * BLOCK; i++) {
        sum = plus(sum, Tokens(part_counts[i], part_masses[i]));
    }
    block_counts[block] = sum.count;
    block_masses[block] = sum.mass;
    workgroupBarrier();
}

// The sum of what invocations 0..end have left.
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

// The first bin that with those before it reaches the target's count or its mass; the last with a token if
// none does.
fn find_bin(level: u32, first: vec2<u32>, want: Tokens, local: u32) -> Found {
    workgroupBarrier(); // what an earlier search found may still be read
    if local == 0u {
        atomicStore(&first_reaching, BINS);
        atomicStore(&last_filled, 0u);
    }
    var bins: array<Tokens, SHARE>;
    var sum = Tokens(0u, 0.0);
    for (var k = 0u; k < SHARE; k++) {
        let bin = local * SHARE + k;
        let count = count_of(bin, level);
        bins[k] = Tokens(count, mass_of(bin, count, level, first));
        sum = plus(sum, bins[k]);
    }
    put_parts(sum, local);
    var before = sum_before(local);
    sum = before;
    for (var k = 0u; k < SHARE; k++) {
        sum = plus(sum, bins[k]);
        if bins[k].count > 0u {
            atomicMax(&last_filled, local * SHARE + k);
            if sum.count >= want.count || sum.mass >= want.mass {
                atomicMin(&first_reaching, local * SHARE + k);
            }
        }
    }
    workgroupBarrier();
    let reaching = atomicLoad(&first_reaching);
    let bin = select(atomicLoad(&last_filled), reaching, reaching < BINS);
    if local == bin / SHARE {
        for (var k = 0u; k < bin % SHARE; k++) {
            before = plus(before, bins[k]);
        }
        atomicStore(&found[0], before.count);
        atomicStore(&found[1], bitcast<u32>(before.mass));
        atomicStore(&found[2], bins[bin % SHARE].count);
        atomicStore(&found[3], bitcast<u32>(bins[bin % SHARE].mass));
    }
    workgroupBarrier();
    before = Tokens(atomicLoad(&found[0]), bitcast<f32>(atomicLoad(&found[1])));
    let inside = Tokens(atomicLoad(&found[2]), bitcast<f32>(atomicLoad(&found[3])));
    return Found(bin, reaching < BINS, before, inside, sum_before(WORKGROUP));
}
