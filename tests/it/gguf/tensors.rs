//! Tests invalid tensors. Every error names the tensor and what was found.

use wglm::Error;

use super::{F32, Q4_0, overwrite, refused, with_tensor};
use crate::common::gguf_writer::GgufWriter;

#[test]
fn a_name_twice() {
    let bytes = with_tensor(&[1], F32, 4).tensor("w", &[1], F32, &[0; 4]).finish();
    refused(bytes, &["tensor `w`", "each tensor once", "the tensor twice"]);
}

#[test]
fn a_name_that_is_not_utf8() {
    let bytes = GgufWriter::new().tensor("name", &[1], F32, &[0; 4]).finish();
    refused(overwrite(bytes, 32, b"n\xffme"), &["tensor 0 of 1", "a name in UTF-8", "`n\u{fffd}me`"]);
}

#[test]
fn dimensions() {
    refused(with_tensor(&[], F32, 4).finish(), &["tensor `w`", "1 to 4 dimensions", "found 0"]);
    refused(with_tensor(&[1; 5], F32, 4).finish(), &["tensor `w`", "1 to 4 dimensions", "found 5"]);
    refused(with_tensor(&[0], F32, 0).finish(), &["tensor `w`", "a dimension from 1", "found 0"]);
    refused(with_tensor(&[4, 0], F32, 0).finish(), &["tensor `w`", "a dimension from 1", "found 0"]);
    let many = overwrite(with_tensor(&[1], F32, 4).finish(), 33, &u32::MAX.to_le_bytes());
    refused(many, &["tensor `w`", "1 to 4 dimensions", "found 4294967295"]);
}

#[test]
fn a_size_that_overflows() {
    for dims in [&[1 << 32, 1 << 32][..], &[u64::MAX], &[1 << 62], &[2, 1 << 21, 1 << 21, 1 << 21]] {
        refused(with_tensor(dims, F32, 4).finish(), &["tensor `w`", "a size that a file can have", "the shape {"]);
    }
}

#[test]
fn rows_that_end_inside_a_block() {
    let bytes = with_tensor(&[48, 2], Q4_0, 54).finish();
    refused(bytes, &["tensor `w`", "whole q4_0 blocks of 32 values", "the shape {48, 2}"]);
}

#[test]
fn types_that_are_none() {
    for id in [4, 5, 31, 36, 43, 1000, u32::MAX] {
        let found = format!(": type number {id};");
        let error = refused(with_tensor(&[32], id, 128).finish(), &["the type of tensor `w`", &found]);
        assert!(matches!(error, Error::Unsupported { .. }));
    }
}

#[test]
fn data_outside_the_file() {
    let one = |offset| with_tensor(&[2], F32, 8).offset(offset).finish();
    refused(one(32), &["tensor `w`", "8 bytes of data at byte 96", "found 0 before the end"]);
    refused(one(1 << 40), &["tensor `w`", "8 bytes of data", "found 0 before the end"]);
    refused(one(u64::MAX - 31), &["tensor `w`", "an offset inside the file", "18446744073709551584"]);
    let long = with_tensor(&[16], F32, 32).finish();
    refused(long, &["tensor `w`", "64 bytes of data at byte 64", "found 32 before the end"]);
}

#[test]
fn data_between_the_steps_of_the_alignment() {
    let bytes = with_tensor(&[1], F32, 64).offset(8).finish();
    refused(bytes, &["tensor `w`", "a multiple of 32", "found 8"]);
    let coarse = GgufWriter::new().alignment(64).tensor("w", &[1], F32, &[0; 128]).offset(32);
    refused(coarse.finish(), &["tensor `w`", "a multiple of 64", "found 32"]);
}

#[test]
fn data_of_two_tensors_at_once() {
    let writer = GgufWriter::new().tensor("first", &[16], F32, &[0; 64]);
    let bytes = writer.tensor("second", &[1], F32, &[0; 4]).offset(32).finish();
    refused(bytes, &["tensor `second`", "where tensor `first` ends", "found data at byte"]);
    let same = GgufWriter::new().tensor("a", &[1], F32, &[0; 4]).tensor("b", &[1], F32, &[0; 4]).offset(0);
    refused(same.finish(), &["tensor `", "where tensor `"]);
}
