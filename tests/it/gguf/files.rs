//! Tests the sources of bytes: files, memory, and paths that lead to no model.

use std::io::Write;

use wglm::{Error, Gguf};

use super::{F32, says, with_value};
#[cfg(target_os = "linux")]
use crate::common::gguf_writer::{GgufWriter, Meta};
#[cfg(target_os = "linux")]
use crate::watched::largest_allocation;

fn written(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file.flush().unwrap();
    file
}

#[test]
fn read_static_and_owned_agree() {
    let bytes = with_value("text").tensor("w", &[2], F32, &[7, 8, 9, 10, 11, 12, 13, 14]).finish();
    let file = written(&bytes);
    let leaked: &'static [u8] = Box::leak(bytes.clone().into_boxed_slice());
    for gguf in [Gguf::open(file.path()), Gguf::from_static(leaked), Gguf::from_vec(bytes)] {
        let gguf = gguf.unwrap();
        let w = gguf.tensor("w").unwrap();
        assert_eq!(gguf.string("k").unwrap(), "text");
        assert_eq!(gguf.read_all(w).unwrap(), [7, 8, 9, 10, 11, 12, 13, 14]);
        let mut some = [0; 3];
        gguf.read(w, 5, &mut some).unwrap();
        assert_eq!(some, [12, 13, 14]);
        assert!(matches!(gguf.read(w, 6, &mut some), Err(Error::Gguf { .. })), "past the tensor's end");
        assert_eq!(gguf.file_bytes(), leaked.len() as u64);
    }
}

/// A header of any length, read piece by piece, gives the same contents as in memory.
#[test]
fn a_long_header_is_read_to_its_end() {
    for length in [0, 1 << 10, (1 << 20) - 200, (1 << 20) - 100, 1 << 20, 5 << 20] {
        let writer = with_value("a".repeat(length).as_str()).meta("last", 17u32);
        let file = written(&writer.tensor("w", &[1], F32, &[1, 2, 3, 4]).finish());
        let gguf = Gguf::open(file.path()).unwrap();
        assert_eq!((gguf.string("k").unwrap().len(), gguf.u32("last").unwrap()), (length, 17));
        assert_eq!(gguf.read_all(gguf.tensor("w").unwrap()).unwrap(), [1, 2, 3, 4], "after {length} bytes");
    }
}

/// Overwriting a file while it is in use makes reads fail, and ends no process.
#[test]
fn a_file_that_is_cut_short() {
    let file = written(&with_value("text").tensor("w", &[1 << 16], F32, &vec![7; 4 << 16]).finish());
    let gguf = Gguf::open(file.path()).unwrap();
    gguf.unchanged().unwrap();
    file.as_file().set_len(1000).unwrap();
    let name = file.path().display().to_string();
    for error in [gguf.read_all(gguf.tensor("w").unwrap()).unwrap_err(), gguf.unchanged().unwrap_err()] {
        assert!(matches!(error, Error::Io { action: "read", .. }), "{error}");
        says(&error, &["cannot read", &name, "cut short"]);
    }
    assert_eq!(gguf.string("k").unwrap(), "text", "the header is in memory");
}

#[test]
fn a_file_that_is_written_to() {
    let bytes = with_value("text").tensor("w", &[1], F32, &[7; 4]).finish();
    let mut file = written(&bytes);
    let gguf = Gguf::open(file.path()).unwrap();
    file.write_all(b"more").unwrap();
    says(&gguf.unchanged().unwrap_err(), &["cannot read", "it changed after it was opened"]);
    // A new file of the same name does not affect the open one.
    let gguf = Gguf::open(file.path()).unwrap();
    let new = written(&[]);
    std::fs::rename(new.path(), file.path()).unwrap();
    gguf.unchanged().unwrap();
    assert_eq!(gguf.read_all(gguf.tensor("w").unwrap()).unwrap(), [7; 4]);
}

