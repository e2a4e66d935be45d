//! The cases of `absorb_query`.

use super::{by_turns, columns_for, in_turn, wide};
use crate::error::Result;
use crate::kernels::matvec;
use crate::plan::Target;
use crate::quant::Quant;
use crate::reference::kv_rows::rotated;
use crate::reference::operand::seen;
use crate::reference::product::dot;
use crate::reference::{Case, CaseBuilder};

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let shapes = in_turn(&[(3, 24, 8, 20, 1), (2, 192, 64, 36, 1), (3, 24, 8, 20, 4)]).into_iter();
    shapes
        .enumerate()
        .map(|(i, (quant, (heads, nope, rotary, rank, tokens)))| {
            let target = by_turns(target, i, tokens);
            case(&target, quant, [heads, columns_for(quant, nope), rotary, rank, tokens])
        })
        .collect()
}

fn case(target: &Target, quant: &'static Quant, [heads, nope, rotary, rank, tokens]: [usize; 5]) -> Result<Case> {
    let (mut case, rotations) = CaseBuilder::rotated(target, rotary / 2, 1234, (tokens, tokens));
    let (w, ws) = case.weight("w", quant, [nope, rank, heads])?;
    let (q, qs) = case.input("q", [nope + rotary, heads * tokens]);
    let q = case.rounded_input(&q, "q", &qs);
    let y = case.plan.tensor("y", [rank + rotary, heads * tokens]);
    case.plan.absorb_query("absorb", &w, &q, &y)?;
    let (mut want, mut sizes) = (Vec::new(), Vec::new());
    for (head, query) in qs.chunks(nope + rotary).enumerate() {
        let seen = seen(&wide(&query[..nope]), nope, &[quant], target.arithmetic);
        let rows = (0..rank).map(|row| dot(&ws, w.shape, head % heads, row, &seen));
        rows.for_each(|(value, size)| {
            want.push(value);
            sizes.push(size);
        });
        let pairs = query[nope..].chunks(2).zip(&rotations[head / heads * rotary / 2..]);
        want.extend(pairs.flat_map(|(pair, &rotation)| rotated(pair[0], pair[1], rotation)));
        sizes.resize(want.len(), 1.0);
    }
    case.expect(&y, want, sizes, matvec::bound(target.arithmetic));
    Ok(case.finish(format!("{} {heads} heads, nope {nope}, rotary {rotary}, rank {rank}, {tokens} tokens", quant.name)))
}
