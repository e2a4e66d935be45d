//! Models that are split into several files, as llama.cpp's `gguf-split` writes them: `NAME-00001-of-00003.gguf` and so
//! on.
//!
//! The first file has the metadata, and every file describes the tensors whose data it holds. `split.no` is the index
//! of a file, from 0, `split.count` the number of files, and `split.tensors.count` the number of tensors in all of
//! them.

use std::io;
use std::path::{Path, PathBuf};

use super::model_file::{self, ModelFile};
use super::reader::broken;
use super::tensor::Tensors;
use crate::error::{Error, Result};

const NUMBER: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";

/// The index of a file, and the number of files.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SplitPosition {
    /// The index of the file, from 0.
    number: u32,
    count: u32,
}

impl SplitPosition {
    /// The position of a file; `None` for a file that is a whole model.
    fn of(file: &ModelFile) -> Result<Option<Self>> {
        let read = |key| file.header.metadata.read::<u32>(file.bytes(), key).map_err(|error| file.name(error));
        let Some(count) = read(COUNT)?.filter(|count| *count > 1) else { return Ok(None) };
        let number = read(NUMBER)?.unwrap_or(0);
        if number < count {
            return Ok(Some(Self { number, count }));
        }
        Err(file.name(broken(NUMBER, format!("less than the {count} of `{COUNT}`"), number.to_string())))
    }

    /// The end of the file's name.
    fn ending(self) -> String {
        format!("-{:05}-of-{:05}.gguf", self.number + 1, self.count)
    }

    fn description(self) -> String {
        format!("part {} of {}", self.number + 1, self.count)
    }
}

/// Opens all files of the model that the file at `path` belongs to, and returns them in order.
pub(super) fn all(path: &Path, file: ModelFile) -> Result<Vec<ModelFile>> {
    let Some(own) = SplitPosition::of(&file)? else { return Ok(vec![file]) };
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Some(stem) = name.strip_suffix(&own.ending()) else {
        let expected = format!("a name that ends in `{}`, because it is {}", own.ending(), own.description());
        return Err(file.name(broken("name of the file", expected, format!("`{name}`"))));
    };
    let mut given = Some(file);
    let mut files = Vec::new();
    for number in 0..own.count {
        let place = SplitPosition { number, ..own };
        let opened = if number == own.number { given.take() } else { None };
        let opened =
            opened.map_or_else(|| other(path.with_file_name(format!("{stem}{}", place.ending())), place), Ok)?;
        model_file::add(opened, &mut files)?;
    }
    Ok(files)
}

/// Checks that the files are all files of one model, in order.
pub(super) fn complete(files: Vec<ModelFile>) -> Result<Vec<ModelFile>> {
    let count = u32::try_from(files.len()).unwrap_or(u32::MAX);
    for (number, file) in (0..).zip(&files) {
        let wanted = (count > 1).then_some(SplitPosition { number, count });
        let found = SplitPosition::of(file)?;
        if found != wanted {
            let [wanted, found] =
                [wanted, found].map(|it| it.map_or("a whole model".into(), SplitPosition::description));
            return Err(file.name(broken(format!("{NUMBER} and {COUNT}"), wanted, found)));
        }
    }
    Ok(files)
}

/// Opens another file of the model, and checks that it is the expected one.
fn other(path: PathBuf, place: SplitPosition) -> Result<ModelFile> {
    let file = ModelFile::open(&path).map_err(|error| match error {
        Error::Io { action, path, reason } => {
            let reason = io::Error::new(reason.kind(), format!("{} of the model: {reason}", place.description()));
            Error::io(action, &path)(reason)
        }
        error => error,
    })?;
    let found = SplitPosition::of(&file)?;
    if found == Some(place) {
        return Ok(file);
    }
    let found = found.map_or("a whole model".into(), SplitPosition::description);
    Err(file.name(broken(format!("{NUMBER} and {COUNT}"), place.description(), found)))
}

/// The tensors of all files together.
pub(super) fn tensors(files: &mut [ModelFile]) -> Result<Tensors> {
    let several = files.len() > 1;
    let mut tensors = Tensors::default();
    for (number, file) in files.iter_mut().enumerate() {
        let own = std::mem::take(&mut file.header.tensors);
        tensors.join(own, number).map_err(|error| file.name(error))?;
    }
    let Some(first) = files.first().filter(|_| several) else { return Ok(tensors) };
    let expected = first.header.metadata.read::<u32>(first.bytes(), TENSORS).map_err(|error| first.name(error))?;
    match expected.filter(|expected| *expected as usize != tensors.iter().len()) {
        None => Ok(tensors),
        Some(expected) => {
            let found = format!("{} in {} files", tensors.iter().len(), files.len());
            Err(first.name(broken(TENSORS, format!("{expected} tensors"), found)))
        }
    }
}

/// Refuses a file that is one of several, because without a path the others cannot be found.
pub(super) fn alone(file: &ModelFile) -> Result<()> {
    SplitPosition::of(file)?.map_or(Ok(()), |place| {
        Err(Error::unsupported(
            "opening one part of a split model without its path",
            place.description(),
            "open the file by its path, or merge the files with llama.cpp's `llama-gguf-split --merge`",
        ))
    })
}
