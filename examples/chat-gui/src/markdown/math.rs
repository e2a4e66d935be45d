//! Mathematics in LaTeX, as a text that people can read: `\frac{a}{b} \leq \alpha^2` is shown as `a/b ≤ α²`.
//!
//! It is no typesetting. What cannot be converted is shown as it is written.

use latex_to_unicode::parser::Parser;
use latex_to_unicode::renderer::{RenderMode, Renderer};

/// The longest formula that is converted, in bytes, and the deepest: the conversion calls itself for each level, with a few
/// kilobytes of the stack, of which a thread of Windows has one megabyte.
const LONGEST: usize = 2000;
const DEEPEST: usize = 50;

/// How far the end of a formula is looked for, in bytes. Otherwise each of many dollars would read all of a text.
const AHEAD: usize = 4096;

/// Names of environments whose rows are lines.
const LINES: [&str; 7] = ["aligned", "align", "gathered", "gather", "split", "equation", "eqnarray"];

/// A formula in a text.
#[derive(Debug, PartialEq)]
pub struct Found<'a> {
    pub tex: &'a str,
    /// Whether it stands on lines of its own.
    pub display: bool,
    /// Where it ends, with its delimiter.
    pub end: usize,
}

/// The formula at the beginning of a text.
pub fn find(text: &str) -> Option<Found<'_>> {
    const DELIMITERS: [(&str, &str, bool); 4] =
        [("$$", "$$", true), (r"\[", r"\]", true), (r"\(", r"\)", false), ("$", "$", false)];
    let (open, close, display) = DELIMITERS.into_iter().find(|(open, ..)| text.starts_with(open))?;
    let inside = &text[open.len()..];
    let inside = &inside[..inside.floor_char_boundary(AHEAD)];
    let paragraph = inside.find("\n\n").map_or(inside, |end| &inside[..end]);
    let length = match close {
        "$" => dollar(paragraph)?,
        close => paragraph.find(close)?,
    };
    let tex = inside[..length].trim();
    (!tex.is_empty()).then_some(Found { tex, display, end: open.len() + length + close.len() })
}

/// Where a formula between single dollars ends, if it is one: they stand for money, too. As in Pandoc, no blank follows
/// the first dollar or stands before the second, after which there is no digit. Words alone are no formula.
fn dollar(text: &str) -> Option<usize> {
    let (end, _) = text.match_indices('$').find(|(at, _)| !text[..*at].ends_with('\\'))?;
    let (tex, after) = (&text[..end], &text[end + 1..]);
    let blank = tex.starts_with(char::is_whitespace) || tex.ends_with(char::is_whitespace);
    let money = after.starts_with(|next: char| next.is_ascii_digit());
    let words =
        tex.contains(char::is_whitespace) && !tex.contains(['\\', '^', '_', '=', '+', '<', '>', '{', '|', '*', '/']);
    (!blank && !money && !words).then_some(end)
}

/// A formula as lines of text.
pub fn lines(tex: &str) -> Vec<String> {
    let plain = LINES.iter().fold(tex.to_owned(), |tex, name| {
        let (begin, end) = (format!("\\begin{{{name}"), format!("\\end{{{name}"));
        let without = tex.replace(&format!("{begin}*}}"), "").replace(&format!("{begin}}}"), "");
        without.replace(&format!("{end}*}}"), "").replace(&format!("{end}}}"), "")
    });
    if plain == tex {
        return vec![line(tex)];
    }
    let lines = plain.split("\\\\").map(|part| line(&part.replace('&', " ")));
    lines.filter(|line| !line.is_empty()).collect()
}

