//! The cases of every kernel, one file each with the same stem as the kernel's, and the registry [`CASES`].

mod absorb_query;
mod accept;
mod adjust;
mod advance;
mod copy;
mod expand_kv;
mod expand_kv_matrix;
mod experts_mm;
mod gate_up;
mod get_rows;
mod group_slots;
mod histogram;
mod keep_hidden;
mod kv_write;
mod last_token;
mod mask_logits;
mod mla_attention;
mod mla_attention_batch;
mod mla_attention_batch_matrix;
mod mla_attention_expanded;
mod mla_attention_matrix;
mod mla_attention_matrix8;
mod mla_merge;
mod mla_output;
mod moe_combine;
mod moe_down;
mod moe_gate_up;
mod moe_gate_up_grouped;
mod mul_mm;
mod mul_mm_matrix;
mod mul_mv;
mod mul_mv_pair;
mod mul_mv_places;
mod query_up_kv_write;
mod rms_norm;
mod rope_query;
mod route;
mod sample;
mod slice_max;
mod sum_normed;
mod sum_parts;
mod weight_sum;

use super::Case;
use super::builder::by_turns;
use crate::error::Result;
use crate::plan::Target;
use crate::quant::{Family, QUANTS, Quant};

/// The cases of a kernel on a target.
type Cases = fn(&Target) -> Result<Vec<Case>>;

/// The cases of every kernel, by its name.
pub static CASES: &[(&str, Cases)] = &[
    ("get_rows", get_rows::cases),
    ("rms_norm", rms_norm::cases),
    ("rms_norm_rounded", rms_norm::rounded),
    ("mul_mm", mul_mm::by_registers),
    ("mul_mm_matrix", mul_mm_matrix::cases),
    ("sum_parts", sum_parts::cases),
    ("sum_normed", sum_normed::cases),
    ("group_slots", group_slots::cases),
    ("moe_combine", moe_combine::cases),
    ("mul_mv", mul_mv::cases),
    ("mul_mv_places", mul_mv_places::cases),
    ("gate_up", gate_up::cases),
    ("rope_query", rope_query::cases),
    ("kv_write", kv_write::cases),
    ("mla_attention", mla_attention::cases),
    ("mla_attention_matrix", mla_attention_matrix::cases),
    ("mla_attention_matrix8", mla_attention_matrix8::cases),
    ("mla_attention_batch", mla_attention_batch::cases),
    ("mla_attention_batch_matrix", mla_attention_batch_matrix::cases),
    ("expand_kv", expand_kv::cases),
    ("expand_kv_matrix", expand_kv_matrix::cases),
    ("mla_attention_expanded", mla_attention_expanded::cases),
    ("mla_merge", mla_merge::cases),
    ("route", route::cases),
    ("mul_mv_pair", mul_mv_pair::cases),
    ("query_up_kv_write", query_up_kv_write::cases),
    ("absorb_query", absorb_query::cases),
    ("mla_output", mla_output::cases),
    ("moe_gate_up", moe_gate_up::cases),
    ("moe_gate_up_grouped", moe_gate_up_grouped::cases),
    ("moe_down", moe_down::cases),
    ("mask_logits", mask_logits::cases),
    ("adjust", adjust::cases),
    ("slice_max", slice_max::cases),
    ("histogram", histogram::cases),
    ("sample", sample::cases),
    ("accept", accept::cases),
    ("advance", advance::cases),
    ("keep_hidden", keep_hidden::keep),
    ("kept_hidden", keep_hidden::kept),
    ("draft_input", keep_hidden::draft_input),
    ("draft", advance::draft),
    ("copy", copy::cases),
    ("last_token", last_token::cases),
    ("weight_sum", weight_sum::cases),
];

/// Formats for cases of two weights: each format with the one that is `apart` entries later in `QUANTS`, so that it has
/// each role once, and formats of two families with themselves, because the names of the two copies in the shader must
/// not clash. Not all combinations are needed: kernels only pass formats through.
pub(super) fn pairs(apart: usize) -> Vec<(&'static Quant, &'static Quant)> {
    let beside = |i: usize| (QUANTS[i], QUANTS[(i + apart) % QUANTS.len()]);
    let affine = QUANTS.iter().find(|quant| quant.family == Family::Affine);
    let table = QUANTS.iter().rfind(|quant| matches!(quant.family, Family::Table(_)));
    let itself = affine.into_iter().chain(table).map(|quant| (*quant, *quant));
    (0..QUANTS.len()).map(beside).chain(itself).collect()
}

/// Every format with some of a kernel's shapes: alternately those at odd and at even indices of the list. Formats whose
/// rows may end inside a block have all shapes.
pub(super) fn in_turn<T: Copy>(shapes: &[T]) -> Vec<(&'static Quant, T)> {
    let chosen = |(i, quant): (usize, &&'static Quant)| {
        let (quant, all) = (*quant, quant.ragged);
        let places = shapes.iter().enumerate().filter(move |(place, _)| all || place % 2 == i % 2);
        places.map(move |(_, shape)| (quant, *shape)).collect::<Vec<_>>()
    };
    QUANTS.iter().enumerate().flat_map(chosen).collect()
}

/// The smallest number of columns, at least `columns`, of whole rows of a format.
pub(super) fn columns_for(quant: &Quant, columns: usize) -> usize {
    if quant.ragged { columns } else { columns.next_multiple_of(quant.values) }
}
