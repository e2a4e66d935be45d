//! The references of the steps around the multi-token-prediction block.

use super::vectors::rms_normed;
use super::{VALUES, VECTORS, exact, sample};
use crate::error::Result;
use crate::kernels::computes::{Advanced, DraftInput, Drafted, KeptHidden, PickedHidden};
use crate::kernels::errors::NORMED;
use crate::kernels::{DRAFTING, HiddenStates, KEPT_ROWS, VERIFIED_ROWS};
use crate::plan::{BatchHeader, BufferRef, OutputPlace, Plan, Probe, Reference, RowHeader, Sample, row_bytes};
use std::mem::offset_of;

/// The index in the ring buffers of a row's position plus `ahead`.
pub(super) fn ring_place(row: &RowHeader, ahead: usize) -> usize {
    row.sequence as usize * KEPT_ROWS + (row.position as usize + ahead) % KEPT_ROWS
}

/// The word of [`Plan::SAMPLED`] at which the drafts of a sequence are counted, given the first entry of verified rows.
pub(super) fn drafting_of(first: u32, sequence: u32) -> usize {
    (first as usize + VERIFIED_ROWS + DRAFTING * sequence as usize) * Plan::SAMPLED_WORDS
}

impl Reference for KeptHidden {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let weights = probe.row(&self.norm.weight, 0, 0)?;
        let (width, mut samples) = (self.ring.width, Vec::new());
        let last = probe.count.min(KEPT_ROWS);
        for row in probe.some(last, VECTORS).into_iter().map(|row| probe.count - last + row).collect::<Vec<_>>() {
            let header = probe.row_header(row, self.pairs)?;
            let x = probe.values(self.x.buffer, row * self.x.pitch, width)?;
            let want = rms_normed(&x, &weights, self.norm.epsilon);
            let start = ring_place(&header, self.ahead) * width;
            for value in probe.some(width, VALUES) {
                let output = OutputPlace::F32(self.ring.buffer, start + value);
                samples.push(sample(output, want[value], want[value].abs(), NORMED));
            }
        }
        Ok(samples)
    }
}

impl Reference for PickedHidden {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let (width, mut samples) = (self.ring.width, Vec::new());
        for row in probe.some(probe.count, VECTORS) {
            let header = probe.row_header(row, self.pairs)?;
            let x = probe.values(self.ring.buffer, ring_place(&header, self.ahead) * width, width)?;
            for at in probe.some(width, VALUES) {
                let output = OutputPlace::F32(self.y.buffer, row * self.y.pitch + at);
                samples.push(exact(output, f64::from(x[at])));
            }
        }
        Ok(samples)
    }
}

impl Reference for DraftInput {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let (width, mut samples) = (self.embedding.shape[0], Vec::new());
        for row in probe.some(probe.count, VECTORS) {
            let header = probe.row_header(row, self.pairs)?;
            let hidden = match self.hidden {
                HiddenStates::Rows(x) => (x.buffer, row * x.pitch),
                HiddenStates::Kept(ring) => (ring.buffer, ring_place(&header, 0) * width),
            };
            let sources = [(self.embedding.buffer, row * self.embedding.pitch), hidden];
            for ((norm, (buffer, first)), half) in self.norms.iter().zip(sources).zip([0, width]) {
                let (x, weights) = (probe.values(buffer, first, width)?, probe.row(&norm.weight, 0, 0)?);
                let want = rms_normed(&x, &weights, norm.epsilon);
                for value in probe.some(width, VALUES) {
                    let output = OutputPlace::F32(self.y.buffer, row * self.y.pitch + half + value);
                    samples.push(sample(output, want[value], want[value].abs(), NORMED));
                }
            }
        }
        Ok(samples)
    }
}

/// The header, for the next batch, of a sequence's row after the accepted drafts and those that were made since, given its
/// candidates, and its index among them.
pub(super) fn next_row(rows: &[RowHeader], accepted: u32, made: u32) -> (RowHeader, usize) {
    let number = (accepted + made) as usize;
    let row = rows[number];
    let drafts = drafting_of(row.result, row.sequence) + Plan::SAMPLED_WORDS;
    let next = match made.checked_sub(1) {
        None => RowHeader::sampled(row.sequence as usize),
        Some(last) => RowHeader::SAMPLED + drafts as u32 + last,
    };
    (RowHeader { next, ..row }, number)
}

impl Reference for Advanced {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let word = |bytes: usize| bytes / 4;
        let (header, row) = (word(size_of::<BatchHeader>()), word(row_bytes(self.pairs)));
        let counts = probe.words(self.candidates, 0, header)?;
        let [candidates, each] = [counts[0], counts[2]].map(|count| count as usize);
        let of = |row: &[u32]| -> RowHeader {
            let bytes: &[u8] = bytemuck::cast_slice(&row[..word(size_of::<RowHeader>())]);
            bytemuck::pod_read_unaligned(bytes)
        };
        let (mut longest, mut want) = (0, Vec::new());
        for number in 0..candidates / each {
            let words = probe.words(self.candidates, header + number * each * row, each * row)?;
            let rows: Vec<RowHeader> = words.chunks(row).map(of).collect();
            let drafting = drafting_of(rows[0].result, rows[0].sequence);
            let counts = probe.words(BufferRef::Local(Plan::SAMPLED), drafting, 2)?;
            let (next, place) = next_row(&rows, counts[0], counts[1]);
            longest = longest.max(next.position + 1);
            let first = want.len();
            want.extend_from_slice(&words[place * row..(place + 1) * row]);
            want[first + word(offset_of!(RowHeader, next))] = next.next;
        }
        want.splice(0..0, [(candidates / each) as u32, longest]);
        let places = [0, 1].into_iter().chain(header..);
        let output = |(want, place): (u32, usize)| {
            exact(OutputPlace::U32(BufferRef::Local(Plan::BATCH), place), f64::from(want))
        };
        Ok(want.into_iter().zip(places).map(output).collect())
    }
}

impl Reference for Drafted {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let (buffer, words, mut samples) = (BufferRef::Local(Plan::SAMPLED), self.maxima.shape[0], Vec::new());
        for row in 0..probe.count {
            let header = probe.row_header(row, self.pairs)?;
            let drafting = drafting_of(header.result, header.sequence);
            let made = probe.words(buffer, drafting + 1, 1)?[0];
            let token = likeliest(&probe.words(self.maxima.buffer, row * words, words)?);
            let place = drafting + Plan::SAMPLED_WORDS + made as usize;
            let words = [(place, token), (drafting + 1, made + 1)];
            samples.extend(words.map(|(place, word)| exact(OutputPlace::U32(buffer, place), f64::from(word))));
        }
        Ok(samples)
    }
}

/// The token of the largest of some maxima, each the bits of a logit and its token; of equals the lowest one.
pub(super) fn likeliest(maxima: &[u32]) -> u32 {
    let best = maxima.chunks_exact(2).map(|pair| (f32::from_bits(pair[0]), pair[1]));
    best.reduce(|best, other| if other.0 > best.0 { other } else { best }).map_or(0, |(_, token)| token)
}
