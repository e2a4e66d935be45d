//! Tests the example that writes models of GLM-4.7-Flash's shape: its files are read, planned and computed.

use crate::common::models::{fixture, load};
use crate::gguf_writer::GgufWriter;
use crate::hole::{full, hole, hole_of};
use crate::shape::{Content, Shape, Tensor, metadata, tensors};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;
use wglm::tune::Choices;
use wglm::{
    Arithmetic, CacheShape, CacheType, Config, DraftKind, Gguf, LoadOptions, Matrices, Model, PromptOptions, Session,
};
use wglm_engine::model::{BatchShape, Outputs, Shaders, plan_batch, plan_token};
use wglm_engine::plan::{Fusions, Purpose, Target, Team, Tilings};
use wglm_engine::quant::{IQ2_XS, Q4_K, Q6_K, QUANTS};
use wglm_engine::shader::{Access, Variant, reflect};

/// The most pipelines of a token.
const DISPATCHES: usize = 430;
const PIPELINES: usize = 24;
/// The most pipelines of a conversation. Metal compiles each from source, which is most of the time of a first start.
/// Without matrices of 8 x 8, products of few rows that several workgroups share need additional pipelines.
const CONVERSATION: usize = 64;
const CONVERSATION_WITH_SHARED: usize = 84;
/// The same for a file that mixes more formats than Q4_0 files do, in products where other files have only one.
const MORE_IF_MIXED: usize = 10;
/// How many more products of bytes have, of which several vectors share decoded weights.
const MORE_IF_BYTES: usize = 8;
/// How many more are needed if chunks are so large that keys and values are expanded: to expand them, and to attend
/// over them.
const MORE_IF_EXPANDED: usize = 2;

/// A shape with smaller numbers, in which every format still has whole blocks.
fn small() -> Shape {
    let (width, rank, hidden) = (256, 64, 256);
    Shape {
        vocab: 300,
        width,
        heads: 2,
        query_rank: rank,
        latent_rank: rank,
        nope: 32,
        rotary: 16,
        value_width: 32,
        experts: 8,
        expert_width: hidden,
        dense_width: 2 * hidden,
        ..Shape::glm(3)
    }
}

fn written(dir: &TempDir, shape: &Shape) -> PathBuf {
    let path = dir.path().join("synth.gguf");
    let bytes = crate::write::write(&path, shape).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), bytes);
    path
}

/// The headers inside `wglm report` have this shape. `WGLM_WRITE_SHAPE=1` writes them again.
#[test]
fn the_report_has_this_shape() {
    let whole = Shape::glm(2);
    for (name, shape) in [("", whole.clone()), ("-65536-tokens", Shape { vocab: 65536, ..whole })] {
        let path = format!("{}/command/models/glm-4.7-flash-2-layers{name}.header", env!("CARGO_MANIFEST_DIR"));
        let reserve = |w: GgufWriter, t: &Tensor| w.reserve(&t.name, &t.dims, t.quant.id, t.bytes());
        let header = tensors(&shape).iter().fold(metadata(&shape), reserve).header();
        if std::env::var_os("WGLM_WRITE_SHAPE").is_some() {
            std::fs::write(&path, &header).unwrap();
        }
        assert!(std::fs::read(&path).unwrap() == header, "{path}: run this test with WGLM_WRITE_SHAPE=1");
    }
}

/// The shaders of a conversation in the longest context.
fn shaders(file: &Gguf, target: &Target, ty: CacheType, chunk: usize) -> Shaders {
    let config = Config::read(file).unwrap();
    let token = plan_token(file, &config, CacheShape { context: 202_752, ty }, target).unwrap();
    let prompt = PromptOptions { chunk: Some(chunk), ..PromptOptions::default() };
    Shaders::of(&config, &token, target, prompt, DraftKind::Off, u64::MAX).unwrap()
}

