//! Faults of kernels, simulated by changing what a correct kernel reads, so that it computes what a wrong one would.
//! They show by how much a wrong output exceeds its bound, and that none stays within it.

use std::ops::Range;
use wglm_engine::plan::{BufferRef, Plan, Purpose, Weight};
use wglm_engine::reference::Case;

/// The fault of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// One of 32 lanes, each of which reads a chunk of four values of a vector, gets the chunk of the next one.
    Lane,
    /// One of 32 rows of the cache or of a matrix is replaced by the next one.
    Row,
    /// Neighbouring scales of a weight are exchanged.
    Scale,
}

/// The content of a case's weights and local buffers.
pub struct Inputs {
    pub weights: Vec<Vec<u8>>,
    pub locals: Vec<Vec<u8>>,
}

/// The number of lanes, or rows, of which one is wrong.
const OF: usize = 32;
/// The bytes of a chunk of four values.
const CHUNK: usize = 16;
/// The content of a case's buffers before anything is written (`reference::builder`).
const UNTOUCHED: u32 = 0x7fc1_7fc1;
/// The rows of a page of the cache, and the bytes of the guard band after it.
const PAGE: usize = wglm_engine::plan::PAGE;
const GUARD: usize = 256;

impl Fault {
    pub const ALL: [Self; 3] = [Self::Lane, Self::Row, Self::Scale];

    /// What a case reads with the fault; `None` if the case cannot have it.
    pub fn inputs(self, case: &Case) -> Option<Inputs> {
        let mut inputs = Inputs { weights: case.weights.clone(), locals: case.locals.clone() };
        match self {
            Self::Lane => mistake_chunks(case, &mut inputs),
            Self::Row => {
                miss_kv_rows(case, &mut inputs);
                if inputs.locals == case.locals {
                    of_matrices(case, |weight| miss_rows(weight, &mut inputs.weights[weight.id.index()]));
                }
            }
            Self::Scale => of_matrices(case, |weight| exchange_scales(weight, &mut inputs.weights[weight.id.index()])),
        }
        let altered = inputs.weights != case.weights || inputs.locals != case.locals;
        altered.then_some(inputs)
    }
}

fn of_matrices(case: &Case, alter: impl FnMut(&Weight)) {
    case.plan.weights.iter().filter(|weight| weight.shape[1] > 1).for_each(alter);
}

/// Whether a buffer holds values rather than ids, masks or bytes: all of them look like noise.
fn holds_values(content: &[u8]) -> bool {
    let written = content.chunks_exact(4).map(word).filter(|word| *word != UNTOUCHED && *word != 0);
    let mut values = written.map(f32::from_bits).peekable();
    values.peek().is_some() && values.all(|value| (1e-7..1e7).contains(&value.abs()))
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().unwrap())
}

fn mistake_chunks(case: &Case, inputs: &mut Inputs) {
    let bound: Vec<BufferRef> = case.plan.steps.iter().flat_map(|step| &step.bindings).map(|it| it.buffer).collect();
    for ((id, local), content) in case.plan.locals_by_id().zip(&mut inputs.locals) {
        let reads = bound.contains(&BufferRef::Local(id)) && local.purpose == Purpose::Scratch;
        if !reads || !holds_values(content) {
            continue;
        }
        for two in content.chunks_mut(OF * CHUNK).filter_map(|lanes| lanes.get_mut(..2 * CHUNK)) {
            let (one, next) = two.split_at_mut(CHUNK);
            if one.chunks_exact(4).chain(next.chunks_exact(4)).all(|bytes| word(bytes) != UNTOUCHED) {
                one.copy_from_slice(next);
            }
        }
    }
}

fn miss_kv_rows(case: &Case, inputs: &mut Inputs) {
    let pages = word(&case.locals[Plan::PAGES.index()][..4]) as usize; // the list begins with the pool's last page
    for (local, content) in case.plan.locals.iter().zip(&mut inputs.locals) {
        let written = content.len() >= 4 && word(&content[..4]) != UNTOUCHED;
        if local.purpose == Purpose::Cache && written {
            let row = (content.len() - GUARD) / ((pages + 1) * PAGE);
            copy_next(content, row, 0..(pages + 1) * PAGE);
        }
    }
}

/// Replaces every 32nd of some rows by the next row.
fn copy_next(content: &mut [u8], row: usize, rows: Range<usize>) {
    for at in rows.clone().step_by(OF).filter(|at| at + 1 < rows.end) {
        content.copy_within((at + 1) * row..(at + 2) * row, at * row);
    }
}

fn miss_rows(weight: &Weight, content: &mut [u8]) {
    let [_, rows, matrices] = weight.shape;
    for (start, bytes) in weight.streams() {
        let stream = &mut content[start as usize..][..bytes as usize];
        let row = stream.len() / (rows * matrices);
        (0..matrices).for_each(|matrix| copy_next(stream, row, matrix * rows..(matrix + 1) * rows));
    }
}

fn exchange_scales(weight: &Weight, content: &mut [u8]) {
    let streams = weight.quant.streams.iter().zip(weight.streams()).filter(|(stream, _)| stream.name == "scales");
    for (_, (start, bytes)) in streams {
        let scales = &mut content[start as usize..][..bytes as usize];
        scales.chunks_exact_mut(4).for_each(|two| two.rotate_left(2));
    }
}
