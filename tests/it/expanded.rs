//! Prompts whose rows attend over expanded keys and values, compared with other programs and with attention over the
//! latents. By default chunks of 1024 tokens and more expand them; here smaller ones do.

use crate::chunks::session;
use crate::common::goldens::goldens;
use crate::common::gpu::{gpu, gpu_without_subgroups, open};
use crate::common::models::{Synthetic, fable, fable_file, load, relative_l2};
use std::path::Path;
use wglm::tune::Choices;
use wglm::{
    Arithmetic, CacheShape, CacheType, Config, DraftKind, Gguf, Gpu, LoadOptions, Matrices, Model, PromptOptions,
    Session,
};
use wglm_engine::model::{BatchShape, LoadOverrides, Outputs, plan_batch, plan_token};
use wglm_engine::plan::{Target, Team};

/// The rows from which keys and values are expanded here.
const ROWS: usize = 64;
/// The bound on logits with keys, values and the cache in f16, compared with those in f32.
const HALVES: f64 = 2e-3;

fn choices() -> Choices {
    Choices { expanded_rows: Some(ROWS), ..Choices::default() }
}

fn options() -> LoadOptions {
    let overrides = LoadOverrides { choices: choices(), ..LoadOverrides::default() };
    LoadOptions { arithmetic: Some(Arithmetic::Float), overrides, ..LoadOptions::default() }
}

fn expanding(path: &Path, gpu: &Gpu) -> Model {
    Model::load(&Gguf::open(path).unwrap(), gpu, &options()).unwrap()
}

/// The kernels of attention in a model's plan for a chunk.
fn kernels(path: &Path, target: Target, rows: usize, ty: CacheType) -> Vec<&'static str> {
    let (file, target) = (Gguf::open(path).unwrap(), Target { choices: choices().into(), ..target });
    let config = Config::read(&file).unwrap();
    let token = plan_token(&file, &config, CacheShape { context: 512, ty }, &target).unwrap();
    let plan = plan_batch(&config, &token, &target, BatchShape::of(rows, Outputs::Last, 0, 512)).unwrap().plan;
    let mut kernels: Vec<_> = plan.steps.iter().map(|step| step.kernel).collect();
    kernels.retain(|kernel| kernel.contains("attention") || kernel.contains("expand_kv"));
    kernels.dedup();
    kernels.truncate(2);
    kernels
}

#[test]
fn every_target_expands_keys_and_values() {
    let of = |matrices, team, rows, ty| {
        let target = Target { matrices, team, workgroup_bytes: 48 << 10, ..Target::default() };
        kernels(&fable_file("q4_0"), target, rows, ty)
    };
    let plain = ["expand_kv", "mla_attention_batch"];
    for (matrices, team, expected) in [
        (Matrices::None, Team::Subgroup, plain),
        (Matrices::None, Team::Workgroup, plain),
        (Matrices::Eight, Team::Subgroup, ["expand_kv_matrix", "mla_attention_matrix8"]),
        (Matrices::Sixteen, Team::Subgroup, ["expand_kv_matrix", "mla_attention_expanded"]),
    ] {
        assert_eq!(of(matrices, team, ROWS, CacheType::F16), expected, "{matrices:?} {team:?}");
        let over_latents = of(matrices, team, ROWS - 1, CacheType::F16);
        assert!(over_latents.iter().all(|kernel| !kernel.contains("expand")), "{matrices:?}: {over_latents:?}");
        let exact = of(matrices, team, ROWS, CacheType::F32);
        assert!(exact.iter().all(|kernel| !kernel.contains("expand")), "{matrices:?}: {exact:?}");
    }
}

/// The demonstration model's logits after the last known token of each golden that is long enough, and in the other
/// precision after an earlier one.
#[test]
fn extended_goldens_are_met() {
    for (precision, gpu, most) in [("q4_0", gpu(), usize::MAX), ("f16", gpu_without_subgroups(), ROWS + 8)] {
        let model = expanding(&fable_file(precision), gpu);
        for golden in goldens().into_iter().filter(|golden| golden.tokens.len() > ROWS) {
            let index = golden.positions.iter().rposition(|position| *position < most).unwrap();
            let (position, vocab) = (golden.positions[index], model.config().vocab);
            let want = golden.logits(precision);
            let of = |model: &Model| {
                let mut session = session(model, CacheType::F16, golden.tokens.len(), ROWS);
                session.feed(&golden.tokens[..=position]).unwrap();
                session.logits().unwrap()
            };
            let expanded = of(&model);
            let error = relative_l2(&expanded, &want[index * vocab..][..vocab]);
            let between = relative_l2(&expanded, &of(fable(precision)));
            println!("{precision} {}: {error:.1e} from the golden, {between:.1e} between forms", golden.name);
            assert!(error < HALVES, "{precision} {}: {error:.2e}", golden.name);
            assert!(between > 0.0 && between < HALVES, "{precision} {}: {between:.2e} between forms", golden.name);
        }
    }
}

/// One and a half thousand tokens, into the second depth that plans are made for, agree with their golden over expanded
/// keys and values, and a thousand over latents in f16. For latents in f32, see `chunks`.
#[test]
fn long_a_long_prompt_meets_its_golden() {
    let Synthetic { file, tokens, positions, want, .. } = Synthetic::long();
    let (expanding, usual) = (expanding(&file, gpu()), load(&file));
    let vocab = usual.config().vocab;
    let [expanded, latent] = [(&expanding, 1535), (&usual, 1024)].map(|(model, last)| {
        let mut session = session(model, CacheType::F16, tokens.len(), 512);
        let rows = want.chunks_exact(vocab).zip(&positions).filter(|(_, position)| **position <= last);
        let worst = rows.map(|(row, &position)| {
            session.feed(&tokens[session.tokens().len()..=position]).unwrap();
            relative_l2(&session.logits().unwrap(), row)
        });
        worst.fold(0.0, f64::max)
    });
    println!("over written-out keys and values {expanded:.1e}, over latents {latent:.1e}");
    assert!(expanded.is_finite() && expanded < HALVES, "{expanded:.2e}");
    assert!(latent < HALVES, "{latent:.2e}");
}

/// The estimate includes the memory for expanded keys and values, and a prompt allocates it, except some KiB that it
/// does not need.
#[test]
fn extended_the_estimate_counts_expanded_keys_and_values() {
    let (file, gpu) = (Gguf::open(fable_file("q4_0")).unwrap(), open(true));
    let prompt = PromptOptions { chunk: Some(ROWS), ..PromptOptions::default() };
    let options = LoadOptions { context: Some(512), cache: Some(CacheType::F16), prompt, ..options() };
    let options = LoadOptions { speculation: DraftKind::Off, ..options };
    let said = Model::estimate(&file, &options, Some(&gpu)).unwrap();
    let model = Model::load(&file, &gpu, &options).unwrap();
    let loaded = gpu.memory().held;
    let mut session = Session::new(&model).unwrap();
    for length in [2, 3, 7, 15, 30, ROWS] {
        session.feed(&vec![7; length]).unwrap();
    }
    session.logits().unwrap();
    let held = gpu.memory().held - loaded;
    println!("{held} held in {said:?}");
    let most = said.cache + said.scratch;
    assert!(held <= most && held + (64 << 10) > most, "{held}: {said:?}");
}
