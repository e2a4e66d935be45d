//! The references of the steps around the multi-token-prediction block.

use super::vectors::normed;
use super::{VALUES, VECTORS, exact};
use crate::error::Result;
use crate::kernels::computes::{Advanced, DraftInput, Drafted, KeptHidden, PickedHidden};
use crate::kernels::{DRAFTING, HiddenStates, KEPT_ROWS, VERIFIED_ROWS};
use crate::plan::{BatchHeader, BufferRef, OutputPlace, Plan, Probe, Reference, RowHeader, Sample};
use std::mem::offset_of;

/// The index in the ring buffers of a row's position plus `ahead`.
fn ring_index(row: &RowHeader, ahead: usize) -> usize {
    row.sequence as usize * KEPT_ROWS + (row.position as usize + ahead) % KEPT_ROWS
}

/// The word of [`Plan::SAMPLED`] at which the drafts of a sequence are counted, given the first entry of verified rows.
pub(super) fn drafting_of(first: u32, sequence: u32) -> usize {
    (first as usize + VERIFIED_ROWS + DRAFTING * sequence as usize) * Plan::SAMPLED_WORDS
}

impl Reference for KeptHidden {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let Self { x, norm, ring, ahead } = self;
        let mut samples = Vec::new();
        for row in probe.some(probe.count, VECTORS) {
            let header = probe.row_header(row)?;
            if header.longest - header.position > KEPT_ROWS as u32 {
                continue;
            }
            let to = ring_index(&header, *ahead) * ring.width;
            samples.extend(normed(probe, (x.buffer, row * x.pitch), norm, (ring.buffer, to))?);
        }
        Ok(samples)
    }
}

impl Reference for PickedHidden {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let (width, mut samples) = (self.ring.width, Vec::new());
        for row in probe.some(probe.count, VECTORS) {
            let header = probe.row_header(row)?;
            let x = probe.values(self.ring.buffer, ring_index(&header, self.ahead) * width, width)?;
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
            let header = probe.row_header(row)?;
            let hidden = match self.hidden {
                HiddenStates::Rows(x) => (x.buffer, row * x.pitch),
                HiddenStates::Kept(ring) => (ring.buffer, ring_index(&header, 0) * width),
            };
            let sources = [(self.embedding.buffer, row * self.embedding.pitch), hidden];
            for ((norm, source), half) in self.norms.iter().zip(sources).zip([0, width]) {
                samples.extend(normed(probe, source, norm, (self.y.buffer, row * self.y.pitch + half))?);
            }
        }
        Ok(samples)
    }
}

/// The header, for the next batch, of a sequence's row after the accepted drafts and those that were made since, given
/// its candidates, and its index among them.
fn next_row(rows: &[RowHeader], accepted: u32, made: u32) -> (RowHeader, usize) {
    let number = (accepted + made) as usize;
    let row = rows[number];
    let drafts = drafting_of(row.result, row.sequence) + Plan::SAMPLED_WORDS;
    let next = match made.checked_sub(1) {
        None => RowHeader::sampled(row.sequence as usize),
        Some(last) => RowHeader::SAMPLED + drafts as u32 + last,
    };
    (RowHeader { next, longest: row.position + 1, ..row }, number)
}

impl Reference for Advanced {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let word = |bytes: usize| bytes / 4;
        let (header, row) = (word(size_of::<BatchHeader>()), word(probe.row_bytes()));
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
            want[first + word(offset_of!(RowHeader, longest))] = next.longest;
        }
        want.splice(0..0, [(candidates / each) as u32, longest, self.splits as u32, counts[3]]);
        let output = |(want, place): (u32, usize)| {
            exact(OutputPlace::U32(BufferRef::Local(Plan::BATCH), place), f64::from(want))
        };
        Ok(want.into_iter().zip(0..).map(output).collect())
    }
}

impl Reference for Drafted {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let (buffer, words, mut samples) = (BufferRef::Local(Plan::SAMPLED), self.maxima.shape[0], Vec::new());
        for row in 0..probe.count {
            let header = probe.row_header(row)?;
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

/// The token of the largest of some maxima, each the bits of a logit and its token; among equals the lowest one.
fn likeliest(maxima: &[u32]) -> u32 {
    let best = maxima.chunks_exact(2).map(|pair| (f32::from_bits(pair[0]), pair[1]));
    best.reduce(|best, other| if other.0 > best.0 { other } else { best }).map_or(0, |(_, token)| token)
}
