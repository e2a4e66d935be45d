//! Tests files that change while a model is loaded, and models in several files.

use super::model;
use crate::common::models::fable_file;
use crate::common::split::split;
use std::path::PathBuf;
use wglm::{CacheShape, CacheType, Cancel, Error, Gguf, LoadOptions, LoadProgress, Model, Session};

/// A copy of the model's file that the test may damage.
fn copied() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::copy(fable_file("q4_0"), &path).unwrap();
    (folder, path)
}

/// The result of a load during which something happens to the file.
fn load_while(path: &PathBuf, happens: impl Fn()) -> Error {
    let file = Gguf::open(path).unwrap();
    let mut told = 0;
    let mut progress = |_: LoadProgress| {
        told += 1;
        if told == 1 {
            happens();
        }
    };
    Model::load_with(&file, model().gpu(), &LoadOptions::default(), &Cancel::default(), &mut progress)
        .map(drop)
        .unwrap_err()
}

#[test]
fn a_file_that_is_cut_short_is_an_error() {
    for length in [0, 100_000, 3_000_000] {
        let (_folder, path) = copied();
        let cut = || std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(length).unwrap();
        let error = load_while(&path, cut);
        assert!(matches!(&error, Error::Io { action: "read", path: named, .. } if *named == path), "{error}");
        assert!(error.to_string().contains("cut short"), "{error}");
    }
}

#[test]
fn a_file_that_is_written_over_is_an_error() {
    let (_folder, path) = copied();
    let error = load_while(&path, || {
        let other = std::fs::read(fable_file("q4_0")).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20)); // a file's time is no finer than the system's ticks
        std::fs::write(&path, other).unwrap();
    });
    assert!(matches!(error, Error::Io { action: "read", .. }), "{error}");
}

#[test]
fn extended_a_model_in_several_files_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let paths = split(model().file(), 3, folder.path());
    let whole = &mut Session::with_cache(model(), CacheShape { context: 64, ty: CacheType::F32 }).unwrap();
    whole.feed(&[1, 300, 17]).unwrap();
    for zero_copy in [false, true] {
        let options = LoadOptions { zero_copy, ..LoadOptions::default() };
        let file = Gguf::open(&paths[1]).unwrap();
        let loaded = Model::load(&file, model().gpu(), &options).unwrap();
        let mut session = Session::with_cache(&loaded, CacheShape { context: 64, ty: CacheType::F32 }).unwrap();
        session.feed(&[1, 300, 17]).unwrap();
        assert!(session.logits().unwrap() == whole.logits().unwrap(), "zero copy: {zero_copy}");
    }
}
