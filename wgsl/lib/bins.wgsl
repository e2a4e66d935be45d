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

var<workgroup> part_counts: array<u32, WORKGROUP>;
var<workgroup> part_masses: array<f32, WORKGROUP>;
var<workgroup> first_reaching: atomic<u32>;
var<workgroup> last_filled: atomic<u32>;
var<workgroup> found: Found;

fn plus(a: Tokens, b: Tokens) -> Tokens {
    return Tokens(a.count + b.count, a.mass + b.mass);
}

// Of the invocations up to this one, the sum of what each brings, in part_counts and part_masses.
fn running_sum(mine: Tokens, local: u32) {
    part_counts[local] = mine.count;
    part_masses[local] = mine.mass;
    for (var step = 1u; step < WORKGROUP; step *= 2u) {
        workgroupBarrier();
        var sum = Tokens(part_counts[local], part_masses[local]);
        if local >= step {
            sum = plus(Tokens(part_counts[local - step], part_masses[local - step]), sum);
        }
        workgroupBarrier();
        part_counts[local] = sum.count;
        part_masses[local] = sum.mass;
    }
    workgroupBarrier();
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
    running_sum(sum, local);
    var before = Tokens(0u, 0.0);
    if local > 0u {
        before = Tokens(part_counts[local - 1u], part_masses[local - 1u]);
    }
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
        let all = Tokens(part_counts[WORKGROUP - 1u], part_masses[WORKGROUP - 1u]);
        found = Found(bin, reaching < BINS, before, bins[bin % SHARE], all);
    }
    workgroupBarrier();
    return found;
}
