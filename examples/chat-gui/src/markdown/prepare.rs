//! Rewrites a text so that the viewer of Markdown draws what its author, a model or a person, meant.
//!
//! - Bare addresses become links. Only links that open a browser or a mail program can be clicked: models repeat what
//!   they have read, and a click must not open a file or start a program. Other links are shown with their address, and
//!   so are images, which could be loaded from anywhere.
//! - Formulas, between any of the delimiters that models use, are replaced by their numbers, because most characters of
//!   LaTeX mean something else in Markdown. All other dollar signs are escaped.
//! - In user messages, lines end where the user ended them.
//!
//! All edits are made to the source, at the positions that the parser reports, so code stays as it is.

use super::math;
use pulldown_cmark::{Event, LinkType, Options, Parser, Tag, TagEnd};
use std::ops::Range;

/// The extensions that the viewer of Markdown enables, besides mathematics.
pub const OPTIONS: Options = Options::ENABLE_TABLES
    .union(Options::ENABLE_TASKLISTS)
    .union(Options::ENABLE_STRIKETHROUGH)
    .union(Options::ENABLE_FOOTNOTES)
    .union(Options::ENABLE_DEFINITION_LIST);

/// The beginnings of addresses that links may lead to.
const SCHEMES: [&str; 3] = ["https://", "http://", "mailto:"];

/// The Markdown for the viewer, and the formulas whose numbers it has between dollar signs.
#[derive(Debug, Default, PartialEq)]
pub struct Prepared {
    pub text: String,
    pub formulas: Vec<String>,
}

/// Prepares a text. `keep_lines` keeps line breaks, which are spaces in Markdown.
pub fn prepare(text: &str, keep_lines: bool) -> Prepared {
    let mut scan = Scan { text, keep_lines, ..Scan::default() };
    for (event, range) in Parser::new_ext(text, OPTIONS).into_offset_iter() {
        scan.event(event, range);
    }
    scan.finish()
}

/// Whether a link may lead to an address.
pub fn leads(address: &str) -> bool {
    scheme(address).is_some()
}

/// The scheme of an address, as it is written there.
fn scheme(text: &str) -> Option<&str> {
    let same = |scheme: &&str| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    SCHEMES.into_iter().find(same).and_then(|scheme| text.get(..scheme.len()))
}

/// A link or an image that is being read.
struct Open {
    range: Range<usize>,
    kind: Kind,
    address: String,
    /// The source of its text.
    inner: Option<Range<usize>>,
    /// Its text, without marks.
    name: String,
    /// The parts of its source in which there may be formulas.
    words: Vec<Range<usize>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Link,
    /// A link to a mail address.
    Mail,
    /// A link that must not be followed.
    Dead,
    Picture,
}

#[derive(Default)]
struct Scan<'a> {
    text: &'a str,
    keep_lines: bool,
    edits: Vec<(Range<usize>, String)>,
    formulas: Vec<String>,
    open: Vec<Open>,
    in_code: bool,
    in_table: bool,
    /// The number of quotations around the text.
    quotes: usize,
    /// The number of blocks around the text that are [nested](is_nested).
    depth: usize,
    /// The ends of the blocks around the text.
    ends: Vec<usize>,
    /// Where the unread text begins: an address or a formula may extend over several events.
    next: usize,
}

