//! What the machine must detect, and what it must compute correctly, with kernels that are written for these tests.

use crate::clang::{Build, Level, Memory, Workshop};
use crate::emit::Shader;
use crate::machine::{Errors, Liberties, Machine, lane_seed};
use crate::translate::Text;

/// Invocations.
const SIZE: usize = 64;
/// The values of each invocation.
const ROWS: usize = 8;

/// The content that a kernel of one workgroup leaves in its only buffer, or the fault.
fn made_of(shop: &Workshop, build: Build, wgsl: &str, content: &[u8]) -> Result<Vec<u8>, String> {
    made_under(shop, build, Liberties::default(), wgsl, content)
}

fn made_under(
    shop: &Workshop,
    build: Build,
    liberties: Liberties,
    wgsl: &str,
    content: &[u8],
) -> Result<Vec<u8>, String> {
    let shader = Shader::from_text(wgsl)?;
    let program = shop.program(&[Text::of(&shader)?], build)?;
    let mut machine = Machine::start(&program, liberties);
    let bound = [machine.buffer(content)?, machine.buffer(&(content.len() as u32).to_le_bytes())?];
    machine.dispatch("test", [1, 1, 1], &bound.map(|buffer| (buffer, 0)))?;
    machine.read(bound[0], content.len())
}

/// The values that a body run by 64 invocations leaves in `y`, or the fault.
fn run(shop: &Workshop, build: Build, globals: &str, body: &str) -> Result<Vec<u32>, String> {
    run_under(shop, build, Liberties::default(), globals, body)
}

fn run_under(
    shop: &Workshop,
    build: Build,
    liberties: Liberties,
    globals: &str,
    body: &str,
) -> Result<Vec<u32>, String> {
    let wgsl = format!(
        "{globals}\nvar<storage, read_write> y: array<u32>;\n@compute @workgroup_size({SIZE})\n\
         fn main(@builtin(local_invocation_index) i: u32, @builtin(subgroup_invocation_id) lane: u32) {{ {body} }}\n"
    );
    made_under(shop, build, liberties, &wgsl, &[0; 4 * ROWS * SIZE]).map(|bytes| bytemuck::pod_collect_to_vec(&bytes))
}

fn shared_memory(level: Level) -> Build {
    Build { level, memory: Memory::Shared }
}

#[test]
fn faults_are_detected() {
    let Some(shop) = Workshop::open() else { return };
    let faults = [
        (
            "if i < 40u { y[i] = subgroupAdd(i); }",
            "the lanes of a simdgroup are not at the same call; 8 in a simdgroup function of line",
        ),
        ("if lane < 9u { y[i] = subgroupAdd(i); } else { y[i] = subgroupMax(i); }", "the lanes of a simdgroup"),
        ("if i < 32u { workgroupBarrier(); } y[i] = 1u;", "not at the same barrier; 32 at the barrier of line"),
        ("if i < 32u { workgroupBarrier(); } else { workgroupBarrier(); }", "not at the same barrier"),
        ("y[i + 100000u] = 1u;", "outside its buffers"),
    ];
    for (body, wanted) in faults {
        for build in Build::ALL {
            let told = run(&shop, build, "", body).expect_err(body);
            assert!(told.starts_with("test: ") && told.contains(wanted), "`{body}` ({build:?}): {told}");
        }
    }
}

/// Without the barrier, one of the two orders reads values that are not written yet; with it, both read them.
#[test]
fn a_missing_barrier_shows_in_one_of_the_orders() {
    let Some(shop) = Workshop::open() else { return };
    let shared = format!("var<workgroup> t: array<u32, {SIZE}>;");
    let body = |barrier: &str| format!("t[i] = i; {barrier} y[i] = t[{}u - i];", SIZE - 1);
    let right: Vec<u32> = (0..SIZE as u32).rev().collect();
    for (barrier, expected) in [("", [false; 2]), ("workgroupBarrier();", [true; 2])] {
        for (level, expected) in Level::ALL.into_iter().zip(expected) {
            let left = run(&shop, shared_memory(level), &shared, &body(barrier)).unwrap();
            assert_eq!(left[..SIZE] == right, expected, "{level:?}, `{barrier}`: {left:?}");
        }
    }
}

