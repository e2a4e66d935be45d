//! Tests the reader of GGUF files: the contents of valid files, and the error for each way in which a file can be
//! broken.

mod demo_model;
mod files;
pub mod fuzz;
mod getters;
mod header;
mod limits;
mod sound;
mod split;
mod tensors;
mod truncated;
mod types;

use crate::common::gguf_writer::{GgufWriter, Meta};
use wglm::{Error, Gguf};

/// GGML's numbers of two types.
const F32: u32 = 0;
const Q4_0: u32 = 2;

fn open(writer: GgufWriter) -> Gguf {
    Gguf::from_vec(writer.finish()).unwrap()
}

/// Opens a broken file and returns its error, whose message must contain all of `parts`.
#[track_caller]
fn refused(bytes: Vec<u8>, parts: &[&str]) -> Error {
    let error = Gguf::from_vec(bytes).expect_err("the file is broken");
    says(&error, parts);
    error
}

#[track_caller]
fn says(error: &Error, parts: &[&str]) {
    let message = error.to_string();
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

/// A file with one tensor `w`.
fn with_tensor(dims: &[u64], type_id: u32, bytes: usize) -> GgufWriter {
    GgufWriter::new().tensor("w", dims, type_id, &vec![0; bytes])
}

/// A file with one key `k`.
fn with_value(value: impl Into<Meta>) -> GgufWriter {
    GgufWriter::new().meta("k", value)
}

fn overwrite(mut bytes: Vec<u8>, at: usize, with: &[u8]) -> Vec<u8> {
    bytes[at..at + with.len()].copy_from_slice(with);
    bytes
}
