//! Tests the weight formats: compares decoding with GGML's own Python package, and the GPU layout with a second reader
//! that was written from its description, and checks the random weights.
use half::f16;
use serde_json::Value;
use wglm::Error;
use wglm_engine::quant::{GROUP, QUANTS, Quant, by_id, by_name};

fn fixture(file: &str) -> Vec<u8> {
    let path = format!("{}/tests/fixtures/quant/{file}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Whether two values are equal bit for bit. Any NaN equals any other, since their payloads do not matter.
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

#[track_caller]
fn assert_same(quant: &Quant, got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len(), "{quant:?}");
    for (i, (&got, &want)) in got.iter().zip(want).enumerate() {
        assert!(same(got, want), "{quant:?}: value {i} is {got}, expected {want}");
    }
}

fn decode(quant: &Quant, bytes: &[u8], values: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; values];
    quant.decode(bytes, &mut out).unwrap();
    out
}

/// Rows in the GPU layout, one array per stream, repacked into buffers that were not zero.
fn repack(quant: &Quant, rows: &[u8], cols: usize) -> Vec<Vec<u8>> {
    let blocks = rows.len() / quant.row_bytes(cols).unwrap() * quant.blocks(cols);
    let mut streams: Vec<_> = (0..quant.streams.len()).map(|i| vec![0xa5; quant.stream_bytes(i, blocks)]).collect();
    assert_eq!(streams.iter().map(Vec::len).sum::<usize>(), quant.gpu_bytes(blocks));
    quant.repack(rows, cols, &mut streams.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>()).unwrap();
    streams
}

#[test]
fn sizes_equal_ggmls() {
    let sizes: Value = serde_json::from_slice(&fixture("sizes.json")).unwrap();
    assert_eq!(sizes.as_object().unwrap().len(), QUANTS.len());
    for quant in QUANTS {
        let size = |key: &str| sizes[quant.name][key].as_u64().unwrap() as usize;
        assert_eq!(quant.id as usize, size("id"), "{quant:?}");
        // A block of a float format is one value in GGML, and a group here.
        assert_eq!(quant.values % size("values"), 0, "{quant:?}");
        assert_eq!(quant.ragged, size("values") == 1, "{quant:?}");
        assert_eq!(quant.bytes, quant.values / size("values") * size("bytes"), "{quant:?}");
        assert!(quant.ragged || quant.values == size("values"), "{quant:?}");
    }
}

#[test]
fn registry_finds_each_format_once() {
    assert!(QUANTS.is_sorted_by_key(|quant| quant.id));
    for quant in QUANTS {
        assert!(std::ptr::eq(by_id(quant.id).unwrap(), *quant));
        assert!(std::ptr::eq(by_name(quant.name).unwrap(), *quant));
        assert_eq!(quant.fragment.path, format!("quant/{}.wgsl", quant.name));
        assert_eq!(quant.values % GROUP, 0);
    }
    assert!(by_id(4).is_none(), "Q4_2 left GGML long ago");
    assert!(by_name("Q4_0").is_none(), "names are in lower case");
}

/// The results are equal bit for bit, since both sides do the same few operations in the same order, each rounded once
/// to f32.
#[test]
fn decode_equals_ggml() {
    for quant in QUANTS {
        let bytes = fixture(&format!("{}.bin", quant.name));
        let want = fixture(&format!("{}.f32", quant.name));
        let want: Vec<_> = want.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
        assert_same(quant, &decode(quant, &bytes, want.len()), &want);
    }
}

#[test]
fn repacked_rows_decode_to_the_same() {
    for quant in QUANTS {
        let (rows, cols) = (3, 512);
        let bytes = quant.sample(rows * cols, quant.id.into());
        let want = decode(quant, &bytes, rows * cols);
        let streams = repack(quant, &bytes, cols);
        let got: Vec<_> = (0..rows * cols).map(|i| Reader { quant, streams: &streams }.value(i)).collect();
        assert_same(quant, &got, &want);
    }
}

