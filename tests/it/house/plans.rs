//! The plan of a token, built from headers alone: no label occurs twice, and every step binds exactly what its shader
//! declares, inside buffers that exist.

use crate::hostile_models::small::{Numbers, Small};
use std::collections::HashSet;
use std::mem::offset_of;
use std::path::PathBuf;
use wglm::{Arithmetic, CacheShape, CacheType, Config, Gguf, Matrices};
use wglm_engine::kernels::KERNELS;
use wglm_engine::model::{BatchPlan, BatchShape, Outputs, plan_batch, plan_token};
use wglm_engine::plan::{
    ALIGNMENT, BatchHeader, Bound, BufferRef, MAX_GRID, PAGE, Plan, Purpose, RowHeader, Step, Target, Team, row_bytes,
};
use wglm_engine::shader::{Access, Reflected, reflect};

/// The most dispatches of a token: those of every layer, and those around the layers.
const DENSE_LAYER: usize = 15;
const EXPERTS_LAYER: usize = 20;
const AROUND: usize = 6;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn fable() -> Gguf {
    Gguf::open(root().join("models/fable-10m-q4_0.gguf")).unwrap()
}

/// The demonstration model and every synthetic one.
pub fn models() -> Vec<(String, Gguf)> {
    let folder = std::fs::read_dir(root().join("tests/fixtures/models")).unwrap();
    let mut paths: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "gguf"));
    paths.sort();
    assert!(paths.len() > 10, "only {} models in tests/fixtures/models", paths.len());
    let open = |path: PathBuf| (path.file_stem().unwrap().to_str().unwrap().to_owned(), Gguf::open(&path).unwrap());
    std::iter::once(("fable".to_owned(), fable())).chain(paths.into_iter().map(open)).collect()
}

pub fn planned(file: &Gguf, target: &Target, ty: CacheType) -> BatchPlan {
    let config = Config::read(file).unwrap();
    plan_token(file, &config, CacheShape { context: 300, ty }, target).unwrap()
}

/// All targets that plans are made for.
pub fn targets() -> Vec<Target> {
    let teams = [Team::Subgroup, Team::Workgroup];
    let arithmetics = [Arithmetic::Float, Arithmetic::Int];
    teams
        .into_iter()
        .flat_map(|team| arithmetics.map(|arithmetic| Target { team, arithmetic, ..Target::default() }))
        .collect()
}

/// Every model's plan of a token, for every target and type of cache.
pub fn plans() -> Vec<(String, BatchPlan)> {
    let mut plans = Vec::new();
    for (name, file) in models() {
        for target in &targets() {
            let rank = Config::read(&file).unwrap().latent_rank;
            for ty in CacheType::ALL.into_iter().filter(|ty| ty.holds(rank)) {
                plans.push((format!("{name} ({target:?}, {ty:?})"), planned(&file, target, ty)));
            }
        }
    }
    plans
}

/// Fails with all complaints of `check` about steps.
fn every_step(check: impl Fn(&Plan, &Step) -> Vec<String>) {
    let mut complaints = Vec::new();
    for (name, planned) in plans() {
        for step in &planned.plan.steps {
            complaints.extend(check(&planned.plan, step).iter().map(|c| format!("{name} {}: {c}", step.label)));
        }
    }
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

pub fn repeated<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = HashSet::new();
    names.filter(|name| !seen.insert(*name)).collect()
}

#[test]
fn every_label_occurs_once() {
    for (name, planned) in plans() {
        let Plan { steps, variants, weights, .. } = &planned.plan;
        assert_eq!(repeated(steps.iter().map(|s| s.label.as_str())), [""; 0], "{name}: steps");
        assert_eq!(repeated(variants.iter().map(|v| v.label.as_str())), [""; 0], "{name}: variants");
        assert_eq!(repeated(weights.iter().map(|w| &*w.name)), [""; 0], "{name}: weights");
    }
}

