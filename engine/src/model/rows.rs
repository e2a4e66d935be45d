//! The rows of a weight in its format on the GPU: rows of a tensor, or rows that are computed from it.

use super::weight_table::{WeightSource, WeightTable, format_of};
use crate::error::{Error, Result};
use crate::gguf::{Gguf, TensorInfo};
use crate::memory::{resize, zeros};
use crate::plan::Weight;
use crate::quant::Quant;
use std::ops::Range;

/// The purpose of the allocations, for error messages.
const DOING: &str = "reading weights";

/// The source of a weight's rows. Any run of them can be read by itself, on any thread.
pub(super) struct WeightRows<'a> {
    file: &'a Gguf,
    kind: RowSource<'a>,
    /// The size of a row in bytes, in the weight's format.
    row_bytes: usize,
}

enum RowSource<'a> {
    /// Rows of the tensor, unchanged.
    Same {
        from: Stored<'a>,
        cut: Cut,
    },
    /// One row, decoded.
    Decoded {
        from: Stored<'a>,
    },
    /// The first `taken` of every `per` rows of `rows` values are decoded, each such matrix is transposed, and the
    /// result is encoded.
    Transposed {
        from: Stored<'a>,
        per: usize,
        taken: usize,
        rows: usize,
        format: &'static Quant,
    },
    Zeros,
    /// One row.
    Constant(&'static [u8]),
}

/// `rows` rows from `first` on of every `per` rows of a tensor.
struct Cut {
    per: usize,
    first: usize,
    rows: usize,
}

impl Cut {
    /// The row of the tensor that becomes row `row` of the weight.
    fn place(&self, row: usize) -> usize {
        row / self.rows * self.per + self.first + row % self.rows
    }
}

/// A tensor of the file.
#[derive(Clone, Copy)]
struct Stored<'a> {
    info: &'a TensorInfo,
    quant: &'static Quant,
}

impl<'a> WeightRows<'a> {
    /// The rows of a weight of a table.
    pub fn of(table: &'a WeightTable, weight: &Weight) -> Result<Self> {
        let (file, source) = table.source(weight);
        let [columns, rows, _] = weight.shape;
        let row_bytes = weight.quant.row_bytes(columns).ok_or_else(|| ragged(weight))?;
        let kind = match source {
            WeightSource::Rows { tensor, per, first, rows } => {
                RowSource::Same { from: Stored::of(file, tensor)?, cut: Cut { per: *per, first: *first, rows: *rows } }
            }
            WeightSource::Decoded { tensor } => RowSource::Decoded { from: Stored::of(file, tensor)? },
            WeightSource::Transposed { tensor, per, rows: taken } => {
                let from = Stored::of(file, tensor)?;
                RowSource::Transposed { from, per: *per, taken: *taken, rows, format: weight.quant }
            }
            WeightSource::Zeros => RowSource::Zeros,
            WeightSource::Grid(buffer) => RowSource::Constant(buffer.bytes()),
        };
        Ok(Self { file, kind, row_bytes })
    }

