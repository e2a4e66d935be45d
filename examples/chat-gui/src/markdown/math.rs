//! LaTeX mathematics as readable text: `\frac{a}{b} \leq \alpha^2` is shown as `a/b ≤ α²`.
//!
//! This is not typesetting. What cannot be converted is shown as it was written.

use latex_to_unicode::parser::Parser;
use latex_to_unicode::renderer::{RenderMode, Renderer};

/// The longest formula that is converted, in bytes, and the deepest. The conversion recurses for each level and takes a
/// few kilobytes of stack each time; a thread on Windows has one megabyte.
const LONGEST: usize = 2000;
const DEEPEST: usize = 50;

/// How far ahead the end of a formula is searched, in bytes. Without a limit, a text of many dollar signs would take
/// quadratic time.
const AHEAD: usize = 4096;

/// Environments whose rows are shown as lines.
const LINES: [&str; 7] = ["aligned", "align", "gathered", "gather", "split", "equation", "eqnarray"];

/// A formula in a text.
#[derive(Debug, PartialEq)]
pub struct Found<'a> {
    pub tex: &'a str,
    /// Whether it is displayed on lines of its own.
    pub display: bool,
    /// Where it ends, including its delimiter.
    pub end: usize,
}

/// The formula at the beginning of a text, which follows the letter `before`. One within a line must end in the first
/// `inline` bytes; Markdown may have taken the lines of a displayed one for paragraphs, lists and headings.
pub fn find(text: &str, inline: usize, before: Option<char>) -> Option<Found<'_>> {
    const DELIMITERS: [(&str, &str, bool); 4] =
        [("$$", "$$", true), (r"\[", r"\]", true), (r"\(", r"\)", false), ("$", "$", false)];
    let (open, close, display) = DELIMITERS.into_iter().find(|(open, ..)| text.starts_with(open))?;
    let inside = if display { &text[open.len()..] } else { text[..inline].get(open.len()..)? };
    let inside = &inside[..inside.floor_char_boundary(AHEAD)];
    let paragraph = inside.find("\n\n").map_or(inside, |end| &inside[..end]);
    let length = match close {
        "$" => dollar(paragraph, before)?,
        "$$" => dollars(paragraph)?,
        close => paragraph.find(close)?,
    };
    let tex = inside[..length].trim();
    (!tex.is_empty()).then_some(Found { tex, display, end: open.len() + length + close.len() })
}

/// The length of a formula between single dollar signs, unless they are a currency or begin the names of variables. As
/// in Pandoc, no space follows the first sign or precedes the second, and no digit follows the second.
fn dollar(text: &str, before: Option<char>) -> Option<usize> {
    let (end, _) = text.match_indices('$').find(|(at, _)| !text[..*at].ends_with('\\'))?;
    let (tex, after) = (&text[..end], &text[end + 1..]);
    let space = tex.starts_with(char::is_whitespace) || tex.ends_with(char::is_whitespace);
    let money = after.starts_with(|next: char| next.is_ascii_digit() || next == '$');
    // "US$5", but not "CO$_2$".
    let attached = before.is_some_and(|before| before.is_ascii_alphanumeric()) && !tex.starts_with(['_', '^', '\\']);
    // "$HOME/$USER", but not "$n$th".
    let joined = after.starts_with(|next: char| next.is_ascii_alphabetic())
        && tex.ends_with(|last| "/:;,.=(_-~@&".contains(last));
    // What Markdown reads before mathematics: code, links and addresses.
    let markup = ["`", "](", "://"].iter().any(|mark| tex.contains(mark));
    (!(space || money || attached || joined || markup || is_prose(tex))).then_some(end)
}

/// The length of a formula between double dollar signs, which also mean "expensive".
fn dollars(text: &str) -> Option<usize> {
    let end = text.find("$$")?;
    let (tex, after) = (&text[..end], &text[end + 2..]);
    let empty = !tex.contains(|letter: char| letter.is_alphanumeric() || letter == '\\');
    (!(tex.starts_with('$') || after.starts_with('$') || empty || has_word(tex) && is_prose(tex.trim()))).then_some(end)
}

