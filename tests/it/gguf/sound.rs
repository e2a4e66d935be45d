//! Tests valid files: every version, value type, shape and alignment.

use wglm::Gguf;
use wglm_engine::gguf::{Value, ValueType};

use super::{F32, Q4_0, open, with_tensor, with_value};
use crate::common::gguf_writer::{GgufWriter, Meta};

#[test]
fn both_versions() {
    for version in [2, 3] {
        let gguf = open(with_value(7u32).version(version).tensor("w", &[4], F32, &[9; 16]));
        assert_eq!(gguf.version(), version);
        assert_eq!(gguf.u32("k").unwrap(), 7);
        assert_eq!(gguf.read_all(gguf.tensor("w").unwrap()).unwrap(), [9; 16]);
    }
}

#[test]
fn a_file_without_keys_or_tensors() {
    let gguf = open(GgufWriter::new());
    assert_eq!((gguf.metadata().count(), gguf.tensors().len()), (0, 0));
    // The padding before the data may be missing if there is no data.
    assert!(Gguf::from_vec(GgufWriter::new().finish()[..24].to_vec()).is_ok());
}

#[test]
fn every_value_type() {
    let gguf = open(
        GgufWriter::new()
            .meta("u8", 200u8)
            .meta("i8", -100i8)
            .meta("u16", 60_000u16)
            .meta("i16", -30_000i16)
            .meta("u32", 4_000_000_000u32)
            .meta("i32", -2_000_000_000i32)
            .meta("f32", 0.1f32)
            .meta("false", false)
            .meta("true", true)
            .meta("string", "an owl 🦉")
            .meta("u64", u64::MAX)
            .meta("i64", i64::MIN)
            .meta("f64", 0.1f64),
    );
    let expected = [
        ("u8", Value::U8(200)),
        ("i8", Value::I8(-100)),
        ("u16", Value::U16(60_000)),
        ("i16", Value::I16(-30_000)),
        ("u32", Value::U32(4_000_000_000)),
        ("i32", Value::I32(-2_000_000_000)),
        ("f32", Value::F32(0.1)),
        ("false", Value::Bool(false)),
        ("true", Value::Bool(true)),
        ("string", Value::String("an owl 🦉".as_bytes())),
        ("u64", Value::U64(u64::MAX)),
        ("i64", Value::I64(i64::MIN)),
        ("f64", Value::F64(0.1)),
    ];
    assert_eq!(gguf.metadata().collect::<Vec<_>>(), expected, "in file order");
    for (key, value) in expected {
        assert_eq!(gguf.get(key), Some(value));
    }
    assert_eq!(gguf.get("none"), None);
}