/// Fails unless files of few layers and of all use the same kernels on each target. The type of the cache does not
/// matter, because attention is the same in all layers.
#[track_caller]
fn use_the_same_kernels(few: &Gguf, all: &Gguf) {
    for (target, ty) in targets().iter().filter(|(_, ty)| *ty == CacheType::F16) {
        let [few, all] = [few, all].map(|file| -> HashSet<Variant> {
            shaders(file, target, *ty, PromptOptions::MAX_CHUNK).all().into_iter().collect()
        });
        let different: Vec<&str> = few.symmetric_difference(&all).map(|variant| variant.label.as_str()).collect();
        assert_eq!(different, [""; 0], "{target:?}");
    }
}

/// Two layers use every kernel of all 47.
#[test]
fn extended_two_layers_have_all_kernels() {
    let dirs = [(); 2].map(|()| TempDir::new().unwrap());
    use_the_same_kernels(&hole(&dirs[0], &Shape::glm(2)).0, &full(&dirs[1]));
}

/// Ten layers of a file with several formats use every kernel of all 47.
#[test]
fn extended_some_mixed_layers_have_all_kernels() {
    let dirs = [(); 2].map(|()| TempDir::new().unwrap());
    use_the_same_kernels(&mixed(&dirs[0], MIXED_LAYERS), &mixed(&dirs[1], 47));
}

#[test]
fn the_full_shape_is_planned() {
    let dir = TempDir::new().unwrap();
    let file = full(&dir);
    let config = Config::read(&file).unwrap();
    assert!(config.notices.is_empty(), "{:?}", config.notices);
    let cache = CacheShape { context: 4096, ty: CacheType::F16 };
    let planned = plan_token(&file, &config, cache, &Target::default()).unwrap();
    assert_eq!((config.layers, config.heads, config.key_width, config.value_width), (47, 20, 256, 256));
    // A token reads four of the 64 experts, the shared one and the head, 2.3 GB in all.
    let read = planned.plan.cost().weights;
    assert!((2_200_000_000..2_500_000_000).contains(&read), "{read}");
}

/// Every dispatch costs time, and every pipeline costs load time, so their numbers are limited.
#[test]
fn the_full_shape_takes_few_dispatches() {
    let dir = TempDir::new().unwrap();
    let file = full(&dir);
    let config = Config::read(&file).unwrap();
    for subgroup in [4, 8, 16, 32, 64] {
        for arithmetic in [Arithmetic::Float, Arithmetic::Int] {
            for ty in CacheType::ALL {
                let target = &Target { team: Team::Subgroup, subgroup, arithmetic, ..Target::default() };
                let plan = plan_token(&file, &config, CacheShape { context: 8192, ty }, target).unwrap().plan;
                let (dispatches, pipelines) = (plan.steps.len(), plan.variants.len());
                let what = format!("subgroups of {subgroup}, {arithmetic:?}, {ty:?} cache");
                println!("{what}: {dispatches} dispatches, {pipelines} pipelines");
                assert!(dispatches <= DISPATCHES && pipelines <= PIPELINES, "{what}: {dispatches}, {pipelines}");
            }
        }
    }
}

