//! Every shader that a Mac may be given: of the kernels' cases, and of whole models' plans.

use crate::emit::Shader;
use crate::shape::{Shape, metadata, tensors};
use std::collections::HashMap;
use std::path::Path;
use std::sync::OnceLock;
use tempfile::TempDir;
use wglm::gpu::Matrices;
use wglm::kernels::{KERNELS, Kernel};
use wglm::model::plan_token;
use wglm::plan::{Fusions, Plan, Target, Team, Tilings};
use wglm::reference::Case;
use wglm::shader::Variant;
use wglm::{Arithmetic, CacheShape, CacheType, Config, Gguf};

/// What plans are made for on Apple's GPUs: simdgroups of 32, f32 throughout. Products of bytes may be asked for, and
/// adapters without subgroup operations get teams of whole workgroups. Those of 8 x 8 matrices multiply chunks by them.
pub fn targets() -> Vec<Target> {
    let teams = [Team::Subgroup, Team::Workgroup];
    let arithmetics = [Arithmetic::Float, Arithmetic::Int];
    let target = |team, arithmetic| Target { team, arithmetic, ..apple() };
    let targets = teams.into_iter().flat_map(|team| arithmetics.map(|arithmetic| target(team, arithmetic)));
    targets.chain([Target { matrices: Matrices::Eight, ..apple() }]).collect()
}

/// A GPU of Apple's, but for its matrices.
pub fn apple() -> Target {
    Target { tilings: Tilings::Apple, ..Target::default() }
}

/// The kernel's cases. Some kernels choose a target of their own: see [`Shader::foreign`].
pub fn cases(kernel: &Kernel, target: &Target) -> Vec<Case> {
    kernel.cases(target).unwrap_or_else(|e| panic!("{}: {e}", kernel.name))
}

/// A token's plan of the model in a file, for every target, cache and set of fusions.
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

/// A shape's header, and a hole in the place of its data.
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

/// All of them but those of cases that no Mac is given.
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
