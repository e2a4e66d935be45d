//! Tests the getters of metadata by type and of tensors by shape: which values convert, and the errors for the others.

use wglm::Error;
use wglm_engine::gguf::{Shape, Value};

use super::{F32, Q4_0, open, says, with_tensor, with_value};
use crate::common::gguf_writer::{GgufWriter, Meta};

#[test]
fn integers_of_any_type_that_fit() {
    let values: [Meta; 8] =
        [5u8.into(), 5i8.into(), 5u16.into(), 5i16.into(), 5u32.into(), 5i32.into(), 5u64.into(), 5i64.into()];
    for value in values {
        let gguf = open(with_value(value));
        assert_eq!((gguf.u32("k").unwrap(), gguf.opt_u32("k").unwrap()), (5, Some(5)));
        assert_eq!((gguf.u64("k").unwrap(), gguf.opt_u64("k").unwrap()), (5, Some(5)));
    }
    assert_eq!(open(with_value(u64::MAX)).u64("k").unwrap(), u64::MAX);
    assert_eq!(open(with_value(-1i64)).opt_i32("k").unwrap(), Some(-1));
}

#[test]
fn integers_that_do_not_fit() {
    let expected = "metadata key `k`: expected an integer from 0 to 4294967295, found ";
    let found: [(Meta, &str); 6] = [
        ((-1i8).into(), "i8 -1"),
        (4_294_967_296u64.into(), "u64 4294967296"),
        (i64::MIN.into(), "i64 -9223372036854775808"),
        (1f32.into(), "f32 1"),
        (true.into(), "bool true"),
        ("four".into(), "string `four`"),
    ];
    for (value, found) in found {
        let error = open(with_value(value)).u32("k").unwrap_err();
        assert!(matches!(error, Error::Metadata { .. }));
        assert_eq!(error.to_string(), format!("{expected}{found}"));
    }
    says(&open(with_value(-1i64)).u64("k").unwrap_err(), &["`k`", "from 0 to 18446744073709551615", "i64 -1"]);
}

#[test]
fn equal_values_per_layer_count_as_one() {
    let gguf = open(
        GgufWriter::new()
            .meta("same", [8u32, 8, 8])
            .meta("differ", [8i32, 8, 1])
            .meta("negative", [-1i32, -1])
            .meta("empty", [0u32; 0])
            .meta("floats", [0.5f32, 0.5])
            .meta("bools", [true, true])
            .meta("nested", Meta::Array(9, vec![Meta::from([1u32])])),
    );
    assert_eq!(gguf.u32("same").unwrap(), 8);
    assert_eq!(gguf.u32s("same").unwrap(), [8, 8, 8]);
    assert_eq!(gguf.f32("floats").unwrap(), 0.5);
    assert!(gguf.bool("bools").unwrap());
    says(&gguf.u32("differ").unwrap_err(), &["`differ`", "array of 3 i32", "i32 8 at index 0, i32 1 at index 2"]);
    says(&gguf.u32("negative").unwrap_err(), &["`negative`", "array of 2 i32"]);
    says(&gguf.u32("empty").unwrap_err(), &["`empty`", "an integer", "an empty array"]);
    says(&gguf.u32("nested").unwrap_err(), &["`nested`", "array of 1 array"]);
}

#[test]
fn floats_of_both_widths_if_finite() {
    assert_eq!(open(with_value(0.1f32)).f32("k").unwrap(), 0.1);
    assert_eq!(open(with_value(0.1f64)).opt_f32("k").unwrap(), Some(0.1));
    let found: [(Meta, &str); 5] = [
        (f32::NAN.into(), "f32 NaN"),
        (f32::NEG_INFINITY.into(), "f32 -inf"),
        (f64::INFINITY.into(), "f64 inf"),
        (1e300f64.into(), "f64 1000"),
        (1u32.into(), "u32 1"),
    ];
    for (value, found) in found {
        says(&open(with_value(value)).f32("k").unwrap_err(), &["`k`", "a finite float", found]);
    }
}

#[test]
fn bools_and_strings() {
    let gguf = open(GgufWriter::new().meta("b", true).meta("s", "glm4").meta("n", 1u8));
    assert_eq!((gguf.bool("b").unwrap(), gguf.opt_bool("b").unwrap()), (true, Some(true)));
    assert_eq!((gguf.string("s").unwrap(), gguf.opt_string("s").unwrap()), ("glm4", Some("glm4")));
    says(&gguf.bool("n").unwrap_err(), &["`n`", "a bool", "u8 1"]);
    says(&gguf.string("n").unwrap_err(), &["`n`", "a string", "u8 1"]);
    says(&gguf.bool("s").unwrap_err(), &["`s`", "a bool", "string `glm4`"]);
}

