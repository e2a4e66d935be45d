//! What a format says about one block, and the loops over many blocks made from it.
//!
//! A block is a struct of bytes laid out as GGML's, so that the file's bytes are read in place at any
//! alignment. [`Codec::of`] turns the three functions on one block into three on a run of blocks, each a
//! loop of its own per format: a file is repacked at the speed of memory, with one indirect call per tensor.

use bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};

/// A block as it lies in the file.
pub trait Block: Pod {
    /// The values it stands for, `[f32; _]`, in GGML's logical order.
    type Values: Pod;
    /// Its part of every array of the GPU layout, in the order of [`super::Quant::streams`].
    type Streams: Streams;

    /// The values.
    fn decode(&self) -> Self::Values;

    /// The block taken apart for the GPU.
    fn repack(&self) -> Self::Streams;

    /// Makes a block of random bytes one whose values have about zero mean and a standard deviation of
    /// about `spread`: sets the scales that random bytes would make infinite, and leaves every other bit.
    fn tame(&mut self, spread: f32);
}

/// A tuple of byte arrays, one per stream.
pub trait Streams: Sized {
    /// Writes what `repack` makes of each block to the arrays in `out`.
    fn scatter<B>(blocks: &[B], repack: impl Fn(&B) -> Self, out: &mut [&mut [u8]]);
}

macro_rules! streams {
    ($($array:ident: $stream:ident),+) => {
        impl<$($stream: Pod),+> Streams for ($($stream,)+) {
            fn scatter<B>(blocks: &[B], repack: impl Fn(&B) -> Self, out: &mut [&mut [u8]]) {
                let [$($array),+] = out else { return };
                // One length for all: the loop below then needs no bounds check.
                $(let $array = &mut cast_slice_mut::<u8, $stream>($array)[..blocks.len()];)+
                for (i, block) in blocks.iter().enumerate() {
                    ($($array[i],)+) = repack(block);
                }
            }
        }
    };
}
streams!(a: A);
streams!(a: A, b: B1);
streams!(a: A, b: B1, c: C);
streams!(a: A, b: B1, c: C, d: D);

/// A format's functions on a run of whole blocks. Their callers have checked every length.
pub struct Codec {
    /// Decodes blocks into their values.
    pub decode: fn(&[u8], &mut [f32]),
    /// Takes blocks apart into one array per stream.
    pub repack: fn(&[u8], &mut [&mut [u8]]),
    /// Makes valid blocks of random bytes: see [`Block::tame`].
    pub tame: fn(&mut [u8], f32),
}

impl Codec {
    /// The loops over blocks of type `B`.
    pub const fn of<B: Block>() -> Codec {
        Codec { decode: decode::<B>, repack: repack::<B>, tame: tame::<B> }
    }
}

fn decode<B: Block>(blocks: &[u8], out: &mut [f32]) {
    for (block, values) in cast_slice::<u8, B>(blocks).iter().zip(cast_slice_mut(out)) {
        *values = block.decode();
    }
}

fn repack<B: Block>(blocks: &[u8], out: &mut [&mut [u8]]) {
    B::Streams::scatter(cast_slice(blocks), B::repack, out);
}

fn tame<B: Block>(blocks: &mut [u8], spread: f32) {
    for block in cast_slice_mut::<u8, B>(blocks) {
        block.tame(spread);
    }
}

/// A little-endian f16 at any address: GGML's `ggml_half`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
pub struct Half(pub [u8; 2]);

impl Half {
    /// The nearest f16.
    pub fn of(value: f32) -> Half {
        Half(half::f16::from_f32(value).to_le_bytes())
    }

    /// The value, exactly.
    pub fn get(self) -> f32 {
        half::f16::from_le_bytes(self.0).to_f32()
    }
}
