//! The block sizes of all of GGML's tensor types, including those that wglm cannot compute with, so that the sizes in
//! any file can be checked and an error can name the type.

/// A type of the values of a tensor.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorType {
    /// The number of the type in files, as GGML defines it.
    pub id: u32,
    /// The name of the type in GGML, in lower case.
    pub name: &'static str,
    /// The number of values in a block; 1 for types without blocks. Rows consist of whole blocks.
    pub values: usize,
    /// The size of a block in bytes.
    pub bytes: usize,
}

/// All types up to number 41, in order. The gaps are types that were withdrawn: 4 and 5 (q4_2, q4_3), 31 to 33 (q4_0,
/// interleaved for one kind of processor each) and 36 to 38 (iq4_nl likewise).
pub static TYPES: &[TensorType] = &[
    of(0, "f32", 1, 4),
    of(1, "f16", 1, 2),
    of(2, "q4_0", 32, 18),
    of(3, "q4_1", 32, 20),
    of(6, "q5_0", 32, 22),
    of(7, "q5_1", 32, 24),
    of(8, "q8_0", 32, 34),
    // The block of GGML has two f16, whereas Python's `gguf` package still counts the two f32 that it once had. GGML
    // uses this type for activations only, so no published file shows the difference.
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
    /// The type with the number `id`.
    pub fn from_id(id: u32) -> Option<&'static Self> {
        TYPES.iter().find(|ty| ty.id == id)
    }
}
