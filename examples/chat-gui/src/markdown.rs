//! Shows messages, which are Markdown; replies arrive in pieces.
//!
//! Emphasis and code have marks on both sides, so a reply that has come as far as `an **ow` would show the stars until
//! the closing ones arrive a moment later. Therefore marks that are open at the end of the text are closed.
//!
//! What a text needs before it is drawn ([`prepare`]) is remembered as long as it is shown.

mod math;
mod prepare;
mod table;

use eframe::egui::cache::{ComputerMut, FrameCache};
use eframe::egui::{Context, OutputCommand, RichText, Ui};
use egui_commonmark::{CommonMarkCache, CommonMarkViewer};
use std::borrow::Cow;
use std::sync::Arc;
use table::Table;

/// Shows a text.
pub fn show(ui: &mut Ui, cache: &mut CommonMarkCache, text: &str) {
    show_as(ui, cache, text, false);
}

/// Shows a text of the user, whose lines end where the user ended them.
pub fn show_typed(ui: &mut Ui, cache: &mut CommonMarkCache, text: &str) {
    show_as(ui, cache, text, true);
}

/// Opens no links but those that may lead somewhere. Texts that are shown have no others; this is for whatever a text
/// makes of them all the same.
pub fn keep_links(window: &Context) {
    let leads = |command: &OutputCommand| match command {
        OutputCommand::OpenUrl(open) => prepare::leads(&open.url),
        _ => true,
    };
    window.output_mut(|output| output.commands.retain(leads));
}

/// Shows a text that is not complete yet.
pub fn show_unfinished(ui: &mut Ui, cache: &mut CommonMarkCache, text: &str) {
    show(ui, cache, &closed(text));
}

/// A text that is ready to be drawn.
#[derive(Default)]
struct Page {
    parts: Vec<Part>,
    formulas: Vec<String>,
}

/// A part of a text.
enum Part {
    Markdown(String),
    Table(Table),
}

impl Page {
    fn new(text: &str, keep_lines: bool) -> Self {
        let prepare::Prepared { text, formulas } = prepare::prepare(text, keep_lines);
        let tables = table::find(&text);
        // Each part has the addresses of links that are defined anywhere.
        let definitions = if tables.is_empty() { String::new() } else { prepare::definitions(&text) };
        let part = |range| format!("{}{definitions}", &text[range]);
        let (mut parts, mut done) = (Vec::new(), 0);
        for range in tables {
            parts.push(Part::Markdown(part(done..range.start)));
            parts.push(Part::Table(Table::read(&part(range.clone()), &formulas)));
            done = range.end;
        }
        parts.push(Part::Markdown(part(done..text.len())));
        parts.retain(|part| !matches!(part, Part::Markdown(text) if text.trim().is_empty()));
        Self { parts, formulas }
    }

    /// Shows a formula by its number.
    fn formula(&self, ui: &mut Ui, number: &str, inline: bool) {
        let tex = number.parse().ok().and_then(|number: usize| self.formulas.get(number));
        let tex = tex.map_or(number, String::as_str);
        if inline {
            ui.label(RichText::new(math::line(tex)).italics());
            return;
        }
        for line in math::lines(tex) {
            if ui.cursor().left() > ui.max_rect().left() {
                ui.end_row();
            }
            ui.add_space(24.0);
            ui.label(RichText::new(line).italics());
        }
    }
}

/// Makes pages of texts.
#[derive(Default)]
struct Pages;

impl ComputerMut<(&str, bool), Arc<Page>> for Pages {
    fn compute(&mut self, (text, keep_lines): (&str, bool)) -> Arc<Page> {
        Arc::new(Page::new(text, keep_lines))
    }
}

fn show_as(ui: &mut Ui, cache: &mut CommonMarkCache, text: &str, keep_lines: bool) {
    let key = (text, keep_lines);
    let page = ui.memory_mut(|memory| memory.caches.cache::<FrameCache<Arc<Page>, Pages>>().get(key).clone());
    let same = page.clone();
    let formula = move |ui: &mut Ui, number: &str, inline: bool| same.formula(ui, number, inline);
    for (number, part) in page.parts.iter().enumerate() {
        ui.push_id(number, |ui| match part {
            Part::Markdown(text) => {
                // The viewer shows code in fields, so that it can be selected.
                ui.name_inputs("Code", |ui| {
                    CommonMarkViewer::new().render_math_fn(Some(&formula)).show(ui, cache, text)
                });
            }
            Part::Table(table) => table.show(ui),
        });
    }
}

