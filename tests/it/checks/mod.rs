//! Tests the check at load with kernels that are correct, and with kernels that cannot be used.

mod alone;
mod faults;
mod plans;

use crate::common::gpu::{gpu, open};
use std::time::Instant;
use wglm::{
    Arithmetic, Check, DraftKind, Error, Gguf, Gpu, KernelFault, LoadOptions, Matrices, Model, PromptOptions, Session,
    Verdict, serde_json,
};
use wglm_engine::model::{Altered, LoadOverrides};
use wglm_engine::plan::Fusions;
use wglm_engine::shader::{SourcePart, Variant};
use wglm_engine::wgsl::Source;

fn demo() -> Gguf {
    Gguf::from_static(wglm::DEMO_MODEL).unwrap()
}

/// Options that compute prompts token by token, so that no kernels for chunks are compiled.
fn alone() -> LoadOptions {
    let prompt = PromptOptions { chunk: Some(1), ..PromptOptions::default() };
    LoadOptions { context: Some(64), prompt, arithmetic: Some(Arithmetic::Float), ..LoadOptions::default() }
}

fn load(gpu: &Gpu, options: &LoadOptions) -> wglm::Result<Model> {
    Model::load(&demo(), gpu, options)
}

/// Wrong kernels, for a load that assumes that the adapter has these matrices.
fn altered(matrices: Matrices, alter: fn(&Variant) -> Variant) -> LoadOverrides {
    LoadOverrides { altered: Some(Altered { matrices, alter }), ..LoadOverrides::default() }
}

fn verdict(model: &Model) -> Verdict {
    model.verdict().expect("a verdict").clone()
}

/// The kernels that a verdict replaces, and their faults.
fn replaced(verdict: &Verdict) -> Vec<(&str, KernelFault)> {
    verdict.replaced().iter().map(|finding| (finding.kernel.as_str(), finding.fault)).collect()
}

/// The first tokens of a greedy reply.
fn answer(model: &Model) -> Vec<u32> {
    let mut session = Session::new(model).unwrap();
    session.feed(&crate::common::goldens::goldens()[0].tokens[..12]).unwrap();
    (0..12).map(|_| session.next_token().unwrap()).collect()
}

/// Every kernel of a token and of a chunk passes, for both kinds of teams, in both arithmetics, with fusions and
/// without.
#[test]
fn extended_correct_kernels_pass() {
    for (team, arithmetic, fusions) in [
        (true, Arithmetic::Float, Fusions::all()),
        (true, Arithmetic::Int, Fusions::all()),
        (true, Arithmetic::Int, Fusions::none()),
        (false, Arithmetic::Float, Fusions::all()),
    ] {
        let start = Instant::now();
        let device = if team { gpu().clone() } else { open(false) };
        let (arithmetic, check) = (Some(arithmetic), Check::Always);
        let overrides = LoadOverrides { fusions, ..LoadOverrides::default() };
        let options = LoadOptions { arithmetic, overrides, check, ..LoadOptions::default() };
        let found = verdict(&load(&device, &options).unwrap());
        assert!(found.is_checked() && found.replaced().is_empty(), "{found}");
        println!("{team} {arithmetic:?}: {:.1} s", start.elapsed().as_secs_f32());
    }
}

/// A verdict that is passed to a load replaces the check, if it is about the same kernels.
#[test]
fn extended_checked_kernels_are_not_checked_again() {
    let first = load(gpu(), &alone()).unwrap();
    let known = verdict(&first);
    assert!(known.subject().contains(&gpu().report().name) && known.subject().contains(env!("CARGO_PKG_VERSION")));
    let text = serde_json::to_string(&known).unwrap();
    let read: Verdict = serde_json::from_str(&text).unwrap();
    assert_eq!(read, known);

    // A wrong kernel for sampling stays unnoticed if the load believes the verdict.
    let wrong = LoadOptions { overrides: altered(Matrices::None, choice_broken), ..alone() };
    let believed = LoadOptions { verdicts: vec![known.clone()], ..wrong.clone() };
    assert_eq!(load(gpu(), &believed).unwrap().verdict(), Some(&known));
    let never = LoadOptions { check: Check::Never, ..wrong.clone() };
    assert_eq!(load(gpu(), &never).unwrap().verdict(), None);
    for again in [
        LoadOptions { check: Check::Always, ..believed.clone() },
        LoadOptions { verdicts: vec![about(&known, &[("wglm ", "wglm 9")])], ..wrong.clone() },
        LoadOptions { verdicts: vec![about(&known, &[(&gpu().report().name, "Another adapter")])], ..wrong.clone() },
        LoadOptions { verdicts: vec![about(&known, &[(&gpu().report().driver, "another driver")])], ..wrong.clone() },
        LoadOptions { arithmetic: Some(Arithmetic::Int), ..believed.clone() },
        wrong,
    ] {
        let found = load(gpu(), &again).err();
        let Some(Error::WrongKernel { kernel, fault: KernelFault::Wrong, verdict, .. }) = &found else {
            panic!("{found:?}")
        };
        // It has no other form, so the next load cannot avoid it.
        assert_eq!((kernel.as_str(), verdict.replaced().len()), ("slice_max", 0), "{found:?}");
    }
}

/// A verdict on something else.
fn about(verdict: &Verdict, changes: &[(&str, &str)]) -> Verdict {
    let mut text = serde_json::to_string(verdict).unwrap();
    for (from, to) in changes {
        assert!(text.contains(from), "{text}");
        text = text.replace(from, to);
    }
    serde_json::from_str(&text).unwrap()
}