#[test]
fn repack_pads_ragged_rows_with_zeros() {
    for quant in QUANTS.iter().filter(|quant| quant.ragged) {
        for cols in [1, 5, 31, 32, 33, 70] {
            let rows = 3;
            let bytes = quant.sample(rows * cols, cols as u64);
            let values = decode(quant, &bytes, rows * cols);
            let streams = repack(quant, &bytes, cols);
            let padded = quant.groups(cols) * GROUP;
            assert_eq!(padded, quant.blocks(cols) * quant.values);
            for (row, values) in values.chunks(cols).enumerate() {
                let mut want = values.to_vec();
                want.resize(padded, 0.0);
                let got = (0..padded).map(|i| Reader { quant, streams: &streams }.value(row * padded + i));
                assert_same(quant, &got.collect::<Vec<_>>(), &want);
            }
        }
    }
}

#[test]
fn sample_is_finite_and_spread() {
    for quant in QUANTS {
        let values = 64 * 1024;
        let bytes = quant.sample(values, 1);
        assert_eq!(bytes.len(), quant.row_bytes(values).unwrap());
        assert_eq!(bytes, quant.sample(values, 1));
        assert_ne!(bytes, quant.sample(values, 2));

        let decoded = decode(quant, &bytes, values);
        let moment = |power| decoded.iter().map(|&w| f64::from(w).powi(power)).sum::<f64>() / values as f64;
        let (mean, deviation) = (moment(1), moment(2).sqrt());
        // A spread that is uniform over 0.25 to 0.75 has a root mean square of 0.52.
        assert!(mean.abs() < 0.02 && (0.48..0.56).contains(&deviation), "{quant:?}: {mean} ± {deviation}");
        let negative = decoded.iter().filter(|w| **w < 0.0).count() as f64 / values as f64;
        assert!((0.4..0.6).contains(&negative), "{quant:?}: {negative} negative");
    }
}

/// Over many blocks every bit of the GPU layout takes both values, except for some that keep floats finite: up to six
/// bits of each f16 scale (a block has two at most), or of each value of a float format.
#[test]
fn sample_moves_every_bit_of_the_quants() {
    for quant in QUANTS {
        let rows = quant.sample(256 * quant.values, 1);
        for (stream, bytes) in quant.streams.iter().zip(repack(quant, &rows, quant.values)) {
            let moved = |i| bytes.chunks_exact(stream.bytes).fold(0, |seen, block| seen | (block[i] ^ bytes[i]));
            let constant: u32 = (0..stream.bytes).map(|i| moved(i).count_zeros()).sum();
            let allowed = match stream.name {
                "scales" | "supers" => 2 * 6,
                _ if quant.ragged => 32 * 6,
                _ => 0,
            };
            assert!(constant <= allowed, "{quant:?}: {constant} bits of {} never change", stream.name);
        }
    }
}

#[test]
fn sample_rounds_up_to_whole_blocks() {
    for quant in QUANTS {
        let bytes = quant.sample(33, 0);
        let want = if quant.ragged { quant.row_bytes(33).unwrap() } else { quant.bytes * quant.blocks(33) };
        assert_eq!(bytes.len(), want, "{quant:?}");
    }
}

#[test]
fn impossible_rows_have_no_size() {
    for quant in QUANTS {
        assert_eq!(quant.row_bytes(0), None, "{quant:?}");
        assert_eq!(quant.row_bytes(usize::MAX), None, "{quant:?}");
        assert_eq!(quant.row_bytes(33).is_some(), quant.ragged, "{quant:?}");
        assert_eq!(quant.row_bytes(512), Some(512 / quant.values * quant.bytes), "{quant:?}");
    }
}