/// Whatever the formats, steps bind no more storage buffers than every supported device has. On devices with more, the
/// same steps also write their outputs rounded to bytes.
#[test]
fn few_storage_buffers() {
    let wide = Numbers { width: 256, query_rank: 256, latent_rank: 256, expert_width: 256, ..Numbers::default() };
    // K-quants, and formats with a grid.
    for ty in (10..=14).chain([16, 17, 18, 21, 22]) {
        let file = Small::of(&Numbers { ty, value_width: 128, ..wide }).open().unwrap();
        let config = Config::read(&file).unwrap();
        let rounded = [14, 29].map(|buffers| {
            let target = Target { arithmetic: Arithmetic::Int, buffers, ..Target::default() };
            let token = planned(&file, &target, CacheType::F16);
            let few = plan_batch(&config, &token, &target, BatchShape::of(4, Outputs::All, 0, 64)).unwrap();
            let with_matrices = Target { team: Team::Subgroup, matrices: Matrices::Sixteen, ..target.clone() };
            let many = plan_batch(&config, &token, &with_matrices, BatchShape::of(64, Outputs::Last, 0, 64)).unwrap();
            let steps = || token.plan.steps.iter().chain(&few.plan.steps).chain(&many.plan.steps);
            for step in steps() {
                assert!(step.bindings.len() <= buffers, "{ty}: {} binds {}", step.label, step.bindings.len());
            }
            steps().filter(|step| step.bindings.iter().any(|bound| bound.name == "rounded_output")).count()
        });
        assert!(0 < rounded[0] && rounded[0] <= rounded[1], "{ty}: {rounded:?}");
        assert!(ty != 21 || rounded[0] < rounded[1], "{ty}: {rounded:?}");
    }
}

#[test]
fn every_step_names_a_kernel_and_fits_a_grid() {
    every_step(grids);
}

pub fn grids(plan: &Plan, step: &Step) -> Vec<String> {
    let mut complaints = Vec::new();
    if !KERNELS.iter().any(|k| k.name == step.kernel) {
        complaints.push(format!("no kernel `{}`", step.kernel));
    }
    let label = plan.variants.get(step.variant).map_or("nothing", |v| v.label.as_str());
    if !label.starts_with(&format!("{}.", step.kernel)) {
        complaints.push(format!("the variant {label} is not of `{}`", step.kernel));
    }
    if step.grid.iter().any(|n| !(1..=MAX_GRID).contains(n)) {
        complaints.push(format!("a grid of {:?}", step.grid));
    }
    complaints
}

/// The size and the name of the bound buffer; nothing if there is none.
fn buffer(plan: &Plan, bound: &Bound) -> Option<(u64, String)> {
    match bound.buffer {
        BufferRef::Weight(id) => plan.weights.get(id.index()).map(|w| (w.bytes(), w.name.to_string())),
        BufferRef::Local(id) => plan.locals.get(id.index()).map(|l| (l.bytes, l.name.clone())),
    }
}

#[test]
fn every_binding_lies_inside_a_buffer_that_exists() {
    every_step(buffers);
}

pub fn buffers(plan: &Plan, step: &Step) -> Vec<String> {
    let complain = |b: &Bound| match buffer(plan, b) {
        None => Some(format!("`{}` is bound to {:?}, which does not exist", b.name, b.buffer)),
        Some((bytes, name)) => {
            let fits = b.bytes > 0 && b.offset.is_multiple_of(ALIGNMENT) && b.offset + b.bytes <= bytes;
            (!fits).then(|| format!("`{}`: {} bytes from {} of `{name}` ({bytes})", b.name, b.bytes, b.offset))
        }
    };
    step.bindings.iter().filter_map(complain).collect()
}

/// A weight has the name of its tensor, and every weight is bound by a step.
#[test]
fn every_weight_is_in_the_file_and_in_use() {
    let file = fable();
    let BatchPlan { plan, .. } = planned(&file, &Target::default(), CacheType::F16);
    let bound: HashSet<BufferRef> = plan.steps.iter().flat_map(|s| &s.bindings).map(|b| b.buffer).collect();
    for weight in plan.weights.iter() {
        assert!(file.tensor(&weight.name).is_some(), "the file has no `{}`", weight.name);
        assert!(bound.contains(&weight.buffer()), "nothing uses `{}`", weight.name);
    }
    let left: Vec<&str> = file.tensors().map(|t| t.name.as_str()).collect();
    let left = left.into_iter().filter(|name| !plan.weights.iter().any(|w| *w.name == **name));
    let unused: Vec<&str> = left.filter(|name| !name.starts_with("blk.4.")).collect();
    assert_eq!(unused, [""; 0], "tensors outside the draft block that nothing uses");
}

