//! Quants of fewer than eight bits, and 6-bit scales: how GGML packs them, and how they are regrouped for the GPU.
//!
//! Blocks of 32 values store them as the GPU layout does. Superblocks store them in *planes*: in a run of 32 bytes,
//! byte *i* holds value *i* of several groups, of two as nibbles, four as crumbs or eight as bits, the first group in
//! the lowest bits. Reading one group would mean reading the whole run, so repacking collects the quants of each group
//! in bytes of their own, in the arrangements described in [`super`].

use bytemuck::{Pod, Zeroable};

use super::GROUP;
use super::block::Half;

/// Nibble `i` of a group in the arrangement `nibbles`.
pub fn nibble(nibbles: &[u8; 16], i: usize) -> u8 {
    nibbles[i % 16] >> (i / 16 * 4) & 15
}

/// Bit `i` of a group whose bits are in order, as in files.
pub fn bit(bits: &[u8; 4], i: usize) -> u8 {
    bits[i / 8] >> (i % 8) & 1
}

/// Quant `i` of a superblock with `BITS` bits for each value in planes.
pub fn plane<const BITS: usize>(planes: &[u8], i: usize) -> u8 {
    let (group, i) = (i / GROUP, i % GROUP);
    let groups_per_run = 8 / BITS;
    let byte = planes[group / groups_per_run * GROUP + i];
    byte >> (group % groups_per_run * BITS) & ((1 << BITS) - 1)
}

/// Regroups eight groups from planes of nibbles.
pub fn nibbles(planes: &[u8; 128]) -> [[u8; 16]; 8] {
    gather::<4, 16>(planes)
}

/// Regroups eight groups from planes of crumbs.
pub fn crumbs(planes: &[u8; 64]) -> [[u8; 8]; 8] {
    gather::<2, 8>(planes)
}

/// Byte *i* of a group gets its values *i*, *i* + `BYTES`, … with the first in the lowest bits. The innermost loop runs
/// over neighbouring bytes so that it becomes vector instructions, on which the speed of loading depends.
#[inline(always)]
fn gather<const BITS: usize, const BYTES: usize>(planes: &[u8]) -> [[u8; BYTES]; 8] {
    let mut groups = [[0; BYTES]; 8];
    for (run, groups) in planes.chunks_exact(GROUP).zip(groups.chunks_exact_mut(8 / BITS)) {
        for (plane, group) in groups.iter_mut().enumerate() {
            for (k, bytes) in run.chunks_exact(BYTES).enumerate() {
                for (to, from) in group.iter_mut().zip(bytes) {
                    *to |= (from >> (plane * BITS) & ((1 << BITS) - 1)) << (k * BITS);
                }
            }
        }
    }
    groups
}

/// The arrangement `bits` of a group whose bits are in order: bit *i* of byte *e* becomes that of value 8 *e* + *i*.
pub fn bits_of_words(in_order: [u8; 4]) -> u32 {
    // The product makes four copies of a nibble seven bits apart, which puts its bit j at bit 8j.
    let spread = |nibble: u8| (u32::from(nibble) * 0x0020_4081) & 0x0101_0101;
    (0..4).fold(0, |word, e| word | spread(in_order[e] & 15) << (2 * e) | spread(in_order[e] >> 4) << (2 * e + 1))
}

/// Regroups eight groups from planes of bits: transposes, for each *c*, the eight bytes of values 4 *j* + *c*.
pub fn bits(planes: &[u8; 32]) -> [[u8; 4]; 8] {
    let mut groups = [[0; 4]; 8];
    for c in 0..4 {
        for (group, byte) in groups.iter_mut().zip(transpose(std::array::from_fn(|j| planes[4 * j + c]))) {
            group[c] = byte;
        }
    }
    groups
}

/// Arranges the two bytes of each of eight groups *two by two*: for each pair of groups the first byte of both, then
/// the second byte of both.
pub fn two_by_two<T: Copy>(bytes: [T; 16]) -> [T; 16] {
    std::array::from_fn(|i| bytes[i / 4 * 4 + [0, 2, 1, 3][i % 4]])
}

/// Bit *j* of byte *i* becomes bit *i* of byte *j*: exchanges off-diagonal squares of 1, 2 and 4 bits
/// (Warren, Hacker's Delight, 7-3).
fn transpose(bytes: [u8; 8]) -> [u8; 8] {
    let exchanges = [(7, 0x00aa_00aa_00aa_00aa), (14, 0x0000_cccc_0000_cccc), (28, 0x0000_0000_f0f0_f0f0)];
    let exchange = |x: u64, (shift, squares): (u32, u64)| {
        let differing = (x ^ x >> shift) & squares;
        x ^ differing ^ differing << shift
    };
    exchanges.into_iter().fold(u64::from_le_bytes(bytes), exchange).to_le_bytes()
}

/// The four planes of a group: bit 8 *c* + *j* of plane *k* is bit *k* of the nibble of value 4 *j* + *c*. Word *m* of
/// the nibbles holds values 4 *m* to 4 *m* + 3 in the low halves and those 16 later in the high halves, so only squares
/// of 2 bits and of 1 bit remain to be exchanged.
pub fn bit_planes(nibbles: &[u8; 16]) -> [u8; 16] {
    let exchange = |(a, b): (u32, u32), shift: u32, mask: u32| {
        (a & mask | (b & mask) << shift, a >> shift & mask | b & mask << shift)
    };
    let [w0, w1, w2, w3] = std::array::from_fn(|m| u32::from_le_bytes(std::array::from_fn(|c| nibbles[4 * m + c])));
    let ((a0, a2), (a1, a3)) = (exchange((w0, w2), 2, 0x3333_3333), exchange((w1, w3), 2, 0x3333_3333));
    let ((p0, p1), (p2, p3)) = (exchange((a0, a1), 1, 0x5555_5555), exchange((a2, a3), 1, 0x5555_5555));
    let planes = [p0, p1, p2, p3].map(u32::to_le_bytes);
    std::array::from_fn(|i| planes[i / 4][i % 4])
}

/// The factor and the offset of each group of a Q4_K or Q5_K superblock.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct GroupScales {
    d: Half,
    dmin: Half,
    /// Eight 6-bit scales and eight 6-bit minima. Those of groups 0 to 3 are the low bits of bytes 0 to 3
    /// and 4 to 7; groups 4 to 7 have their low 4 bits in bytes 8 to 11, scale below minimum, and their
    /// high 2 bits on top of the former.
    packed: [u8; 12],
}

impl GroupScales {
    /// The scale and the minimum of each group.
    pub fn unpack(&self) -> [(f32, f32); 8] {
        let (d, dmin) = (self.d.get(), self.dmin.get());
        std::array::from_fn(|group| {
            let (scale, min) = self.six_bits(group);
            (d * scale as f32, dmin * min as f32)
        })
    }

    fn six_bits(&self, group: usize) -> (u8, u8) {
        let [scales, mins, rest] = [0, 4, 8].map(|at| self.packed[at + group % 4]);
        if group < 4 { (scales & 63, mins & 63) } else { (rest & 15 | scales >> 6 << 4, rest >> 4 | mins >> 6 << 4) }
    }

    /// Sets the f16 scales for random 6-bit scales, so that quants of mean `mean` give values of mean 0.
    pub fn tame(&mut self, d: f32, mean: f32) {
        (self.d, self.dmin) = (Half::of(d), Half::of(d * mean));
    }
}
