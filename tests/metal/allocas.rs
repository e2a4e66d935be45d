//! Private arrays that stay in memory. If a compiler does not unroll a loop over an array, each access is a load or a
//! store; others measured 333 ms with such loops and 56 ms without (tilelang#3195). Apple's compiler is a clang, so the
//! arrays that clang keeps at -O2 -ffast-math are the best approximation here. WGSL has no pragma for unrolling, so
//! kernels use separate variables: vectors, or arrays with constant indices.

use crate::clang::Workshop;
use crate::emit::Shader;
use crate::translate::Text;
use crate::variants::{apple, fable, full_with_block};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;
use wglm::{Arithmetic, CacheShape, CacheType, Config, DraftKind, Gguf, Matrices, PromptOptions};
use wglm_engine::model::{BatchShape, Outputs, Shaders, plan_batch, plan_sampling, plan_token};
use wglm_engine::plan::{Target, Team};
use wglm_engine::shader::Variant;

/// The number of kernels in one C++ file, which share the cost of parsing the shim.
const BATCH: usize = 16;

/// Kernels that keep arrays anyway, and why.
const EXCEPTIONS: [(&str, &str); 0] = [];

/// The target of plans on a Mac.
fn targets() -> Vec<Target> {
    let kinds =
        [(Team::Subgroup, Matrices::Eight), (Team::Subgroup, Matrices::None), (Team::Workgroup, Matrices::None)];
    let target = |(team, matrices), arithmetic| Target { team, matrices, arithmetic, ..apple() };
    kinds.into_iter().flat_map(|kind| [Arithmetic::Float, Arithmetic::Int].map(|by| target(kind, by))).collect()
}

/// The shaders of everything that a model does on a target: tokens, prompts, drafts, sampling with and without a mask,
/// and steps of several sessions.
fn shaders_for(file: &Gguf, cache: CacheShape, chunk: usize, target: &Target) -> Vec<Variant> {
    let config = Config::read(file).unwrap();
    let token = plan_token(file, &config, cache, target).unwrap();
    let prompt = PromptOptions { chunk: Some(chunk), ..PromptOptions::default() };
    let all = Shaders::of(&config, &token, target, prompt, DraftKind::Auto, u64::MAX).unwrap().all();
    let masked = plan_sampling(&config, &token, token.head().unwrap(), target, 1, true).unwrap().plan;
    let sessions = [2, 32].map(|rows| {
        let shape = BatchShape::of(rows, Outputs::Sequences, cache.context, cache.context);
        plan_batch(&config, &token, target, shape).unwrap().plan
    });
    all.into_iter().chain(sessions.into_iter().chain([masked]).flat_map(|plan| plan.variants)).collect()
}

/// The distinct shaders of a model for every target and type of cache.
fn shaders_of(file: &Gguf, context: usize, chunk: usize) -> HashSet<Variant> {
    let targets = targets();
    let kinds = targets.iter().flat_map(|target| CacheType::ALL.map(|ty| (target, CacheShape { context, ty })));
    kinds.flat_map(|(target, cache)| shaders_for(file, cache, chunk, target)).collect()
}

/// The texts of all of them, or of the kernels selected by `KERNEL`.
fn texts() -> Vec<Text> {
    let dir = TempDir::new().unwrap();
    let mut variants = shaders_of(&fable(), 300, 512);
    variants.extend(shaders_of(&full_with_block(&dir), 202_752, PromptOptions::MAX_CHUNK));
    let wanted = std::env::var("KERNEL").unwrap_or_default();
    variants.retain(|variant| wanted.split(',').any(|name| variant.label.contains(name)));
    let text = |variant: &Variant| Text::of(&Shader::of(variant).unwrap()).unwrap();
    let mut texts: Vec<Text> = variants.iter().map(text).collect();
    texts.sort_by(|a, b| a.label.cmp(&b.label));
    texts
}

/// The arrays that kernels keep, each with the kernel's label.
fn kept(shop: &Workshop, texts: &[Text]) -> Vec<(String, Vec<String>)> {
    let (batches, next): (Vec<&[Text]>, _) = (texts.chunks(BATCH).collect(), AtomicUsize::new(0));
    let work = || {
        let mut found = Vec::new();
        while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
            found.extend(shop.allocas(batch).unwrap_or_else(|e| panic!("{}: {e}", batch[0].label)));
        }
        found
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut found: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    found.retain(|(_, arrays): &(String, Vec<String>)| !arrays.is_empty());
    found.sort();
    found
}

#[test]
fn extended_no_kernel_of_a_mac_keeps_private_arrays() {
    let Some(shop) = Workshop::open() else { return };
    let texts = texts();
    println!("{} shaders", texts.len());
    let found = kept(&shop, &texts);
    let is = |label: &str, name: &str| label.split_once('.').map_or(label, |(kernel, _)| kernel) == name;
    for (name, reason) in EXCEPTIONS {
        assert!(
            found.iter().any(|(label, _)| is(label, name)),
            "{name} keeps no array ({reason}): no exception is needed"
        );
    }
    let told: Vec<String> = found
        .iter()
        .filter(|(label, _)| !EXCEPTIONS.iter().any(|(name, _)| is(label, name)))
        .map(|(label, arrays)| format!("{label}: {}", arrays.join(", ")))
        .collect();
    assert!(told.is_empty(), "{} shaders keep arrays:\n{}", told.len(), told.join("\n"));
}

/// An array whose index is known only at run time stays; one with constant indices does not.
#[test]
fn an_array_that_stays_is_detected() {
    let Some(shop) = Workshop::open() else { return };
    for (index, count) in [("i % 4u", 1), ("3", 0)] {
        let text = format!(
            "var<storage, read_write> y: array<f32>;\n@compute @workgroup_size(64)\n\
             fn main(@builtin(local_invocation_index) i: u32) {{\n\
             var own = array<f32, 4>(y[0], y[1], y[2], y[3]); own[{index}] *= 2.0; y[i] = own[0] + own[i32(y[4])];\n}}\n"
        );
        let text = if count == 0 { text.replace("own[i32(y[4])]", "own[1]") } else { text };
        let text = Text::of(&Shader::from_text(&text).unwrap()).unwrap();
        let found = kept(&shop, &[text]);
        let arrays: usize = found.iter().map(|(_, arrays)| arrays.len()).sum();
        assert_eq!(arrays, count, "{found:?}");
    }
}
