//! The descriptions of tensors in a header, and the check that the bytes of each tensor lie inside the file and overlap
//! no other's.

use std::collections::HashMap;
use std::fmt;

use super::limits;
use super::reader::{ByteReader, ParseError, broken, quoted};
use super::types::TensorType;
use crate::error::{Error, Result};

/// The maximum number of dimensions that GGML supports.
const MAX_DIMS: u32 = 4;
/// The size in bytes of the smallest entry: an empty name, one dimension, a type, an offset.
pub(super) const MIN_ENTRY: usize = 8 + 4 + 8 + 4 + 8;

/// The description of a tensor.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TensorInfo {
    /// The name.
    pub name: String,
    /// The type of its values.
    pub ty: &'static TensorType,
    /// The 1 to 4 dimensions, with the innermost, which is the length of a row, first.
    pub dims: Vec<usize>,
    /// The index of the file that holds the tensor: 0 for the first or only one.
    pub file: usize,
    /// The position of the tensor's first byte in that file.
    pub offset: usize,
    /// The size of the tensor in bytes.
    pub bytes: usize,
}

impl TensorInfo {
    /// The dimensions, for messages.
    pub fn shape(&self) -> Shape<'_> {
        Shape(&self.dims)
    }
}

/// Dimensions as error messages print them, innermost first: `{2048, 154880}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape<'a>(pub &'a [usize]);

impl Shape<'_> {
    /// Whether both have the same dimensions, apart from trailing ones of 1.
    pub(super) fn same_as(self, other: Shape<'_>) -> bool {
        let trimmed = |dims: &[usize]| dims.iter().rposition(|dim| *dim != 1).map_or(0, |last| last + 1);
        self.0[..trimmed(self.0)] == other.0[..trimmed(other.0)]
    }
}

impl fmt::Display for Shape<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (i, dim) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{dim}")?;
        }
        f.write_str("}")
    }
}

/// All tensors, with an index by name.
#[derive(Default)]
pub(super) struct Tensors {
    infos: Vec<TensorInfo>,
    by_name: HashMap<String, usize>,
}

impl Tensors {
    /// Parses `count` entries. Their offsets count from the start of the data until [`Tensors::locate`] is called.
    pub fn parse(reader: &mut ByteReader<'_>, count: usize) -> Result<Self> {
        let mut tensors = Self::default();
        for i in 0..count {
            let name = reader
                .name(limits::TENSOR_NAME_BYTES)
                .map_err(|error| error.within(format!("tensor {i} of {count}")))?;
            tensors.add(name, reader)?;
        }
        Ok(tensors)
    }

    fn add(&mut self, name: &str, reader: &mut ByteReader<'_>) -> Result<()> {
        if self.by_name.insert(name.into(), self.infos.len()).is_some() {
            return Err(broken(place(name), "each tensor once", "the tensor twice"));
        }
        let within = |error: ParseError| error.within(place(name));
        let dims = read_dims(reader).map_err(within)?;
        let ty = read_type(name, reader)?;
        let offset = reader.u64().map_err(within)?;
        let bytes = size(&dims, ty).map_err(|(expected, found)| broken(place(name), expected, found))?;
        let offset = usize::try_from(offset).map_err(|_| outside(name, offset))?;
        self.infos.push(TensorInfo { name: name.into(), ty, dims, file: 0, offset, bytes });
        Ok(())
    }

    /// Converts the offsets to positions in the file, whose data starts at byte `start` of `file_bytes`, and checks
    /// that every tensor is aligned, lies inside the file and overlaps no other.
    pub fn locate(&mut self, start: usize, file_bytes: usize, alignment: usize) -> Result<()> {
        for info in &mut self.infos {
            if !info.offset.is_multiple_of(alignment) {
                let expected = format!("an offset that is a multiple of {alignment}");
                return Err(broken(place(&info.name), expected, info.offset.to_string()));
            }
            let from = start.checked_add(info.offset).ok_or_else(|| outside(&info.name, info.offset as u64))?;
            let left = file_bytes.saturating_sub(from);
            if info.bytes > left {
                let found = format!("{left} before the end of the file (an incomplete download?)");
                return Err(broken(place(&info.name), format!("{} bytes of data at byte {from}", info.bytes), found));
            }
            info.offset = from;
        }
        self.check_apart()
    }