/// Whether a text has words or an amount of money and no sign of mathematics. Words after an amount may contain such
/// signs: "$20/month, or 30".
fn is_prose(tex: &str) -> bool {
    let amount = tex.starts_with(|first: char| first.is_ascii_digit());
    let signs = match (amount, has_word(tex)) {
        (false, false) => return false,
        (true, true) => r"\^={",
        _ => r"\^={_+<>|*/",
    };
    tex.contains(char::is_whitespace) && !tex.contains(|letter| signs.contains(letter))
}

fn has_word(tex: &str) -> bool {
    tex.split(|letter: char| !letter.is_ascii_alphabetic()).any(|word| word.len() > 2)
}

/// A formula as lines of text.
pub fn lines(tex: &str) -> Vec<String> {
    let plain = LINES.iter().fold(tex.to_owned(), |tex, name| {
        let marks = ["begin", "end"].map(|mark| [format!("\\{mark}{{{name}*}}"), format!("\\{mark}{{{name}}}")]);
        marks.iter().flatten().fold(tex, |tex, mark| tex.replace(mark, ""))
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
    let shown = Renderer::new(RenderMode::Inline).render(&Parser::new(&known(&tex)).parse());
    let shown = ESCAPES.iter().zip(PRIVATE).fold(shown, |shown, (letter, private)| shown.replace(private, letter));
    if shown.trim().is_empty() { tex } else { shown.trim().to_owned() }
}

/// Characters that follow a backslash and mean themselves. The conversion does not know these escapes, so they pass
/// through it as characters for private use.
const ESCAPES: [&str; 9] = ["%", "$", "#", "&", "_", " ", "{", "}", "‖"];
const PRIVATE: std::ops::RangeInclusive<char> = '\u{e000}'..='\u{e008}';

/// Commands that the conversion does not know, and their replacements.
const COMMANDS: [(&str, &str); 24] = [
    ("mid", " | "),
    ("vert", "|"),
    ("lvert", "|"),
    ("rvert", "|"),
    ("Vert", "‖"),
    ("lVert", "‖"),
    ("rVert", "‖"),
    ("lbrace", r"\{"),
    ("rbrace", r"\}"),
    ("left", ""),
    ("right", ""),
    ("big", ""),
    ("Big", ""),
    ("bigl", ""),
    ("bigr", ""),
    ("Bigl", ""),
    ("Bigr", ""),
    ("displaystyle", ""),
    ("limits", ""),
    ("textbf", r"\text"),
    ("textit", r"\text"),
    ("bmod", " mod "),
    ("pmod", " mod "),
    ("boxed", ""),
];

/// The formula, with commands and escapes replaced that the conversion does not know.
fn known(tex: &str) -> String {
    let tex = tex.replace(r"^{\circ}", "°").replace(r"^\circ", "°");
    let (mut known, mut rest) = (String::with_capacity(tex.len()), &*tex);
    while let Some(at) = rest.find('\\') {
        known.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let name = &rest[..rest.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(rest.len())];
        rest = &rest[name.len()..];
        let Some((_, other)) = COMMANDS.iter().find(|(command, _)| *command == name) else {
            known.extend(["\\", name]);
            continue;
        };
        // No space after what opens, or before what closes.
        if name.starts_with('r') {
            known.truncate(known.trim_end().len());
        }
        known.push_str(other);
        if name.starts_with('l') || other.is_empty() {
            rest = rest.trim_start();
        }
    }
    known.push_str(rest);
    let known = known.replace(r"\|", "‖");
    ESCAPES
        .iter()
        .zip(PRIVATE)
        .fold(known, |known, (letter, private)| known.replace(&format!("\\{letter}"), &private.to_string()))
}

/// The depth to which a formula is nested, at most: by braces and brackets, and by commands whose arguments are
/// commands.
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
    use super::{Found, LONGEST, line, lines};

    fn find(text: &str) -> Option<Found<'_>> {
        super::find(text, text.len(), None)
    }

    #[test]
    fn formulas_are_found() {
        for (text, tex, display) in [
            ("$x$.", "x", false),
            ("$a + b$", "a + b", false),
            ("$v = distance / time$", "v = distance / time", false),
            ("$2 + 3$", "2 + 3", false),
            ("$n - 1$", "n - 1", false),
            ("$a, b$", "a, b", false),
            ("$$ 2 - 1 $$", "2 - 1", true),
            ("$$ f(x) - g(x) $$", "f(x) - g(x)", true),
            ("$n$th", "n", false),
            (r"$5\,\text{m}$", r"5\,\text{m}", false),
            ("$$\nx\n$$", "x", true),
            (r"\(x\)", "x", false),
            (r"\[ x \\[2pt] y \]", r"x \\[2pt] y", true),
        ] {
            assert_eq!(find(text).map(|it| (it.tex, it.display)), Some((tex, display)), "of {text:?}");
        }
        assert_eq!(find("$x$ b"), Some(Found { tex: "x", display: false, end: 3 }));
        assert_eq!(super::find("$_2$", 4, Some('O')).map(|it| it.tex), Some("_2"));
        assert_eq!(super::find("$x$", 3, Some('设')).map(|it| it.tex), Some("x"));
    }

    #[test]
    fn money_and_variables_are_no_formulas() {
        for text in [
            "$5 and $10",
            "$5 or $7",
            "$5, or US$10",
            "$5/$7",
            "$20/month, then 30$/month",
            "$5 for file_a and 7$ for b",
            "$5 (see `x=$y`)",
            "$5 [a=b](https://a.org/$c)",
            "$5 for John$",
            "$HOME/$USER",
            "$a=$b",
            "$$ and he has $$ too",
            "$$–$$$",
            "$$ | $$",
            "$$$ a $$$",
            "$ x $",
            "$x",
            "$",
            "$$",
            "$$$$",
            "\\(x",
            "\\[a\n\nb\\]",
            "x",
        ] {
            assert_eq!(find(text), None, "of {text:?}");
        }
        assert_eq!(super::find("$7=x$", 5, Some('S')), None, "US$");
        assert_eq!(super::find("$x=3\n- y$", 5, None), None, "it would reach into the next block");
    }

    #[test]
    fn formulas_become_text() {
        for (tex, text) in [
            ("x^2 + y_1", "x² + y₁"),
            (r"\frac{a+b}{2} \leq \alpha", "(a+b)/2 ≤ α"),
            (r"\sum_{i=1}^{n} i^2", "∑ᵢ₌₁ⁿ i²"),
            (r"\sqrt{x} \in \mathbb{R}", "√x ∈ ℝ"),
            (r"50\% \text{ of } a\_b", "50% of a_b"),
            (r"\left\{ x \mid x > 0 \right\}", "{ x | x > 0}"),
            (r"\{a, b\}", "{a, b}"),
            (r"\big( \lvert x \rvert > 0 \big)", "( |x| > 0 )"),
            (r"\|v\| = 90^\circ", "‖v‖ = 90°"),
            (r"\textbf{so} \boxed{42}", "so 42"),
            ("a\n  = b", "a = b"),
            ("{", "{"),
        ] {
            assert_eq!(line(tex), text, "of {tex:?}");
        }
        assert_eq!(lines(r"\begin{aligned} a &= b \\ &= c^2 \end{aligned}"), ["a = b", "= c²"]);
        assert_eq!(lines(r"\begin{align*} a &= b \end{align*}"), ["a = b"]);
    }

    #[test]
    fn what_is_too_long_or_too_deep_stays_as_it_is() {
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