/// The text with marks appended that close those which are open in its last paragraph.
fn closed(text: &str) -> Cow<'_, str> {
    if in_fence(text) {
        return text.into(); // an open block of code ends with the text
    }
    let paragraph = text.rfind("\n\n").map_or(text, |blank| &text[blank + 2..]);
    let open = open_marks(paragraph);
    if open.is_empty() {
        return text.into();
    }
    // A mark after a blank closes nothing, and a mark that was just opened has no content yet.
    let text = text.trim_end();
    let bare = open.last().and_then(|mark| text.strip_suffix(mark));
    let (text, open) = bare.map_or((text, &open[..]), |text| (text.trim_end(), &open[..open.len() - 1]));
    format!("{text}{}", open.iter().rev().copied().collect::<String>()).into()
}

/// Whether the text ends inside a block of code.
fn in_fence(text: &str) -> bool {
    text.lines().filter(|line| line.trim_start().starts_with("```")).count() % 2 == 1
}

/// The marks of code and emphasis that are open at the end of a paragraph, in order.
fn open_marks(paragraph: &str) -> Vec<&'static str> {
    let mut open: Vec<&'static str> = Vec::new();
    let (mut rest, mut before) = (paragraph, ' ');
    while let Some(letter) = rest.chars().next() {
        let in_code = open.last() == Some(&"`");
        let mark = ["`", "**", "*"].into_iter().find(|mark| rest.starts_with(mark) && (!in_code || *mark == "`"));
        let Some(mark) = mark else {
            (before, rest) = (letter, &rest[letter.len_utf8()..]);
            continue;
        };
        rest = &rest[mark.len()..];
        let opens = mark == "`" || rest.chars().next().is_none_or(|next| !next.is_whitespace());
        match open.iter().rposition(|other| *other == mark) {
            Some(place) if mark == "`" || !before.is_whitespace() => open.truncate(place),
            None if opens => open.push(mark),
            _ => {} // a star between blanks, as in a list or a product
        }
        before = '*';
    }
    open
}

#[cfg(test)]
mod tests {
    use super::{CommonMarkCache, closed, keep_links, show_unfinished};
    use eframe::egui;

    #[test]
    fn open_marks_are_closed() {
        for (text, expected) in [
            ("plain", "plain"),
            ("an **ow", "an **ow**"),
            ("an **owl** is", "an **owl** is"),
            ("an **", "an"),
            ("an *owl of **the ", "an *owl of **the***"),
            ("call `f(x", "call `f(x`"),
            ("call `a ** b", "call `a ** b`"),
            ("3 * 4", "3 * 4"),
            ("* one\n* two", "* one\n* two"),
            ("**done\n\nnext", "**done\n\nnext"),
            ("```rust\nlet x = **y", "```rust\nlet x = **y"),
            ("```\na\n```\n*b", "```\na\n```\n*b*"),
        ] {
            assert_eq!(closed(text), expected, "of {text:?}");
        }
    }

    /// The text of everything that is drawn.
    fn drawn(text: &str) -> String {
        let context = egui::Context::default();
        let mut cache = CommonMarkCache::default();
        let mut output = context.run_ui(egui::RawInput::default(), |ui| show_unfinished(ui, &mut cache, text));
        output.textures_delta.clear(); // nothing is drawn here
        let shapes = output.shapes.iter().filter_map(|shape| match &shape.shape {
            egui::Shape::Text(text) => Some(text.galley.text().to_owned()),
            _ => None,
        });
        shapes.collect::<Vec<_>>().join("|")
    }

    #[test]
    fn only_links_that_lead_somewhere_are_opened() {
        let context = egui::Context::default();
        let mut output = context.run_ui(egui::RawInput::default(), |ui| {
            for address in ["file:///etc/passwd", "https://a.org", "javascript:alert(1)"] {
                ui.ctx().open_url(egui::OpenUrl::new_tab(address));
            }
            keep_links(ui.ctx());
        });
        output.textures_delta.clear(); // nothing is drawn here
        let commands = output.platform_output.commands;
        assert!(matches!(&commands[..], [egui::OutputCommand::OpenUrl(open)] if open.url == "https://a.org"));
    }

    #[test]
    fn every_prefix_of_a_reply_is_drawn() {
        let reply =
            "# An owl\n\nIt *sees* **well**:\n\n- by `night`\n- by day\n\n1. one\n\n```rust\nlet x = 1;\n```\n\n<b>&";
        for end in (0..=reply.len()).filter(|end| reply.is_char_boundary(*end)) {
            assert!(!drawn(&reply[..end]).contains("**"), "{:?}", &reply[..end]);
        }
        let whole = drawn(reply);
        for part in ["An owl", "sees", "well", "night", "let x = 1;", "<b>"] {
            assert!(whole.contains(part), "{part} is missing in {whole}");
        }
    }
}
