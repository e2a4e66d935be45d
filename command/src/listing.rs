//! Lists models to fit a terminal: a line for each, with an explanation below it if one is needed. If the output is not
//! a terminal, names are never shortened, because programs read them.

use super::output;
use super::wrap::filled;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The shortest length of a shortened name.
const MIN_NAME: usize = 16;
/// The prefix of lines below an entry.
const INDENT: &str = "    ";

/// A column: its title, and whether its cells are aligned to the right.
pub type Title = (&'static str, bool);

/// A model: its cells, the first of which is its name, and an explanation.
pub struct Entry {
    pub cells: Vec<String>,
    pub below: Option<String>,
}

/// The lines of a list, none of them wider than `width`.
pub fn lines(titles: &[Title], entries: &[Entry], width: Option<usize>) -> Vec<String> {
    let widest = |index: usize| {
        let cells = entries.iter().map(|entry| entry.cells[index].width());
        cells.chain([titles[index].0.len()]).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..titles.len()).map(widest).collect();
    let rest: usize = widths.iter().skip(1).map(|width| width + 2).sum();
    if let (Some(all), Some(name)) = (width, widths.first_mut()) {
        *name = (*name).min(all.saturating_sub(rest).max(MIN_NAME));
    }
    let row = |cells: &[String]| {
        let columns = cells.iter().zip(&widths).zip(titles);
        let padded: Vec<String> = columns
            .map(|((text, &width), (_, right))| {
                let text = shortened(text, width);
                let blanks = " ".repeat(width.saturating_sub(text.width()));
                if *right { blanks + &text } else { text + &blanks }
            })
            .collect();
        padded.join("  ").trim_end().to_owned()
    };
    let mut lines = vec![row(&titles.iter().map(|(title, _)| (*title).to_owned()).collect::<Vec<_>>())];
    for Entry { cells, below } in entries {
        lines.push(row(cells));
        lines.extend(below.iter().flat_map(|reason| indented(reason, width)));
    }
    lines
}

/// A text of at most `most` columns, shortened in the middle, because names differ at their ends.
fn shortened(text: &str, most: usize) -> String {
    if text.width() <= most {
        return text.to_owned();
    }
    let first = most.saturating_sub(1) / 2;
    let last = most.saturating_sub(1) - first;
    let end: Vec<char> = fitting(text.chars().rev(), last);
    fitting(text.chars(), first).into_iter().chain(['…']).chain(end.into_iter().rev()).collect()
}

/// The first characters, as many as fit in `most` columns.
fn fitting(letters: impl Iterator<Item = char>, most: usize) -> Vec<char> {
    let mut columns = 0;
    let fits = |letter: &char| {
        columns += letter.width().unwrap_or(0);
        columns <= most
    };
    letters.take_while(fits).collect()
}

/// A text in indented lines.
fn indented(text: &str, width: Option<usize>) -> Vec<String> {
    let most = width.map_or(usize::MAX, |width| width.saturating_sub(INDENT.len()).max(MIN_NAME));
    filled(text, most).iter().map(|line| format!("{INDENT}{line}")).collect()
}

/// Explains the sizes in a list below it.
pub fn explain() {
    output::note(format_args!("needs: GPU memory of the model and one conversation, whose context -c sets"));
}

#[cfg(test)]
mod tests {
    use super::{Entry, lines, shortened};

    #[test]
    fn a_list_is_as_wide_as_the_terminal() {
        let entry = |name: &str, below: Option<&str>| Entry {
            cells: [name, "17.0 GiB", "no"].map(str::to_owned).to_vec(),
            below: below.map(str::to_owned),
        };
        let long = "somebody-with-a-long-name/GLM-4.7-Flash-and-a-very-long-description-of-it-GGUF:UD-Q4_K_XL";
        let path = "/a/path/without/blanks/".repeat(6);
        let why = format!("needs 19.3 GiB, 16.0 GiB available, which is too much for this machine and its GPU: {path}");
        let entries = [entry("a/b:Q4_0", None), entry(long, Some(&why))];
        let titles = [("model", false), ("size", true), ("fits", false)];
        for width in [40, 80, 120] {
            let listed = lines(&titles, &entries, Some(width));
            assert!(listed.iter().all(|line| line.chars().count() <= width), "{width}: {listed:#?}");
            assert_eq!(listed[2].contains('…'), width < 120, "{listed:#?}");
            assert!(listed[2].ends_with("Q4_K_XL  17.0 GiB  no"), "{listed:#?}");
            assert!(listed[3].starts_with("    needs 19.3 GiB"), "{listed:#?}");
            let told: String = listed[3..].concat().split_whitespace().collect();
            assert_eq!(told, why.split_whitespace().collect::<String>());
        }
        let whole = lines(&titles, &entries, None);
        assert!(whole[2].starts_with(long) && whole[3].trim() == why && whole.len() == 4, "{whole:#?}");
    }

    #[test]
    fn names_are_shortened_in_the_middle() {
        assert_eq!(shortened("abcdefghij", 10), "abcdefghij");
        assert_eq!(shortened("abcdefghijk", 10), "abcd…ghijk");
        assert_eq!(shortened("äöüäöü", 3), "ä…ü");
        assert_eq!(shortened("你好世界", 6), "你…界");
    }
}