#[test]
fn wrong_lengths_are_errors() {
    #[track_caller]
    fn refused(result: Result<(), Error>) {
        assert!(matches!(result, Err(Error::Argument { .. })), "{result:?}");
    }
    for quant in QUANTS {
        let bytes = quant.sample(512, 0);
        let mut values = [0.0; 512];
        refused(quant.decode(&bytes, &mut values[1..]));
        refused(quant.decode(&bytes[1..], &mut values));
        refused(quant.decode(&[], &mut []));

        let mut streams: Vec<_> = (0..quant.streams.len()).map(|i| vec![0; quant.stream_bytes(i, 1024)]).collect();
        let blocks = quant.blocks(512);
        let mut out: Vec<_> =
            streams.iter_mut().enumerate().map(|(i, s)| &mut s[..quant.stream_bytes(i, blocks)]).collect();
        quant.repack(&bytes, 512, &mut out).unwrap();
        refused(quant.repack(&bytes, 0, &mut out));
        refused(quant.repack(&bytes[1..], 512, &mut out));
        refused(quant.repack(&bytes, 512, &mut []));
        let last = out.pop().unwrap();
        let shorter = last.len() - 1;
        out.push(&mut last[..shorter]);
        refused(quant.repack(&bytes, 512, &mut out));
    }
}

/// Reads single values from the GPU layout, by its description in `wglm_engine::quant` only: the arithmetic of the
/// formats written a second time, value by value.
struct Reader<'a> {
    quant: &'a Quant,
    streams: &'a [Vec<u8>],
}

