//! A GGUF file, or several that are one model: typed metadata and named tensors.
//!
//! What this module guarantees:
//!
//! * **Opening checks everything that can be checked without the weights.** Counts, lengths, types,
//!   shapes and offsets are held against the bytes that are there, so whatever a [`Gguf`] hands out lies
//!   inside the file. A broken file is an [`Error`] that names the file and the key or tensor, never a panic; no field
//!   of the file is an allocation's size before it has been held against the bytes that would fill it; and
//!   the time taken grows with the header, not with its square.
//! * **Opening reads the header alone,** into memory. Of a vocabulary of 150,000 strings nothing is made until it is
//!   asked for, and then a slice per string. A string that is not UTF-8 fails the getter that reads it, not the file.
//! * **Weights are read where they are asked for,** by [`Gguf::read`]. A file that another program cuts short is an
//!   error then. Nothing is mapped but for who asks for it: see [`Gguf::mapped`].
//!
//! The format is <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>, versions 2 and 3,
//! little-endian. This module knows the size of every tensor type and the meaning of none.

mod convert;
mod data;
mod fingerprint;
mod getters;
mod header;
mod looks;
mod metadata;
mod model_file;
mod reader;
mod split;
mod tensor;
mod types;
mod value;

use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::memory::zeros;
use data::Data;
use model_file::ModelFile;
use reader::broken;
use tensor::Tensors;

pub use tensor::{Shape, TensorInfo};
pub use types::{TYPES, TensorType};
pub use value::{Array, Value, ValueType};

/// An open GGUF file. Clones share it.
///
/// ```
/// # fn main() -> wglm::Result<()> {
/// # #[cfg(feature = "demo-model")] {
/// use wglm::Gguf;
///
/// let file = Gguf::from_static(wglm::DEMO_MODEL)?; // or Gguf::open("GLM-4.7-Flash-Q4_0.gguf")
/// assert_eq!(file.string("general.architecture")?, "deepseek2");
/// let embedding = file.tensor("token_embd.weight").expect("every model has one");
/// println!("{} of {}: {:?} …", embedding.shape(), embedding.ty.name, &file.read_all(embedding)?[..18]);
/// # }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Gguf(Arc<Contents>);

/// The files of a model, at least one, and the tensors of all of them.
struct Contents {
    files: Vec<ModelFile>,
    tensors: Tensors,
}

