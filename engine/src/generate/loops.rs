//! Detects a reply that repeats itself endlessly, as a model's replies do once it has lost track.
//!
//! For every period this counts how many tokens in a row were equal to the token one period before. A token costs a
//! comparison for each period, independent of the length of the reply. Texts that repeat for good reasons, such as
//! tables, lists of zeros or drawings, either change a little in each line, or end before the limits are reached.

use std::collections::VecDeque;

/// The longest period in tokens.
const PERIODS: usize = 512;
/// How often the same tokens have to come in a row.
const TIMES: usize = 5;
/// How many tokens the repetitions have to have in total.
const TOKENS: usize = 512;

/// Looks for loops at the end of a reply.
#[derive(Debug, Default)]
pub struct LoopFinder {
    /// The newest tokens, the newest one first.
    recent: VecDeque<u32>,
    /// For each period from 1 on, how many tokens in a row were equal to those one period before.
    same: Vec<usize>,
}

impl LoopFinder {
    /// Takes the next token. Returns whether the reply ends in a loop.
    pub fn push(&mut self, token: u32) -> bool {
        self.same.resize(self.recent.len(), 0);
        let mut found = false;
        for ((same, before), period) in self.same.iter_mut().zip(&self.recent).zip(1..) {
            *same = if token == *before { *same + 1 } else { 0 };
            let long = *same + period; // including the first occurrence
            found |= long >= TOKENS && long >= period * TIMES;
        }
        self.recent.truncate(PERIODS - 1);
        self.recent.push_front(token);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::{LoopFinder, TIMES, TOKENS};

    /// After how many tokens a loop is found.
    fn found(tokens: impl IntoIterator<Item = u32>) -> Option<usize> {
        let mut finder = LoopFinder::default();
        tokens.into_iter().position(|token| finder.push(token)).map(|place| place + 1)
    }

    /// The bytes of a text in place of its tokens, which would be fewer.
    fn bytes(text: &str) -> impl Iterator<Item = u32> {
        text.bytes().map(u32::from)
    }

    /// A text that never comes back to what it said.
    fn sound(length: usize) -> Vec<u32> {
        (0..length as u32).map(|place| place.wrapping_mul(2_654_435_761) >> 12).collect()
    }

    #[test]
    fn loops_of_every_length_are_found() {
        for period in [1, 2, 3, 7, 50, 102, 103, 300, 512] {
            let text = sound(900).into_iter().chain(sound(period).into_iter().cycle().take(6000));
            let wanted = 900 + TOKENS.max(period * TIMES);
            assert_eq!(found(text), Some(wanted), "period {period}");
        }
        assert_eq!(found(sound(513).into_iter().cycle().take(20_000)), None, "a period that is too long");
    }

    /// A part of what repeats stands in it twice.
    #[test]
    fn loops_with_repetitions_inside_are_found() {
        let period = [sound(20), sound(20), vec![1, 2, 3]].concat();
        assert_eq!(found(period.into_iter().cycle().take(3000)), Some(TOKENS));
        let mut broken: Vec<u32> = sound(9).into_iter().cycle().take(500).collect();
        broken[400] = 0;
        assert_eq!(found(broken.iter().copied().chain(sound(9).into_iter().cycle().take(300))), None);
    }

    #[test]
    fn tables_code_and_lists_are_no_loops() {
        let table: String = (0..200).map(|row| format!("| {row} | yes | no | yes | no | 0.0 |\n")).collect();
        let same_cells: String = (0..9).map(|_| "| yes | no | yes | no | yes | no | 0.00 |\n").collect();
        let code: String =
            (0..100).map(|n| format!("    if (x == {n}) {{\n        return {};\n    }}\n", n * n)).collect();
        let list: String = (1..300).map(|n| format!("{n}. item\n")).collect();
        let zeros = "0, ".repeat(150);
        let frame = format!("+{}+\n", "-".repeat(78));
        let drawing = format!("{frame}{frame}{}", "|  *  |\n".repeat(40));
        let chess = ("# . # . # . # .\n. # . # . # . #\n").repeat(4);
        for (name, text) in [
            ("a table", table),
            ("rows alike", same_cells),
            ("code", code),
            ("a list", list),
            ("zeros", zeros),
            ("a drawing", drawing),
            ("a board", chess),
        ] {
            assert_eq!(found(bytes(&text)), None, "{name}");
        }
    }
}