/// Replaces text in one WGSL file of a variant.
fn with(variant: &Variant, path: &str, from: &'static str, to: &'static str) -> Variant {
    let mut variant = variant.clone();
    for part in variant.parts.iter_mut().filter(|part| part.source.path == path) {
        let Source { path, text } = part.source;
        assert!(text.contains(from), "{path} has no `{from}`");
        let text: &'static str = String::leak(text.replacen(from, to, 1));
        *part = SourcePart { source: Source { path, text }, ..*part };
    }
    variant
}

/// Makes the first step of sampling do nothing.
fn choice_broken(variant: &Variant) -> Variant {
    if variant.label.starts_with("slice_max.") { broken(variant) } else { variant.clone() }
}

/// Replaces it by another kernel, which writes none of its results.
fn broken(variant: &Variant) -> Variant {
    const TEXT: &str = "@compute @workgroup_size(1)\nfn main() {}\n";
    let source = Source { path: "op/nothing.wgsl", text: TEXT };
    Variant { enables: vec![], parts: vec![SourcePart { source, role: "w" }], ..variant.clone() }
}

/// Makes kernels with matrices do nothing.
fn matrices_broken(variant: &Variant) -> Variant {
    if variant.enables.is_empty() { variant.clone() } else { broken(variant) }
}

/// Makes reductions by subgroups too small.
fn subgroups_broken(variant: &Variant) -> Variant {
    with(variant, "lib/team_subgroup.wgsl", "var sum = v;", "var sum = 0.9 * v;")
}

/// Makes reductions of norms by subgroups and by workgroups too small.
fn norms_broken(variant: &Variant) -> Variant {
    if variant.kernel() != "rms_norm" {
        return variant.clone();
    }
    let (from, to) = ("sum += team_values[i];", "sum += 0.9 * team_values[i];");
    with(&subgroups_broken(variant), "lib/team_workgroup.wgsl", from, to)
}

/// Options of a load that checks the kernels of a prompt as well.
fn chunk(alter: fn(&Variant) -> Variant) -> LoadOptions {
    let prompt = PromptOptions { chunk: Some(40), ..PromptOptions::default() };
    LoadOptions { overrides: altered(Matrices::Eight, alter), check: Check::Always, prompt, ..alone() }
}

/// Every kernel with matrices is replaced by one without, and keeps its subgroups.
#[test]
fn kernels_with_wrong_matrices_are_replaced() {
    let model = load(gpu(), &chunk(matrices_broken)).unwrap();
    let found = verdict(&model);
    assert_eq!(replaced(&found), [("mul_mm_matrix", KernelFault::Wrong)], "{found}");
    assert!(
        found.is_checked() && found.to_string().contains("`mul_mm_matrix` gives wrong results (at `L00."),
        "{found}"
    );

    // The next load avoids it from the start.
    let next = LoadOptions { check: Check::Auto, verdicts: vec![found.clone()], ..chunk(matrices_broken) };
    assert_eq!(load(gpu(), &next).unwrap().verdict(), Some(&found));
}

/// A kernel that is wrong with subgroups is computed without them, and if that is wrong too, the load fails.
#[test]
fn extended_kernels_with_wrong_subgroups_are_replaced() {
    let model = load(gpu(), &LoadOptions { check: Check::Auto, ..chunk(subgroups_broken) }).unwrap();
    let found = verdict(&model);
    assert!(found.is_checked() && replaced(&found).contains(&("mul_mv", KernelFault::Wrong)), "{found}");
    assert_eq!(answer(&model), answer(&load(gpu(), &alone()).unwrap()), "{found}");

    let failed = load(gpu(), &chunk(norms_broken)).map(|_| ()).unwrap_err();
    let Error::WrongKernel { kernel, place, fault: KernelFault::Wrong, .. } = &failed else { panic!("{failed:?}") };
    assert!(kernel == "rms_norm" && place.contains("L00."), "{kernel} {place}");
    let known = failed.verdict().unwrap();
    assert!(!known.is_checked() && replaced(known).contains(&("rms_norm", KernelFault::Wrong)), "{failed}");
}

/// Rejects every draft.
fn drafts_rejected(variant: &Variant) -> Variant {
    if variant.kernel() == "accept" { with(variant, "op/accept.wgsl", "last++;", "break;") } else { variant.clone() }
}

/// Finds other tokens in steps of several rows.
fn rows_broken(variant: &Variant) -> Variant {
    let (from, to) =
        ("bitcast<u32>(best.score), best.token)", "bitcast<u32>(best.score), best.token + workgroups.y - 1u)");
    if variant.kernel() == "slice_max" { with(variant, "op/slice_max.wgsl", from, to) } else { variant.clone() }
}

/// A step that verifies drafts is checked too: its kernels for several rows, and which drafts it accepts.
#[test]
fn extended_wrong_verifications_are_found() {
    for (overrides, kernel, place) in [
        (altered(Matrices::None, drafts_rejected), "accept", "is 0, expected "),
        (altered(Matrices::None, rows_broken), "slice_max", "`slice_max`"),
    ] {
        let wrong = LoadOptions { overrides, check: Check::Always, ..alone() };
        let failed = load(gpu(), &wrong).map(|_| ()).unwrap_err();
        let Error::WrongKernel { kernel: found, place: at, fault: KernelFault::Wrong, .. } = &failed else {
            panic!("{failed:?}")
        };
        assert!(found == kernel && at.contains(place), "{found} {at}");
        let without = LoadOptions { speculation: DraftKind::Off, ..wrong };
        assert!(verdict(&load(gpu(), &without).unwrap()).is_checked(), "{kernel}");
    }
}
