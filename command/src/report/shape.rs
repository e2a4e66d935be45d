//! GLM-4.7-Flash's shape without its weights: a model of two of its 47 layers, the dense one and one of experts.
//!
//! Kernels depend only on shapes and formats, so these two layers use every kernel of the whole model. Its 0.9 GB fit
//! where the file of 17 GB does not. `examples/synth` wrote the header, and `tests/it/synth.rs` compares the two;
//! weights are noise.

use std::path::Path;
use wglm_engine::instruments::quant_by_id;
use wglm_engine::{Gguf, Gpu};

static WHOLE: &[u8] = include_bytes!("../../models/glm-4.7-flash-2-layers.header");
/// The same with 65536 tokens in place of 154880, for devices that cannot bind so large an embedding.
static FEWER_TOKENS: &[u8] = include_bytes!("../../models/glm-4.7-flash-2-layers-65536-tokens.header");

/// The name in reports.
pub const NAME: &str = "GLM-4.7-Flash's shape";

/// The header, which is enough for plans.
pub fn header() -> wglm_engine::Result<Gguf> {
    read(WHOLE)
}

fn read(header: &[u8]) -> wglm_engine::Result<Gguf> {
    let (name, bytes) = (Path::new(NAME), 4 << 30); // more than the weights would take
    Gguf::of_headers(&[(name, bytes)], &mut |_, at, into| {
        let there = header.get(at..).unwrap_or_default();
        let count = there.len().min(into.len());
        into[..count].copy_from_slice(&there[..count]);
        Ok(())
    })
}

/// Whether a file is this model.
pub fn is(file: &Gguf) -> bool {
    file.string("general.name").is_ok_and(|name| name == "glm-flash-shaped")
}

/// The model, with noise for weights, as the device can hold it.
pub fn model(gpu: &Gpu) -> anyhow::Result<Gguf> {
    let (whole, most) = (header()?, gpu.capabilities().max_binding);
    let too_large = whole.tensors().any(|tensor| tensor.bytes as u64 > most);
    let (bytes, header) = if too_large { (FEWER_TOKENS, read(FEWER_TOKENS)?) } else { (WHOLE, whole) };
    let end = header.tensors().map(|tensor| tensor.offset + tensor.bytes).max().unwrap_or(0);
    let mut file = Vec::new();
    file.try_reserve_exact(end)?;
    file.extend(bytes);
    file.resize(end, 0);
    for (seed, tensor) in header.tensors().enumerate() {
        let bytes = &mut file[tensor.offset..][..tensor.bytes];
        let noise = quant_by_id(tensor.ty.id).filter(|_| tensor.dims.len() > 1);
        match noise {
            Some(quant) => quant.fill(bytes, 1.0 / (tensor.dims[0] as f32).sqrt(), seed as u64),
            // The weights of norms; a constant bias of the router is fine.
            None => bytes.chunks_exact_mut(4).for_each(|value| value.copy_from_slice(&1f32.to_le_bytes())),
        }
    }
    Ok(Gguf::from_vec(file)?)
}