/// With matrices of 16 x 16, the shared experts of prompts are part of the selected experts' steps. In batches of more
/// than 1024 rows they have steps of their own, with larger tiles.
#[test]
fn shared_experts_of_prompts_take_no_steps_of_their_own() {
    let dir = TempDir::new().unwrap();
    let file = full(&dir);
    let config = Config::read(&file).unwrap();
    let usual = Target { team: Team::Subgroup, subgroup: 32, matrices: Matrices::Sixteen, ..Target::default() };
    let token = plan_token(&file, &config, CacheShape { context: 8192, ty: CacheType::F16 }, &usual).unwrap();
    let labels = |target: &Target, shape: BatchShape| -> Vec<String> {
        let plan = plan_batch(&config, &token, target, shape).unwrap().plan;
        plan.steps.into_iter().map(|step| step.label.to_string()).collect()
    };
    let joined = |labels: &[String]| !labels.iter().any(|label| label.contains("_shexp"));
    let of = |rows| BatchShape::of(rows, Outputs::Last, 0, 8192);
    for (rows, joins) in [(64, true), (512, true), (1024, true), (2048, false)] {
        assert_eq!(joined(&labels(&usual, of(rows))), joins, "{rows} rows");
    }
    let steps = labels(&usual, of(64)).len();
    assert!(steps <= 19 * config.layers, "{steps} steps for {} layers", config.layers);
    let unfused = Fusions::without("experts").unwrap();
    for target in [
        Target { fusions: unfused, ..usual.clone() },
        Target { matrices: Matrices::Eight, ..usual.clone() },
        Target { team: Team::Workgroup, ..usual.clone() },
        Target { replaced: Arc::new(["mul_mm_matrix".to_owned()].into()), ..usual.clone() },
        Target { buffers: 10, ..usual.clone() },
    ] {
        assert!(!joined(&labels(&target, of(64))), "{target:?}");
    }
}

/// Among this many layers of [`mixed`], each kind of layer occurs before and after each other kind.
const MIXED_LAYERS: u64 = 10;

/// The shape with K-quants, as in files of several formats, where the second halves of some layers have more bits.
fn mixed(dir: &TempDir, layers: u64) -> Gguf {
    let shape = Shape::glm(layers);
    let mut tensors = tensors(&shape);
    for tensor in tensors.iter_mut().filter(|tensor| tensor.quant.name != "f32") {
        let layer: usize = tensor.name.split('.').nth(1).and_then(|layer| layer.parse().ok()).unwrap_or(0);
        tensor.quant = match &*tensor.name {
            name if name.contains("ffn_down") && (layer < 6 || layer % 3 == 2) => &Q6_K,
            name if ["_k_b", "_v_b", "output.weight"].iter().any(|part| name.contains(part)) => tensor.quant,
            _ => &Q4_K,
        };
    }
    hole_of(dir, &shape, tensors).0
}

/// All targets that differ in which kernels they use.
fn targets() -> Vec<(Target, CacheType)> {
    let mut targets = vec![];
    for arithmetic in [Arithmetic::Float, Arithmetic::Int] {
        for matrices in [Matrices::None, Matrices::Eight, Matrices::Sixteen] {
            targets.push(Target { arithmetic, matrices, ..Target::default() });
        }
    }
    targets.push(Target { team: Team::Workgroup, ..Target::default() });
    targets.push(Target { tilings: Tilings::Apple, matrices: Matrices::Eight, ..Target::default() });
    targets.into_iter().flat_map(|target| CacheType::ALL.map(|ty| (target.clone(), ty))).collect()
}

/// The files have only as many layers as are needed for all kernels.
#[test]
fn extended_a_conversation_takes_few_pipelines() {
    let dirs = [(); 2].map(|()| TempDir::new().unwrap());
    let (plain, _) = hole(&dirs[0], &Shape::glm(2));
    for (name, file) in [("Q4_0", plain), ("mixed", mixed(&dirs[1], MIXED_LAYERS))] {
        for ((target, ty), chunk) in targets().iter().flat_map(|of| [512, PromptOptions::MAX_CHUNK].map(|c| (of, c))) {
            let shaders = shaders(&file, target, *ty, chunk);
            let [of_token, prompts, sampling] = [&shaders.token, &shaders.prompts, &shaders.sampling].map(Vec::len);
            let Target { team, arithmetic, matrices, tilings, .. } = target;
            let what = format!(
                "{name}, {tilings:?}, {team:?}, {arithmetic:?}, {matrices:?} matrices, {ty:?}, chunks of {chunk}"
            );
            println!("{what}: {of_token} + {prompts} + {sampling} = {}", shaders.count());
            let distinct: HashSet<&Variant> =
                [&shaders.token, &shaders.prompts, &shaders.sampling].into_iter().flatten().collect();
            assert_eq!(distinct.len(), shaders.count(), "{what}: some are counted twice");
            let shared = *matrices != Matrices::Eight;
            let most = if shared { CONVERSATION_WITH_SHARED } else { CONVERSATION };
            let most = most + if name == "mixed" { MORE_IF_MIXED } else { 0 };
            let most = most + if *arithmetic == Arithmetic::Int { MORE_IF_BYTES } else { 0 };
            let most = most + if chunk == PromptOptions::MAX_CHUNK { MORE_IF_EXPANDED } else { 0 };
            assert!(shaders.count() <= most && prompts > 0 && sampling > 0, "{what}");
        }
    }
}

