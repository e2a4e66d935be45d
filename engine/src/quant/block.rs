//! The functions that a format defines for one block, and the loops that apply them to many blocks.
//!
//! A block is a struct of bytes with the layout of GGML's, so the bytes of a file are read in place at any alignment.
//! [`Codec::of`] turns the three functions for one block into three for a run of blocks. Each of these is a loop that
//! is compiled for the format, so a file is repacked at the speed of memory, with one indirect call for each tensor.

use bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};

/// A block with the layout that it has in files.
pub trait Block: Pod {
    /// The values of the block, `[f32; _]`, in GGML's logical order.
    type Values: Pod;
    /// The block's part of every stream of the GPU layout, in the order of [`super::Quant::streams`].
    type Streams: Streams;

    /// Decodes the values.
    fn decode(&self) -> Self::Values;

    /// Repacks the block for the GPU.
    fn repack(&self) -> Self::Streams;

    /// Changes a block of random bytes so that its values have a mean of about zero and a standard deviation of about
    /// `spread`: replaces the scales, which random bytes would make infinite, and leaves every other bit.
    fn tame(&mut self, spread: f32);
}

/// A tuple of byte arrays, one for each stream.
pub trait Streams: Sized {
    /// Repacks every block and writes the results to the arrays in `out`.
    fn scatter<B>(blocks: &[B], repack: impl Fn(&B) -> Self, out: &mut [&mut [u8]]);
}

macro_rules! streams {
    ($($array:ident: $stream:ident),+) => {
        impl<$($stream: Pod),+> Streams for ($($stream,)+) {
            fn scatter<B>(blocks: &[B], repack: impl Fn(&B) -> Self, out: &mut [&mut [u8]]) {
                let [$($array),+] = out else { return };
                // All slices get the same length, so that the loop below needs no bounds check.
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

/// The functions of a format for a run of whole blocks. Callers have checked every length.
pub struct Codec {
    /// Decodes blocks into their values.
    pub decode: fn(&[u8], &mut [f32]),
    /// Repacks blocks into one array for each stream.
    pub repack: fn(&[u8], &mut [&mut [u8]]),
    /// Turns random bytes into valid blocks: see [`Block::tame`].
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
