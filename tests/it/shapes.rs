//! Compares synthetic models of many shapes and formats with the logits of the reference program (tests/reference), and
//! what they compute in chunks with what they compute token by token.

use super::chunks::{EXACT, logits, session};
use crate::common::gpu::gpu;
use crate::common::models::{
    Synthetic, errors, fable, fixture, load, load_with, read_f32, read_u32, relative_l2, worst_error, worst_error_with,
};
use wglm::{Arithmetic, CacheShape, CacheType, Config, DraftKind, ExpertGroups, Gguf, Model, Session, Speculation};
use wglm_engine::model::{BatchShape, Outputs, plan_batch, plan_token};
use wglm_engine::plan::{Fusions, Plan, Target};

/// The most tokens here. The prompt of `long` has thousands, whose logits `chunks` compares.
const MOST: usize = 100;

/// In f32, for every shape and format, the logits token by token are those of the reference, and the whole prompt in
/// one chunk and in chunks with a remainder gives the same logits.
#[test]
fn extended_logits_agree_with_the_reference() {
    let mut failures = Vec::new();
    let mut judge = |what: String, error: f64| {
        println!("{what}: relative L2 {error:.1e}");
        if error.is_nan() || error >= EXACT {
            failures.push(format!("{what}: {error:.2e}"));
        }
    };
    for Synthetic { name, file, mut positions, mut tokens, want, .. } in Synthetic::all() {
        let model = load(&file);
        positions.retain(|position| *position < MOST);
        tokens.truncate(MOST);
        judge(format!("{name:<16} {} tokens", tokens.len()), worst_error(&model, &tokens, &positions, &want));
        let tokens = &tokens[..tokens.len().min(40)];
        let alone = logits(&model, tokens, 1);
        for chunk in [7, 512] {
            judge(format!("{name:<16} chunks of {chunk}"), relative_l2(&logits(&model, tokens, chunk), &alone));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A model in the shape of Youtu-LLM, compared with llama.cpp on the weights dequantised to f32: dense in all layers,
/// and without a separate output matrix.
#[test]
fn logits_agree_with_llama_cpp() {
    const POSITIONS: [usize; 10] = [0, 1, 7, 31, 32, 47, 63, 64, 80, 95];
    let [file, tokens, want] = ["gguf", "tokens.i32", "logits.f32"].map(|end| fixture(&format!("family/youtu.{end}")));
    let (model, tokens, want) = (load(&file), read_u32(tokens), read_f32(want));
    let worst = worst_error_with(&model, CacheType::F32, &tokens, &POSITIONS, &want);
    println!("worst relative L2 {worst:.1e}");
    assert!(worst < EXACT, "{worst:.2e}");
    let last = relative_l2(&logits(&model, &tokens, 512), &want[want.len() - model.config().vocab..]);
    assert!(last < EXACT, "{last:.2e}");
}

/// A model in the shape of DeepSeek-V3, whose experts are in groups, compared with llama.cpp.
#[test]
fn groups_of_experts_agree_with_llama_cpp() {
    let Synthetic { file, positions, tokens, .. } = Synthetic::named("groups");
    let (model, want) = (load(&file), read_f32(fixture("family/groups.logits.f32")));
    assert_eq!(model.config().experts.as_ref().unwrap().routing.groups, Some(ExpertGroups { count: 8, used: 4 }));
    let worst = worst_error_with(&model, CacheType::F32, &tokens, &positions, &want);
    println!("worst relative L2 {worst:.1e}");
    assert!(worst < EXACT, "{worst:.2e}");
}

/// Multi-token-prediction blocks whose query is not compressed, and whose experts are in groups.
#[test]
fn predictions_of_blocks() {
    ["mtp-plain-q", "groups"].into_iter().for_each(predictions_agree);
}

fn predictions_agree(name: &str) {
    let Synthetic { file, tokens, .. } = Synthetic::named(name);
    let want = read_f32(fixture(&format!("models/{name}.mtp_logits.f32")));
    let model = load(&file);
    let cache = CacheShape { context: tokens.len() + 8, ty: CacheType::F32 };
    let mut session = Session::with_cache(&model, cache).unwrap();
    session.set_speculation(&Speculation { kind: DraftKind::Mtp, most: None }).unwrap();
    for (position, want) in want.chunks(model.config().vocab).enumerate() {
        session.feed(&tokens[position..=position]).unwrap();
        let got = session.draft_logits(tokens[position + 1], 1).unwrap();
        let error = relative_l2(&got[0], want);
        assert!(error < EXACT, "{name}, {position}: {error:.1e}");
    }
}

/// The bound with rounded activations. Rounding moves these logits further than those of the demonstration model:
/// weights and activations are noise, over rows so short that errors do not average out. An error in which bytes are
/// multiplied or how they are scaled is far larger, and at all positions.
///
/// Where two experts are nearly equally good, rounding may choose the other one, and the logits are those of another
/// expert. So one position of a model may be off by more, if the reference's own scores of two experts there are at
/// most [`NEAR_TIE`] apart.
///
/// Chunks of a few tokens multiply bytes as single tokens do, in different plans that share memory: no plan reads what
/// another one left there.
#[test]
fn extended_products_of_bytes_are_near() {
    let (mut near, mut alike) = (0, 0);
    let target = Target { arithmetic: Arithmetic::Int, ..fable("q4_0").target().clone() };
    for model in Synthetic::all() {
        let [token, few] = plans(&Gguf::open(&model.file).unwrap(), &target).map(|plan| multiplies_bytes(&plan));
        if !token && !few {
            continue;
        }
        let loaded = load_with(&model.file, gpu(), Arithmetic::Int, Fusions::all());
        assert_eq!(loaded.target(), &target);
        if token {
            logits_are_near(&loaded, &model);
            near += 1;
        }
        if few {
            chunks_are_tokens(&loaded, &model.name, ENDS[alike % ENDS.len()]);
            alike += 1;
        }
    }
    assert!(near > 5 && alike >= 4, "only {near} models with such products, {alike} with such chunks");
}

/// How far apart the scores of two experts, which are from 0 to 1, are at most if rounding may swap them.
const NEAR_TIE: f64 = 0.005;

fn logits_are_near(loaded: &Model, model: &Synthetic) {
    let Synthetic { name, positions, tokens, want, margins, .. } = model;
    let errors = errors(loaded, loaded.cache().ty, tokens, positions, want);
    let worst = errors.iter().copied().fold(0.0, f64::max);
    println!("{name:<16} products of bytes: relative L2 {worst:.1e}");
    let far: Vec<usize> = (0..errors.len()).filter(|&at| errors[at] >= 1e-1).collect();
    match far[..] {
        [] => assert!(worst > 1e-4, "{name}: {worst:.2e}: are bytes multiplied at all?"),
        [at] if margins.get(at).is_some_and(|margin| *margin < NEAR_TIE) => {
            assert!(errors[at] < 0.5, "{name}, position {}: {:.2e}", positions[at], errors[at]);
        }
        _ => panic!("{name}: {:?}", far.iter().map(|&at| (positions[at], errors[at])).collect::<Vec<_>>()),
    }
}

/// Where chunks end, in one model after the other: chunks of more tokens come before those of fewer and after them, and
/// each size up to 32 that has a plan of its own occurs: 32, 4 and 16 rows, then 8, 2 and 32.
const ENDS: [[usize; 3]; 2] = [[20, 23, 34], [7, 9, 34]];

fn chunks_are_tokens(model: &Model, name: &str, ends: [usize; 3]) {
    let tokens: Vec<u32> = (1..=34).map(|token| 37 * token % model.config().vocab as u32).collect();
    let [mut alone, mut session] = [1, 512].map(|chunk| session(model, CacheType::F32, 34, chunk));
    for end in ends {
        let [alone, together] = [&mut alone, &mut session].map(|session| {
            session.feed(&tokens[session.tokens().len()..end]).unwrap();
            session.logits().unwrap()
        });
        let error = relative_l2(&together, &alone);
        println!("{name:<16} {end} tokens: relative L2 {error:.1e}");
        assert!(error < EXACT, "{name}, {end} tokens: {error:.2e}");
    }
}

/// The plans of one token and of a few tokens.
fn plans(file: &Gguf, target: &Target) -> [Plan; 2] {
    let (config, cache) = (Config::read(file).unwrap(), CacheShape { context: 64, ty: CacheType::F32 });
    let token = plan_token(file, &config, cache, target).unwrap();
    let few = plan_batch(&config, &token, target, BatchShape::of(4, Outputs::Last, 0, 64)).unwrap();
    [token.plan, few.plan]
}

fn multiplies_bytes(plan: &Plan) -> bool {
    plan.variants.iter().any(|variant| variant.label.contains(".i8."))
}