    /// Reads consecutive rows of the weight into `into`, whose length is that of the rows.
    pub fn read(&self, range: Range<usize>, into: &mut Vec<u8>) -> Result<()> {
        match &self.kind {
            RowSource::Same { from, cut } => self.same(from, cut, range, into),
            RowSource::Decoded { from } => {
                let mut values = zeros(from.info.dims.iter().product(), DOING)?;
                from.quant.decode(&self.file.read_all(from.info)?, &mut values)?;
                resize(into, size_of_val(values.as_slice()), DOING)?;
                into.copy_from_slice(bytemuck::cast_slice(&values));
                Ok(())
            }
            RowSource::Transposed { from, per, taken, rows, format } => {
                *into = format.encode(&self.transposed(from, (*per, *taken, *rows), range)?)?;
                Ok(())
            }
            RowSource::Zeros => {
                into.clear();
                resize(into, self.row_bytes * range.len(), DOING)
            }
            RowSource::Constant(bytes) => {
                resize(into, bytes.len(), DOING)?;
                into.copy_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// The position of `weight` in the first file, if all of it lies there in the form that the GPU needs.
    pub fn in_file(&self, weight: &Weight) -> Option<Range<usize>> {
        let from = match &self.kind {
            RowSource::Same { from, cut } if cut.rows == cut.per => from,
            RowSource::Decoded { from } => from,
            _ => return None,
        };
        let same = from.quant.id == weight.quant.id && weight.quant.same_on_gpu(weight.shape[0]);
        let whole = from.info.file == 0 && from.info.bytes as u64 == weight.bytes();
        (same && whole).then(|| from.info.offset..from.info.offset + from.info.bytes)
    }

    /// The number of rows that should be read at a time, about `bytes` bytes of them. A single transposed row takes as
    /// much work as its whole matrix.
    pub fn at_a_time(&self, bytes: usize) -> usize {
        match self.kind {
            RowSource::Transposed { .. } => usize::MAX,
            _ => bytes / self.row_bytes.max(1),
        }
    }

    /// Announces that rows will be read soon.
    pub fn expect(&self, range: Range<usize>) {
        if let (RowSource::Same { from, cut }, Some(last)) = (&self.kind, range.clone().last()) {
            let [start, end] = [cut.place(range.start), cut.place(last) + 1].map(|row| row * self.row_bytes);
            self.file.expect(from.info, start..end);
        }
    }

    /// Reads rows of the tensor unchanged; consecutive ones are read at once.
    fn same(&self, from: &Stored<'_>, cut: &Cut, range: Range<usize>, into: &mut Vec<u8>) -> Result<()> {
        resize(into, range.len() * self.row_bytes, DOING)?;
        let (mut row, mut rest) = (range.start, into.as_mut_slice());
        while row < range.end {
            let run =
                if cut.rows == cut.per { range.end } else { range.end.min((row / cut.rows + 1) * cut.rows) } - row;
            let (these, others) = rest.split_at_mut(run * self.row_bytes);
            self.file.read(from.info, cut.place(row) * self.row_bytes, these)?;
            (row, rest) = (row + run, others);
        }
        Ok(())
    }

    /// Row *r* of matrix *m* holds value *r* of each of the first `taken` rows of the tensor from row *m* · `per` on. A
    /// row of the tensor is decoded once for all requested rows of its matrix.
    fn transposed(
        &self,
        from: &Stored<'_>,
        (per, taken, rows): (usize, usize, usize),
        range: Range<usize>,
    ) -> Result<Vec<f32>> {
        let row_bytes = from.info.bytes / from.info.dims.iter().skip(1).product::<usize>().max(1);
        let mut made = zeros(range.len() * taken, DOING)?;
        let (mut row, mut stored) = (zeros(rows, DOING)?, zeros(taken * row_bytes, DOING)?);
        for matrix in range.start / rows..range.end.div_ceil(rows) {
            let wanted = range.start.max(matrix * rows)..range.end.min((matrix + 1) * rows);
            self.file.read(from.info, matrix * per * row_bytes, &mut stored)?;
            for (bytes, column) in stored.chunks_exact(row_bytes.max(1)).zip(0..) {
                from.quant.decode(bytes, &mut row)?;
                for index in wanted.clone() {
                    made[(index - range.start) * taken + column] = row[index % rows];
                }
            }
        }
        Ok(made)
    }
}

impl<'a> Stored<'a> {
    fn of(file: &'a Gguf, name: &str) -> Result<Self> {
        let nothing = || Error::Tensor { name: name.into(), expected: "a tensor".into(), found: "nothing".into() };
        let info = file.tensor(name).ok_or_else(nothing)?;
        Ok(Self { info, quant: format_of(info)? })
    }
}

fn ragged(weight: &Weight) -> Error {
    Error::Tensor {
        name: weight.name.to_string(),
        expected: format!("rows of whole {} blocks of {} values", weight.quant.name, weight.quant.values),
        found: format!("rows of {} values", weight.shape[0]),
    }
}