impl Reader<'_> {
    /// The bytes of value or block `index` in a stream whose items have `bytes` bytes each.
    fn read<const BYTES: usize>(&self, stream: &str, index: usize) -> [u8; BYTES] {
        let at = self.quant.streams.iter().position(|s| s.name == stream).unwrap();
        self.streams[at].as_chunks().0[index]
    }

    fn nibble(&self, i: usize) -> i32 {
        let group: [u8; 16] = self.read("nibbles", i / 32);
        let (byte, high) = (i % 16, i % 32 >= 16);
        (if high { group[byte] / 16 } else { group[byte] % 16 }).into()
    }

    fn bit(&self, i: usize) -> i32 {
        let group: [u8; 4] = self.read("bits", i / 32);
        (group[i % 4] >> (i % 32 / 4) & 1).into()
    }

    fn crumb(&self, i: usize) -> i32 {
        let group = u64::from_le_bytes(self.read("crumbs", i / 32));
        let (byte, place) = (i % 8, i % 32 / 8);
        (group >> (8 * byte + 2 * place) & 3) as i32
    }

    /// Bit `bit` of word `word` of the planes of the group of value `i`: bit `word` of a 4-bit value.
    fn planes(&self, i: usize) -> i32 {
        let words: [u8; 16] = self.read("planes", i / 32);
        let (word, byte) = (i % 32 / 4, i % 4);
        (0..4).map(|bit| i32::from(words[4 * bit + byte] >> word & 1) << bit).sum()
    }

    /// The low bits of the quant of value `i`, which stands for eight, and the signs of its group.
    fn words(&self, i: usize) -> (usize, u32) {
        let words: [u8; 8] = self.read("words", i / 32);
        (words[i % 32 / 8].into(), u32::from_le_bytes(*words.last_chunk().unwrap()))
    }

    /// The low bits of the quant of value `i`, which stands for four.
    fn entry(&self, i: usize) -> usize {
        self.read::<1>("entries", i / 4)[0].into()
    }

    fn signs(&self, i: usize) -> u32 {
        u32::from_le_bytes(self.read("signs", i / 32))
    }

    fn of_eights(&self, first: usize, entry: usize, i: usize) -> f32 {
        f32::from(self.quant.grid().unwrap().buffer.bytes()[8 * (first + entry) + i % 8]) - 64.0
    }

    fn of_fours(&self, first: usize, entry: usize, i: usize) -> f32 {
        self.quant.grid().unwrap().buffer.bytes()[4 * (first + entry) + i % 4].into()
    }

    fn half(&self, stream: &str, index: usize) -> f32 {
        f16::from_le_bytes(self.read(stream, index)).to_f32()
    }

    /// Scale and minimum of value `i` in Q4_K and Q5_K: GGML's `get_scale_min_k4`.
    fn scale_min(&self, i: usize) -> (f32, f32) {
        let (j, scales) = (i % 256 / 32, self.read::<16>("scales", i / 256));
        let (d, dmin) = (self.half("scales", i / 256 * 8), self.half("scales", i / 256 * 8 + 1));
        let q = &scales[4..];
        let (scale, min) = match j {
            0..4 => (q[j] & 63, q[j + 4] & 63),
            _ => (q[j + 4] & 0xf | (q[j - 4] >> 6) << 4, q[j + 4] >> 4 | (q[j] >> 6) << 4),
        };
        (d * f32::from(scale), dmin * f32::from(min))
    }

    /// Where the byte of scales of value `i` is: of two groups, the bytes of the first halves precede the second's.
    fn two_by_two(i: usize) -> usize {
        let (groups, group, half) = (i / 64, i / 32 % 2, i / 16 % 2);
        4 * groups + 2 * half + group
    }

    /// The value with index `i`, counted from the first value of the first row, padding included.
    fn value(&self, i: usize) -> f32 {
        let scale_i8 = |at| f32::from(i8::from_le_bytes(self.read("scales", at)));
        let affine = |(d, min): (f32, f32), q: i32| d * q as f32 - min;
        match self.quant.name {
            "f32" => f32::from_le_bytes(self.read("values", i)),
            "f16" => self.half("values", i),
            "bf16" => f32::from_bits(u32::from(u16::from_le_bytes(self.read("values", i))) << 16),
            "q4_0" => self.half("scales", i / 32) * (self.nibble(i) - 8) as f32,
            "q4_1" => self.half("scales", i / 32 * 2) * self.nibble(i) as f32 + self.half("scales", i / 32 * 2 + 1),
            "q5_0" => self.half("scales", i / 32) * (self.nibble(i) + 16 * self.bit(i) - 16) as f32,
            "q5_1" => {
                let q = self.nibble(i) + 16 * self.bit(i);
                self.half("scales", i / 32 * 2) * q as f32 + self.half("scales", i / 32 * 2 + 1)
            }
            "q8_0" => self.half("scales", i / 32) * f32::from(i8::from_le_bytes(self.read("values", i))),
            "q2_k" => {
                let [scale] = self.read("scales", Self::two_by_two(i));
                let (d, dmin) = (self.half("supers", i / 256 * 2), self.half("supers", i / 256 * 2 + 1));
                affine((d * f32::from(scale % 16), dmin * f32::from(scale / 16)), self.crumb(i))
            }
            "q3_k" => {
                self.half("supers", i / 256)
                    * scale_i8(Self::two_by_two(i))
                    * (self.crumb(i) + 4 * self.bit(i) - 4) as f32
            }
            "q4_k" => affine(self.scale_min(i), self.nibble(i)),
            "q5_k" => affine(self.scale_min(i), self.nibble(i) + 16 * self.bit(i)),
            "q6_k" => {
                self.half("supers", i / 256) * scale_i8(i / 16) * (self.nibble(i) + 16 * self.crumb(i) - 32) as f32
            }
            "iq2_xxs" | "iq3_xxs" => {
                let eights = self.quant.name == "iq2_xxs";
                let (entry, signs) = if eights { self.words(i) } else { (self.entry(i), self.signs(i)) };
                let scale = (0..4).map(|bit| (signs >> (25 + 2 * bit) & 1) << bit).sum::<u32>() as f32 + 0.5;
                let scale = self.half("supers", i / 256) * scale * if eights { 0.25 } else { 0.5 };
                let magnitude = if eights { self.of_eights(0, entry, i) } else { self.of_fours(0, entry, i) - 64.0 };
                if negative(odd_signs(signs), i) { -scale * magnitude } else { scale * magnitude }
            }
            "iq2_xs" | "iq2_s" => {
                let ((low, signs), eight) = (self.words(i), i % 32 / 8);
                let (fours, group) = (i / 128, i / 32 % 4);
                let (first, high, signs, scales) = match self.quant.name {
                    "iq2_s" => {
                        let [high, scales] = [0, 1].map(|word| self.read::<4>("scales", 2 * fours + word)[group]);
                        (768, usize::from(high >> (2 * eight) & 3), signs, scales)
                    }
                    _ => {
                        let scales = self.read::<4>("scales", fours)[group];
                        (256, (signs >> (25 + 2 * eight) & 1) as usize, odd_signs(signs), scales)
                    }
                };
                let scale = f32::from(scales >> (i % 32 / 16 * 4) & 15) + 0.5;
                let scale = self.half("supers", i / 256) * scale * 0.25;
                let magnitude = self.of_eights(first, low + 256 * high, i);
                if negative(signs, i) { -scale * magnitude } else { scale * magnitude }
            }
            "iq3_s" => {
                let scales: [u8; 12] = self.read("scales", i / 256);
                let group = i % 256 / 32;
                let entry = self.entry(i) + 256 * usize::from(scales[group] >> (i % 32 / 4) & 1);
                let scale = f32::from(1 + 2 * (scales[8 + group / 2] >> (group % 2 * 4) & 15));
                let magnitude = 2.0 * self.of_fours(256, entry, i) - 15.0;
                let scale = self.half("supers", i / 256) * scale;
                if negative(self.signs(i), i) { -scale * magnitude } else { scale * magnitude }
            }
            "iq4_nl" => self.half("scales", i / 32) * uneven(self.planes(i)),
            "iq4_xs" => {
                let scales: [u8; 8] = self.read("scales", i / 256);
                let (group, high) = (i % 256 / 32, u16::from_le_bytes([scales[2], scales[3]]));
                let low = u32::from_le_bytes(*scales.last_chunk().unwrap()) >> (4 * group) & 15;
                let scale = low as i32 + i32::from(high >> (2 * group) & 3) * 16 - 32;
                self.half("scales", i / 256 * 4) * scale as f32 * uneven(self.planes(i))
            }
            "mxfp4" => {
                // The sign bit, two bits of exponent, one of mantissa.
                let (q, [e]) = (self.planes(i), self.read("scales", i / 32));
                let magnitude = match q >> 1 & 3 {
                    0 => f64::from(q & 1) / 2.0,
                    exponent => f64::from(2 + (q & 1)) / 2.0 * f64::from(exponent - 1).exp2(),
                };
                let value = magnitude * (f64::from(e) - 127.0).exp2();
                if q >= 8 && value != 0.0 { -value as f32 } else { value as f32 }
            }
            other => panic!("no reader for {other}"),
        }
    }
}

