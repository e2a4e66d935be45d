//! Tests headers that claim more than any model needs: each is refused at once, without much memory.

use super::{F32, says};
use crate::common::gguf_writer::{GgufWriter, Meta};
use crate::watched::largest_allocation;
use std::fs::File;
use std::io::Write;
use tempfile::tempdir;
use wglm::Gguf;
use wglm_engine::gguf::Value;

/// The size of the files, which are as large as models and mostly a hole.
const BYTES: u64 = 40 << 30;

/// The number of bytes that are read first. A header that is refused for its claims takes no more memory.
const FIRST: usize = 1 << 20;

/// The longest header.
const LONGEST: usize = 48 << 20;

/// The value of an array that claims this many elements of a type.
fn claimed(element: u32, count: u64) -> Meta {
    Meta::Raw(9, [&element.to_le_bytes()[..], &count.to_le_bytes()].concat())
}

/// The error for a file that begins with these bytes and continues with zeros, and the largest allocation.
fn opened(bytes: &[u8]) -> (String, usize) {
    let dir = tempdir().unwrap();
    let path = dir.path().join("hostile.gguf");
    let mut file = File::create(&path).unwrap();
    file.write_all(bytes).unwrap();
    file.set_len(BYTES).unwrap();
    let (opened, largest) = largest_allocation(|| Gguf::open(&path));
    (opened.expect_err("the file is hostile").to_string(), largest)
}

/// A header without its padding.
fn header(writer: &GgufWriter, counts: Option<(usize, u64)>) -> Vec<u8> {
    let mut bytes = writer.header();
    if let Some((at, count)) = counts {
        bytes[at..at + 8].copy_from_slice(&count.to_le_bytes());
    }
    bytes
}

#[test]
fn excessive_claims_take_no_memory() {
    let key = |value| GgufWriter::new().meta("some.key", value);
    let string = |bytes: u64| Meta::Raw(8, bytes.to_le_bytes().to_vec());
    let nested = Meta::Raw(
        9,
        [&9u32.to_le_bytes()[..], &1u64.to_le_bytes(), &8u32.to_le_bytes(), &(1u64 << 31).to_le_bytes()].concat(),
    );
    let tensor = |name: &str| GgufWriter::new().reserve(name, &[1], F32, 4);
    let cases = [
        (
            "2^31 empty strings",
            header(&key(claimed(8, 1 << 31)), None),
            &["`some.key`", "at most 2097152", "2147483648 string"][..],
        ),
        ("2^31 bytes", header(&key(claimed(0, 1 << 31)), None), &["`some.key`", "at most 2097152", "2147483648 u8"]),
        (
            "2^31 arrays",
            header(&key(claimed(9, 1 << 31)), None),
            &["`some.key`", "at most 2097152", "2147483648 array"],
        ),
        ("strings in an array", header(&key(nested), None), &["`some.key`", "at most 2097152", "2147483648 string"]),
        ("one more than may be", header(&key(claimed(10, (1 << 21) + 1)), None), &["at most 2097152", "2097153 u64"]),
        (
            "a string of 8 GiB",
            header(&key(string(8 << 30)), None),
            &["`some.key`", "a header of at most 50331648 bytes"],
        ),
        (
            "2^26 keys",
            header(&key(Meta::U8(1)), Some((16, 1 << 26))),
            &["metadata count", "at most 4096", "67108864 metadata keys"],
        ),
        (
            "2^26 tensors",
            header(&tensor("w"), Some((8, 1 << 26))),
            &["tensor count", "at most 65536", "67108864 tensors"],
        ),
        (
            "a key of 1 GiB",
            header(&key(Meta::U8(1)), Some((24, 1 << 30))),
            &["metadata key 0 of 1", "at most 256 bytes", "1073741824 bytes"],
        ),
        (
            "a tensor of a long name",
            header(&tensor(&"w".repeat(129)), None),
            &["tensor 0 of 1", "at most 128 bytes", "129 bytes"],
        ),
    ];
    for (what, bytes, words) in cases {
        let (error, largest) = opened(&bytes);
        for word in words {
            assert!(error.contains(word), "{what}: `{word}` is not in: {error}");
        }
        assert!(largest <= FIRST, "{what}: allocated {largest} bytes at once");
    }
}

/// Each array is allowed, but not all of them together: the bytes that are read are limited, and so is the part of a
/// file in memory.
#[test]
fn a_header_has_a_largest_size() {
    let strings = |count: u64| claimed(8, count);
    let many = (0..5).fold(GgufWriter::new(), |writer, i| writer.meta(&format!("key.{i}"), strings(0)));
    let mut bytes = many.header();
    // Each array has the largest allowed number of elements, all of them empty, which take 16 MiB.
    let ends: Vec<usize> = (0..5)
        .map(|i| bytes.windows(5).position(|w| w == format!("key.{i}").as_bytes()).unwrap() + 5 + 4 + 4 + 8)
        .collect();
    for end in ends.into_iter().rev() {
        bytes[end - 8..end].copy_from_slice(&(1u64 << 21).to_le_bytes());
        bytes.splice(end..end, std::iter::repeat_n(0, 16 << 20));
    }
    let (error, largest) = opened(&bytes);
    assert!(error.contains("`key.2`") && error.contains("a header of at most 50331648 bytes"), "{error}");
    assert!(largest <= LONGEST, "allocated {largest} bytes at once");
    let error = Gguf::from_vec(bytes).unwrap_err();
    says(&error, &["`key.2`", "a header of at most 50331648 bytes"]);
}

/// Four times the vocabulary of GLM-4.7-Flash, whose header has 154,880 tokens and 321,649 merges and takes 9 MB, is
/// opened.
#[test]
fn large_vocabularies_are_allowed() {
    let words =
        |count: usize, word: &str| Meta::Array(8, (0..count).map(|i| Meta::from(&*format!("{word}{i:06}"))).collect());
    let (tokens, merges) = (4 * 154_880, 4 * 321_649);
    let writer = GgufWriter::new()
        .meta("tokenizer.ggml.tokens", words(tokens, "Ġ"))
        .meta("tokenizer.ggml.merges", words(merges, "Ġa "))
        .meta("tokenizer.ggml.scores", Meta::Array(6, vec![Meta::F32(0.0); tokens]))
        .meta("tokenizer.ggml.token_type", Meta::Array(5, vec![Meta::I32(1); tokens]));
    let bytes = writer.finish();
    assert!(bytes.len() > 38_000_000, "{}", bytes.len());
    let dir = tempdir().unwrap();
    let path = dir.path().join("large.gguf");
    std::fs::write(&path, bytes).unwrap();
    let (file, largest) = largest_allocation(|| Gguf::open(&path).unwrap());
    let Some(Value::Array(array)) = file.get("tokenizer.ggml.merges") else { panic!("no array") };
    assert_eq!(array.len(), merges);
    assert!(largest <= LONGEST, "allocated {largest} bytes at once");
}
