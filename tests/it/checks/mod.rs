//! Tests the check at load with kernels that are correct and with kernels that are wrong.

use crate::common::gpu::{gpu, open};
use std::time::Instant;
use wglm::gpu::Matrices;
use wglm::model::{Altered, LoadOverrides};
use wglm::plan::{Fusions, Team};
use wglm::shader::{SourcePart, Variant};
use wglm::wgsl::Source;
use wglm::{Arithmetic, Check, Error, Gguf, Gpu, LoadOptions, Model, PromptOptions, Verdict, Without};

fn demo() -> Gguf {
    Gguf::from_static(wglm::DEMO_MODEL).unwrap()
}

/// Options that compute prompts token by token, so that no kernels of chunks have to be compiled.
fn alone() -> LoadOptions {
    let prompt = PromptOptions { chunk: Some(1), ..PromptOptions::default() };
    LoadOptions { context: Some(64), prompt, arithmetic: Some(Arithmetic::Float), ..LoadOptions::default() }
}

fn load(gpu: &Gpu, options: &LoadOptions) -> wglm::Result<Model> {
    Model::load(&demo(), gpu, options)
}

/// Kernels made wrong, for a load that believes that the adapter has these matrices.
fn altered(matrices: Matrices, alter: fn(&Variant) -> Variant) -> LoadOverrides {
    LoadOverrides { altered: Some(Altered { matrices, alter }), ..LoadOverrides::default() }
}

fn verdict(model: &Model) -> Verdict {
    model.verdict().expect("a verdict").clone()
}

/// Every kernel of a token and of a chunk passes, for both kinds of teams, in both arithmetics, with fusions and
/// without.
#[test]
fn kernels_that_are_right_pass() {
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
        assert_eq!((found.without(), found.kernel()), (Without::Nothing, None), "{found}");
        println!("{team} {arithmetic:?}: {:.1} s", start.elapsed().as_secs_f32());
    }
}

/// A verdict that is passed to a load replaces the check, if it is about the same kernels.
#[test]
fn what_is_known_is_not_looked_at_again() {
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
        assert!(matches!(&found, Some(Error::WrongKernel { kernel, .. }) if kernel == "slice_max"), "{found:?}");
    }
}

/// A verdict about something else.
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

/// Puts another kernel in its place, which writes none of its results.
fn broken(variant: &Variant) -> Variant {
    const TEXT: &str = "@compute @workgroup_size(1)\nfn main() {}\n";
    let source = Source { path: "op/nothing.wgsl", text: TEXT };
    Variant { enables: vec![], parts: vec![SourcePart { source, role: "w" }], ..variant.clone() }
}

/// Makes kernels with matrices do nothing.
fn matrices_broken(variant: &Variant) -> Variant {
    if variant.enables.is_empty() { variant.clone() } else { broken(variant) }
}

/// Makes kernels with matrices do nothing, and reductions by subgroups too small.
fn subgroups_broken(variant: &Variant) -> Variant {
    with(&matrices_broken(variant), "lib/team_subgroup.wgsl", "var sum = v;", "var sum = 0.9 * v;")
}

/// Makes these and reductions by workgroups wrong.
fn sums_broken(variant: &Variant) -> Variant {
    with(
        &subgroups_broken(variant),
        "lib/team_workgroup.wgsl",
        "sum += team_values[i];",
        "sum += 0.9 * team_values[i];",
    )
}

/// The load first does without matrices, then without subgroups; if nothing helps, the error names the kernel.
#[test]
fn kernels_that_are_wrong_are_done_without() {
    let chunk = PromptOptions { chunk: Some(40), ..PromptOptions::default() };
    let options = |alter| LoadOptions {
        overrides: altered(Matrices::Eight, alter),
        check: Check::Always,
        prompt: chunk,
        ..alone()
    };

    let model = load(gpu(), &options(matrices_broken)).unwrap();
    let found = verdict(&model);
    assert_eq!((found.without(), found.kernel()), (Without::Matrices, Some("mul_mm_matrix")), "{found}");
    assert!(found.to_string().contains("prompts") && found.to_string().contains("`L00."), "{found}");
    assert_eq!((model.target().matrices, model.target().team), (Matrices::None, Team::Subgroup));

    // The next load does without them from the start.
    let next = LoadOptions { check: Check::Auto, verdicts: vec![found.clone()], ..options(matrices_broken) };
    let model = load(gpu(), &next).unwrap();
    assert_eq!((model.verdict(), model.target().matrices), (Some(&found), Matrices::None));

    let model = load(gpu(), &options(subgroups_broken)).unwrap();
    let found = verdict(&model);
    assert_eq!((found.without(), found.kernel()), (Without::Subgroups, Some("rms_norm")), "{found}");
    assert_eq!((model.target().matrices, model.target().team), (Matrices::None, Team::Workgroup));

    match load(gpu(), &options(sums_broken)).map(|_| ()) {
        Err(Error::WrongKernel { kernel, place, .. }) => {
            assert!(!kernel.is_empty() && place.contains("L00."), "{kernel} {place}")
        }
        other => panic!("{other:?}"),
    }
}