/// Files that people download by mistake get an error with a remedy.
#[test]
fn files_that_are_not_gguf() {
    let tensors = [&[9, 0, 0, 0, 0, 0, 0, 0][..], b"{\"a\":{}} and values"].concat();
    let cases: [(&[u8], &str); 8] = [
        (b"", "it is empty"),
        (b"\n <!DOCTYPE HTML><title>Not found</title>", "web page"),
        (b"<html lang=en>", "web page"),
        (&tensors, "safetensors"),
        (b"PK\x03\x04 and so on", "zip"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00", "git lfs pull"),
        (b"tjgg\x03\0\0\0", "a format older than GGUF"),
        (b"Some text, of someone's own.", "it begins with `Some text, of s"),
    ];
    for (bytes, expected) in cases {
        let file = written(bytes);
        let error = Gguf::open(file.path()).unwrap_err();
        assert!(matches!(error.cause(), Error::NotGguf { .. }), "{error}");
        says(&error, &[&file.path().display().to_string(), "not a GGUF file", expected]);
    }
}

/// Every error about the contents of a file contains its path.
#[test]
fn errors_name_the_file() {
    let named = |error: &Error, file: &tempfile::NamedTempFile| {
        assert!(matches!(error, Error::File { path, .. } if path == file.path()), "{error}");
        says(error, &[&file.path().display().to_string()]);
    };
    let bytes = with_value("text").finish();
    let file = written(&bytes[..bytes.len() - 20]);
    named(&Gguf::open(file.path()).unwrap_err(), &file);
    let file = written(&bytes);
    let gguf = Gguf::open(file.path()).unwrap();
    assert_eq!(gguf.path(), Some(file.path()));
    for error in [gguf.u32("k").unwrap_err(), gguf.string("other").unwrap_err(), gguf.opt_f32("k").unwrap_err()] {
        named(&error, &file);
        assert!(matches!(error.cause(), Error::Metadata { .. }), "{error}");
    }
    named(&gguf.require("w", &[1]).unwrap_err(), &file);
    named(&wglm::Model::estimate(&gguf, &Default::default(), None).unwrap_err(), &file);
    assert!(matches!(Gguf::from_vec(bytes).unwrap().u32("k"), Err(Error::Metadata { .. })));
}

#[test]
fn absent() {
    let path = tempfile::tempdir().unwrap().path().join("absent.gguf");
    let error = Gguf::open(&path).unwrap_err();
    assert!(matches!(error, Error::Io { action: "open", .. }));
    says(&error, &["cannot open", "absent.gguf"]);
}

#[test]
fn a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let error = Gguf::open(directory.path()).unwrap_err();
    says(&error, &["cannot open", &directory.path().display().to_string(), "directory"]);
}

#[cfg(unix)]
#[test]
fn a_device() {
    says(&Gguf::open("/dev/null").unwrap_err(), &["cannot open", "/dev/null", "not a regular file"]);
}

/// A file larger than memory, which is a hole after its header: opening it must not read the hole.
#[cfg(target_os = "linux")]
#[test]
fn data_is_not_read() {
    let rows = 1u64 << 24;
    let header = GgufWriter::new().meta("k", 1u8).tensor("w", &[2048, rows], F32, &[]).finish();
    let file = written(&header);
    file.as_file().set_len(header.len() as u64 + 2048 * 4 * rows).unwrap();
    let (gguf, largest) = largest_allocation(|| Gguf::open(file.path()).unwrap());
    assert!(largest < 2 << 20, "{largest} bytes at once");
    let w = gguf.require("w", &[2048, rows as usize]).unwrap();
    let mut last = [1];
    gguf.read(w, (128 << 30) - 1, &mut last).unwrap();
    assert_eq!((w.bytes, last), (128 << 30, [0]));
}

/// If a header claims to be as long as the file, only its actual bytes are read.
#[cfg(target_os = "linux")]
#[test]
fn a_header_without_end() {
    let mut header = GgufWriter::new().meta("k", Meta::Raw(9, Vec::new())).header();
    header.truncate(8 + 8 + 8 + 8 + 1 + 4);
    header.extend(0u32.to_le_bytes()); // of bytes
    header.extend((20u64 << 30).to_le_bytes());
    let file = written(&header);
    file.as_file().set_len(30 << 30).unwrap();
    let (error, largest) = largest_allocation(|| Gguf::open(file.path()).unwrap_err());
    says(&error, &["key `k`", "at most 2097152, which is wglm's limit", "found 21474836480 u8"]);
    assert!(largest < 2 << 20, "{largest} bytes at once");
}