/// Whether the signs of a group say that value `i` is negative.
fn negative(signs: u32, i: usize) -> bool {
    signs >> (i % 4 * 8 + i % 32 / 4) & 1 == 1
}

/// Signs of a group with the eighth of every eight, which makes the number of negative values even.
fn odd_signs(signs: u32) -> u32 {
    (0..4).fold(signs, |signs, eight| {
        let odd = (8 * eight..8 * eight + 7).filter(|i| negative(signs, *i)).count() % 2;
        signs & !(1 << (25 + 2 * eight)) | (odd as u32) << (25 + 2 * eight)
    })
}

/// The table of IQ4_NL and IQ4_XS.
fn uneven(q: i32) -> f32 {
    [-127., -104., -83., -65., -49., -35., -22., -10., 1., 13., 25., 38., 53., 69., 89., 113.][q as usize]
}

/// Tests which formats may be used in place: repacking leaves their bytes unchanged, and changes those of all others.
#[test]
fn formats_that_repacking_does_not_change() {
    for quant in QUANTS {
        let (rows, cols) = (3, 2 * quant.values.max(32));
        let file = quant.sample(rows * cols, 5);
        let mut streams: Vec<Vec<u8>> =
            (0..quant.streams.len()).map(|i| vec![0; quant.stream_bytes(i, rows * quant.blocks(cols))]).collect();
        let mut parts: Vec<&mut [u8]> = streams.iter_mut().map(Vec::as_mut_slice).collect();
        quant.repack(&file, cols, &mut parts).unwrap();
        let same = streams.len() == 1 && streams[0] == file;
        assert_eq!(same, quant.same_on_gpu(cols), "{}", quant.name);
        assert!(!quant.same_on_gpu(cols + 1) && !quant.same_on_gpu(0), "{}: padded", quant.name);
    }
    let same: Vec<&str> = QUANTS.iter().filter(|q| q.same_on_gpu(256)).map(|q| q.name).collect();
    assert_eq!(same, ["f32", "f16", "bf16"]);
}
