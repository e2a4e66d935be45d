//! Every shader that a Mac may run: of the kernels' cases, and of the plans of whole models.

use crate::emit::Shader;
use crate::shape::{Shape, metadata, tensors};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::OnceLock;
use tempfile::TempDir;
use wglm::tune::Choices;
use wglm::{Arithmetic, CacheShape, CacheType, Config, DraftKind, Gguf, Matrices, PromptOptions};
use wglm_engine::instruments::{FEW_CLASSES, tile_candidates, tiling_candidates};
use wglm_engine::kernels::{KERNELS, Kernel};
use wglm_engine::model::{BatchPlan, BatchShape, Outputs, Shaders, plan_batch, plan_sampling, plan_token};
use wglm_engine::plan::{Fusions, Plan, ProductTile, RowRange, Step, StepChoice, Target, Team, Tiling, Tilings};
use wglm_engine::reference::Case;
use wglm_engine::shader::Variant;

/// The targets of plans on Apple's GPUs: simdgroups of 32, and f32. Options may select products of bytes, and adapters
/// without subgroup operations get teams of whole workgroups. Adapters with matrices of 8 x 8 multiply chunks with
/// them.
pub fn targets() -> Vec<Target> {
    let teams = [Team::Subgroup, Team::Workgroup];
    let arithmetics = [Arithmetic::Float, Arithmetic::Int];
    let target = |team, arithmetic| Target { team, arithmetic, ..apple() };
    let targets = teams.into_iter().flat_map(|team| arithmetics.map(|arithmetic| target(team, arithmetic)));
    targets.chain([Target { matrices: Matrices::Eight, ..apple() }]).collect()
}

/// An Apple GPU, except for its matrices.
pub fn apple() -> Target {
    Target { tilings: Tilings::Apple, ..Target::default() }
}

/// The kernel's cases. Some kernels choose their own target: see [`Shader::foreign`].
pub fn cases(kernel: &Kernel, target: &Target) -> Vec<Case> {
    kernel.cases(target).unwrap_or_else(|e| panic!("{}: {e}", kernel.name))
}

/// The plan of a token of the model in a file, for every target, cache and set of fusions.
pub fn plans(file: &Gguf, context: usize) -> Vec<Plan> {
    let config = Config::read(file).unwrap();
    let mut plans = Vec::new();
    for target in &targets() {
        for ty in CacheType::ALL {
            for fusions in [Fusions::all(), Fusions::none()] {
                let (cache, target) = (CacheShape { context, ty }, &Target { fusions, ..target.clone() });
                plans.push(plan_token(file, &config, cache, target).unwrap().plan);
            }
        }
    }
    plans
}

/// The demonstration model.
pub fn fable() -> Gguf {
    Gguf::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("models/fable-10m-q4_0.gguf")).unwrap()
}

/// The full shape's header.
pub fn full(dir: &TempDir) -> Gguf {
    header(dir, &Shape::glm(47))
}

/// The same with a multi-token-prediction block.
pub fn full_with_block(dir: &TempDir) -> Gguf {
    header(dir, &Shape { mtp: true, ..Shape::glm(47) })
}

/// A file with the header of a shape, and a hole in place of its data.
pub fn header(dir: &TempDir, shape: &Shape) -> Gguf {
    let all = tensors(shape);
    let writer = all.iter().fold(metadata(shape), |w, t| w.reserve(&t.name, &t.dims, t.quant.id, t.bytes()));
    let (header, path) = (writer.header(), dir.path().join("hole.gguf"));
    let data: u64 = all.iter().map(|t| t.bytes().next_multiple_of(32)).sum();
    std::fs::write(&path, &header).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(header.len() as u64 + data).unwrap();
    Gguf::open(&path).unwrap()
}

/// Plans of the demonstration model and of the full shape.
pub fn model_plans() -> Vec<Plan> {
    let dir = TempDir::new().unwrap();
    [plans(&fable(), 300), plans(&full(&dir), 8192)].concat()
}

