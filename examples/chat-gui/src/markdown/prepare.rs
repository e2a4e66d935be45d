//! Makes of a text, as models and people write it, what the viewer of Markdown draws as they meant it.
//!
//! - Addresses without brackets become links. A link leads only where a browser or a mail program takes it: models
//!   repeat what they have read, and a click must not open a file or start a program. Other links, and pictures, which
//!   would be loaded from anywhere, are shown with their address.
//! - Mathematics, between any of the delimiters that models use, is taken out, and its number stands in its place: most
//!   of what LaTeX consists of means something else in Markdown.
//! - In messages of the user, lines end where the user ended them.
//!
//! Everything works on the source of the text, at the positions that the parser reports, so that code stays as it is.

use super::math;
use pulldown_cmark::{Event, LinkType, Options, Parser, Tag, TagEnd};
use std::ops::Range;

/// What the viewer of Markdown understands, besides mathematics.
pub const OPTIONS: Options = Options::ENABLE_TABLES
    .union(Options::ENABLE_TASKLISTS)
    .union(Options::ENABLE_STRIKETHROUGH)
    .union(Options::ENABLE_FOOTNOTES)
    .union(Options::ENABLE_DEFINITION_LIST);

/// The beginnings of addresses that links may lead to.
const SCHEMES: [&str; 3] = ["https://", "http://", "mailto:"];

/// The Markdown for the viewer, and the formulas whose numbers stand between dollars in it.
#[derive(Debug, Default, PartialEq)]
pub struct Prepared {
    pub text: String,
    pub formulas: Vec<String>,
}

/// Prepares a text. `keep_lines` keeps the ends of lines, which Markdown otherwise takes for blanks.
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

/// The definitions of links in a text.
pub fn definitions(text: &str) -> String {
    let parser = Parser::new_ext(text, OPTIONS);
    let definitions = parser.reference_definitions().iter();
    definitions.map(|(_, definition)| format!("\n\n{}", &text[definition.span.clone()])).collect()
}

/// The beginning of an address, in the case in which it is written.
fn scheme(text: &str) -> Option<&str> {
    let same = |scheme: &&str| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    SCHEMES.into_iter().find(same).and_then(|scheme| text.get(..scheme.len()))
}

/// A link or a picture that is being read.
struct Open {
    range: Range<usize>,
    kind: Kind,
    address: String,
    /// The source of its text.
    inner: Option<Range<usize>>,
    /// Its text, without marks.
    name: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Link,
    /// A link to an address of mail.
    Mail,
    /// A link that may not lead anywhere.
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
    /// The number of lists, quotations and tables around the text.
    depth: usize,
    /// Where the text begins that is not yet read: an address or a formula may reach over several events.
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
        match event {
            Event::Start(Tag::CodeBlock(_)) => self.in_code = true,
            Event::End(TagEnd::CodeBlock) => self.in_code = false,
            Event::Start(Tag::List(_) | Tag::BlockQuote(_) | Tag::Table(_)) => self.depth += 1,
            Event::End(TagEnd::List(_) | TagEnd::BlockQuote(_) | TagEnd::Table) => self.depth -= 1,
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
            Event::Text(_) if !self.in_code && self.open.is_empty() => self.words(range),
            Event::SoftBreak if self.keep_lines && range.start >= self.next => {
                self.edits.push((range.start..range.start, "\\".into()));
            }
            _ => {}
        }
    }

    /// Begins a link or a picture.
    fn open(&mut self, range: Range<usize>, kind: Kind, address: String) {
        self.open.push(Open { range, kind, address, inner: None, name: String::new() });
    }

    /// Ends a link or a picture. What it becomes must not be read as another link: texts are escaped, and so is the
    /// beginning of one that stays, which would otherwise be taken for the address of brackets before it.
    fn close(&mut self) {
        let Some(open) = self.open.pop() else { return };
        let Open { range, kind, address, inner, name } = open;
        let inner = inner.unwrap_or(range.end..range.end);
        let text = &self.text[inner.clone()];
        match kind {
            Kind::Link => {}
            Kind::Mail => self.edits.push((range, format!("[{}](<mailto:{}>)", escaped(&name), destination(&address)))),
            // Inside a link, a picture is its description.
            Kind::Picture if !self.open.is_empty() => {
                self.edits.push((range.start..inner.start, guard(text).to_owned()));
                self.edits.push((inner.end..range.end, String::new()));
            }
            Kind::Picture if leads(&address) => {
                let name = if name.trim().is_empty() { "picture".to_owned() } else { escaped(&name) };
                self.edits.push((range, format!("[{name}](<{}>)", destination(&address))));
            }
            Kind::Dead | Kind::Picture if text == address => self.edits.push((range, code(&address))),
            Kind::Dead | Kind::Picture => {
                self.edits.push((range.start..inner.start, guard(text).to_owned()));
                self.edits.push((inner.end..range.end, format!(" ({})", code(&address))));
            }
        }
    }

    /// Looks for addresses and formulas in a text.
    fn words(&mut self, range: Range<usize>) {
        self.next = self.next.max(range.start);
        while self.next < range.end {
            let at = self.next;
            let escaped = at == range.start && self.text[..at].ends_with('\\');
            let rest = &self.text[at..];
            let letter = rest.chars().next().map_or(1, char::len_utf8);
            let taken = match rest.as_bytes()[0] {
                b'(' | b'[' if escaped => self.formula(at - 1),
                b'$' if escaped => None,
                b'$' => {
                    let taken = self.formula(at);
                    if taken.is_none() {
                        self.edits.push((at..at, "\\".into()));
                    }
                    taken
                }
                b'h' | b'H' | b'm' | b'M' => self.address(at),
                _ => None,
            };
            self.next = taken.unwrap_or(at + letter);
        }
    }

    /// Takes out the formula that begins here. Returns its end.
    fn formula(&mut self, at: usize) -> Option<usize> {
        let found = math::find(&self.text[at..])?;
        let end = at + found.end;
        let number = self.formulas.len();
        self.formulas.push(found.tex.to_owned());
        // By itself on its lines, a formula is a paragraph.
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

    /// Makes a link of the address that begins here. Returns its end.
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
                continue; // inside of what is replaced already
            }
            text.push_str(&self.text[done..range.start]);
            text.push_str(&new);
            done = range.end;
        }
        text.push_str(&self.text[done..]);
        Prepared { text, formulas: self.formulas }
    }
}

