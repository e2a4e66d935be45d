//! Changes files at random: the result is a plan or an error, never a panic.

use super::refused::{load, plan, plan_file};
use super::small::{F32, Numbers, Q4_0, Small};
use crate::common::gguf_writer::Meta;
use crate::watched::largest_allocation;
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use wglm::{Arithmetic, LoadOptions, PromptOptions, Session};
use wglm_engine::gguf::TYPES;

/// An allocation that is larger than any in a plan of a file of a few mebibytes.
const LITTLE: usize = 1 << 20;

/// A change to the small model. Positions are taken modulo the number of items.
#[derive(Debug, Clone)]
enum Change {
    Count(usize, u32),
    Float(usize, f32),
    Unset(usize),
    Dim(usize, usize, u64),
    Type(usize, usize),
    Remove(usize),
}

impl Change {
    fn apply(&self, small: &mut Small) {
        let (keys, tensors) = (small.meta.len(), small.tensors.len());
        match *self {
            Self::Count(at, count) => small.meta[at % keys].1 = Meta::U32(count),
            Self::Float(at, value) => small.meta[at % keys].1 = Meta::F32(value),
            Self::Unset(at) => drop(small.meta.remove(at % keys)),
            Self::Dim(at, axis, dim) => {
                let dims = &mut small.tensors[at % tensors].dims;
                let axis = axis % dims.len();
                dims[axis] = dim;
            }
            Self::Type(at, ty) => small.tensors[at % tensors].ty = TYPES[ty % TYPES.len()].id,
            Self::Remove(at) => drop(small.tensors.remove(at % tensors)),
        }
    }
}

fn count() -> impl Strategy<Value = u32> {
    let edges = prop::sample::select(vec![0, 1, 1 << 16, 1 << 20, i32::MAX as u32, u32::MAX - 3, u32::MAX]);
    prop_oneof![3 => 0u32..300, 2 => edges, 1 => any::<u32>()]
}

fn change() -> impl Strategy<Value = Change> {
    let place = || 0usize..64;
    let dim = prop_oneof![4 => 1u64..300, 1 => any::<u64>()];
    prop_oneof![
        6 => (place(), count()).prop_map(|(at, count)| Change::Count(at, count)),
        1 => (place(), any::<f32>()).prop_map(|(at, value)| Change::Float(at, value)),
        1 => place().prop_map(Change::Unset),
        3 => (place(), 0usize..3, dim).prop_map(|(at, axis, dim)| Change::Dim(at, axis, dim)),
        1 => (place(), place()).prop_map(|(at, ty)| Change::Type(at, ty)),
        1 => place().prop_map(Change::Remove),
    ]
}

prop_compose! {
    /// Consistent shapes, however odd.
    fn numbers()(
        (vocab, width, dense_width, expert_width) in (1u64..80, 1u64..80, 1u64..80, 1u64..80),
        (heads, query_rank, latent, nope, value_width) in (1u64..7, 1u64..80, 1u64..24, 1u64..9, 1u64..40),
        (pairs, experts, used, shared) in (1u64..9, 1u64..9, 1u64..9, 0u64..3),
        ty in prop::sample::select(vec![F32, Q4_0]),
    ) -> Numbers {
        let rotary = 2 * pairs;
        let nope = (rotary + 4 * nope).next_multiple_of(4) - rotary;
        Numbers {
            vocab, width, dense_width, heads, query_rank, latent_rank: 4 * latent, rotary, nope, value_width,
            experts, used: used.min(experts), shared, expert_width, ty,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_change_gives_a_plan_or_an_error(
        n in numbers(),
        plain in any::<bool>(),
        changes in prop::collection::vec(change(), 1..5),
    ) {
        let mut small = if plain { Small::default() } else { Small::of(&n) };
        changes.iter().for_each(|change| change.apply(&mut small));
        if let Ok(file) = small.open() {
            let (planned, largest) = largest_allocation(|| plan_file(&file));
            prop_assert!(largest <= LITTLE, "allocated {largest} bytes at once");
            if let Err(error) = planned {
                prop_assert!(error.to_string().len() < 1000, "{error}");
            }
        }
    }

    #[test]
    fn shapes_that_fit_together_are_planned(n in numbers()) {
        let planned = plan(&Small::of(&n));
        prop_assert!(planned.is_ok(), "{:?}", planned.err());
    }
}

proptest! {
    // Each run tests other shapes.
    #![proptest_config(ProptestConfig { cases: 1, failure_persistence: None, ..ProptestConfig::default() })]

    /// One shape in each arithmetic. One of them computes its two tokens together, the other computes one after the
    /// other.
    #[test]
    fn long_shapes_that_fit_together_are_computed(float in numbers(), int in numbers(), swapped in any::<bool>()) {
        let chunks = if swapped { [1, 2] } else { [2, 1] };
        let shapes = [(float, Arithmetic::Float), (int, Arithmetic::Int)];
        for ((n, arithmetic), chunk) in shapes.into_iter().zip(chunks) {
            let prompt = PromptOptions { chunk: Some(chunk), ..PromptOptions::default() };
            let options = LoadOptions { arithmetic: Some(arithmetic), prompt, ..LoadOptions::default() };
            let model = load(&Small::of(&n), &options).unwrap();
            let mut session = Session::new(&model).unwrap();
            session.feed(&[0, (n.vocab - 1) as u32]).unwrap();
            let logits = session.logits().unwrap();
            prop_assert!(logits.len() == n.vocab as usize && logits.iter().all(|l| l.is_finite()), "{logits:?}");
        }
    }
}

/// Products of numbers can overflow although each number alone does not: sets every three numbers to absurd values at
/// once.
#[test]
fn extended_any_three_absurd_counts() {
    let sound = Small::default();
    let counts: Vec<usize> = (0..sound.meta.len()).filter(|&i| matches!(sound.meta[i].1, Meta::U32(_))).collect();
    let mut faults = Vec::new();
    for absurd in [u32::MAX - 3, 1 << 24, 16_384, 1024] {
        for (x, &a) in counts.iter().enumerate() {
            for (y, &b) in counts.iter().enumerate().skip(x) {
                for &c in &counts[y..] {
                    let mut small = sound.clone();
                    [a, b, c].into_iter().for_each(|at| small.meta[at].1 = Meta::U32(absurd));
                    if catch_unwind(AssertUnwindSafe(|| plan(&small).is_ok())).is_err() {
                        faults.push(format!("{absurd}: {:?}", [a, b, c].map(|at| small.meta[at].0.clone())));
                    }
                }
            }
        }
    }
    assert!(faults.is_empty(), "{} panics, among them {}", faults.len(), faults[0]);
}