impl Scan<'_> {
    fn event(&mut self, event: Event<'_>, range: Range<usize>) {
        let ends = matches!(event, Event::End(TagEnd::Link | TagEnd::Image));
        if !ends && let Some(open) = self.open.last_mut() {
            let start = open.inner.as_ref().map_or(range.start, |inner| inner.start);
            open.inner = Some(start..range.end);
        }
        match &event {
            Event::Text(text) | Event::Code(text) => self.open.iter_mut().for_each(|open| open.name.push_str(text)),
            Event::SoftBreak | Event::HardBreak => self.open.iter_mut().for_each(|open| open.name.push(' ')),
            _ => {}
        }
        self.note_block(&event, &range);
        match event {
            Event::Start(Tag::Link { link_type, dest_url, .. }) => {
                let kind = match link_type {
                    LinkType::Email => Kind::Mail,
                    _ if leads(&dest_url) => Kind::Link,
                    _ => Kind::Dead,
                };
                self.open(range, kind, dest_url.into_string());
            }
            Event::Start(Tag::Image { dest_url, .. }) => {
                self.open(range, Kind::Picture, dest_url.into_string());
            }
            Event::End(TagEnd::Link | TagEnd::Image) => self.close(),
            Event::Text(_) if !self.in_code => match self.open.last_mut() {
                Some(open) => open.words.push(range),
                None => self.words(range, self.ends.last().copied().unwrap_or(self.text.len()), false),
            },
            Event::SoftBreak if self.keep_lines && range.start >= self.next => {
                self.edits.push((range.start..range.start, "\\".into()));
            }
            _ => {}
        }
    }

    /// Notes where a block begins or ends.
    fn note_block(&mut self, event: &Event<'_>, range: &Range<usize>) {
        use {Tag as Is, TagEnd as End};
        match event {
            Event::Start(Is::CodeBlock(_)) => self.in_code = true,
            Event::End(End::CodeBlock) => self.in_code = false,
            Event::Start(tag) => {
                self.in_table |= matches!(tag, Is::Table(_));
                self.quotes += usize::from(matches!(tag, Is::BlockQuote(_)));
                self.depth += usize::from(is_nested(&tag.to_end()));
                if is_block(&tag.to_end()) {
                    self.ends.push(range.end);
                }
            }
            Event::End(tag) => {
                self.in_table &= !matches!(tag, End::Table);
                self.quotes -= usize::from(matches!(tag, End::BlockQuote(_)));
                self.depth -= usize::from(is_nested(tag));
                if is_block(tag) {
                    self.ends.pop();
                }
            }
            _ => {}
        }
    }

    /// Begins a link or an image.
    fn open(&mut self, range: Range<usize>, kind: Kind, address: String) {
        self.open.push(Open { range, kind, address, inner: None, name: String::new(), words: Vec::new() });
    }

    /// Ends a link or an image. The result must not be read as another link: texts are escaped, and so is the first
    /// character of a text that stays, which could otherwise become the address of brackets before it.
    fn close(&mut self) {
        let Some(open) = self.open.pop() else { return };
        let Open { range, kind, address, inner, name, words } = open;
        let inner = inner.unwrap_or(range.end..range.end);
        let text = &self.text[inner.clone()];
        if !self.text[range.clone()].starts_with('<') {
            words.into_iter().for_each(|words| self.words(words, inner.end, true));
        }
        match kind {
            Kind::Link => {}
            Kind::Mail => self.edits.push((range, format!("[{}](<mailto:{}>)", escaped(&name), destination(&address)))),
            // Inside a link, an image is its description.
            Kind::Picture if !self.open.is_empty() => {
                self.edits.push((range.start..inner.start, guard(text).to_owned()));
                self.edits.push((inner.end..range.end, String::new()));
            }
            Kind::Picture if leads(&address) => {
                let name = if name.trim().is_empty() { "image".to_owned() } else { escaped(&name) };
                self.edits.push((range, format!("[{name}](<{}>)", destination(&address))));
            }
            Kind::Dead | Kind::Picture if text == address => self.edits.push((range, code(&address))),
            Kind::Dead | Kind::Picture => {
                self.edits.push((range.start..inner.start, guard(text).to_owned()));
                self.edits.push((inner.end..range.end, format!(" ({})", code(&address))));
            }
        }
    }

    /// Looks for formulas and, outside links, for addresses. Formulas within a line end before `end`.
    fn words(&mut self, range: Range<usize>, end: usize, in_link: bool) {
        let all = if in_link || self.in_table { end } else { self.text.len() };
        self.next = self.next.max(range.start);
        while self.next < range.end {
            let at = self.next;
            let escaped = at == range.start && self.text[..at].ends_with('\\');
            let rest = &self.text[at..];
            let letter = rest.chars().next().map_or(1, char::len_utf8);
            let taken = match rest.as_bytes()[0] {
                b'(' | b'[' if escaped => self.formula(at - 1, end, all),
                b'$' if !escaped => self.formula(at, end, all).or_else(|| Some(self.dollars(at))),
                b'h' | b'H' | b'm' | b'M' if !in_link => self.address(at),
                _ => None,
            };
            self.next = taken.unwrap_or(at + letter);
        }
    }

    /// Escapes the dollar signs that begin here. Returns their end.
    fn dollars(&mut self, at: usize) -> usize {
        let rest = &self.text[at..];
        let end = at + rest.len() - rest.trim_start_matches('$').len();
        self.edits.extend((at..end).map(|at| (at..at, "\\".to_owned())));
        end
    }

    /// Takes out the formula that begins here, if it ends before `inline`, or before `all` if it is displayed on lines
    /// of its own. Returns its end.
    fn formula(&mut self, at: usize, inline: usize, all: usize) -> Option<usize> {
        let found = math::find(self.text.get(at..all)?, inline - at, self.text[..at].chars().next_back())?;
        if self.in_table && found.tex.contains(" | ") {
            return None; // that is the end of a cell
        }
        let end = at + found.end;
        let number = self.formulas.len();
        self.formulas.push(self.without_quotes(found.tex));
        // A displayed formula that is alone on its lines is a paragraph.
        let before = &self.text.as_bytes()[at.saturating_sub(4)..at];
        let line = before.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        let alone = found.display && self.depth == 0 && line.len() < 4 && line.iter().all(u8::is_ascii_whitespace);
        let place = match (found.display, alone) {
            (true, true) => format!("\n\n$${number}$$\n\n"),
            (true, false) => format!("$${number}$$"),
            (false, _) => format!("${number}$"),
        };
        self.edits.push((at..end, place));
        Some(end)
    }

    /// A formula without the marks of the quotations around it, which begin its lines.
    fn without_quotes(&self, tex: &str) -> String {
        let strip = |line: &str| {
            let unquoted = |line: &str| line.trim_start().strip_prefix('>').map(str::to_owned);
            (0..self.quotes).fold(line.to_owned(), |line, _| unquoted(&line).unwrap_or(line))
        };
        tex.lines().map(strip).collect::<Vec<_>>().join("\n").trim().to_owned()
    }

    /// Makes the address that begins here a link. Returns its end.
    fn address(&mut self, at: usize) -> Option<usize> {
        if self.text[..at].ends_with(|letter: char| letter.is_alphanumeric() && !is_wide(letter)) {
            return None;
        }
        let length = address(&self.text[at..])?;
        let end = at + length;
        self.edits.push((at..end, format!("<{}>", &self.text[at..end])));
        Some(end)
    }

    /// The text with all edits.
    fn finish(mut self) -> Prepared {
        self.edits.sort_by_key(|(range, _)| (range.start, range.end));
        let (mut text, mut done) = (String::with_capacity(self.text.len() + 64), 0);
        for (range, new) in self.edits {
            if range.start < done {
                continue; // inside a part that was replaced already
            }
            text.push_str(&self.text[done..range.start]);
            text.push_str(&new);
            done = range.end;
        }
        text.push_str(&self.text[done..]);
        Prepared { text, formulas: self.formulas }
    }
}

