//! Tests weights that are used in place, in the mapped file. If the GPU cannot do that, their pages are copied, and the
//! shared buffers and the offsets of bindings are the same.

use super::dialogue;
use crate::common::gpu::gpu;
use crate::common::models::{fable_file, fixture};
use std::path::Path;
use wglm::{Gguf, LoadOptions, Model, Session};

/// A model with its weights in place or copied, and its logits after a few tokens.
fn loaded(path: &Path, zero_copy: bool) -> (Model, Vec<u32>) {
    let file = Gguf::open(path).unwrap();
    let model = Model::load(&file, gpu(), &LoadOptions { zero_copy, ..LoadOptions::default() }).unwrap();
    let mut session = Session::new(&model).unwrap();
    let vocab = model.config().vocab as u32;
    let tokens: Vec<u32> = dialogue(4).into_iter().map(|token| token % vocab).collect();
    session.feed(&tokens).unwrap();
    let bits = session.logits().unwrap().into_iter().map(f32::to_bits).collect();
    (model, bits)
}

/// The size of the model's tensors of these types in bytes.
fn bytes_of(model: &Model, types: &[&str]) -> u64 {
    let of = |t: &&wglm_engine::gguf::TensorInfo| types.contains(&t.ty.name);
    model.file().tensors().filter(of).map(|t| t.bytes as u64).sum()
}

#[test]
fn extended_weights_in_place_compute_the_same() {
    let small = ["models/f16-tied.gguf", "models/odd-types.gguf"].map(fixture);
    for path in [fable_file("f16"), fable_file("q4_0")].iter().chain(&small) {
        let ((copied, want), (shared, got)) = (loaded(path, false), loaded(path, true));
        assert_eq!(copied.weights_in_place(), 0);
        let (in_place, floats) = (shared.weights_in_place(), bytes_of(&shared, &["f32", "f16", "bf16"]));
        println!("{}: {in_place} of {floats} bytes of floats in place", path.display());
        assert!(in_place > 0 && in_place <= floats, "{}: {in_place} of {floats}", path.display());
        assert!(got == want, "{}: the logits differ", path.display());
    }
}

/// Nearly all of a model in float formats can be used in place. The rest are rows that need padding, and old layouts.
#[test]
fn a_model_of_floats_stays_in_the_file() {
    let (model, _) = loaded(&fable_file("f16"), true);
    let floats = bytes_of(&model, &["f32", "f16", "bf16"]);
    let draft: u64 = model.file().tensors().filter(|t| t.name.starts_with("blk.4.")).map(|t| t.bytes as u64).sum();
    assert!(model.weights_in_place() * 10 > (floats - draft) * 9, "{} of {floats}", model.weights_in_place());
}

/// A file in memory has no pages to share; its bytes are copied, and the model computes the same.
#[test]
fn extended_a_file_in_memory_loads_as_well() {
    let path = fable_file("q4_0");
    let file = Gguf::from_vec(std::fs::read(&path).unwrap()).unwrap();
    let model = Model::load(&file, gpu(), &LoadOptions { zero_copy: true, ..LoadOptions::default() }).unwrap();
    let mut session = Session::new(&model).unwrap();
    session.feed(&dialogue(4)).unwrap();
    let bits: Vec<u32> = session.logits().unwrap().into_iter().map(f32::to_bits).collect();
    assert!(bits == loaded(&path, false).1);
}