/// The distinct shaders of these plans, each by its variant.
pub fn shaders<'a>(plans: impl IntoIterator<Item = &'a Plan>) -> HashMap<Variant, Shader> {
    let mut found = HashMap::new();
    for variant in plans.into_iter().flat_map(|plan| &plan.variants) {
        let read = || Shader::of(variant).unwrap_or_else(|e| panic!("{}: {e}", variant.label));
        found.entry(variant.clone()).or_insert_with(read);
    }
    found
}

/// All of them except those of cases that no Mac runs.
pub fn all() -> &'static HashMap<Variant, Shader> {
    static ALL: OnceLock<HashMap<Variant, Shader>> = OnceLock::new();
    ALL.get_or_init(|| {
        let every = |kernel: &&Kernel| -> Vec<Plan> {
            targets().iter().flat_map(|target| cases(kernel, target)).map(|case| case.plan).collect()
        };
        let mut found = shaders(&KERNELS.iter().flat_map(every).collect::<Vec<_>>());
        found.retain(|_, shader| !shader.foreign());
        found.extend(shaders(&model_plans()));
        found
    })
}

/// Targets that plans are made for beyond Apple's: of narrow and wide subgroups, few invocations, and other matrices.
fn other_targets() -> Vec<Target> {
    let nvidia = Target::default();
    vec![
        Target { matrices: Matrices::Sixteen, arithmetic: Arithmetic::Int, ..nvidia.clone() },
        Target { subgroup: 4, invocations: 128, ..nvidia.clone() },
        Target { subgroup: 8, invocations: 256, workgroup_bytes: 16 << 10, ..nvidia.clone() },
        Target { subgroup: 64, arithmetic: Arithmetic::Int, ..nvidia.clone() },
        Target { wide: false, workgroups: 8, ..nvidia },
    ]
}

/// Shapes of two layers and a multi-token-prediction block, whose latents have from 32 values to 512.
fn shapes() -> Vec<Shape> {
    let narrow = |latent_rank: u64, heads: u64| Shape {
        mtp: true,
        vocab: 512,
        width: 256,
        heads,
        query_rank: 64,
        latent_rank,
        nope: 32,
        rotary: 32,
        value_width: 32,
        experts: 8,
        expert_width: 256,
        dense_width: 128,
        ..Shape::glm(2)
    };
    let mut shapes: Vec<Shape> = [(32, 1), (128, 4)].map(|it| narrow(it.0, it.1)).into();
    shapes.push(Shape { mtp: true, vocab: 2048, ..Shape::glm(2) });
    shapes
}

/// Every variant of the plans of a model: of a token, of prompts in chunks up to `chunk`, of rows of several sequences
/// and all logits, of drafts, and of sampling with penalties and masks.
fn variants_of(file: &Gguf, ty: CacheType, target: &Target, chunk: usize, found: &mut HashSet<Variant>) {
    let (config, cache) = (Config::read(file).unwrap(), CacheShape { context: 4096, ty });
    let token = plan_token(file, &config, cache, target).unwrap();
    let prompt = PromptOptions { chunk: Some(chunk), ..PromptOptions::default() };
    found.extend(Shaders::of(&config, &token, target, prompt, DraftKind::Auto, u64::MAX).unwrap().all());
    for (rows, outputs) in [(8, Outputs::Sequences), (4, Outputs::All), (64, Outputs::All)] {
        found.extend(batch(&config, &token, target, rows, outputs));
    }
    let masked = plan_sampling(&config, &token, token.head().unwrap(), target, 4, true).unwrap();
    found.extend(masked.plan.variants);
}

/// The variants of batches of this many rows.
fn batch(config: &Config, token: &BatchPlan, target: &Target, rows: usize, outputs: Outputs) -> Vec<Variant> {
    let shape = BatchShape { rows, outputs, depth: 1024 };
    plan_batch(config, token, target, shape).unwrap().plan.variants
}

/// A choice for every product of a model.
fn each<T: Copy>(steps: &[String], choice: T) -> Vec<StepChoice<T>> {
    steps.iter().map(|step| StepChoice { step: step.clone(), rows: RowRange::ALL, choice }).collect()
}

