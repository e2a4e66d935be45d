//! Reads GGUF files: typed metadata and named tensors of a model, in one file or in several.
//!
//! The module gives these guarantees:
//!
//! * **Opening checks everything that can be checked without the weights.** Counts, lengths, types, shapes and offsets
//!   are compared with the size of the file, so everything that a [`Gguf`] returns lies inside the file. A broken file
//!   gives an [`Error`] that names the file and the key or tensor, never a panic. No number in the file becomes the
//!   size of an allocation before it is known that the file has that many bytes. The time to open a file grows linearly
//!   with its header, and headers that are much larger than any model needs are refused (`limits.rs`).
//! * **Opening reads the header only.** The header stays in memory unchanged. The strings of a vocabulary are located
//!   when they are requested, and are then slices of the header. A string that is not UTF-8 is an error of the getter
//!   that reads it, not of the file.
//! * **Weights are read when they are requested,** by [`Gguf::read`]. If another program has cut the file short, that
//!   is an error then. The file is not mapped into memory unless [`Gguf::mapped`] asks for it.
//!
//! The format is <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>, versions 2 and 3, little-endian. This
//! module knows the size of every type of tensor, but not how any type encodes values.

mod convert;
mod data;
mod fingerprint;
mod getters;
mod header;
mod limits;
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

/// Reads bytes of a file into the slice: the file's index, the position of the first byte, the slice.
pub type FetchHeader<'a> = dyn FnMut(usize, usize, &mut [u8]) -> Result<()> + 'a;

