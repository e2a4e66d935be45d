//! The cases of `expand_kv_matrix`.

use super::expand_kv::cases_on;
use crate::error::Result;
use crate::gpu::Matrices;
use crate::plan::{Target, Team};
use crate::reference::Case;

/// The target with matrices of 16 x 16.
pub(super) fn able(target: &Target) -> Target {
    Target {
        matrices: Matrices::Sixteen,
        team: Team::Subgroup,
        subgroup: 32,
        workgroup_bytes: 48 << 10,
        ..target.clone()
    }
}

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let matrices = if target.matrices == Matrices::Eight { Matrices::Eight } else { Matrices::Sixteen };
    cases_on(&Target { matrices, ..able(target) })
}
