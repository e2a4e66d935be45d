//! Places texts so that they do not overlap, by the approximate width of letters: a picture does not know its fonts.

use unicode_width::UnicodeWidthStr;

/// Left, top, right and bottom.
pub type Box2 = [i32; 4];

/// The width of a text in pixels. plotters writes a size of 1.24 as a font size of 1, and the average letter of common
/// fonts is at most 0.62 of that wide.
pub fn width(words: &str, size: i32) -> i32 {
    words.width() as i32 * size / 2
}

/// How many letters fit into a width.
pub fn columns(pixels: i32, size: i32) -> usize {
    usize::try_from(pixels * 2 / size).unwrap_or(0).max(8)
}

/// The marks of an axis that get names, so that none overlap: the last one, and from the first on all others with
/// enough space.
pub fn spaced(values: &[usize], across: &dyn Fn(usize) -> i32, size: i32) -> Vec<usize> {
    let extent = |value: usize| {
        let half = width(&value.to_string(), size) / 2 + 4;
        (across(value) - half, across(value) + half)
    };
    let Some((&last, others)) = values.split_last() else { return Vec::new() };
    let (end, mut free) = (extent(last).0, i32::MIN);
    let mut named = Vec::new();
    for &value in others {
        let (left, right) = extent(value);
        if left >= free && right <= end {
            named.push(value);
            free = right;
        }
    }
    named.push(last);
    named
}

/// The texts in a plot so far, and the points and lines that they should not cover.
pub struct Labels {
    plot: Box2,
    placed: Vec<Box2>,
    points: Vec<(i32, i32)>,
    pieces: Vec<[(i32, i32); 2]>,
}

/// The distance of a text from its point.
const GAP: i32 = 6;
/// The penalties for covering a point and a line: a text that would cover a point or two lines is left out. Texts never
/// cover other texts.
const POINT: i32 = 100;
const PIECE: i32 = 50;

impl Labels {
    pub fn within(plot: Box2) -> Self {
        Self { plot, placed: Vec::new(), points: Vec::new(), pieces: Vec::new() }
    }

    /// Keeps texts off a line.
    pub fn avoid(&mut self, line: &[(i32, i32)]) {
        self.points.extend(line);
        self.pieces.extend(line.windows(2).map(|ends| [ends[0], ends[1]]));
    }

    /// The position for a value next to its point; `None` if there is no space.
    pub fn place(&mut self, (x, y): (i32, i32), words: &str, size: i32) -> Option<(i32, i32)> {
        let (wide, high) = (width(words, size), size - 1);
        let (right, left, middle) = (x + GAP, x - GAP - wide, x - wide / 2);
        let (above, below, beside) = (y - GAP - high, y + GAP, y - high / 2);
        let near = [(middle, above), (middle, below), (right, above), (left, above), (right, below), (left, below)];
        let far = [(right, beside), (left, beside), (middle, above - high), (middle, below + high)];
        let cost = |(preference, (left, top)): (usize, (i32, i32))| {
            let own = [left, top, left + wide, top + high];
            let outside =
                own[0] < self.plot[0] || own[1] < self.plot[1] || own[2] > self.plot[2] || own[3] > self.plot[3];
            if outside || self.placed.iter().any(|other| overlap(&own, other)) {
                return None;
            }
            let points = self.points.iter().filter(|point| **point != (x, y));
            let points = points.filter(|(x, y)| overlap(&own, &[x - 4, y - 4, x + 4, y + 4])).count() as i32;
            let pieces = self.pieces.iter().filter(|piece| crosses(&own, piece)).count() as i32;
            Some((POINT * points + PIECE * pieces + preference as i32, own))
        };
        let (cost, own) = near.into_iter().chain(far).enumerate().filter_map(cost).min_by_key(|(cost, _)| *cost)?;
        if cost >= POINT {
            return None;
        }
        self.placed.push(own);
        Some((own[0], own[1]))
    }
}

fn overlap(a: &Box2, b: &Box2) -> bool {
    a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3]
}

/// Whether a piece of a line goes through a box.
fn crosses(own: &Box2, [from, to]: &[(i32, i32); 2]) -> bool {
    let steps = (to.0 - from.0).abs().max((to.1 - from.1).abs()).max(1);
    (0..=steps).step_by(2).any(|step| {
        let (x, y) = (from.0 + (to.0 - from.0) * step / steps, from.1 + (to.1 - from.1) * step / steps);
        overlap(own, &[x, y, x + 1, y + 1])
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn words_do_not_overlap() {
        let mut labels = Labels::within([0, 0, 200, 200]);
        let points: Vec<(i32, i32)> = (0..20).map(|index| (100, 90 + index)).collect();
        labels.avoid(&points[..1]);
        let placed: Vec<(i32, i32)> = points.iter().filter_map(|&point| labels.place(point, "12345", 12)).collect();
        assert!(placed.len() > 3 && placed.len() < 20, "{placed:?}");
        let boxes: Vec<Box2> = placed.iter().map(|(x, y)| [*x, *y, x + 30, y + 11]).collect();
        let apart = |(index, own): (usize, &Box2)| boxes[..index].iter().all(|other| !overlap(own, other));
        assert!(boxes.iter().enumerate().all(apart), "{boxes:?}");
    }

    #[test]
    fn words_stay_in_the_plot() {
        let mut labels = Labels::within([0, 0, 40, 40]);
        let (x, y) = labels.place((38, 38), "123", 12).unwrap();
        assert!(x + 18 <= 40 && y + 11 <= 40, "{x} {y}");
        assert_eq!(labels.place((20, 20), "a text that is too long", 12), None);
    }

    #[test]
    fn marks_have_space() {
        let across = |value: usize| value as i32 / 40;
        assert_eq!(spaced(&[0, 16, 4096, 32000, 32768], &across, 13), [0, 4096, 32768]);
        assert!(spaced(&[], &across, 13).is_empty());
    }
}