/// What the tuner or a user may choose for products of few rows, with small workgroups, and for those of many rows.
/// They include workgroups that are too small.
fn choices(steps: &[String], target: &Target) -> [Vec<Choices>; 2] {
    let of_rows = std::iter::once(RowRange::new(1, 1)).chain(FEW_CLASSES);
    let mut tilings: HashSet<Tiling> = of_rows.flat_map(|rows| tiling_candidates(target, rows)).collect();
    for lanes in [1, 8, 32] {
        let small = |(rows, columns, direct)| Tiling { lanes, rows, columns, workgroup: 32, direct };
        tilings.extend([(1, 1, false), (4, 1, false), (1, 4, false), (4, 1, true)].map(small));
    }
    // Larger workgroups are unaffected, and with teams of whole workgroups there is only one tiling.
    tilings.retain(|tiling| tiling.workgroup <= Target::MIN_WORKGROUP && target.team == Team::Subgroup);
    let mut tiles = tile_candidates(target);
    tiles.push(ProductTile::Matrices { down: 1, across: 1, lefts: 2, rights: 2, groups: 1 });
    let few = tilings.into_iter().map(|tiling| Choices { tilings: each(steps, tiling), ..Choices::default() });
    let many = tiles.into_iter().map(|tile| Choices { tiles: each(steps, tile), ..Choices::default() });
    let others = [
        Choices { few_without_matrices: true, few_rows: Some(4), ..Choices::default() },
        Choices { prompts_without_matrices: true, expanded_rows: Some(256), ..Choices::default() },
        Choices { splits: vec!["1-32=64".parse().unwrap()], ..Choices::default() },
    ];
    [few.chain(others.clone()).collect(), many.chain(others).collect()]
}

/// The variants of a model's plans that such choices affect.
fn chosen_variants(file: &Gguf, target: &Target, found: &mut HashSet<Variant>) {
    let (config, cache) = (Config::read(file).unwrap(), CacheShape { context: 4096, ty: CacheType::F16 });
    for (choices, rooms) in choices(&products(file, target), target).into_iter().zip([&[2, 4, 8][..], &[64, 512]]) {
        for choices in choices {
            let target = &Target { choices: choices.into(), ..target.clone() };
            let token = plan_token(file, &config, cache, target).unwrap();
            rooms.iter().for_each(|rows| found.extend(batch(&config, &token, target, *rows, Outputs::Last)));
            found.extend(token.plan.variants);
        }
    }
}

/// The labels of a model's steps with tilings, without their layers.
fn products(file: &Gguf, target: &Target) -> Vec<String> {
    let (config, cache) = (Config::read(file).unwrap(), CacheShape { context: 64, ty: CacheType::F16 });
    let plan = plan_token(file, &config, cache, target).unwrap().plan;
    let label = |step: &Step| step.label.rsplit_once("L0").map_or(step.label.clone(), |(_, rest)| rest[2..].to_owned());
    let labels: HashSet<String> = plan.steps.iter().map(label).collect();
    labels.into_iter().collect()
}

/// Every variant that a plan or the tuner can need, for any target. They are not parsed, because there are thousands.
pub fn every() -> HashSet<Variant> {
    let dirs: Vec<TempDir> = shapes().iter().map(|_| TempDir::new().unwrap()).collect();
    let mut files: Vec<Gguf> = shapes().iter().zip(&dirs).map(|(shape, dir)| header(dir, shape)).collect();
    files.push(fable());
    let mut found = HashSet::new();
    let (demonstration, full) = (&files[files.len() - 1], &files[files.len() - 2]);
    for target in &targets() {
        for file in &files {
            CacheType::ALL.into_iter().for_each(|ty| variants_of(file, ty, target, 512, &mut found));
        }
        let apart = Target { fusions: Fusions::none(), ..target.clone() };
        variants_of(full, CacheType::F16, &apart, 2048, &mut found);
        chosen_variants(full, target, &mut found);
    }
    chosen_variants(demonstration, &apple(), &mut found);
    for target in &other_targets() {
        [demonstration, full].into_iter().for_each(|file| variants_of(file, CacheType::F16, target, 512, &mut found));
    }
    found.extend(all().keys().cloned());
    found
}
