//! Splits models into several files, as llama.cpp's `gguf-split` does.

use super::gguf_writer::{GgufWriter, Meta};
use std::path::{Path, PathBuf};
use wglm::Gguf;
use wglm_engine::gguf::{TensorInfo, Value};

/// The split metadata of one file.
#[derive(Clone, Copy)]
pub struct Said {
    pub number: u16,
    pub count: u16,
    /// The number of tensors in all files together.
    pub tensors: i32,
}

/// Splits a model into `count` files in `folder`, and returns their paths.
pub fn split(model: &Gguf, count: usize, folder: &Path) -> Vec<PathBuf> {
    let tensors: Vec<&TensorInfo> = model.tensors().collect();
    let each = tensors.len().div_ceil(count);
    let mut paths = Vec::new();
    for (number, some) in tensors.chunks(each).enumerate() {
        let said = Said { number: number as u16, count: count as u16, tensors: tensors.len() as i32 };
        let path = folder.join(name(number, count));
        std::fs::write(&path, file(model, some, said)).unwrap();
        paths.push(path);
    }
    assert_eq!(paths.len(), count);
    paths
}

pub fn name(number: usize, count: usize) -> String {
    format!("model-{:05}-of-{count:05}.gguf", number + 1)
}

/// A file with some of a model's tensors and, if it is the first, the metadata.
pub fn file(model: &Gguf, tensors: &[&TensorInfo], said: Said) -> Vec<u8> {
    let mut writer = GgufWriter::new();
    if said.number == 0 {
        writer = model.metadata().fold(writer, |writer, (key, value)| writer.meta(key, meta(value)));
    }
    writer = writer.meta("split.no", Meta::U16(said.number)).meta("split.count", Meta::U16(said.count));
    writer = writer.meta("split.tensors.count", said.tensors);
    for tensor in tensors {
        let dims: Vec<u64> = tensor.dims.iter().map(|dim| *dim as u64).collect();
        writer = writer.tensor(&tensor.name, &dims, tensor.ty.id, &model.read_all(tensor).unwrap());
    }
    writer.finish()
}

fn meta(value: Value<'_>) -> Meta {
    match value {
        Value::U8(v) => Meta::U8(v),
        Value::I8(v) => Meta::I8(v),
        Value::U16(v) => Meta::U16(v),
        Value::I16(v) => Meta::I16(v),
        Value::U32(v) => Meta::U32(v),
        Value::I32(v) => Meta::I32(v),
        Value::F32(v) => Meta::F32(v),
        Value::Bool(v) => Meta::Bool(v),
        Value::String(v) => Meta::String(v.to_vec()),
        Value::Array(v) => Meta::Array(v.element_type() as u32, v.iter().map(meta).collect()),
        Value::U64(v) => Meta::U64(v),
        Value::I64(v) => Meta::I64(v),
        Value::F64(v) => Meta::F64(v),
    }
}