/// Pipelines read the number of tokens from the batch only, so plans for any number share the pipelines of the usual
/// ones.
#[test]
fn extended_chunks_of_odd_sizes_take_no_pipelines_of_their_own() {
    let dir = TempDir::new().unwrap();
    let file = full(&dir);
    let config = Config::read(&file).unwrap();
    for (target, ty) in &targets() {
        let token = plan_token(&file, &config, CacheShape { context: 8192, ty: *ty }, target).unwrap();
        let known = Shaders::of(&config, &token, target, PromptOptions::default(), DraftKind::Off, u64::MAX).unwrap();
        let known: HashSet<Variant> = [known.token, known.prompts].concat().into_iter().collect();
        for tokens in [3, 7, 31, 100] {
            let shape = BatchShape::of(tokens, Outputs::Last, 5000, 8192);
            let plan = plan_batch(&config, &token, target, shape).unwrap().plan;
            let unknown: Vec<&str> =
                plan.variants.iter().filter(|v| !known.contains(v)).map(|v| v.label.as_str()).collect();
            assert_eq!(unknown, [""; 0], "{target:?}, {shape:?}");
        }
    }
}

/// The memory of chunks, in addition to the weights and the cache, is limited at every depth.
#[test]
fn chunks_of_the_full_shape_take_moderate_memory() {
    let dir = TempDir::new().unwrap();
    let file = full(&dir);
    let config = Config::read(&file).unwrap();
    let cache = CacheShape { context: 4096, ty: CacheType::F16 };
    let token = plan_token(&file, &config, cache, &Target::default()).unwrap();
    for (tokens, depth, most) in [(16, 4096, 40 << 20), (512, 0, 200 << 20), (512, 4096, 300 << 20)] {
        let shape = BatchShape { rows: tokens, outputs: Outputs::Last, depth };
        let plan = plan_batch(&config, &token, &Target::default(), shape).unwrap().plan;
        let scratch = plan.local_memory(Purpose::Scratch);
        println!("{shape:?}: {scratch} bytes, {} dispatches, {} pipelines", plan.steps.len(), plan.variants.len());
        assert!(scratch < most, "{shape:?}: {scratch} bytes");
    }
}

/// The largest chunk fits the limits of a grid, even with several times as many heads.
#[test]
fn the_largest_chunks_are_planned() {
    let dir = TempDir::new().unwrap();
    for heads in [20, 64, 128] {
        let (file, _) = hole(&dir, &Shape { heads, ..Shape::glm(2) });
        let config = Config::read(&file).unwrap();
        let cache = CacheShape { context: 8192, ty: CacheType::F16 };
        for matrices in [Matrices::None, Matrices::Eight, Matrices::Sixteen] {
            let target = &Target { team: Team::Subgroup, matrices, ..Target::default() };
            let token = plan_token(&file, &config, cache, target).unwrap();
            for depth in [0, 8192] {
                let shape = BatchShape { rows: PromptOptions::MAX_CHUNK, outputs: Outputs::Last, depth };
                let planned = plan_batch(&config, &token, target, shape);
                assert!(planned.is_ok(), "{heads} heads, {matrices:?}, {shape:?}: {:?}", planned.err());
            }
        }
    }
}

