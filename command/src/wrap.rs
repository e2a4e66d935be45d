//! Breaks text between words at the width of the terminal: replies as they arrive, and whole paragraphs.
//!
//! A terminal breaks lines anywhere. The text is cut into segments where Unicode allows a break (UAX #14: after spaces,
//! between ideographs, but not before their punctuation), and a segment is written once it is complete, so that written
//! text never moves. Lines in Markdown's code blocks are not broken, so that code can be copied from the terminal.

use std::borrow::Cow;
use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm, wrap};
use unicode_linebreak::linebreaks;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The distance between tab stops on a terminal.
const TAB: usize = 8;

/// How much of the beginning of a line is kept to tell whether the line begins or ends a code block.
const FENCE: usize = 64;

/// Text on its way to a terminal.
#[derive(Debug, Default)]
pub struct Wrapper {
    column: usize,
    /// The beginning of a segment that may continue.
    pending: String,
    /// Whether the beginning of a segment that is longer than a line was written.
    begun: bool,
    /// The beginning of the current line of the text without leading spaces.
    line: String,
    /// In a code block, the character of its fence and its length.
    code: Option<(char, usize)>,
}

impl Wrapper {
    /// Takes a piece of text and returns the text that can now be written to a terminal of this width.
    pub fn push(&mut self, text: &str, width: usize) -> String {
        self.pending.push_str(text);
        let pending = std::mem::take(&mut self.pending);
        let (mut out, mut start) = (String::new(), 0);
        for (end, _) in linebreaks(&pending) {
            let segment = &pending[start..end];
            let whole = end < pending.len() || segment.ends_with(is_break);
            if whole || segment.width() > width {
                self.segment(segment, width, &mut out);
                self.begun = !whole;
                start = end;
            }
        }
        self.pending = pending[start..].to_owned();
        out
    }

    /// Ends the text and returns the rest of it.
    pub fn end(&mut self, width: usize) -> String {
        let mut out = String::new();
        let pending = std::mem::take(&mut self.pending);
        self.segment(&pending, width, &mut out);
        *self = Self::default();
        out
    }

    /// Writes a segment: a word, and the spaces and the line feed after it. Spaces that do not fit are left out.
    fn segment(&mut self, segment: &str, width: usize, out: &mut String) {
        let word = segment.trim_end();
        let beginning = if self.line.is_empty() { segment.trim_start() } else { segment };
        self.line.extend(beginning.chars().take(FENCE.saturating_sub(self.line.len())));
        let needed = word.width();
        let fits = self.column + needed <= width;
        if !fits && self.code.is_none() && !self.begun && self.column > 0 {
            out.push('\n');
            self.column = 0;
        }
        out.push_str(word);
        self.column += needed;
        if self.column > width {
            self.column = (self.column - 1) % width.max(1) + 1; // the terminal has broken the word
        }
        for blank in segment[word.len()..].chars() {
            match blank {
                '\n' => self.line_feed(),
                '\t' => self.column = (self.column / TAB + 1) * TAB,
                _ => {
                    let columns = blank.width().unwrap_or(0);
                    if self.column + columns > width && self.code.is_none() {
                        continue;
                    }
                    self.column += columns;
                }
            }
            out.push(blank);
        }
    }

    fn line_feed(&mut self) {
        let line = std::mem::take(&mut self.line);
        self.code = code_after(self.code, line.trim());
        self.column = 0;
    }
}

/// The fence of the code block that the text after a line is in. As in CommonMark, a block ends with a line of only the
/// same characters, at least as many.
fn code_after(code: Option<(char, usize)>, line: &str) -> Option<(char, usize)> {
    let Some(mark) = line.chars().next().filter(|c| matches!(c, '`' | '~')) else { return code };
    let rest = line.trim_start_matches(mark);
    let count = line.len() - rest.len();
    match code {
        _ if count < 3 => code,
        Some((open, least)) if open == mark && count >= least && rest.is_empty() => None,
        Some(_) => code,
        None => (mark == '~' || !rest.contains('`')).then_some((mark, count)),
    }
}