#[test]
fn an_array_of_every_type() {
    let gguf = open(
        GgufWriter::new()
            .meta("u8", [1u8, 2])
            .meta("i8", [1i8, -2])
            .meta("u16", [1u16, 2])
            .meta("i16", [1i16, -2])
            .meta("u32", [1u32, 2])
            .meta("i32", [1i32, -2])
            .meta("f32", [1f32, -2.5])
            .meta("bool", [true, false])
            .meta("string", ["", "two"])
            .meta("u64", [1u64, 2])
            .meta("i64", [1i64, -2])
            .meta("f64", [1f64, -2.5])
            .meta("none", Meta::Array(8, Vec::new())),
    );
    let elements = |key: &str| match gguf.get(key) {
        Some(Value::Array(array)) => array.iter().collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(elements("u8"), [Value::U8(1), Value::U8(2)]);
    assert_eq!(elements("i8"), [Value::I8(1), Value::I8(-2)]);
    assert_eq!(elements("u16"), [Value::U16(1), Value::U16(2)]);
    assert_eq!(elements("i16"), [Value::I16(1), Value::I16(-2)]);
    assert_eq!(elements("u32"), [Value::U32(1), Value::U32(2)]);
    assert_eq!(elements("i32"), [Value::I32(1), Value::I32(-2)]);
    assert_eq!(elements("f32"), [Value::F32(1.0), Value::F32(-2.5)]);
    assert_eq!(elements("bool"), [Value::Bool(true), Value::Bool(false)]);
    assert_eq!(elements("string"), [Value::String(b""), Value::String(b"two")]);
    assert_eq!(elements("u64"), [Value::U64(1), Value::U64(2)]);
    assert_eq!(elements("i64"), [Value::I64(1), Value::I64(-2)]);
    assert_eq!(elements("f64"), [Value::F64(1.0), Value::F64(-2.5)]);
    assert_eq!(elements("none"), []);
    assert_eq!(gguf.strings("none").unwrap(), [""; 0]);
}

#[test]
fn arrays_of_arrays() {
    let rows = vec![Meta::from([1u32, 2]), Meta::from([3u32; 0]), Meta::from([4u32])];
    let gguf = open(with_value(Meta::Array(9, rows)).meta("after", 5u8));
    let Some(Value::Array(outer)) = gguf.get("k") else { panic!() };
    assert_eq!((outer.len(), outer.element_type(), outer.is_empty()), (3, ValueType::Array, false));
    let row = |row| if let Value::Array(row) = row { row.iter().collect() } else { panic!() };
    let rows: Vec<Vec<Value>> = outer.iter().map(row).collect();
    assert_eq!(rows, [vec![Value::U32(1), Value::U32(2)], vec![], vec![Value::U32(4)]]);
    assert_eq!(gguf.u32("after").unwrap(), 5);
}

#[test]
fn tensors_in_file_order_with_their_bytes() {
    let gguf = open(GgufWriter::new().tensor("b", &[32, 2], Q4_0, &[1; 36]).tensor("a", &[3], F32, &[2; 12]).tensor(
        "c",
        &[2, 1, 2, 2],
        24,
        &[3; 8],
    ));
    let names: Vec<&str> = gguf.tensors().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["b", "a", "c"]);
    assert_eq!(gguf.read_all(gguf.tensor("b").unwrap()).unwrap(), [1; 36]);
    assert_eq!(gguf.read_all(gguf.tensor("a").unwrap()).unwrap(), [2; 12]);
    let c = gguf.tensor("c").unwrap();
    assert_eq!((gguf.read_all(c).unwrap(), c.ty.name, c.bytes), (vec![3; 8], "i8", 8));
    assert_eq!(c.shape().to_string(), "{2, 1, 2, 2}");
    assert!(gguf.tensor("d").is_none());
}

#[test]
fn alignments() {
    for alignment in [8, 32, 64, 4096, 1 << 20] {
        let writer = GgufWriter::new().alignment(alignment);
        let gguf = open(writer.tensor("a", &[3], F32, &[1; 12]).tensor("b", &[1], F32, &[2; 4]));
        assert_eq!(gguf.alignment(), alignment);
        let [a, b] = ["a", "b"].map(|name| gguf.tensor(name).unwrap());
        assert_eq!((a.offset % alignment, b.offset - a.offset), (0, 12usize.next_multiple_of(alignment)));
        assert_eq!([a, b].map(|tensor| gguf.read_all(tensor).unwrap()), [vec![1; 12], vec![2; 4]]);
    }
    assert_eq!(open(GgufWriter::new()).alignment(), 32);
}

#[test]
fn gaps_and_any_order_of_data() {
    let writer = GgufWriter::new().tensor("a", &[1], F32, &[1; 4]).offset(64);
    let gguf = open(writer.tensor("b", &[1], F32, &[2; 4]).tensor("c", &[1], F32, &[3; 4]).offset(0));
    let first_bytes = ["c", "b", "a"].map(|name| gguf.read_all(gguf.tensor(name).unwrap()).unwrap()[0]);
    assert_eq!(first_bytes, [1, 2, 3]);
}

#[test]
fn clones_are_read_on_any_thread() {
    let gguf = open(with_tensor(&[4], F32, 16));
    let clone = gguf.clone();
    let there = std::thread::spawn(move || clone.read_all(clone.tensor("w").unwrap()).unwrap());
    assert_eq!(there.join().unwrap(), gguf.read_all(gguf.tensor("w").unwrap()).unwrap());
}

/// The largest allowed number of names. A reader that compared every name with all others would take a hundred times as
/// long as one that looks them up, which would be noticed.
#[test]
fn a_header_of_many_names_is_read_in_one_go() {
    let (keys, tensors) = (1 << 12, 1 << 16);
    let writer = (0..keys).fold(GgufWriter::new(), |writer, i| writer.meta(&format!("key.{i}"), i));
    let writer = (0..tensors).fold(writer, |writer, i| writer.tensor(&format!("tensor.{i}"), &[1], F32, &[0; 4]));
    let bytes = writer.finish();
    let begin = std::time::Instant::now();
    let gguf = Gguf::from_vec(bytes).unwrap();
    println!("{:?}", begin.elapsed());
    assert_eq!(gguf.u32(&format!("key.{}", keys - 1)).unwrap(), keys - 1);
    assert_eq!(gguf.tensors().len(), tensors);
}
