//! Decides which weights are used in place, and which buffers over the file hold them.
//!
//! A buffer over a file starts and ends with a page, every weight lies in one buffer, and a GPU that uses a buffer
//! keeps all of it in memory. Adjacent weights therefore share a buffer up to a size, and bytes between weights that
//! are not adjacent are in no buffer.

use std::ops::Range;

/// The limits of buffers over a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Buffers start and end at multiples of this.
    pub page: usize,
    /// Adjacent weights share a buffer up to this size.
    pub usual: usize,
    /// No buffer is larger.
    pub most: usize,
    /// A weight starts at a multiple of this.
    pub alignment: usize,
}

/// The position of a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlaceInFile {
    /// The index of its buffer in [`InPlace::windows`].
    pub window: usize,
    /// The position of the weight in the buffer.
    pub start: usize,
    /// The size of the weight in bytes.
    pub bytes: usize,
}

/// The weights that are used in place.
#[derive(Debug, Default)]
pub(super) struct InPlace {
    /// The range of the file for each buffer, ascending. The last page may reach past the end of the file.
    pub windows: Vec<Range<usize>>,
    /// The positions, indexed like the table of weights.
    pub places: Vec<Option<PlaceInFile>>,
}

impl InPlace {
    /// Uses none of `weights` in place.
    pub fn none(weights: usize) -> Self {
        Self { windows: Vec::new(), places: vec![None; weights] }
    }

    /// Places the weights that lie in the file, in the given ranges, in the form that the GPU needs.
    pub fn of(ranges: &[Option<Range<usize>>], limits: Limits) -> Self {
        let Limits { page, most, alignment, .. } = limits;
        let mut placed = Self::none(ranges.len());
        let mut inside: Vec<(usize, Range<usize>)> = Vec::new();
        inside.extend(ranges.iter().enumerate().filter_map(|(index, range)| Some((index, range.clone()?))));
        inside.sort_by_key(|(_, range)| range.start);
        for (index, range) in inside {
            let pages = range.start / page * page..range.end.next_multiple_of(page);
            if range.is_empty() || !range.start.is_multiple_of(alignment) || pages.len() > most {
                continue;
            }
            let window = placed.window(pages, limits.usual.min(most));
            let start = range.start - placed.windows[window].start;
            placed.places[index] = Some(PlaceInFile { window, start, bytes: range.len() });
        }
        placed
    }

    /// The window over these pages: the last one, extended, if they are adjacent and it stays small enough, and
    /// otherwise a new one.
    fn window(&mut self, pages: Range<usize>, usual: usize) -> usize {
        let count = self.windows.len();
        if let Some(last) = self.windows.last_mut() {
            let end = last.end.max(pages.end);
            if pages.start <= last.end && (end == last.end || end - last.start <= usual) {
                last.end = end;
                return count - 1;
            }
        }
        self.windows.push(pages);
        count
    }

    /// The size in bytes of the weights that are used in place.
    pub fn bytes(&self) -> u64 {
        self.places.iter().flatten().map(|place| place.bytes as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { page: 100, usual: 1000, most: 5000, alignment: 4 };

    fn placed(ranges: &[Range<usize>]) -> InPlace {
        InPlace::of(&ranges.iter().cloned().map(Some).collect::<Vec<_>>(), LIMITS)
    }

    fn place(window: usize, start: usize, bytes: usize) -> Option<PlaceInFile> {
        Some(PlaceInFile { window, start, bytes })
    }

    #[test]
    fn neighbours_share_a_buffer() {
        let placed = placed(&[240..360, 40..240, 360..364]);
        assert_eq!(placed.windows, vec![0..400]);
        assert_eq!(placed.places, [place(0, 240, 120), place(0, 40, 200), place(0, 360, 4)]);
        assert_eq!(placed.bytes(), 324);
    }

    #[test]
    fn what_nobody_uses_is_in_no_buffer() {
        let placed = placed(&[40..60, 700..704]);
        assert_eq!(placed.windows, [0..100, 700..800]);
        assert_eq!(placed.places, [place(0, 40, 20), place(1, 0, 4)]);
    }

    /// No weight lies across two windows, and a page between two is in both.
    #[test]
    fn a_buffer_that_is_full_ends_before_the_next_weight() {
        let placed = placed(&[0..640, 640..980, 980..1240, 1240..1300]);
        assert_eq!(placed.windows, [0..1000, 900..1300]);
        assert_eq!(placed.places, [place(0, 0, 640), place(0, 640, 340), place(1, 80, 260), place(1, 340, 60)]);
    }

    #[test]
    fn a_large_weight_has_a_buffer_of_its_own() {
        let placed = placed(&[0..40, 40..4040, 4040..4080]);
        assert_eq!(placed.windows, [0..100, 0..4100]);
        assert_eq!(placed.places, [place(0, 0, 40), place(1, 40, 4000), place(1, 4040, 40)]);
    }

    #[test]
    fn what_cannot_be_bound_is_not_placed() {
        let ranges = [Some(2..6), Some(0..5001), Some(8..8), None, Some(8..12)];
        let placed = InPlace::of(&ranges, LIMITS);
        assert_eq!(placed.windows, vec![0..100]);
        assert_eq!(placed.places, [None, None, None, None, place(0, 8, 4)]);
        let none = InPlace::of(&[], LIMITS);
        assert!(none.windows.is_empty() && none.bytes() == 0);
    }

    /// For any ranges every weight lies inside its window, at its own bytes, and windows consist of whole pages.
    #[test]
    fn every_weight_lies_in_its_window() {
        let mut seed = 1u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((seed >> 33) % below) as usize
        };
        for _ in 0..500 {
            let mut at = 0;
            let mut ranges = Vec::new();
            for _ in 0..random(12) {
                at += random(300);
                let bytes = random(1500);
                ranges.push((random(4) > 0).then_some(at..at + bytes));
                at += bytes;
            }
            let placed = InPlace::of(&ranges, LIMITS);
            for (range, place) in ranges.iter().zip(&placed.places) {
                let Some(PlaceInFile { window, start, bytes }) = *place else { continue };
                let window = &placed.windows[window];
                assert_eq!(Some(window.start + start..window.start + start + bytes), *range);
                assert!(start % LIMITS.alignment == 0 && start + bytes <= window.len(), "{ranges:?}");
            }
            for window in &placed.windows {
                let whole = window.start % LIMITS.page == 0 && window.end % LIMITS.page == 0;
                assert!(whole && window.len() <= LIMITS.most, "{ranges:?}: {window:?}");
            }
        }
    }
}