/// Whether a paragraph inside this needs more than blank lines around it, such as an indentation.
fn is_nested(tag: &TagEnd) -> bool {
    use TagEnd as Is;
    matches!(tag, Is::List(_) | Is::BlockQuote(_) | Is::Table | Is::FootnoteDefinition | Is::DefinitionList)
}

/// Whether a formula within a line must end in the same one of these.
fn is_block(tag: &TagEnd) -> bool {
    use TagEnd as Is;
    let row = matches!(tag, Is::TableHead | Is::TableRow);
    row || matches!(
        tag,
        Is::Paragraph | Is::Heading(_) | Is::Item | Is::DefinitionListTitle | Is::DefinitionListDefinition
    )
}

/// The length of the address at the beginning of a text.
fn address(text: &str) -> Option<usize> {
    let scheme = scheme(text)?.len();
    let ends = |letter: char| {
        letter.is_whitespace() || letter.is_control() || is_wide(letter) || "<>\"`|\\^{}".contains(letter)
    };
    let mut end = text.find(ends).unwrap_or(text.len());
    // The number of brackets that are closed but not opened.
    let excess = |open, close| text[..end].matches(close).count().saturating_sub(text[..end].matches(open).count());
    let (mut round, mut square) = (excess('(', ')'), excess('[', ']'));
    // Punctuation at the end belongs to the sentence, and so does a bracket that the address does not open.
    loop {
        let last = text[..end].chars().next_back()?;
        match last {
            ')' if round > 0 => round -= 1,
            ']' if square > 0 => square -= 1,
            last if ".,:;!?'*_~…([".contains(last) => {}
            _ => break,
        }
        end -= last.len_utf8();
    }
    let name = text.get(scheme..end)?;
    name.starts_with(|letter: char| letter.is_alphanumeric() || letter == '[').then_some(end)
}