/// The length of the address at the beginning of a text.
fn address(text: &str) -> Option<usize> {
    let scheme = scheme(text)?.len();
    let ends = |letter: char| {
        letter.is_whitespace() || letter.is_control() || is_wide(letter) || "<>\"`|\\^{}".contains(letter)
    };
    let mut end = text.find(ends).unwrap_or(text.len());
    // How many more brackets are closed than opened.
    let excess = |open, close| text[..end].matches(close).count().saturating_sub(text[..end].matches(open).count());
    let (mut round, mut square) = (excess('(', ')'), excess('[', ']'));
    // Punctuation at the end belongs to the sentence, and so does a bracket that the address does not open.
    loop {
        let last = text[..end].chars().next_back()?;
        match last {
            ')' if round > 0 => round -= 1,
            ']' if square > 0 => square -= 1,
            last if ".,:;!?'*_~…".contains(last) => {}
            _ => break,
        }
        end -= last.len_utf8();
    }
    let name = text.get(scheme..end)?;
    name.starts_with(|letter: char| letter.is_alphanumeric() || letter == '[').then_some(end)
}

/// Whether a letter is one of those scripts that use no blanks: Chinese, Japanese and Korean, with their punctuation.
fn is_wide(letter: char) -> bool {
    matches!(letter, '\u{1100}'..='\u{11ff}' | '\u{2e80}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}' | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe4f}' | '\u{ff00}'..='\u{ffef}' | '\u{20000}'..='\u{3ffff}')
}

/// What to put before a text that loses its brackets.
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

/// An address as it stands between `<` and `>`.
fn destination(address: &str) -> String {
    let fine = address.chars().filter(|letter| !letter.is_control() && !['<', '>'].contains(letter));
    fine.collect::<String>().replace('\\', "\\\\").replace('&', "&amp;")
}

/// A letter, or a blank for what controls: an end of a line would end what it stands in.
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

    /// Both would take minutes if the rest of the text were read for each.
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
        found("`$a$` and\n```\n$b$\n```", "`$a$` and\n```\n$b$\n```", &[]);
        found(r"a (b) and \[c", r"a (b) and \[c", &[]);
    }

    #[test]
    fn lines_of_the_user_stay() {
        assert_eq!(prepare("a\nb\n\nc\n- d", true).text, "a\\\nb\n\nc\n- d");
        assert_eq!(prepare("```\na\nb\n```", true).text, "```\na\nb\n```");
    }
}