/// Whether a line may be broken after a space.
fn is_break(blank: char) -> bool {
    blank.is_whitespace() && !matches!(blank, '\u{a0}' | '\u{2007}' | '\u{202f}')
}

/// A paragraph in lines of at most `width` columns, broken between words, and within words that are longer than a line.
pub fn filled(paragraph: &str, width: usize) -> Vec<String> {
    let options = Options::new(width.max(1))
        .wrap_algorithm(WrapAlgorithm::FirstFit)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation);
    let words = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines = wrap(&words, options).into_iter().map(Cow::into_owned);
    lines.filter(|line| !line.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::{Wrapper, filled};

    /// The result for text that arrives in pieces of `piece` characters.
    fn wrapped(text: &str, width: usize, piece: usize) -> String {
        let (mut wrapper, chars) = (Wrapper::default(), text.chars().collect::<Vec<_>>());
        let pieces = chars.chunks(piece).map(|piece| wrapper.push(&piece.iter().collect::<String>(), width));
        let written: String = pieces.collect();
        written + &wrapper.end(width)
    }

    #[test]
    fn lines_break_between_words() {
        for (text, width, lines) in [
            ("one two three", 20, "one two three"),
            ("one two three", 8, "one two \nthree"),
            ("one two three", 7, "one two\nthree"),
            ("one two\nthree four", 9, "one two\nthree \nfour"),
            ("a verylongword b", 6, "a \nverylongword\nb"),
            ("a verylongword b", 5, "a \nverylongword b"),
            ("    indented text", 12, "    indented\ntext"),
            ("你好，世界！再见。", 8, "你好，世\n界！再\n见。"),
            ("你好世界", 4, "你好\n世界"),
            ("well-known words", 12, "well-known \nwords"),
            (
                "text\n```\nlet x = a_function(b);\n```\nmore text",
                9,
                "text\n```\nlet x = a_function(b);\n```\nmore text",
            ),
            ("👩‍👩‍👧 👩‍👩‍👧 x", 5, "👩‍👩‍👧 👩‍👩‍👧\nx"),
            ("a\tb", 4, "a\t\nb"),
            ("你\u{3000}好 a", 6, "你\u{3000}好\na"),
            ("aa 10\u{a0}km", 6, "aa \n10\u{a0}km"),
            ("  ```\none two\n  ```\none two", 5, "  ```\none two\n  ```\none \ntwo"),
            ("````\n```\none two\n````\none two", 5, "````\n```\none two\n````\none \ntwo"),
            ("~~~\n```\none two\n~~~\none two", 5, "~~~\n```\none two\n~~~\none \ntwo"),
            ("```x```\none two", 7, "```x```\none two"),
            ("```x```\none two", 5, "```x```\none \ntwo"),
            ("", 5, ""),
        ] {
            for piece in [1, 2, 3, 100] {
                assert_eq!(wrapped(text, width, piece), lines, "{text:?} in {width} by {piece}");
            }
        }
    }

    #[test]
    fn words_are_written_as_soon_as_they_are_whole() {
        let mut wrapper = Wrapper::default();
        assert_eq!(
            ["He", "llo", " wor", "ld", "\n"].map(|text| wrapper.push(text, 20)),
            ["", "", "Hello ", "", "world\n"]
        );
        assert_eq!(wrapper.push("abcdef", 4), "abcdef", "longer than a line");
        // The window becomes narrower.
        let mut wrapper = Wrapper::default();
        assert_eq!((wrapper.push("one two ", 20), wrapper.push("three ", 10)), ("one two ".into(), "\nthree ".into()));
    }

    #[test]
    fn paragraphs_are_filled() {
        assert_eq!(filled("one two  three\nfour", 10), ["one two", "three four"]);
        assert_eq!(filled("one two three", 8), ["one two", "three"]);
        assert_eq!(filled("abcdefghijkl a", 8), ["abcdefgh", "ijkl a"]);
        assert_eq!(filled("well-known/names_and-more", 12), ["well-known/n", "ames_and-mor", "e"]);
        assert_eq!(filled("你好世界", 4), ["你好", "世界"]);
        assert!(filled(" ", 8).is_empty());
    }
}