/// Whether a letter or punctuation mark is Chinese, Japanese or Korean: these scripts put no spaces around an address.
fn is_wide(letter: char) -> bool {
    matches!(letter, '\u{1100}'..='\u{11ff}' | '\u{2e80}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}'
        | '\u{f900}'..='\u{faff}' | '\u{fe30}'..='\u{fe4f}' | '\u{ff00}'..='\u{ffef}' | '\u{20000}'..='\u{3ffff}')
}

/// What has to precede a text that loses its brackets.
fn guard(text: &str) -> &'static str {
    if text.starts_with(['(', '[', ':']) { "\\" } else { "" }
}

/// A plain text in Markdown.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars().map(plain) {
        if letter.is_ascii_punctuation() {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

/// An address as it is written between `<` and `>`.
fn destination(address: &str) -> String {
    let fine = address.chars().filter(|letter| !letter.is_control() && !['<', '>'].contains(letter));
    fine.collect::<String>().replace('\\', "\\\\").replace('&', "&amp;")
}

/// A letter, or a space for a control character: a line break would end the element that the letter is part of.
fn plain(letter: char) -> char {
    if letter.is_control() { ' ' } else { letter }
}

/// A text as code in Markdown.
fn code(text: &str) -> String {
    let ticks = text.split(|letter| letter != '`').map(str::len).max().unwrap_or(0);
    let mark = "`".repeat(ticks + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{mark}{pad}{}{pad}{mark}", text.chars().map(plain).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::{Event, OPTIONS, Parser, Tag, leads, prepare};

    fn is(text: &str, expected: &str) {
        assert_eq!(prepare(text, false).text, expected, "of {text:?}");
    }

    #[test]
    fn bare_addresses_become_links() {
        is("see https://a.org/b_c_d?x=1&y=(2). Yes", "see <https://a.org/b_c_d?x=1&y=(2)>. Yes");
        is("(http://a.org/x)", "(<http://a.org/x>)");
        is("**HTTPS://a.org**", "**<HTTPS://a.org>**");
        is("mail mailto:a@b.de!", "mail <mailto:a@b.de>!");
        is("see https://a.org/b[^1]\n\n[^1]: c", "see <https://a.org/b>[^1]\n\n[^1]: c");
        is("请看https://a.org。谢谢", "请看<https://a.org>。谢谢");
        is("| a | https://a.org/|\n|-|-|\n| b | c |", "| a | <https://a.org/>|\n|-|-|\n| b | c |");
        for same in [
            "`https://a.org`",
            "```\nhttps://a.org\n```",
            "<https://a.org>",
            "[https://a.org](https://a.org)",
            "[x]: https://a.org",
            "xhttps://a.org",
            "https://",
            "file:///etc/passwd",
        ] {
            is(same, same);
        }
    }

    #[test]
    fn links_lead_to_browsers_and_mail_only() {
        is("[x](javascript:alert(1)) y", "x (`javascript:alert(1)`) y");
        is("[**x**](file:///etc/passwd)", "**x** (`file:///etc/passwd`)");
        is("<file:///etc/passwd>", "`file:///etc/passwd`");
        is("[x](notes.md)", "x (`notes.md`)");
        is("<a@b.de>", r"[a\@b\.de](<mailto:a@b.de>)");
        is("[x](https://a.org)", "[x](https://a.org)");
        is("![an owl](https://a.org/o.png)", "[an owl](<https://a.org/o.png>)");
        is("![an owl](owl.png)", "an owl (`owl.png`)");
        is("[![owl](o.png)](https://a.org)", "[owl](https://a.org)");
    }

    /// The addresses of the links in a text.
    fn addresses(text: &str) -> Vec<String> {
        let links = Parser::new_ext(text, OPTIONS).filter_map(|event| match event {
            Event::Start(Tag::Link { dest_url, .. }) => Some(dest_url.into_string()),
            _ => None,
        });
        links.collect()
    }

    #[test]
    fn nothing_becomes_a_link_by_preparing_it() {
        for text in [
            "![[click](file:///etc/passwd)](https://a.org/o.png)",
            "![x](<https://a&#13;[click](file:///etc/passwd)>)",
            "[x](<file:///a&#13;&#13;[click](file:///b)>)",
            r"![\[click\](file:///etc/passwd)](https://a.org/o.png)",
            "[click]![(file:///etc/passwd)](o.png)",
            "[click][(file:///b)](file:///c)",
            "[click]![[x]](o.png)\n\n[x]: file:///b",
            "[click]![:](o.png) file:///b",
            "![`](<https://a.org/&lt;&gt;[x](file:///b)>)`",
        ] {
            let prepared = prepare(text, false).text;
            let dead: Vec<String> = addresses(&prepared).into_iter().filter(|address| !leads(address)).collect();
            assert!(dead.is_empty(), "{text:?} became {prepared:?}, with {dead:?}");
        }
        is("![a *b*](https://a.org?x=1&y=2)", "[a b](<https://a.org?x=1&amp;y=2>)");
        assert_eq!(addresses("[a](<https://a.org?x=1&amp;y=2>)"), ["https://a.org?x=1&y=2"]);
    }

    /// Both would take minutes if the rest of the text were read for each mark.
    #[test]
    fn long_texts_of_marks_are_prepared_in_linear_time() {
        let money = "$a ".repeat(20_000);
        assert_eq!(prepare(&money, false).text.len(), money.len() + 20_000);
        let closed = format!("https://a.org{}", ")".repeat(50_000));
        assert!(prepare(&closed, false).text.starts_with("<https://a.org>)"));
    }

    #[test]
    fn formulas_are_taken_out() {
        let found = |text: &str, expected: &str, formulas: &[&str]| {
            let prepared = prepare(text, false);
            assert_eq!(prepared.text, expected, "of {text:?}");
            assert_eq!(prepared.formulas, formulas, "of {text:?}");
        };
        found("so $a_1*b_2*c$ is", "so $0$ is", &["a_1*b_2*c"]);
        found(r"so \(a_1\) and \(b\).", "so $0$ and $1$.", &["a_1", "b"]);
        found("\\[\nx\n+ y\n= z\n\\]\nend", "\n\n$$0$$\n\n\nend", &["x\n+ y\n= z"]);
        found("- a $$x$$", "- a $$0$$", &["x"]);
        found("| $|x|$ |\n|-|\n| b |", "| $0$ |\n|-|\n| b |", &["|x|"]);
        found("it costs $5, not $10", "it costs \\$5, not \\$10", &[]);
        found("it costs \\$5", "it costs \\$5", &[]);
        found("[$5/$7](https://a.org) $a^2$", "[\\$5/\\$7](https://a.org) $0$", &["a^2"]);
        found("[see $a^2$](https://a.org/$b)", "[see $0$](https://a.org/$b)", &["a^2"]);
        found("[a $x](https://a.org/$b)", "[a \\$x](https://a.org/$b)", &[]);
        found("[![$5/$7](o.png)](https://a.org)", "[\\$5/\\$7](https://a.org)", &[]);
        found("<https://a.org/$a$>", "<https://a.org/$a$>", &[]);
        found("costs $5 [a/b](https://a.org/$y)", "costs \\$5 [a/b](https://a.org/$y)", &[]);
        found("$$ to $$$", "\\$\\$ to \\$\\$\\$", &[]);
        found("- $x=1\n- y$", "- \\$x=1\n- y\\$", &[]);
        found("| a | b |\n|-|-|\n| $5 | x=3$ |", "| a | b |\n|-|-|\n| \\$5 | x=3\\$ |", &[]);
        found("> $$\n> x\n> $$", "> $$0$$", &["x"]);
        found("[^1]\n\n[^1]: $$x$$", "[^1]\n\n[^1]: $$0$$", &["x"]);
        found("`$a$` and\n```\n$b$\n```", "`$a$` and\n```\n$b$\n```", &[]);
        found(r"a (b) and \[c", r"a (b) and \[c", &[]);
    }

    #[test]
    fn lines_of_the_user_stay() {
        assert_eq!(prepare("a\nb\n\nc\n- d", true).text, "a\\\nb\n\nc\n- d");
        assert_eq!(prepare("```\na\nb\n```", true).text, "```\na\nb\n```");
    }
}