/// Kernels that lack a barrier, which neither of the two orders shows, because both the first and the last lane write
/// what is read. A random order shows each of them, and finds nothing if there is a barrier.
#[test]
fn a_missing_barrier_that_both_orders_hide_shows_in_a_random_order() {
    let Some(shop) = Workshop::open() else { return };
    let hidden: [Sharing; 2] = [
        // The lanes at both ends write what all lanes read.
        (
            "var<workgroup> t: atomic<u32>;",
            "if i == 0u || i == 63u { atomicStore(&t, 7u); } BARRIER y[i] = atomicLoad(&t);",
            |_| 7,
        ),
        // The same in each simdgroup, after a function that its lanes call together.
        (
            "var<workgroup> t: atomic<u32>;",
            "let sum = subgroupAdd(i); if lane == 0u || lane == 31u { atomicStore(&t, 7u); } BARRIER \
             y[i] = atomicLoad(&t) + min(sum, 0u);",
            |_| 7,
        ),
    ];
    let under = |order| Liberties { order, errors: Errors::None };
    for (globals, body, right) in hidden {
        let right: Vec<u32> = (0..SIZE as u32).map(right).collect();
        let is_right = |build: Build, order: Option<u64>, barrier: &str| {
            let body = body.replace("BARRIER", barrier);
            run_under(&shop, build, under(order), globals, &body).unwrap()[..SIZE] == right
        };
        for build in Level::ALL.map(shared_memory) {
            assert!(is_right(build, None, ""), "{build:?}, in order: `{body}` shows");
            let seeds = (0..8).map(|turn| lane_seed().wrapping_add(turn));
            let shown = seeds.clone().filter(|seed| !is_right(build, Some(*seed), "")).count();
            assert!(shown >= 6, "{build:?}: of 8 random orders {shown} show `{body}`");
            for seed in seeds {
                assert!(is_right(build, Some(seed), "workgroupBarrier();"), "{build:?}, seed {seed}: `{body}`");
            }
        }
    }
}

/// The results of functions that err as far as Metal allows, for values whose exact results are known.
#[test]
fn functions_err_as_far_as_the_specification_allows() {
    let Some(shop) = Workshop::open() else { return };
    let calls: [(&str, f64, f64); 7] = [
        ("exp(k - 1.0)", 1.0, 3.0 / f64::from(1 << 23)),
        ("exp(-10.0 * k)", (-10f64).exp(), 23.0 / f64::from(1 << 23)),
        ("inverseSqrt(3.0 * k)", 3f64.sqrt().recip(), 2.0 / f64::from(1 << 23)),
        ("log(1.5 * k)", 1.5f64.ln(), 1.0 / f64::from(1 << 21) / 1.5f64.ln()),
        ("log(5.0 * k)", 5f64.ln(), 3.0 / f64::from(1 << 23)),
        ("(5.0 * k) / (3.0 * k)", 5.0 / 3.0, 2.5 / f64::from(1 << 23)),
        ("1.0 / (3.0 * k)", 1.0 / 3.0, 1.0 / f64::from(1 << 23)),
    ];
    let row = |(k, (call, ..)): (usize, &(&str, f64, f64))| format!("y[{}u + i] = bitcast<u32>({call});\n", k * SIZE);
    let body = calls.iter().enumerate().map(row).collect::<String>();
    let body = format!("let k = f32(y[i] + 1u);\n{body}");
    let values = |errors| -> Vec<f64> {
        let liberties = Liberties { order: None, errors };
        let left = run_under(&shop, shared_memory(Level::Plain), liberties, "", &body).unwrap();
        left.chunks(SIZE).take(calls.len()).map(|row| f64::from(f32::from_bits(row[1]))).collect()
    };
    let [exact, low, high, either] = [Errors::None, Errors::Low, Errors::High, Errors::Either(1)].map(values);
    for (at, (call, want, most)) in calls.into_iter().enumerate() {
        let off = |value: f64| (value - want) / want;
        assert!(off(exact[at]).abs() < 1e-7, "{call}: {}", exact[at]);
        for (value, sign) in [(low[at], -1.0), (high[at], 1.0)] {
            let share = sign * off(value) / most; // a unit in the last place is 2^-23 of a value, or up to half of that
            assert!((0.2..=1.001).contains(&share), "{call}: off by {share} of the bound");
        }
        assert!(either[at] == low[at] || either[at] == high[at], "{call}");
    }
}

#[test]
fn subgroup_functions_are_correct() {
    let Some(shop) = Workshop::open() else { return };
    let (lane, first) = (|i: u32| i % 32, |i: u32| i / 32 * 32);
    let functions: [(&str, &dyn Fn(u32) -> u32); 8] = [
        ("subgroupAdd(i)", &|i| (first(i)..first(i) + 32).sum()),
        ("subgroupMax(i)", &|i| first(i) + 31),
        ("subgroupMin(i)", &|i| first(i)),
        ("subgroupExclusiveAdd(i)", &|i| (first(i)..i).sum()),
        ("subgroupShuffleXor(i, 5u)", &|i| i ^ 5),
        ("subgroupShuffle(i, 31u - lane)", &|i| first(i) + 31 - lane(i)),
        ("subgroupBroadcastFirst(i)", &|i| first(i)),
        ("subgroupBallot(lane % 3u == 0u).x", &|_| (0..32).filter(|l| l % 3 == 0).map(|l| 1 << l).sum()),
    ];
    // Invocation i of the program leaves the result of call k at index i of row k.
    let calls = functions.iter().enumerate().map(|(k, (call, _))| format!("y[{}u + i] = {call};\n", k * SIZE));
    let left = run(&shop, shared_memory(Level::Plain), "", &calls.collect::<String>()).unwrap();
    for ((call, want), left) in functions.into_iter().zip(left.chunks(SIZE)) {
        let want: Vec<u32> = (0..SIZE as u32).map(want).collect();
        assert_eq!(left, want, "{call}");
    }
}

