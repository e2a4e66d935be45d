//! The cases of `mul_mm_matrix`.

use super::columns_for;
use super::mul_mm;
use crate::error::Result;
use crate::gpu::Matrices;
use crate::kernels::mul_mm_matrix::KERNEL;
use crate::plan::{Target, Team};
use crate::quant::{QUANTS, Quant};
use crate::reference::{Case, CaseBuilder};

/// The cases of `mul_mm`, except those that use no matrices.
pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let matrices = if target.matrices == Matrices::Eight { Matrices::Eight } else { Matrices::Sixteen };
    let target = Target { matrices, team: Team::Subgroup, subgroup: 32, ..target.clone() };
    let mut cases = mul_mm::cases(&target)?;
    cases.retain(|case| case.plan.steps.iter().any(|step| step.kernel == KERNEL.name));
    let in_half = QUANTS.iter().copied().find(|quant| !quant.exceeds_half());
    cases.extend(in_half.map(|quant| mul_mm::beyond_half(&target, quant, 64)).transpose()?);
    cases.extend(in_half.map(|quant| stored_directly(&target, quant)).transpose()?);
    Ok(cases)
}

/// Two matrices of whole tiles of rows, for one whole tile of vectors and a part of another: the sums of the first are
/// stored directly. Every second vector is so small that f16 loses bits of it if it is divided by the unit of the
/// weights.
fn stored_directly(target: &Target, quant: &'static Quant) -> Result<Case> {
    let (tokens, rows, stacks) = (67, 128, 2);
    let shape = [columns_for(quant, 96), rows, stacks];
    let mut case = CaseBuilder::for_rows(target, 1, tokens);
    case.consecutive(9, tokens);
    let w = case.weight("w", quant, shape)?;
    let mut xs = case.noise(shape[0] * stacks * tokens);
    for small in xs.chunks_exact_mut(shape[0]).skip(1).step_by(2) {
        small.iter_mut().for_each(|x| *x /= 256.0);
    }
    let x = case.batch_of("x", [shape[0], stacks], tokens, &xs);
    let y = case.plan.mul_mm("y", &w, &x)?;
    case.allow_between(&[y.buffer]);
    Ok(case.finish(format!("{} {}x{rows}x{stacks} {tokens} tokens, stored directly", quant.name, shape[0])))
}
