//! Changes GGUF files at random. No bytes may cause a panic, a slice out of bounds, or an allocation that a field of
//! the file requests without bytes to fill it.

use std::ops::Range;
use std::sync::LazyLock;

use proptest::prelude::*;
use wglm::Gguf;
use wglm_engine::gguf::{Array, Value};

use crate::common::gguf_writer::{GgufWriter, Meta};
use crate::watched::largest_allocation;

/// A file with every kind of content.
static SMALL: LazyLock<Vec<u8>> = LazyLock::new(|| {
    GgufWriter::new()
        .alignment(32)
        .meta("u8", 1u8)
        .meta("i64", -1i64)
        .meta("f64", 0.5f64)
        .meta("bool", true)
        .meta("text", "some text")
        .meta("tokens", ["a", "bc", "def"])
        .meta("layers", [1u32, 1, 1])
        .meta("flags", [true, false])
        .meta("nested", Meta::Array(9, vec![[1u16, 2].into(), ["x", "y"].into()]))
        .tensor("q", &[32, 2], 2, &[1; 36])
        .tensor("f", &[3, 2, 1], 0, &[2; 24])
        .tensor("k", &[256], 14, &[3; 210])
        .finish()
});

static DEMO: LazyLock<Vec<u8>> =
    LazyLock::new(|| std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/models/fable-10m-q4_0.gguf")).unwrap());

/// The positions of the demonstration model's structure, without the text of its vocabulary.
const DEMO_STRUCTURE: [Range<usize>; 4] = [0..1600, 31_000..31_200, 39_300..39_500, 51_200..60_192];

fn demo_structure() -> impl Strategy<Value = usize> + Clone {
    prop::sample::select(DEMO_STRUCTURE.to_vec()).prop_flat_map(|range| range)
}

/// A change to a file.
#[derive(Debug, Clone)]
pub enum Change {
    Flip(usize, u8),
    Insert(usize, u8),
    Delete(usize, usize),
    Overwrite(usize, Vec<u8>),
    Truncate(usize),
}

impl Change {
    pub fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Flip(at, bit) => {
                if let Some(byte) = bytes.get_mut(*at) {
                    *byte ^= 1 << bit;
                }
            }
            Self::Insert(at, byte) => bytes.insert((*at).min(bytes.len()), *byte),
            Self::Delete(at, count) => {
                let from = (*at).min(bytes.len());
                bytes.drain(from..(from + count).min(bytes.len()));
            }
            Self::Overwrite(at, with) => {
                for (byte, new) in bytes.iter_mut().skip(*at).zip(with) {
                    *byte = *new;
                }
            }
            Self::Truncate(length) => bytes.truncate(*length),
        }
    }
}

/// Extreme values of fields of 1, 4 or 8 bytes.
fn extreme() -> impl Strategy<Value = Vec<u8>> {
    let numbers = [0, 1, 2, 5, 8, 9, 13, 31, 32, 255, 1 << 16, i32::MAX as u64, u32::MAX.into(), 1 << 32, 1 << 40];
    let larger = [1 << 61, 1 << 62, i64::MAX as u64, 1 << 63, u64::MAX - 31, u64::MAX];
    let numbers = [&numbers[..], &larger].concat();
    let width = prop::sample::select(vec![1, 4, 8]);
    (prop::sample::select(numbers), width).prop_map(|(number, width)| u64::to_le_bytes(number)[..width].to_vec())
}

pub fn change(at: impl Strategy<Value = usize> + Clone) -> impl Strategy<Value = Change> {
    prop_oneof![
        2 => (at.clone(), 0u8..8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        1 => (at.clone(), any::<u8>()).prop_map(|(at, byte)| Change::Insert(at, byte)),
        1 => (at.clone(), 1usize..16).prop_map(|(at, count)| Change::Delete(at, count)),
        5 => (at.clone(), extreme()).prop_map(|(at, with)| Change::Overwrite(at, with)),
        1 => at.prop_map(Change::Truncate),
    ]
}

/// Reads everything that a file offers.
fn use_all_of(gguf: &Gguf) {
    for (key, value) in gguf.metadata() {
        use_value(value);
        use_getters(gguf, key);
    }
    for tensor in gguf.tensors() {
        let [mut first, mut last] = [[0]; 2];
        gguf.read(tensor, 0, &mut first).unwrap();
        gguf.read(tensor, tensor.bytes - 1, &mut last).unwrap();
        assert!(
            (tensor.offset + tensor.bytes) as u64 <= gguf.file_bytes()
                && tensor.offset.is_multiple_of(gguf.alignment())
        );
        assert_eq!(gguf.require(&tensor.name, &tensor.dims).unwrap().offset, tensor.offset);
        std::hint::black_box((first, last));
    }
}

fn use_value(value: Value<'_>) {
    assert!(value.to_string().len() < 1000);
    if let Value::Array(array) = value {
        use_array(array);
    }
}

fn use_array(array: Array<'_>) {
    assert_eq!(array.iter().count(), array.len());
    array.iter().for_each(use_value);
}

fn use_getters(gguf: &Gguf, key: &str) {
    let _ = (gguf.u32(key), gguf.u64(key), gguf.f32(key), gguf.bool(key), gguf.string(key));
    let _ = (gguf.strings(key), gguf.u32s(key), gguf.i32s(key), gguf.f32s(key));
}

/// Opens changed bytes, and returns whether that succeeded.
fn open_changed(original: &[u8], changes: &[Change], allowed: usize) -> bool {
    let mut bytes = original.to_vec();
    changes.iter().for_each(|change| change.apply(&mut bytes));
    let (opened, largest) = largest_allocation(|| {
        let opened = Gguf::from_vec(bytes);
        match &opened {
            Ok(gguf) => use_all_of(gguf),
            Err(error) => assert!(error.to_string().len() < 1000),
        }
        opened.is_ok()
    });
    assert!(largest <= allowed, "allocated {largest} bytes at once");
    opened
}

#[test]
fn the_files_are_sound_unchanged() {
    assert!(open_changed(&SMALL, &[], 16 << 10) && open_changed(&DEMO, &[], 256 << 10));
}

/// Flips every bit of the small file, and sets every byte to extreme values.
#[test]
fn every_byte_at_its_extremes() {
    let extremes: [&[u8]; 6] =
        [&[0; 8], &[0xff; 8], &[0xff; 4], &[0xff], &[0, 0, 0, 0, 0, 0, 0, 0x80], &[0, 0, 0, 0, 1]];
    for at in 0..SMALL.len() {
        for with in extremes {
            open_changed(&SMALL, &[Change::Overwrite(at, with.to_vec())], 16 << 10);
        }
        for bit in 0..8 {
            open_changed(&SMALL, &[Change::Flip(at, bit)], 16 << 10);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16_384, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_small_file_changed(changes in prop::collection::vec(change(0..SMALL.len()), 1..4)) {
        open_changed(&SMALL, &changes, 16 << 10);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_demonstration_model_changed(
        changes in prop::collection::vec(change(demo_structure()), 1..4)
    ) {
        open_changed(&DEMO, &changes, 256 << 10);
    }
}