/// One operand is in a buffer and one in workgroup memory: of the helpers that naga writes for each, one remains when
/// address spaces are erased.
const MATRICES: &str = "enable wgpu_cooperative_matrix;
var<workgroup> t: array<f32, 64>;
var<storage, read_write> y: array<f32>;
@compute @workgroup_size(32)
fn main(@builtin(local_invocation_index) i: u32) {
    t[i] = f32(i % 7u);
    t[i + 32u] = f32(i % 5u);
    workgroupBarrier();
    let a = coopLoadT<coop_mat8x8<f32, A>>(&y[0], 8u);
    let b = coopLoadT<coop_mat8x8<f32, B>>(&t[0], 8u);
    coopStoreT(coopMultiplyAdd(a, b, coop_mat8x8<f32, C>()), &y[64], 8u);
}";

#[test]
fn matrices_of_8_x_8_are_multiplied() {
    let Some(shop) = Workshop::open() else { return };
    let a: Vec<f32> = (0..64).map(|i| (i % 11) as f32).collect();
    let b = |i: usize| if i < 32 { i % 7 } else { (i - 32) % 5 } as f32;
    let sum = |at: usize| (0..8).map(|k| a[at / 8 * 8 + k] * b(k * 8 + at % 8)).sum();
    let product: Vec<f32> = (0..64).map(sum).collect();
    let content = [a.clone(), vec![0.0; 64]].concat();
    let left = made_of(&shop, shared_memory(Level::Plain), MATRICES, bytemuck::cast_slice(&content)).unwrap();
    assert_eq!(bytemuck::pod_collect_to_vec::<u8, f32>(&left), [a, product].concat());
}

/// A kernel's globals, its body, and the value that invocation i leaves if everything is right.
type Sharing = (&'static str, &'static str, fn(u32) -> u32);

/// What becomes wrong if the compiler assumes that only the invocation itself writes to workgroup memory.
const UNSHARED: [Sharing; 3] = [
    // One invocation writes and all read: the example in gfx-rs/wgpu#4500, and the tile of products.
    (
        "var<workgroup> found: u32;",
        "if i == 0u { found = y[0] + 7u; }
         workgroupBarrier();
         let mine = found;
         workgroupBarrier();
         y[i] = mine + i;",
        |i| 7 + i,
    ),
    // The same repeatedly: a value that an invocation has read stays in its register.
    (
        "var<workgroup> found: u32;",
        "var sum = 0u;
         for (var turn = 0u; turn < 4u; turn++) {
             workgroupBarrier();
             if i == turn * 9u { found = turn + 1u; }
             workgroupBarrier();
             sum += found;
         }
         y[i] = sum;",
        |_| 1 + 2 + 3 + 4,
    ),
    // A running sum in one element: all stores except the last are dead if no one else reads it.
    (
        "var<workgroup> sums: array<u32, 64>;",
        "var sum = i;
         for (var apart = 1u; apart < 64u; apart *= 2u) {
             sums[i] = sum;
             workgroupBarrier();
             if i >= apart { sum += sums[i - apart]; }
             workgroupBarrier();
         }
         y[i] = sum;",
        |i| i * (i + 1) / 2,
    ),
];

/// Each is right if others may write, and wrong at one of the levels at which they may not. So the cases that are right
/// at all levels do not share memory in such ways.
#[test]
fn the_assumption_of_unshared_memory_is_detected() {
    let Some(shop) = Workshop::open() else { return };
    for (globals, body, want) in UNSHARED {
        let want: Vec<u32> = (0..SIZE as u32).map(want).collect();
        let is_right = |build: &Build| run(&shop, *build, globals, body).is_ok_and(|left| left[..SIZE] == want);
        let right: Vec<Build> = Build::ALL.into_iter().filter(is_right).collect();
        assert!(Level::ALL.into_iter().all(|level| right.contains(&shared_memory(level))), "{right:?}:\n{body}");
        assert!(!right.contains(&Build { level: Level::Fast, memory: Memory::Noalias }), "{right:?}:\n{body}");
    }
}