/// A formula as one line of text.
pub fn line(tex: &str) -> String {
    let tex = tex.split_whitespace().collect::<Vec<_>>().join(" ");
    if tex.len() > LONGEST || depth(&tex) > DEEPEST {
        return tex;
    }
    // The conversion knows no escapes, so they pass it as letters for private use.
    const ESCAPES: [(&str, &str, &str); 6] = [
        ("\\%", "\u{e000}", "%"),
        ("\\$", "\u{e001}", "$"),
        ("\\#", "\u{e002}", "#"),
        ("\\&", "\u{e003}", "&"),
        ("\\_", "\u{e004}", "_"),
        ("\\ ", "\u{e005}", " "),
    ];
    let escaped = ESCAPES.iter().fold(tex.clone(), |tex, (from, to, _)| tex.replace(from, to));
    let shown = Renderer::new(RenderMode::Inline).render(&Parser::new(&escaped).parse());
    let shown = ESCAPES.iter().fold(shown, |shown, (_, from, to)| shown.replace(from, to));
    if shown.trim().is_empty() { tex } else { shown.trim().to_owned() }
}

/// How deep a formula is nested, at most: by braces and brackets, and by commands whose arguments are commands.
fn depth(tex: &str) -> usize {
    let (mut depth, mut commands, mut deepest, mut in_name) = (0_usize, 0, 0, false);
    for letter in tex.chars() {
        let names = in_name && letter.is_ascii_alphabetic();
        in_name = letter == '\\' || names;
        match letter {
            '\\' | '^' | '_' => commands += 1,
            '{' | '[' => depth += 1,
            '}' | ']' => (depth, commands) = (depth.saturating_sub(1), 0),
            ' ' => {}
            _ if names => {}
            _ => commands = 0,
        }
        deepest = deepest.max(depth + commands);
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::{Found, LONGEST, find, line, lines};

    #[test]
    fn formulas_are_found_and_money_is_not() {
        for (text, tex, display) in [
            ("$x$.", "x", false),
            ("$a + b$", "a + b", false),
            (r"$5\,\text{m}$", r"5\,\text{m}", false),
            ("$$\nx\n$$", "x", true),
            (r"\(x\)", "x", false),
            (r"\[ x \\[2pt] y \]", r"x \\[2pt] y", true),
        ] {
            assert_eq!(find(text).map(|it| (it.tex, it.display)), Some((tex, display)), "of {text:?}");
        }
        assert_eq!(find("$x$ b"), Some(Found { tex: "x", display: false, end: 3 }));
        for text in
            ["$5 and $10", "$5, or US$10", "$5 for John$", "$ x $", "$x", "$$", "$$$$", "\\(x", "\\[a\n\nb\\]", "x"]
        {
            assert_eq!(find(text), None, "of {text:?}");
        }
    }

    #[test]
    fn formulas_become_text() {
        for (tex, text) in [
            ("x^2 + y_1", "x² + y₁"),
            (r"\frac{a+b}{2} \leq \alpha", "(a+b)/2 ≤ α"),
            (r"\sum_{i=1}^{n} i^2", "∑ᵢ₌₁ⁿ i²"),
            (r"\sqrt{x} \in \mathbb{R}", "√x ∈ ℝ"),
            (r"50\% \text{ of } a\_b", "50% of a_b"),
            ("a\n  = b", "a = b"),
            ("{", "{"),
        ] {
            assert_eq!(line(tex), text, "of {tex:?}");
        }
        assert_eq!(lines(r"\begin{aligned} a &= b \\ &= c^2 \end{aligned}"), ["a = b", "= c²"]);
        assert_eq!(lines(r"\begin{align*} a &= b \end{align*}"), ["a = b"]);
    }

    #[test]
    fn what_is_too_much_stays_as_it_is() {
        for tex in ["{", "\\sqrt[", "\\sqrt", "\\frac^", "x^{"] {
            let tex = tex.repeat(LONGEST / tex.len());
            assert_eq!(line(&tex), tex);
        }
        assert_eq!(line(&"x".repeat(LONGEST + 1)).len(), LONGEST + 1);
        for flat in ["x_1 ", "x^y_", "\\alpha x", "{x}"] {
            assert_ne!(line(&flat.repeat(LONGEST / flat.len())), flat.repeat(LONGEST / flat.len()));
        }
    }
}
