//! Tests files that end too early.

use wglm::Gguf;

use super::{F32, Q4_0, overwrite, refused, with_value};
use crate::common::gguf_writer::{GgufWriter, Meta};

/// Every length that cuts off a part of the last tensor is an error; the padding after it may be missing.
#[test]
fn at_every_byte() {
    let writer = GgufWriter::new().alignment(32).meta("s", "text").meta("b", [true, false]);
    let writer = writer.meta("tokens", ["a", "bc"]).meta("nested", Meta::Array(9, vec![[1u16, 2].into()]));
    let bytes = writer.tensor("a", &[32], Q4_0, &[1; 18]).tensor("b", &[5], F32, &[2; 20]).finish();
    let b = Gguf::from_vec(bytes.clone()).unwrap().tensor("b").unwrap().clone();
    let complete = b.offset + b.bytes;
    assert!(complete < bytes.len(), "there is padding");
    for length in 0..=bytes.len() {
        let result = Gguf::from_vec(bytes[..length].to_vec());
        assert_eq!(result.is_ok(), length >= complete, "at {length}: {result:?}");
    }
}

#[test]
fn messages_name_the_place() {
    let bytes = with_value("text").tensor("w", &[1], F32, &[0; 4]).finish();
    let cut = |length: usize| bytes[..length].to_vec();
    refused(cut(3), &["magic", "4 bytes", "found 3"]);
    refused(cut(6), &["version", "4 bytes", "found 2"]);
    refused(cut(12), &["tensor count", "8 bytes", "found 4"]);
    // The tensor is left out, since otherwise the number of tensors would be found impossible first.
    let none = overwrite(bytes.clone(), 8, &[0]);
    refused(none[..20].to_vec(), &["metadata count", "8 bytes", "found 4"]);
    let value = 24 + 9 + 4 + 8;
    assert_eq!(&bytes[value..value + 4], b"text");
    refused(none[..value + 2].to_vec(), &["metadata key `k`, at byte 45", "4 bytes", "found 2"]);
    refused(cut(bytes.len() - 32), &["tensor `w`", "4 bytes of data", "found 0"]);
}
