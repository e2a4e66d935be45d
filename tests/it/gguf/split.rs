//! Tests models in several files.

use super::{F32, says, with_value};
use crate::common::gguf_writer::GgufWriter;
use crate::common::split::{Said, file, name, split};
use std::path::Path;
use wglm::{Error, Gguf};
use wglm_engine::gguf::TensorInfo;

/// A model of six tensors.
fn small() -> Gguf {
    let mut writer = with_value("text");
    for i in 0..6u8 {
        writer = writer.tensor(&format!("t{i}"), &[5 + u64::from(i)], F32, &vec![i; 4 * (5 + usize::from(i))]);
    }
    Gguf::from_vec(writer.finish()).unwrap()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// The errors for invalid sets of files.
#[track_caller]
fn refused(path: &Path, named: &str, parts: &[&str]) {
    let error = Gguf::open(path).expect_err("the model is broken");
    assert!(!matches!(error, Error::Gguf { .. }), "it does not name the file: {error}");
    says(&error, &[named]);
    says(&error, parts);
}

/// Replaces one of the files of a small model.
fn with_other(number: usize, tensors: &[usize], said: Said) -> (tempfile::TempDir, std::path::PathBuf) {
    let (folder, model) = (folder(), small());
    let paths = split(&model, 3, folder.path());
    let all: Vec<&TensorInfo> = model.tensors().collect();
    let some: Vec<&TensorInfo> = tensors.iter().map(|index| all[*index]).collect();
    std::fs::write(&paths[number], file(&model, &some, said)).unwrap();
    (folder, paths[0].clone())
}

#[test]
fn any_file_opens_all() {
    let (folder, model) = (folder(), small());
    for count in [2, 3, 6] {
        let paths = split(&model, count, folder.path());
        for path in &paths {
            let gguf = Gguf::open(path).unwrap();
            assert_eq!(gguf.path(), Some(paths[0].as_path()));
            assert_eq!(gguf.string("k").unwrap(), "text");
            let bytes: u64 = paths.iter().map(|path| path.metadata().unwrap().len()).sum();
            assert_eq!((gguf.tensors().len(), gguf.file_bytes()), (6, bytes));
            for (tensor, there) in model.tensors().zip(gguf.tensors()) {
                assert_eq!((&tensor.name, &tensor.dims), (&there.name, &there.dims));
                assert_eq!(gguf.read_all(there).unwrap(), model.read_all(tensor).unwrap(), "{}", tensor.name);
                assert_eq!(gguf.tensor(&tensor.name).unwrap().file, there.file);
            }
            let files: std::collections::BTreeSet<usize> = gguf.tensors().map(|tensor| tensor.file).collect();
            assert_eq!(files.len(), count);
        }
    }
}

#[test]
fn one_file_of_one_is_complete() {
    let (folder, model) = (folder(), small());
    let all: Vec<&TensorInfo> = model.tensors().collect();
    let path = folder.path().join("any name.gguf");
    std::fs::write(&path, file(&model, &all, Said { number: 0, count: 1, tensors: 6 })).unwrap();
    assert_eq!(Gguf::open(path).unwrap().tensors().len(), 6);
}

#[test]
fn a_missing_file_is_named() {
    let (folder, model) = (folder(), small());
    let paths = split(&model, 3, folder.path());
    std::fs::remove_file(&paths[1]).unwrap();
    for path in [&paths[0], &paths[2]] {
        let error = Gguf::open(path).unwrap_err();
        assert!(matches!(&error, Error::Io { action: "open", path, .. } if *path == paths[1]), "{error}");
        says(&error, &["part 2 of 3"]);
    }
}

#[test]
fn a_file_of_another_name_is_refused() {
    let (folder, model) = (folder(), small());
    let paths = split(&model, 3, folder.path());
    let other = folder.path().join("renamed.gguf");
    std::fs::rename(&paths[1], &other).unwrap();
    refused(&other, "renamed.gguf", &["-00002-of-00003.gguf", "part 2 of 3"]);
}

#[test]
fn exchanged_files_are_refused() {
    let (folder, model) = (folder(), small());
    let paths = split(&model, 3, folder.path());
    let aside = folder.path().join("aside");
    std::fs::rename(&paths[1], &aside).unwrap();
    std::fs::rename(&paths[2], &paths[1]).unwrap();
    std::fs::rename(&aside, &paths[2]).unwrap();
    refused(&paths[0], &name(1, 3), &["expected part 2 of 3", "found part 3 of 3"]);
    refused(&paths[1], &name(1, 3), &["-00003-of-00003.gguf"]);
}

#[test]
fn counts_that_differ_are_refused() {
    let (_folder, first) = with_other(1, &[2, 3], Said { number: 1, count: 4, tensors: 6 });
    refused(&first, &name(1, 3), &["expected part 2 of 3", "found part 2 of 4"]);
    let (_folder, first) = with_other(0, &[0, 1], Said { number: 0, count: 3, tensors: 7 });
    refused(&first, &name(0, 3), &["split.tensors.count", "7 tensors", "6 in 3 files"]);
    let (_folder, first) = with_other(0, &[0, 1], Said { number: 3, count: 3, tensors: 6 });
    refused(&first, &name(0, 3), &["split.no", "less than the 3", "found 3"]);
}

#[test]
fn a_tensor_in_two_files_is_refused() {
    let (_folder, first) = with_other(2, &[3, 4, 5], Said { number: 2, count: 3, tensors: 7 });
    refused(&first, &name(2, 3), &["`t3`", "in two files"]);
}

#[test]
fn other_files_are_refused() {
    let (folder, model) = (folder(), small());
    let paths = split(&model, 3, folder.path());
    std::fs::write(&paths[2], GgufWriter::new().finish()).unwrap();
    refused(&paths[0], &name(2, 3), &["expected part 3 of 3", "found a whole model"]);
    std::fs::write(&paths[2], "<html>").unwrap();
    refused(&paths[0], &name(2, 3), &["not a GGUF file", "web page"]);
    let part = std::fs::read(&paths[1]).unwrap();
    std::fs::write(&paths[2], &part[..part.len() / 2]).unwrap();
    refused(&paths[0], &name(2, 3), &["broken GGUF file"]);
}

#[test]
fn a_file_in_memory_has_no_other_parts() {
    let (folder, model) = (folder(), small());
    let bytes = std::fs::read(&split(&model, 3, folder.path())[0]).unwrap();
    let error = Gguf::from_vec(bytes).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    says(&error, &["part 1 of 3", "open the file by its path"]);
}
