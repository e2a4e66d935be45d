//! The cases of `route`.

use crate::error::Result;
use crate::kernels::{ExpertGroups, Gating, Routing};
use crate::plan::Target;
use crate::reference::{Case, CaseBuilder};

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for (experts, top_k) in [(8, 2), (64, 4), (5, 5), (160, 6), (1, 1), (257, 8)] {
        for (gating, normalise, scale) in
            [(Gating::Sigmoid, true, 1.8), (Gating::Softmax, false, 1.0), (Gating::Softmax, true, 2.5)]
        {
            cases.push(case(target, experts, Routing { gating, top_k, groups: None, normalise, scale }, (1, 1))?);
        }
    }
    let routing =
        |gating, top_k| Routing { gating, top_k, groups: None, normalise: gating == Gating::Sigmoid, scale: 1.8 };
    for (experts, gating, top_k, tokens) in
        [(8, Gating::Sigmoid, 2, (3, 2)), (64, Gating::Sigmoid, 4, (40, 37)), (160, Gating::Softmax, 6, (9, 9))]
    {
        cases.push(case(target, experts, routing(gating, top_k), tokens)?);
    }
    cases.push(hopeless(target)?);
    cases.extend(grouped(target)?);
    Ok(cases)
}

/// Groups: those of DeepSeek-V3 and of DeepSeek-V2, others with sizes that are no multiples of four, all experts of the
/// used ones selected, all of them used, and several tokens; and more groups than a workgroup has invocations.
fn grouped(target: &Target) -> Result<Vec<Case>> {
    let routing = |gating, top_k, (count, used)| {
        let groups = Some(ExpertGroups { count, used });
        Routing { gating, top_k, groups, normalise: gating == Gating::Sigmoid, scale: 2.5 }
    };
    let mut cases = Vec::new();
    for (experts, gating, top_k, groups, tokens) in [
        (256, Gating::Sigmoid, 8, (8, 4), (1, 1)),
        (160, Gating::Softmax, 6, (8, 3), (1, 1)),
        (18, Gating::Sigmoid, 5, (3, 1), (1, 1)),
        (64, Gating::Sigmoid, 6, (32, 3), (1, 1)),
        (12, Gating::Sigmoid, 4, (3, 3), (1, 1)),
        (256, Gating::Sigmoid, 8, (8, 4), (40, 37)),
        (268, Gating::Sigmoid, 9, (67, 20), (9, 9)),
        (20, Gating::Softmax, 3, (4, 2), (9, 9)),
    ] {
        cases.push(case(target, experts, routing(gating, top_k, groups), tokens)?);
    }
    cases.push(alike(target, routing(Gating::Sigmoid, 6, (4, 2)))?);
    Ok(cases)
}

/// All groups are alike, and so are the two halves of each: the lower groups and experts are selected.
fn alike(target: &Target, routing: Routing) -> Result<Case> {
    const EXPERTS: usize = 24;
    let mut case = CaseBuilder::new(target, 1);
    let logits = case.plan.tensor("logits", [EXPERTS, 1]);
    let [zs, biases] = [3.0, 0.1].map(|size| case.noise(3).into_iter().map(|v| size * v).collect::<Vec<f32>>());
    case.fill(&logits, &zs.repeat(EXPERTS / 3));
    let bias = case.vector_of("bias", &biases.repeat(EXPERTS / 3))?;
    case.plan.route("route", logits, &bias, routing)?;
    Ok(case.finish(format!("groups that are alike, {routing:?}")))
}

/// The first `count` of `room` tokens.
fn case(target: &Target, experts: usize, routing: Routing, (room, count): (usize, usize)) -> Result<Case> {
    let mut case = CaseBuilder::for_tokens(target, 1, room);
    if room > 1 {
        case.consecutive(0, count);
    }
    let logits = case.plan.tensor("logits", [experts, room]);
    let zs: Vec<f32> = case.noise(experts * count).into_iter().map(|v| 6.0 * v).collect();
    case.fill(&logits, &zs);
    let bias = case.vector("bias", experts)?;
    case.plan.route("route", logits, &bias, routing)?;
    Ok(case.finish(format!("{experts} experts, {count} of {room} tokens, {routing:?}")))
}

/// All scores are zero: only the bias selects, and the weights are not NaN.
fn hopeless(target: &Target) -> Result<Case> {
    let mut case = CaseBuilder::new(target, 1);
    let logits = case.plan.tensor("logits", [4, 1]);
    let zs = [-1e30; 4];
    case.fill(&logits, &zs);
    let bias = case.vector("bias", 4)?;
    let routing = Routing { gating: Gating::Sigmoid, top_k: 4, groups: None, normalise: true, scale: 1.0 };
    case.plan.route("route", logits, &bias, routing)?;
    Ok(case.finish("logits of -1e30"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    /// Groups that are not equally large, that have no second expert, or that have too few experts.
    #[test]
    fn impossible_groups_are_refused() {
        let refused = |experts, top_k, (count, used)| {
            let groups = Some(ExpertGroups { count, used });
            let routing = Routing { gating: Gating::Sigmoid, top_k, groups, normalise: true, scale: 1.0 };
            let built = case(&Target::default(), experts, routing, (1, 1));
            assert!(matches!(built, Ok(_) | Err(Error::Shape { .. })), "{:?}", built.err());
            built.is_err()
        };
        for (count, used) in [(0, 0), (0, 1), (5, 1), (12, 4), (24, 1), (3, 0), (3, 4)] {
            assert!(refused(12, 2, (count, used)), "{used} of {count}");
        }
        assert!(refused(12, 5, (3, 1)) && refused(12, 0, (3, 1)));
        assert!(!refused(12, 4, (3, 1)) && !refused(12, 12, (3, 3)));
    }
}
