//! The cases of `expand_kv`.

use super::mla_attention::AttentionExample;
use super::{columns_for, pairs, wide};
use crate::error::Result;
use crate::gpu::Matrices;
use crate::kernels::errors::SUM;
use crate::kernels::{CacheType, LatentWeights};
use crate::plan::{BufferRef, Target};
use crate::quant::{QUANTS, Quant};
use crate::reference::product::sum_and_size;
use crate::reference::{Case, CaseBuilder, Expected, OutputType};

/// The number of KV rows of a segment.
const SEGMENT: usize = 128;
/// Matrices multiply weights and, with a cache in blocks, latents rounded to f16, which is within 2^-11.
const BY_MATRICES: f64 = 2.0 / 2048.0 + SUM;

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let target = &Target { matrices: Matrices::None, ..target.clone() };
    let odd = [2, 20, 36, 68, 0, 77]; // rank and columns that fill no group
    let ragged = QUANTS.iter().copied().filter(|quant| quant.ragged);
    let ragged = ragged.map(|quant| case(target, (quant, quant), CacheType::F16, odd));
    cases_on(target)?.into_iter().map(Ok).chain(ragged).collect()
}

/// The cases with shapes that any kernel supports.
pub(super) fn cases_on(target: &Target) -> Result<Vec<Case>> {
    let types = [CacheType::F16, CacheType::Q8_0].into_iter().cycle();
    pairs(1)
        .into_iter()
        .zip(types)
        .zip([[2, 96, 64, 80, 0, 100], [3, 64, 64, 48, 1, 171], [1, 192, 64, 256, 2, 384]].into_iter().cycle())
        .map(|((formats, ty), shape)| case(target, formats, ty, shape))
        .collect()
}

/// A case with these numbers of heads, nope, rank and value width, for segment `index` of `tokens` KV rows.
fn case(
    target: &Target,
    (k, v): (&'static Quant, &'static Quant),
    ty: CacheType,
    [heads, nope, rank, width, index, tokens]: [usize; 6],
) -> Result<Case> {
    let (rank, rotary, nope) = (columns_for(v, rank), 16, columns_for(k, nope));
    let mut case = CaseBuilder::for_rows(target, rotary / 2, 64);
    let example = AttentionExample { heads, tokens, rank, rotary, splits: 1, ty };
    case.consecutive(tokens as u32 - 20, 20);
    let (cache, latents) = example.cache(&mut case);
    let (k_b, ks) = case.weight("k_b", k, [nope, rank, heads])?;
    let (v_b, vs) = case.weight("v_b", v, [rank, width, heads])?;
    let by = LatentWeights { k_b: &k_b, v_b: &v_b };
    let expanded = case.plan.expanded("expanded", by, &cache, SEGMENT);
    case.plan.expand_kv("expand_kv", by, &cache, &expanded, index)?;
    let by_key = transposed(&ks, rank, nope);
    let (mut places, mut values, mut magnitudes) = (Vec::new(), Vec::new(), Vec::new());
    let live = tokens.saturating_sub(index * SEGMENT).min(SEGMENT);
    let rows = live.next_multiple_of(16);
    for (head, row) in (0..heads).flat_map(|head| (0..rows).map(move |row| (head, row))) {
        let latent = &latents[(index * SEGMENT + row.min(live - 1)) * (rank + rotary)..][..rank + rotary];
        let first = (head * SEGMENT + row) * (nope + rotary + width);
        places.extend(first..first + nope + rotary + width);
        let values_of = wide(&latent[..rank]);
        let keys = (0..nope).map(|n| sum_and_size(&by_key[(head * nope + n) * rank..][..rank], &values_of));
        let rotary_key = latent[rank..].iter().map(|l| (f64::from(*l), f64::from(l.abs())));
        let of_row = (0..width).map(|n| sum_and_size(&vs[(head * width + n) * rank..][..rank], &values_of));
        let (sums, sizes): (Vec<_>, Vec<_>) = keys.chain(rotary_key).chain(of_row).unzip();
        values.extend(sums);
        magnitudes.extend(sizes);
    }
    let bound = if target.matrices == Matrices::None { SUM } else { BY_MATRICES };
    let BufferRef::Local(local) = expanded.buffer else { unreachable!("a buffer of activations") };
    case.expect_values(Expected { local, kind: OutputType::F16, places, values, magnitudes, bound });
    let shape = format!("{heads} heads, nope {nope}, value {width}, rank {rank}");
    Ok(case.finish(format!("{} and {}, {ty:?}, {shape}, segment {index} of {tokens} tokens", k.name, v.name)))
}

/// Matrices of `rows` rows of `columns` values, a column after the other.
fn transposed(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let column = |matrix: &[f32], n: usize| (0..rows).map(|row| matrix[row * columns + n]).collect::<Vec<f32>>();
    values
        .chunks(rows * columns)
        .flat_map(|matrix| (0..columns).flat_map(|n| column(matrix, n)).collect::<Vec<_>>())
        .collect()
}
