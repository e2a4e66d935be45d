//! How many bytes a tensor of each of GGML's types takes, including types that wglm cannot compute with:
//! a file's sizes can be checked, and an error can name the type, whatever it is.

/// A type that a tensor's values can have.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorType {
    /// GGML's number for it, which stands in the file.
    pub id: u32,
    /// GGML's name, in lower case.
    pub name: &'static str,
    /// Values that share a block; rows are whole blocks. 1 for the types without blocks.
    pub values: usize,
    /// Bytes of one block.
    pub bytes: usize,
}

/// Every type up to 41, by number. The gaps are types that were withdrawn: 4 and 5 (q4_2, q4_3), 31 to 33 (q4_0
/// interleaved for one processor each) and 36 to 38 (iq4_nl likewise).
pub static TYPES: &[TensorType] = &[
    of(0, "f32", 1, 4),
    of(1, "f16", 1, 2),
    of(2, "q4_0", 32, 18),
    of(3, "q4_1", 32, 20),
    of(6, "q5_0", 32, 22),
    of(7, "q5_1", 32, 24),
    of(8, "q8_0", 32, 34),
    // GGML's block has two f16; Python's `gguf` package still counts the two f32 it once had. GGML
    // makes this type for activations only, so no published file tells them apart.
    of(9, "q8_1", 32, 36),
    of(10, "q2_k", 256, 84),
    of(11, "q3_k", 256, 110),
    of(12, "q4_k", 256, 144),
    of(13, "q5_k", 256, 176),
    of(14, "q6_k", 256, 210),
    of(15, "q8_k", 256, 292),
    of(16, "iq2_xxs", 256, 66),
    of(17, "iq2_xs", 256, 74),
    of(18, "iq3_xxs", 256, 98),
    of(19, "iq1_s", 256, 50),
    of(20, "iq4_nl", 32, 18),
    of(21, "iq3_s", 256, 110),
    of(22, "iq2_s", 256, 82),
    of(23, "iq4_xs", 256, 136),
    of(24, "i8", 1, 1),
    of(25, "i16", 1, 2),
    of(26, "i32", 1, 4),
    of(27, "i64", 1, 8),
    of(28, "f64", 1, 8),
    of(29, "iq1_m", 256, 56),
    of(30, "bf16", 1, 2),
    of(34, "tq1_0", 256, 54),
    of(35, "tq2_0", 256, 66),
    of(39, "mxfp4", 32, 17),
    of(40, "nvfp4", 64, 36),
    of(41, "q1_0", 128, 18),
];

const fn of(id: u32, name: &'static str, values: usize, bytes: usize) -> TensorType {
    TensorType { id, name, values, bytes }
}

impl TensorType {
    /// The type that a file calls `id`.
    pub fn from_id(id: u32) -> Option<&'static Self> {
        TYPES.iter().find(|ty| ty.id == id)
    }
}
