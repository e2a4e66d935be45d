//! Where bytes come from: maps, memory, and paths that lead to no file.

use std::io::Write;

use wglm::Error;
use wglm::gguf::Gguf;

#[cfg(target_os = "linux")]
use crate::common::gguf_writer::GgufWriter;
use crate::{F32, says, with_value};

fn written(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file.flush().unwrap();
    file
}

#[test]
fn mapped_static_and_owned_say_the_same() {
    let bytes = with_value("text").tensor("w", &[2], F32, &[7; 8]).finish();
    let file = written(&bytes);
    let leaked: &'static [u8] = Box::leak(bytes.clone().into_boxed_slice());
    for gguf in [Gguf::open(file.path()), Gguf::from_static(leaked), Gguf::from_vec(bytes)] {
        let gguf = gguf.unwrap();
        assert_eq!(gguf.string("k").unwrap(), "text");
        assert_eq!(gguf.data(gguf.tensor("w").unwrap()), [7; 8]);
        assert_eq!(gguf.file_bytes(), leaked.len());
    }
    let gguf = Gguf::from_static(leaked).unwrap();
    assert!(leaked.as_ptr_range().contains(&gguf.data(gguf.tensor("w").unwrap()).as_ptr()), "not copied");
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

#[test]
fn empty() {
    says(&Gguf::open(written(&[]).path()).unwrap_err(), &["broken GGUF file", "magic", "found 0"]);
}

#[cfg(unix)]
#[test]
fn a_device() {
    says(&Gguf::open("/dev/null").unwrap_err(), &["cannot map", "/dev/null", "not a regular file"]);
}

/// A file larger than memory, all hole after its header: opening it must not read the hole.
#[cfg(target_os = "linux")]
#[test]
fn data_is_not_read() {
    let rows = 1u64 << 24;
    let header = GgufWriter::new().meta("k", 1u8).tensor("w", &[2048, rows], F32, &[]).finish();
    let file = written(&header);
    file.as_file().set_len(header.len() as u64 + 2048 * 4 * rows).unwrap();
    let gguf = Gguf::open(file.path()).unwrap();
    let w = gguf.require("w", &[2048, rows as usize]).unwrap();
    assert_eq!((gguf.data(w).len(), gguf.data(w).last()), (128 << 30, Some(&0)));
    let resident = resident_kib(file.path());
    assert!(resident < 1024, "{resident} KiB of the map are in memory");
}

/// How much of the map of `path` is in memory, by /proc/self/smaps.
#[cfg(target_os = "linux")]
fn resident_kib(path: &std::path::Path) -> u64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let ours = smaps.split_once(path.to_str().unwrap()).expect("the file is mapped").1;
    let line = ours.lines().find(|line| line.starts_with("Rss:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