/// DeepSeek-V3's width, with its experts in groups: the kernels that select experts for a token and for batches fit a
/// usual device.
#[test]
fn extended_groups_of_experts_are_planned() {
    let dir = TempDir::new().unwrap();
    let attention = Shape { heads: 128, query_rank: 1536, nope: 128, value_width: 128, ..Shape::glm(2) };
    let widths = Shape { width: 7168, dense_width: 18_432, expert_width: 2048, ..attention };
    let (file, _) = hole(&dir, &Shape { experts: 256, groups: [8, 4], ..widths });
    let config = Config::read(&file).unwrap();
    let cache = CacheShape { context: 4096, ty: CacheType::F16 };
    let mut kernels = HashSet::new();
    for (target, _) in targets().iter().filter(|(_, ty)| *ty == cache.ty) {
        let token = plan_token(&file, &config, cache, target).unwrap();
        let batches = BatchShape::all(PromptOptions::default(), cache.context);
        let batches = batches.map(|shape| plan_batch(&config, &token, target, shape).unwrap().plan);
        for variant in token.plan.variants.iter().cloned().chain(batches.flat_map(|plan| plan.variants)) {
            if variant.parts.iter().any(|part| part.source.path == "lib/expert_groups.wgsl") {
                let bytes = reflect(&variant).unwrap().workgroup_bytes as usize;
                assert!(bytes <= target.workgroup_bytes, "{}: {bytes} bytes of workgroup memory", variant.label);
                kernels.extend(variant.label.split('.').next().map(str::to_owned));
            }
        }
    }
    assert_eq!(kernels, HashSet::from(["route", "moe_gate_up"].map(str::to_owned)));
}

/// The limits that wglm requires of a device suffice for every kernel of a token and of batches, whatever else the
/// device supports.
#[test]
fn extended_the_required_limits_are_enough() {
    let dir = TempDir::new().unwrap();
    let files = ["k-quants", "k-quants-down", "tables", "tables-down"];
    let files = files.map(|name| Gguf::open(fixture(&format!("models/{name}.gguf"))).unwrap());
    for file in [full(&dir)].into_iter().chain(files) {
        let config = Config::read(&file).unwrap();
        let cache = CacheShape { context: 4096, ty: CacheType::F16 };
        for (team, arithmetic, expanded_rows, invocations) in [
            (Team::Workgroup, Arithmetic::Float, None, 256),
            (Team::Subgroup, Arithmetic::Float, Some(512), 256),
            (Team::Subgroup, Arithmetic::Int, None, 256),
            (Team::Subgroup, Arithmetic::Int, None, 1024), // more of them keep more in workgroup memory
        ] {
            let choices = Choices { expanded_rows, ..Choices::default() }.into();
            let target = Target { team, arithmetic, choices, buffers: 14, invocations, ..Target::default() };
            let target = &Target { workgroup_bytes: 16 << 10, ..target };
            let token = plan_token(&file, &config, cache, target).unwrap();
            let batches = BatchShape::all(PromptOptions::default(), cache.context);
            let batches = batches.map(|shape| plan_batch(&config, &token, target, shape).unwrap().plan);
            let mut variants: HashSet<Variant> = token.plan.variants.iter().cloned().collect();
            variants.extend(batches.flat_map(|plan| plan.variants));
            let expands = variants.iter().any(|variant| variant.label.starts_with("expand_kv"));
            assert_eq!(expands, expanded_rows.is_some());
            for variant in &variants {
                let reflected = reflect(variant).unwrap();
                let storage = reflected.bindings.iter().filter(|b| b.access != Access::Uniform).count();
                let takes = [storage, reflected.workgroup_bytes as usize, reflected.workgroup_size as usize];
                let fits = takes.iter().zip([14, 16 << 10, invocations]).all(|(takes, most)| *takes <= most);
                assert!(fits, "{}: {takes:?} buffers, bytes, invocations", variant.label);
            }
        }
    }
}

#[test]
fn extended_a_small_model_computes() {
    computes(&small());
}

