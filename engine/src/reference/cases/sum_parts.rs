//! The cases of `sum_parts`: products whose parts it sums.

use super::mul_mm;
use crate::error::Result;
use crate::gpu::Matrices;
use crate::kernels::sum_parts::KERNEL;
use crate::plan::{Target, Team};
use crate::quant::F32;
use crate::reference::Case;

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let with_matrices = Target { matrices: Matrices::Sixteen, team: Team::Subgroup, ..target.clone() };
    let target = Target { matrices: Matrices::None, ..target.clone() };
    let mut cases = Vec::new();
    for (shape, tokens, add) in
        [([512, 36, 1], (40, 37), false), ([448, 70 + 2, 2], (7, 5), false), ([800, 64, 1], (33, 33), true)]
    {
        cases.push(mul_mm::case(&target, &F32, shape, tokens, add)?);
    }
    cases.push(mul_mm::gated_case(&target, &F32, &F32, [544, 44])?);
    cases.push(mul_mm::beyond_half(&with_matrices, &F32, 544)?);
    cases.retain(|case| case.plan.steps.iter().any(|step| step.kernel == KERNEL.name));
    Ok(cases)
}
