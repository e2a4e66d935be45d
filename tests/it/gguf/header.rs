//! Tests files that are broken before their tensors. Every error names the field or key and what was found.

use wglm::{Error, Gguf};

use super::{F32, overwrite, refused, says, with_value};
use crate::common::gguf_writer::{GgufWriter, Meta};

#[test]
fn empty() {
    refused(Vec::new(), &["not a GGUF file", "it is empty"]);
}

#[test]
fn another_magic() {
    let error = refused(b"PK\x03\x04 and some more bytes than that".to_vec(), &["not a GGUF file", "zip"]);
    assert!(matches!(error, Error::NotGguf { .. }));
}

#[test]
fn big_endian() {
    let bytes = overwrite(GgufWriter::new().finish(), 4, &3u32.to_be_bytes());
    let error = refused(bytes, &["big-endian", "gguf-convert-endian"]);
    assert!(matches!(error, Error::Unsupported { .. }));
    refused(overwrite(GgufWriter::new().finish(), 0, b"FUGG"), &["big-endian"]);
}

#[test]
fn versions() {
    refused(
        GgufWriter::new().version(1).finish(),
        &["this version of GGUF", ": version 1;", "convert the model again"],
    );
    for version in [0, 4, u32::MAX] {
        let found = format!(": version {version};");
        refused(GgufWriter::new().version(version).finish(), &[&found, "versions 2 and 3"]);
    }
}

#[test]
fn counts_that_the_file_cannot_hold() {
    let bytes = with_value(1u8).tensor("w", &[1], F32, &[0; 4]).finish();
    for count in [1000, u64::MAX / 32, i64::MAX as u64, u64::MAX] {
        let found = format!("found {count} ");
        let with_count = |at| overwrite(bytes.clone(), at, &count.to_le_bytes());
        refused(with_count(8), &["tensor count", "byte 8", "at most", &found]);
        refused(with_count(16), &["metadata count", "byte 16", "at most", &found]);
    }
}

#[test]
fn alignment() {
    for (value, found) in [(0u32, "0"), (4, "4"), (24, "24"), (u32::MAX, "4294967295"), (1 << 31, "2147483648")] {
        let error = refused(GgufWriter::new().meta("general.alignment", value).finish(), &["power of two"]);
        says(&error, &["`general.alignment`", &format!("found {found}")]);
    }
    refused(GgufWriter::new().meta("general.alignment", "32").finish(), &["`general.alignment`", "string `32`"]);
}

#[test]
fn a_key_that_is_not_utf8() {
    let writer = with_value(1u8).raw_key(b"caf\xe9", 1u8);
    refused(writer.finish(), &["metadata key 1 of 2", "a name in UTF-8", "`caf\u{fffd}`"]);
}

#[test]
fn a_key_of_absurd_length() {
    let key = |bytes: usize| GgufWriter::new().raw_key(&vec![b'k'; bytes], 1u8).finish();
    assert!(Gguf::from_vec(key(256)).is_ok());
    refused(key(257), &["metadata key 0 of 1", "at most 256", "257 bytes"]);
    refused(key(70_000), &["metadata key 0 of 1", "at most 256", "70000 bytes"]);
}

#[test]
fn a_key_twice() {
    refused(with_value(1u8).meta("k", 1u8).finish(), &["metadata key `k`", "each key once", "the key twice"]);
}

#[test]
fn a_value_of_no_type() {
    for ty in [13, 255, u32::MAX] {
        let found = format!("found {ty}");
        refused(with_value(Meta::Raw(ty, vec![0; 8])).finish(), &["metadata key `k`", "a value type", &found]);
        refused(with_value(Meta::Array(ty, vec![])).finish(), &["metadata key `k`", "a value type", &found]);
    }
}

#[test]
fn a_bool_that_is_neither() {
    refused(with_value(Meta::Raw(7, vec![2])).finish(), &["metadata key `k`", "a bool, 0 or 1", "found 2"]);
    let array = Meta::Array(7, vec![Meta::Bool(true), Meta::U8(3)]);
    refused(with_value(array).finish(), &["metadata key `k`", "a bool, 0 or 1", "found 3"]);
}

#[test]
fn lengths_that_the_file_cannot_hold() {
    for length in [1000, u64::MAX - 7, u64::MAX] {
        let text = length.to_string();
        let string = Meta::Raw(8, length.to_le_bytes().to_vec());
        refused(with_value(string).finish(), &["metadata key `k`", &text, "before the end of the file"]);
        let array = |element: u32| [&element.to_le_bytes()[..], &length.to_le_bytes()].concat();
        for (element, name) in [(0, "u8"), (7, "bool"), (8, "string"), (9, "array"), (12, "f64")] {
            let found = format!("found {length} {name}");
            refused(with_value(Meta::Raw(9, array(element))).finish(), &["metadata key `k`", "at most", &found]);
        }
    }
}

#[test]
fn arrays_nested_without_end() {
    // Nested arrays of one element each. They are written as bytes, because such a deep `Meta` would overflow the stack
    // of the test.
    let head = |element: u32| [&element.to_le_bytes()[..], &1u64.to_le_bytes()].concat();
    let nested = |depth: usize| {
        let bytes = [head(9).repeat(depth - 1), head(0), vec![1]].concat();
        with_value(Meta::Raw(9, bytes)).finish()
    };
    assert!(Gguf::from_vec(nested(4)).is_ok());
    refused(nested(5), &["metadata key `k`", "arrays at most 4 deep"]);
    refused(nested(1_000_000), &["metadata key `k`", "arrays at most 4 deep"]);
}