/// All matrices whose rows are whole blocks have the type, and the model computes.
#[test]
fn extended_a_small_model_of_one_type_computes() {
    let shape = Shape { ty: Some(&IQ2_XS), ..small() };
    let (typed, others): (Vec<_>, Vec<_>) =
        tensors(&shape).into_iter().partition(|tensor| tensor.quant.id == IQ2_XS.id);
    let whole = |tensor: &Tensor| tensor.dims[0].is_multiple_of(256);
    assert!(typed.iter().all(whole) && typed.len() > 20, "{} of the type", typed.len());
    assert!(others.iter().all(|tensor| tensor.quant.name == "f32" || !whole(tensor)));
    computes(&shape);
}

fn computes(shape: &Shape) {
    let dir = TempDir::new().unwrap();
    let model = load(&written(&dir, shape));
    let mut session = Session::new(&model).unwrap();
    session.feed(&[1, 2, 299]).unwrap();
    let logits = session.logits().unwrap();
    let deviation = (logits.iter().map(|l| l * l).sum::<f32>() / logits.len() as f32).sqrt();
    assert!((0.5..2.0).contains(&deviation), "logits of deviation {deviation}: {logits:?}");
}

#[test]
fn the_same_shape_makes_the_same_bytes() {
    let [first, second] = [(); 2].map(|()| {
        let dir = TempDir::new().unwrap();
        std::fs::read(written(&dir, &small())).unwrap()
    });
    assert!(first == second);
}

/// The product of a matrix and a vector of unit variance has unit variance.
#[test]
fn extended_the_values_have_the_requested_deviation() {
    for shape in QUANTS.iter().map(|ty| Shape { ty: Some(ty), ..small() }).chain([small()]) {
        deviations(&shape);
    }
}

fn deviations(shape: &Shape) {
    let dir = TempDir::new().unwrap();
    let file = Gguf::open(written(&dir, shape)).unwrap();
    for tensor in tensors(shape) {
        let Content::Noise(wanted) = tensor.content else { continue };
        let mut values = vec![0f32; tensor.dims.iter().product::<u64>() as usize];
        let stored = file.read_all(file.tensor(&tensor.name).unwrap()).unwrap();
        tensor.quant.decode(&stored, &mut values).unwrap();
        let count = values.len() as f64;
        let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / count;
        let deviation = (values.iter().map(|v| f64::from(v * v)).sum::<f64>() / count).sqrt() / f64::from(wanted);
        assert!((0.9..1.1).contains(&deviation), "{}: {deviation} of {wanted}", tensor.name);
        assert!(mean.abs() < 0.15 * f64::from(wanted), "{}: mean {mean}", tensor.name);
    }
}

/// The rows of the table in docs/embedding.md, in MiB.
#[test]
fn extended_the_guide_states_the_size_of_a_cache() {
    let guide = include_str!("../../docs/embedding.md");
    let stated = |first: &str, last: &str| guide.lines().any(|line| line.starts_with(first) && line.ends_with(last));
    let dir = TempDir::new().unwrap();
    let file = full(&dir);
    let mut missing = Vec::new();
    for context in [4096, 8192, 32_768, 131_072, 0] {
        let options = LoadOptions { context: Some(context), ..LoadOptions::default() };
        let said = Model::estimate(&file, &options, None).unwrap();
        let bytes = [said.cache, said.scratch, said.weights, said.most()];
        let [cache, scratch, weights, most] = bytes.map(|bytes| (bytes as f64 / f64::from(1 << 20)).round());
        assert_eq!(said.shape.ty, CacheType::F16);
        // Between the two is the memory for staging, which depends on the processor.
        let first = format!("| {} | {cache} | {scratch} | {weights} |", said.shape.context);
        let last = format!("| {most} |");
        missing.extend((!stated(&first, &last)).then(|| format!("{first} … {last}")));
    }
    assert!(missing.is_empty(), "not in the guide:\n{}", missing.join("\n"));
}
