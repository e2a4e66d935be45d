//! Tests the table of tensor types.

use wglm_engine::gguf::{TYPES, TensorType};

use super::{open, refused, with_tensor};

#[test]
fn numbers_ascend_and_names_differ() {
    assert!(TYPES.is_sorted_by(|a, b| a.id < b.id));
    let names: std::collections::HashSet<&str> = TYPES.iter().map(|ty| ty.name).collect();
    assert_eq!(names.len(), TYPES.len());
    assert!(TYPES.iter().all(|ty| TensorType::from_id(ty.id) == Some(ty)));
}

/// `GGML_QUANT_SIZES` of Python's `gguf` package 0.19: number, name, values and bytes of a block. It disagrees with
/// GGML itself only about q8_1, for which GGML's size is used.
#[test]
fn pythons_table_agrees() {
    let ours: Vec<_> = TYPES.iter().map(|ty| (ty.id, ty.name, ty.values, ty.bytes)).collect();
    let theirs = PYTHON.map(|row| if row.1 == "q8_1" { (9, "q8_1", 32, 36) } else { row });
    assert_eq!(ours, theirs);
}

#[rustfmt::skip]
const PYTHON: [(u32, &str, usize, usize); 34] = [
    (0, "f32", 1, 4),
    (1, "f16", 1, 2),
    (2, "q4_0", 32, 18),
    (3, "q4_1", 32, 20),
    (6, "q5_0", 32, 22),
    (7, "q5_1", 32, 24),
    (8, "q8_0", 32, 34),
    (9, "q8_1", 32, 40),
    (10, "q2_k", 256, 84),
    (11, "q3_k", 256, 110),
    (12, "q4_k", 256, 144),
    (13, "q5_k", 256, 176),
    (14, "q6_k", 256, 210),
    (15, "q8_k", 256, 292),
    (16, "iq2_xxs", 256, 66),
    (17, "iq2_xs", 256, 74),
    (18, "iq3_xxs", 256, 98),
    (19, "iq1_s", 256, 50),
    (20, "iq4_nl", 32, 18),
    (21, "iq3_s", 256, 110),
    (22, "iq2_s", 256, 82),
    (23, "iq4_xs", 256, 136),
    (24, "i8", 1, 1),
    (25, "i16", 1, 2),
    (26, "i32", 1, 4),
    (27, "i64", 1, 8),
    (28, "f64", 1, 8),
    (29, "iq1_m", 256, 56),
    (30, "bf16", 1, 2),
    (34, "tq1_0", 256, 54),
    (35, "tq2_0", 256, 66),
    (39, "mxfp4", 32, 17),
    (40, "nvfp4", 64, 36),
    (41, "q1_0", 128, 18),
];

/// Compares the table with that of the weight formats, which was written independently.
#[test]
fn the_weight_formats_agree() {
    for quant in wglm_engine::quant::QUANTS {
        let ty = TensorType::from_id(quant.id).unwrap();
        assert_eq!((ty.name, ty.bytes * quant.values), (quant.name, quant.bytes * ty.values));
        assert!(quant.ragged || ty.values == quant.values, "{}", ty.name);
    }
}

/// A file that is one byte too short for a tensor of the type is refused.
#[test]
fn sizes_of_every_type() {
    for ty in TYPES {
        let row = 256u64.next_multiple_of(ty.values as u64);
        let bytes = row as usize / ty.values * ty.bytes * 3;
        let file = with_tensor(&[row, 3], ty.id, bytes);
        let file = file.finish();
        let start = file.len() - bytes.next_multiple_of(32);
        refused(file[..start + bytes - 1].to_vec(), &["tensor `w`", &format!("{bytes} bytes of data")]);
        let gguf = open(with_tensor(&[row, 3], ty.id, bytes));
        assert_eq!(gguf.tensor("w").unwrap().bytes, bytes, "{}", ty.name);
    }
}