#[test]
fn arrays() {
    let gguf = open(
        GgufWriter::new()
            .meta("strings", ["a", "ĠĠ", ""])
            .meta("types", [1i32, -3, 6])
            .meta("counts", [1u64, 2])
            .meta("floats", [1f64, -0.5])
            .meta("nan", [1f32, f32::NAN])
            .meta("one", 1u32),
    );
    assert_eq!(gguf.strings("strings").unwrap(), ["a", "ĠĠ", ""]);
    assert_eq!(gguf.opt_strings("strings").unwrap().unwrap().len(), 3);
    assert_eq!(gguf.i32s("types").unwrap(), [1, -3, 6]);
    assert_eq!(gguf.opt_i32s("types").unwrap().unwrap(), [1, -3, 6]);
    assert_eq!(gguf.opt_u32s("counts").unwrap().unwrap(), [1, 2]);
    assert_eq!(gguf.f32s("floats").unwrap(), [1.0, -0.5]);
    assert_eq!(gguf.opt_f32s("floats").unwrap().unwrap(), [1.0, -0.5]);
    says(
        &gguf.u32s("types").unwrap_err(),
        &["`types`", "an array of integers", "array of 3 i32 with i32 -3 at index 1"],
    );
    says(&gguf.f32s("nan").unwrap_err(), &["`nan`", "an array of finite floats", "f32 NaN at index 1"]);
    says(&gguf.strings("one").unwrap_err(), &["`one`", "an array of strings", "u32 1"]);
    says(&gguf.i32s("strings").unwrap_err(), &["`strings`", "string `a` at index 0"]);
}

#[test]
fn absent_keys() {
    let gguf = open(GgufWriter::new());
    for (error, expected) in [
        (gguf.u32("x").unwrap_err(), "an integer"),
        (gguf.u64("x").unwrap_err(), "an integer"),
        (gguf.f32("x").unwrap_err(), "a finite float"),
        (gguf.bool("x").unwrap_err(), "a bool"),
        (gguf.string("x").unwrap_err(), "a string"),
        (gguf.strings("x").unwrap_err(), "an array of strings"),
        (gguf.u32s("x").unwrap_err(), "an array of integers from 0"),
        (gguf.i32s("x").unwrap_err(), "an array of integers from -"),
        (gguf.f32s("x").unwrap_err(), "an array of finite floats"),
    ] {
        says(&error, &["`x`", expected, "found nothing"]);
    }
    assert_eq!(gguf.opt_u32("x").unwrap(), None);
    assert_eq!(gguf.opt_u64("x").unwrap(), None);
    assert_eq!(gguf.opt_i32("x").unwrap(), None);
    assert_eq!(gguf.opt_f32("x").unwrap(), None);
    assert_eq!(gguf.opt_bool("x").unwrap(), None);
    assert_eq!(gguf.opt_string("x").unwrap(), None);
    assert_eq!(gguf.opt_strings("x").unwrap(), None);
    assert_eq!(gguf.opt_u32s("x").unwrap(), None);
    assert_eq!(gguf.opt_i32s("x").unwrap(), None);
    assert_eq!(gguf.opt_f32s("x").unwrap(), None);
}

#[test]
fn an_optional_key_of_the_wrong_type_is_still_wrong() {
    says(&open(with_value("five")).opt_u32("k").unwrap_err(), &["`k`", "string `five`"]);
}

#[test]
fn strings_that_are_not_utf8_fail_only_the_getter() {
    let bad = Meta::String(b"a\xff\x1b[31m".to_vec());
    let tokens = Meta::Array(8, vec![Meta::from("fine"), bad.clone()]);
    let gguf = open(GgufWriter::new().meta("s", bad).meta("tokens", tokens).meta("n", 1u8));
    assert_eq!(gguf.u32("n").unwrap(), 1);
    assert_eq!(gguf.get("s"), Some(Value::String(b"a\xff\x1b[31m")), "the bytes are not lost");
    says(&gguf.string("s").unwrap_err(), &["`s`", "a string in UTF-8", "string `a\u{fffd}\\u{1b}[31m`"]);
    says(&gguf.strings("tokens").unwrap_err(), &["`tokens`", "strings in UTF-8", "array of 2 string", "at index 1"]);
}

#[test]
fn long_strings_are_cut_in_messages() {
    let error = open(with_value("x".repeat(1_000_000).as_str())).u32("k").unwrap_err();
    assert!(error.to_string().len() < 300);
}

#[test]
fn tensors_by_shape() {
    let gguf = open(with_tensor(&[32, 3], Q4_0, 54));
    assert_eq!(gguf.require("w", &[32, 3]).unwrap().bytes, 54);
    assert!(gguf.require("w", &[32, 3, 1]).is_ok(), "trailing ones do not count");
    let error = gguf.require("w", &[3, 32]).unwrap_err();
    assert!(matches!(error, Error::Tensor { .. }));
    assert_eq!(error.to_string(), "tensor `w`: expected {3, 32}, found {32, 3}");
    let error = gguf.require("output.weight", &[2048, 154880]).unwrap_err();
    assert_eq!(error.to_string(), "tensor `output.weight`: expected {2048, 154880}, found nothing");
    let narrow = open(with_tensor(&[1, 1], F32, 4));
    assert!(narrow.require("w", &[1]).is_ok() && narrow.require("w", &[]).is_ok());
    assert!(narrow.require("w", &[2]).is_err());
}

#[test]
fn a_tensor_of_another_file_has_no_bytes_here() {
    let long = open(with_tensor(&[1 << 16], F32, 4 << 16));
    let short = open(with_tensor(&[1], F32, 4));
    assert!(short.read_all(long.tensor("w").unwrap()).is_err());
}

#[test]
fn shapes() {
    assert_eq!(Shape(&[2048, 154880]).to_string(), "{2048, 154880}");
    assert_eq!(Shape(&[64]).to_string(), "{64}");
}