impl Gguf {
    /// Opens the file at `path` and checks its header. Of a model in several files (`NAME-00001-of-00003.gguf`) it may be
    /// any: the others are opened as well.
    ///
    /// A file may be replaced by another of its name at any time. One that is written to while a model is loaded from it
    /// is an error there.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be opened or read; [`Error::File`], of [`Error::NotGguf`] or [`Error::Gguf`], for one
    /// that is no GGUF file or whose header is broken.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::of(split::all(path, ModelFile::open(path)?)?)
    }

    /// Checks the header of a file embedded in the program.
    ///
    /// # Errors
    /// [`Error::NotGguf`] and [`Error::Gguf`] as [`Gguf::open`], [`Error::Unsupported`] for one of several files.
    pub fn from_static(bytes: &'static [u8]) -> Result<Self> {
        Self::whole(Data::Static(bytes))
    }

    /// Checks the header of a file held in memory.
    ///
    /// # Errors
    /// As [`Gguf::from_static`].
    pub fn from_vec(bytes: Vec<u8>) -> Result<Self> {
        Self::whole(Data::Owned(bytes))
    }

    fn whole(data: Data) -> Result<Self> {
        let file = ModelFile::of(data)?;
        split::alone(&file)?;
        Self::of(vec![file])
    }

    fn of(mut files: Vec<ModelFile>) -> Result<Self> {
        let tensors = split::tensors(&mut files)?;
        Ok(Self(Arc::new(Contents { files, tensors })))
    }

    /// The file with the metadata.
    fn first(&self) -> &ModelFile {
        &self.0.files[0]
    }

    /// Where it is: the first of several files; none if it is in memory.
    pub fn path(&self) -> Option<&Path> {
        self.first().data.path()
    }

    /// An error with the name of the file, if it is about what the file says.
    pub(crate) fn name(&self, error: Error) -> Error {
        self.first().name(error)
    }

    /// The version of the format: 2 or 3.
    pub fn version(&self) -> u32 {
        self.first().header.version
    }

    /// The power of two that tensor data is aligned to, in bytes.
    pub fn alignment(&self) -> usize {
        self.first().header.alignment
    }

    /// The whole file, or all of several, in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.0.files.iter().map(|file| file.data.len() as u64).sum()
    }

    /// Every metadata key and its value, in file order.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.first().header.metadata.iter(self.first().bytes())
    }

    /// The value of `key`, as the file types it. The getters named after a type convert and check.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        self.first().header.metadata.get(self.first().bytes(), key)
    }

    /// Every tensor, in file order.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &TensorInfo> {
        self.0.tensors.iter()
    }

    /// The tensor called `name`.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.0.tensors.get(name)
    }

    /// The tensor called `name`, which must have the shape `dims`, innermost first. Trailing dimensions of
    /// 1 do not count: GGML drops them when it writes, so `{512, 256, 1}` and `{512, 256}` are one shape.
    ///
    /// # Errors
    /// [`Error::Tensor`] if there is none, or it has another shape; [`Error::File`] of that for a file with a path.
    pub fn require(&self, name: &str, dims: &[usize]) -> Result<&TensorInfo> {
        let wrong = |found| self.name(Error::Tensor { name: name.into(), expected: Shape(dims).to_string(), found });
        let tensor = self.tensor(name).ok_or_else(|| wrong("nothing".into()))?;
        if tensor.shape().same_as(Shape(dims)) { Ok(tensor) } else { Err(wrong(tensor.shape().to_string())) }
    }

    /// Reads bytes of a tensor, in the file's own block format, from byte `at` of it on.
    ///
    /// # Errors
    /// [`Error::Io`] if they cannot be read, as those of a file that was cut short; [`Error::Gguf`] for a tensor that has
    /// no such bytes.
    pub fn read(&self, tensor: &TensorInfo, at: usize, into: &mut [u8]) -> Result<()> {
        let inside = at.checked_add(into.len()).is_some_and(|end| end <= tensor.bytes);
        let file = self.0.files.get(tensor.file).filter(|_| inside);
        let nothing = || broken(tensor::place(&tensor.name), format!("{} bytes at {at}", into.len()), "none");
        let file = file.ok_or_else(nothing)?;
        file.data.read(tensor.offset.saturating_add(at), into)
    }

    /// Reads all of a tensor.
    ///
    /// # Errors
    /// As [`Gguf::read`]; [`Error::HostMemory`].
    pub fn read_all(&self, tensor: &TensorInfo) -> Result<Vec<u8>> {
        let mut bytes = zeros(tensor.bytes, "reading a tensor")?;
        self.read(tensor, 0, &mut bytes)?;
        Ok(bytes)
    }

    /// Says that bytes of a tensor, counted from its start, will be read soon: so they come from storage in one go.
    pub fn expect(&self, tensor: &TensorInfo, bytes: Range<usize>) {
        let Some(file) = self.0.files.get(tensor.file) else { return };
        file.data.expect(tensor.offset.saturating_add(bytes.start), bytes.len());
    }

    /// An error if the file was written to since it was opened.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn unchanged(&self) -> Result<()> {
        self.0.files.iter().try_for_each(|file| file.data.unchanged())
    }

    /// Bytes of the first file, of which [`Gguf::mapped`] is a map.
    pub fn first_bytes(&self) -> usize {
        self.first().data.len()
    }

    /// Reads bytes of the first file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn read_first(&self, at: usize, into: &mut [u8]) -> Result<()> {
        self.first().data.read(at, into)
    }

    /// Where byte `at` of the first file is in memory that is a map of it: none for a file that is in memory, past its
    /// end, or where the system refuses. The map ends with the page of the file's last byte, and stays where it is while
    /// any clone lives. To touch a page of a file that was cut short ends the process.
    pub fn mapped(&self, at: usize) -> Option<NonNull<u8>> {
        self.first().data.map()?.get(at).map(NonNull::from)
    }
}

impl std::fmt::Debug for Gguf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gguf")
            .field("version", &self.version())
            .field("metadata", &self.first().header.metadata.len())
            .field("tensors", &self.tensors().len())
            .field("bytes", &self.file_bytes())
            .finish()
    }
}