/// An open GGUF file. Clones share it.
///
/// ```
/// # fn main() -> wglm::Result<()> {
/// use wglm::Gguf;
///
/// let file = Gguf::from_static(wglm::DEMO_MODEL)?; // or Gguf::open("GLM-4.7-Flash-Q4_0.gguf")
/// assert_eq!(file.string("general.architecture")?, "deepseek2");
/// let embedding = file.tensor("token_embd.weight").expect("every model has one");
/// println!("{} of {}: {:?} …", embedding.shape(), embedding.ty.name, &file.read_all(embedding)?[..18]);
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
    /// Opens the file at `path` and checks its header. If the model is split into several files
    /// (`NAME-00001-of-00003.gguf`), `path` may be any of them, and the others are opened as well.
    ///
    /// Replacing the file by another of the same name does not affect an open one. Writing to the file while a model is
    /// loaded from it makes the load fail.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be opened or read; [`Error::File`] with [`Error::NotGguf`] or [`Error::Gguf`]
    /// inside if it is not a GGUF file or its header is broken.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::of(split::all(path, ModelFile::open(path)?)?)
    }

    /// Opens a file that is embedded in the program, and checks its header.
    ///
    /// # Errors
    /// [`Error::NotGguf`] and [`Error::Gguf`] as for [`Gguf::open`], [`Error::Unsupported`] for one part of a split
    /// model.
    pub fn from_static(bytes: &'static [u8]) -> Result<Self> {
        Self::whole(Data::Static(bytes))
    }

    /// Opens a file that is held in memory, and checks its header.
    ///
    /// # Errors
    /// The errors of [`Gguf::from_static`].
    pub fn from_vec(bytes: Vec<u8>) -> Result<Self> {
        Self::whole(Data::Owned(bytes))
    }

    /// Reads the headers of a model's files that are not on this machine. `files` lists all of them in order: a path,
    /// for messages, and a size in bytes. `fetch` reads a range of one of them; it is called for headers only, half a
    /// mebibyte or more at a time, and for each byte once. [`Model::estimate`](crate::Model::estimate) can then
    /// calculate whether the model fits, but no weights can be read.
    ///
    /// # Errors
    /// The errors of `fetch` and of [`Gguf::open`].
    #[doc(hidden)]
    pub fn of_headers(files: &[(&Path, u64)], fetch: &mut FetchHeader<'_>) -> Result<Self> {
        let mut headers = Vec::new();
        for (index, (path, bytes)) in files.iter().enumerate() {
            let header = ModelFile::elsewhere(path.into(), *bytes, &mut |at, into| fetch(index, at, into))?;
            model_file::add(header, &mut headers)?;
        }
        if headers.is_empty() {
            return Err(broken("model", "at least one file", "none"));
        }
        Self::of(split::complete(headers)?)
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

    /// The first file, which has the metadata.
    fn first(&self) -> &ModelFile {
        &self.0.files[0]
    }

    /// The path of the file, or of the first of several files; `None` if it is in memory.
    pub fn path(&self) -> Option<&Path> {
        self.first().data.path()
    }

    /// Adds the path of the file to an error about its contents.
    pub(crate) fn name(&self, error: Error) -> Error {
        self.first().name(error)
    }

    /// The version of the format: 2 or 3.
    pub fn version(&self) -> u32 {
        self.first().header.version
    }

    /// The alignment of tensor data in bytes, a power of two.
    pub fn alignment(&self) -> usize {
        self.first().header.alignment
    }

    /// The size of the file in bytes, or of all files together.
    pub fn file_bytes(&self) -> u64 {
        self.0.files.iter().map(|file| file.data.len() as u64).sum()
    }

    /// The bytes of the header of the first file.
    #[cfg(feature = "download")]
    pub(crate) fn header_bytes(&self) -> &[u8] {
        self.first().header_bytes()
    }

    /// Where in that header the value of `key` is.
    #[cfg(feature = "download")]
    pub(crate) fn value_range(&self, key: &str) -> Option<Range<usize>> {
        self.first().header.metadata.range(key)
    }

    /// Every metadata key and its value, in file order.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.first().header.metadata.iter(self.first().bytes())
    }

    /// The value of `key` with the type that it has in the file. The getters named after a type convert and check.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        self.first().header.metadata.get(self.first().bytes(), key)
    }

    /// Every tensor, in file order.
    #[doc(hidden)]
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &TensorInfo> {
        self.0.tensors.iter()
    }

    /// The tensor called `name`.
    #[doc(hidden)]
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.0.tensors.get(name)
    }

    /// The tensor called `name`, which must have the shape `dims`, innermost dimension first. Trailing dimensions of 1
    /// are ignored: GGML drops them when it writes, so `{512, 256, 1}` and `{512, 256}` are the same shape.
    ///
    /// # Errors
    /// [`Error::Tensor`] if there is no such tensor or it has another shape, inside an [`Error::File`] if the file has
    /// a path.
    #[doc(hidden)]
    pub fn require(&self, name: &str, dims: &[usize]) -> Result<&TensorInfo> {
        let wrong = |found| self.name(Error::Tensor { name: name.into(), expected: Shape(dims).to_string(), found });
        let tensor = self.tensor(name).ok_or_else(|| wrong("nothing".into()))?;
        if tensor.shape().same_as(Shape(dims)) { Ok(tensor) } else { Err(wrong(tensor.shape().to_string())) }
    }

    /// Reads bytes of a tensor in the block format of the file, beginning at byte `at` of the tensor.
    ///
    /// # Errors
    /// [`Error::Io`] if they cannot be read, for example because the file was cut short; [`Error::Gguf`] if the tensor
    /// has no such bytes.
    #[doc(hidden)]
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
    /// The errors of [`Gguf::read`]; [`Error::HostMemory`] if there is no memory for the bytes.
    #[doc(hidden)]
    pub fn read_all(&self, tensor: &TensorInfo) -> Result<Vec<u8>> {
        let mut bytes = zeros(tensor.bytes, "reading a tensor")?;
        self.read(tensor, 0, &mut bytes)?;
        Ok(bytes)
    }

    /// Announces that a range of a tensor's bytes will be read soon, so that the system can fetch it from storage in
    /// one request.
    #[doc(hidden)]
    pub fn expect(&self, tensor: &TensorInfo, bytes: Range<usize>) {
        let Some(file) = self.0.files.get(tensor.file) else { return };
        file.data.expect(tensor.offset.saturating_add(bytes.start), bytes.len());
    }

    /// Checks that the file was not written to since it was opened.
    ///
    /// # Errors
    /// [`Error::Io`] if it was.
    pub fn unchanged(&self) -> Result<()> {
        self.0.files.iter().try_for_each(|file| file.data.unchanged())
    }

    /// The size in bytes of the first file, which is the one that [`Gguf::mapped`] maps.
    pub fn first_bytes(&self) -> usize {
        self.first().data.len()
    }

    /// Reads bytes of the first file, beginning at byte `at`.
    ///
    /// # Errors
    /// [`Error::Io`] if they cannot be read.
    pub fn read_first(&self, at: usize, into: &mut [u8]) -> Result<()> {
        self.first().data.read(at, into)
    }

    /// The address of byte `at` of the first file in a memory map of that file; `None` for a file that is in memory,
    /// for a byte past the end, or if the system refuses the map. The map ends with the page of the file's last byte,
    /// and stays in place while any clone lives. If the file was cut short, touching a missing page ends the process.
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