/// How a shader accesses its binding of this name.
pub fn accessed(reflected: &Reflected, name: &str) -> Option<Access> {
    reflected.bindings.iter().find(|b| b.name == name).map(|b| b.access)
}

fn accesses(reflected: &Reflected, uniform: bool) -> Vec<&str> {
    let picked = reflected.bindings.iter().filter(|b| (b.access == Access::Uniform) == uniform);
    picked.map(|b| b.name.as_str()).collect()
}

/// Each step binds what its shader declares: the same buffers, and parameters of the same length.
pub fn mismatch(step: &Step, reflected: &Reflected) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut wanted = accesses(reflected, false);
    let mut given: Vec<&str> = step.bindings.iter().map(|b| b.name.as_str()).collect();
    wanted.sort_unstable();
    given.sort_unstable();
    if wanted != given {
        complaints.push(format!("the shader binds {wanted:?}, the step {given:?}"));
    }
    let length = reflected.params.last().map_or(0, |f| f.offset + f.bytes) as usize;
    if length != step.params.len() || accesses(reflected, true).len() != usize::from(length > 0) {
        complaints.push(format!("{} bytes of parameters, the shader has {length}", step.params.len()));
    }
    complaints
}

#[test]
fn extended_every_shader_of_every_plan_compiles_and_gets_its_bindings() {
    let mut complaints = Vec::new();
    let mut known = std::collections::HashMap::new();
    for (name, BatchPlan { plan, .. }) in plans() {
        for step in &plan.steps {
            let variant = &plan.variants[step.variant];
            match known.entry(variant.clone()).or_insert_with(|| reflect(variant)) {
                Ok(reflected) => {
                    complaints.extend(mismatch(step, reflected).iter().map(|c| format!("{name} {}: {c}", step.label)))
                }
                Err(error) => complaints.push(format!("{name}: {error}")),
            }
        }
    }
    println!("{} shaders", known.len());
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

/// Everything in a plan, as text.
fn told(planned: &BatchPlan) -> String {
    let Plan { steps, head, variants, weights, locals, splits, rows, aligned, pairs } = &planned.plan;
    let weights: Vec<_> = weights.iter().map(|w| (&w.name, w.quant.name, w.shape)).collect();
    let table = &planned.weights.table;
    let sources: Vec<_> = planned.plan.weights.iter().map(|weight| table.source(weight)).collect();
    format!(
        "{steps:?}\n{head}\n{variants:?}\n{weights:?}\n{locals:?}\n{splits}\n{rows:?}\n{aligned}\n{pairs}\n{sources:?}"
    )
}

#[test]
fn a_plan_is_the_same_when_built_twice() {
    for (name, file) in models() {
        let twice = [(); 2].map(|()| planned(&file, &Target::default(), CacheType::F16));
        assert_eq!(told(&twice[0]), told(&twice[1]), "{name}");
    }
}

/// A longer context changes only the caches and the splits of attention.
#[test]
fn only_the_caches_grow_with_the_context() {
    let file = fable();
    let config = Config::read(&file).unwrap();
    let plan = |context| {
        plan_token(&file, &config, CacheShape { context, ty: CacheType::F16 }, &Target::default()).unwrap().plan
    };
    let (short, long) = (plan(PAGE), plan(10_000 * PAGE));
    assert_eq!(short.steps.len(), long.steps.len());
    assert_eq!(short.weight_memory(), long.weight_memory());
    let cache = |plan: &Plan| plan.local_memory(Purpose::Cache);
    assert_eq!(cache(&long), 10_000 * cache(&short));
    let list = |plan: &Plan| plan.local(Plan::PAGES).bytes;
    assert_eq!((list(&short), list(&long)), (4, 40_000), "the list of pages");
    assert_eq!(cache(&plan(PAGE + 1)), 2 * cache(&short), "whole pages");
    let scratch = long.local_memory(Purpose::Scratch);
    assert!(scratch < 1 << 20, "{scratch} bytes of scratch memory");
}

/// The host and the kernels agree on the layout of a batch: fields, offsets, and the size of a row.
#[test]
fn a_batch_is_laid_out_alike_in_rust_and_wgsl() {
    let file = fable();
    let pairs = Config::read(&file).unwrap().rotary / 2;
    let plan = planned(&file, &Target::default(), CacheType::F16).plan;
    let step = plan.steps.iter().find(|step| step.kernel == "query_up_kv_write").unwrap();
    let module = reflect(&plan.variants[step.variant]).unwrap().module;
    let structure = |name: &str| {
        let (_, ty) = module.types.iter().find(|(_, ty)| ty.name.as_deref() == Some(name)).unwrap();
        let naga::TypeInner::Struct { members, .. } = &ty.inner else { panic!("{name} is no struct") };
        let place = |m: &naga::StructMember| (m.name.clone().unwrap(), m.offset as usize);
        let last = &module.types[members.last().unwrap().ty].inner;
        (members.iter().map(place).collect::<Vec<_>>(), last.clone())
    };
    let (batch, rows) = structure("Batch");
    let (row, _) = structure("Row");
    let named =
        |fields: &[(&str, usize)]| fields.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect::<Vec<_>>();
    let header = [
        ("count", offset_of!(BatchHeader, count)),
        ("longest", offset_of!(BatchHeader, longest)),
        ("splits", offset_of!(BatchHeader, splits)),
        ("submission", offset_of!(BatchHeader, submission)),
        ("rows", size_of::<BatchHeader>()),
    ];
    let of_row = [
        ("token", offset_of!(RowHeader, token)),
        ("next", offset_of!(RowHeader, next)),
        ("position", offset_of!(RowHeader, position)),
        ("sequence", offset_of!(RowHeader, sequence)),
        ("result", offset_of!(RowHeader, result)),
        ("first_page", offset_of!(RowHeader, first_page)),
        ("first_adjustment", offset_of!(RowHeader, first_adjustment)),
        ("adjustments", offset_of!(RowHeader, adjustments)),
        ("longest", offset_of!(RowHeader, longest)),
        ("unused", offset_of!(RowHeader, unused)),
        ("rotations", size_of::<RowHeader>()),
    ];
    assert_eq!((batch, row), (named(&header), named(&of_row)));
    let naga::TypeInner::Array { stride, .. } = rows else { panic!("rows are no array") };
    assert_eq!(stride as usize, row_bytes(pairs));
}

#[test]
fn a_token_takes_few_dispatches() {
    let file = fable();
    let config = Config::read(&file).unwrap();
    let plan = planned(&file, &Target::default(), CacheType::F16).plan;
    let of_layer = |i: usize| plan.steps.iter().filter(|s| s.label.starts_with(&format!("L{i:02}."))).count();
    let layers: Vec<usize> = (0..config.layers).map(of_layer).collect();
    let around = plan.steps.len() - layers.iter().sum::<usize>();
    println!(
        "fable: {} dispatches, {} pipelines; layers {layers:?}, {around} around",
        plan.steps.len(),
        plan.variants.len()
    );
    for (layer, count) in layers.into_iter().enumerate() {
        let most = if layer < config.leading_dense { DENSE_LAYER } else { EXPERTS_LAYER };
        assert!(count <= most, "layer {layer}: {count} dispatches, at most {most}");
    }
    assert!(around <= AROUND, "{around} dispatches outside the layers, at most {AROUND}");
    let head = plan.steps.len() - plan.head;
    assert_eq!(plan.steps[plan.head..].iter().filter(|s| s.label.starts_with('L')).count(), 0, "a layer in the head");
    assert!(head < around, "the embedding is no part of the head");
}