    /// Adds the tensors of another file of the model, whose index is `file`.
    pub fn join(&mut self, others: Self, file: usize) -> Result<()> {
        if self.infos.is_empty() && file == 0 {
            *self = others;
            return Ok(());
        }
        for info in others.infos {
            if self.by_name.insert(info.name.clone(), self.infos.len()).is_some() {
                return Err(broken(place(&info.name), "each tensor in one file", "the tensor in two files"));
            }
            self.infos.push(TensorInfo { file, ..info });
        }
        Ok(())
    }

    fn check_apart(&self) -> Result<()> {
        let mut sorted: Vec<&TensorInfo> = self.infos.iter().collect();
        sorted.sort_unstable_by_key(|info| info.offset);
        for pair in sorted.windows(2) {
            let (before, after) = (pair[0], pair[1]);
            let end = before.offset + before.bytes;
            if after.offset < end {
                let expected = format!("data at byte {end} or later, where {} ends", place(&before.name));
                return Err(broken(place(&after.name), expected, format!("data at byte {}", after.offset)));
            }
        }
        Ok(())
    }

    pub fn iter(&self) -> std::slice::Iter<'_, TensorInfo> {
        self.infos.iter()
    }

    pub fn get(&self, name: &str) -> Option<&TensorInfo> {
        self.infos.get(*self.by_name.get(name)?)
    }
}

pub(super) fn place(name: &str) -> String {
    format!("tensor {}", quoted(name.as_bytes()))
}

fn outside(name: &str, offset: u64) -> Error {
    broken(place(name), "an offset inside the file", offset.to_string())
}

fn read_dims(reader: &mut ByteReader<'_>) -> Result<Vec<usize>, ParseError> {
    let count = reader.u32()?;
    if !(1..=MAX_DIMS).contains(&count) {
        return Err(reader.error(4, format!("1 to {MAX_DIMS} dimensions"), count.to_string()));
    }
    (0..count).map(|_| read_dim(reader)).collect()
}

fn read_dim(reader: &mut ByteReader<'_>) -> Result<usize, ParseError> {
    let dim = reader.u64()?;
    let fitting = usize::try_from(dim).ok().filter(|dim| *dim > 0);
    fitting.ok_or_else(|| reader.error(8, format!("a dimension from 1 to {}", usize::MAX), dim.to_string()))
}

fn read_type(name: &str, reader: &mut ByteReader<'_>) -> Result<&'static TensorType> {
    let id = reader.u32().map_err(|error| error.within(place(name)))?;
    TensorType::from_id(id).ok_or_else(|| {
        let remedy =
            "wglm does not know this type, or GGML has removed it; convert the model again to a type such as q4_0";
        Error::unsupported(format!("the type of {}", place(name)), format!("type number {id}"), remedy)
    })
}

/// The size of a tensor in bytes; the error says what was expected and what was found.
fn size(dims: &[usize], ty: &TensorType) -> Result<usize, (String, String)> {
    let row = dims.first().copied().unwrap_or(0);
    if !row.is_multiple_of(ty.values) {
        let expected = format!("rows of whole {} blocks of {} values", ty.name, ty.values);
        return Err((expected, format!("the shape {}", Shape(dims))));
    }
    let blocks = dims[1..].iter().try_fold(row / ty.values, |product, dim| product.checked_mul(*dim));
    let bytes = blocks.and_then(|blocks| blocks.checked_mul(ty.bytes));
    bytes.ok_or_else(|| ("a size that a file can have".into(), format!("the shape {}", Shape(dims))))
}
