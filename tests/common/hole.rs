//! Files of GLM-4.7-Flash's shape that have a header but no weights. A program that uses this module has `shape` and
//! `gguf_writer` at its root.

use crate::shape::{Shape, Tensor, metadata, tensors};
use tempfile::TempDir;
use wglm::Gguf;

/// A file with the header of the full shape, and a hole in place of 17 GB of data.
pub fn full(dir: &TempDir) -> Gguf {
    let (file, data) = hole(dir, &Shape::glm(47));
    assert_eq!(data / 10_000_000, 1715, "17.15 GB");
    file
}

/// A file with the header of a shape and a hole in place of the data, and its size.
pub fn hole(dir: &TempDir, shape: &Shape) -> (Gguf, u64) {
    hole_of(dir, shape, tensors(shape))
}

/// The same for these tensors.
pub fn hole_of(dir: &TempDir, shape: &Shape, tensors: Vec<Tensor>) -> (Gguf, u64) {
    let header =
        tensors.iter().fold(metadata(shape), |w, t| w.reserve(&t.name, &t.dims, t.quant.id, t.bytes())).header();
    let data: u64 = tensors.iter().map(|t| t.bytes().next_multiple_of(32)).sum();
    let path = dir.path().join("hole.gguf");
    std::fs::write(&path, &header).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(header.len() as u64 + data).unwrap();
    (Gguf::open(&path).unwrap(), data)
}
