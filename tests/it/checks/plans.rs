//! Plans in which one kernel is replaced: its replacement uses neither subgroup operations nor matrices, and no other
//! step changes without need.

use crate::house::plans::models;
use std::collections::{BTreeSet, HashSet};
use wglm::{Arithmetic, CacheShape, CacheType, Config, DraftKind, Gguf, Matrices, PromptOptions};
use wglm_engine::model::{Shaders, plan_token};
use wglm_engine::plan::{Plan, Target};
use wglm_engine::shader::{Variant, reflect};

const CACHE: CacheShape = CacheShape { context: 4096, ty: CacheType::F16 };

fn shaders(file: &Gguf, target: &Target) -> Vec<Variant> {
    let config = Config::read(file).unwrap();
    let token = plan_token(file, &config, CACHE, target).unwrap();
    let prompt = PromptOptions { chunk: Some(1024), ..PromptOptions::default() };
    Shaders::of(&config, &token, target, prompt, DraftKind::Auto, u64::MAX).unwrap().all()
}

/// Whether a variant uses subgroup operations or matrices.
pub fn special(variant: &Variant) -> bool {
    let teams = ["lib/team_subgroup.wgsl", "lib/team_wide.wgsl"];
    !variant.enables.is_empty() || variant.parts.iter().any(|part| teams.contains(&part.source.path))
}

/// The kernels of these variants that can be replaced.
pub fn replaceable(variants: &[Variant]) -> BTreeSet<String> {
    variants.iter().filter(|variant| special(variant)).map(|variant| variant.kernel().to_owned()).collect()
}

fn without(target: &Target, kernel: &str) -> Target {
    Target { replaced: std::sync::Arc::new([kernel.to_owned()].into()), ..target.clone() }
}

/// The other kernels whose variants change with one kernel: those that do the same without matrices, and those that
/// read its results in another form.
fn affected(kernel: &str, arithmetic: Arithmetic) -> &'static [&'static str] {
    match kernel {
        // tiles in registers are summed by one workgroup, whereas several share a tile of matrices; and only tiles of
        // matrices have slots for the shared experts
        "mul_mm_matrix" => {
            &["mul_mm", "sum_parts", "sum_normed", "kv_write", "rms_norm", "moe_combine", "rope_query", "group_slots"]
        }
        "mla_attention_matrix" => &["mla_attention", "mla_merge", "mla_output"],
        "mla_attention_matrix8" => &["mla_attention", "mla_attention_batch"],
        "mla_attention_batch_matrix" => &["mla_attention_batch"],
        // attention over the latents, for which no keys and values are expanded
        "mla_attention_expanded" => &[
            "expand_kv_matrix",
            "mla_attention_batch_matrix",
            "mla_attention_batch",
            "mla_merge",
            "rope_query",
            "mul_mm_matrix",
        ],
        "expand_kv_matrix" => &["expand_kv"],
        // vectors that these write rounded, or read rounded
        _ if arithmetic == Arithmetic::Int => &[
            "rms_norm_rounded",
            "mul_mv",
            "mul_mv_places",
            "mul_mv_pair",
            "gate_up",
            "route",
            "moe_gate_up",
            "moe_gate_up_grouped",
            "moe_down",
            "absorb_query",
            "query_up_kv_write",
        ],
        _ => &[],
    }
}

#[test]
fn long_only_one_kernel_is_replaced() {
    let wanted = ["fable", "f32-odd"];
    let (mut seen, mut reflected) = (BTreeSet::new(), HashSet::new());
    for (name, file) in models().into_iter().filter(|(name, _)| wanted.contains(&name.as_str())) {
        for matrices in [Matrices::None, Matrices::Eight, Matrices::Sixteen] {
            for arithmetic in [Arithmetic::Float, Arithmetic::Int] {
                let target = Target { matrices, arithmetic, workgroup_bytes: 48 << 10, ..Target::default() };
                let before = shaders(&file, &target);
                for kernel in replaceable(&before) {
                    let after = shaders(&file, &without(&target, &kernel));
                    let place = format!("{name}, {matrices:?}, {arithmetic:?}, {kernel}");
                    compare(&before, &after, &kernel, arithmetic, &place);
                    let new = after.into_iter().filter(|variant| !before.contains(variant));
                    new.for_each(|variant| reflects(variant, &mut reflected, &place));
                    seen.insert(kernel);
                }
            }
        }
    }
    assert!(seen.len() >= 16, "{seen:?}");
}

fn compare(before: &[Variant], after: &[Variant], kernel: &str, arithmetic: Arithmetic, place: &str) {
    let left = after.iter().find(|variant| variant.kernel() == kernel && special(variant));
    assert!(left.is_none(), "{place}: {left:?}");
    let [old, new]: [HashSet<&Variant>; 2] = [before.iter().collect(), after.iter().collect()];
    let changed: BTreeSet<&str> = old.symmetric_difference(&new).map(|variant| variant.kernel()).collect();
    let affected = affected(kernel, arithmetic);
    let others: Vec<_> = changed.iter().filter(|name| **name != kernel && !affected.contains(name)).collect();
    assert!(others.is_empty(), "{place}: {others:?}");
}

/// A variant that is not among the `known` ones is read by naga, and becomes one of them.
fn reflects(variant: Variant, known: &mut HashSet<Variant>, place: &str) {
    if !known.contains(&variant) {
        let reflected = reflect(&variant).unwrap_or_else(|e| panic!("{place}: {e}"));
        assert!(reflected.workgroup_size >= 32, "{place}: {} has {}", variant.label, reflected.workgroup_size);
        known.insert(variant);
    }
}

/// The steps of a token's plan that use other kernels stay the same, with everything that they bind.
#[test]
fn other_steps_do_not_change() {
    let (_, file) = models().into_iter().find(|(name, _)| name == "fable").unwrap();
    let config = Config::read(&file).unwrap();
    let target = Target::default();
    let plan = |target: &Target| plan_token(&file, &config, CACHE, target).unwrap().plan;
    let before = plan(&target);
    for kernel in replaceable(&before.variants) {
        let after = plan(&without(&target, &kernel));
        let steps = |plan: &Plan| -> Vec<String> {
            let step = |step: &wglm_engine::plan::Step| {
                let own = step.kernel == kernel;
                let label = if own { String::new() } else { plan.variants[step.variant].label.clone() };
                let grid = if own { [0; 3] } else { step.grid };
                format!("{} {} {label} {grid:?} {:?}", step.label, step.kernel, step.bindings)
            };
            plan.steps.iter().map(step).collect()
        };
        assert_eq!(steps(&after), steps(&before), "{kernel}");
    }
}
