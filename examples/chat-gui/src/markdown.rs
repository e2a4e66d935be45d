//! Shows messages, which are Markdown. Replies arrive in pieces.
//!
//! Emphasis and code have marks on both sides, so a reply that has arrived as far as `an **ow` would show the stars
//! until the closing ones arrive a moment later. Therefore marks that are open at the end of the text are closed.
//!
//! Texts are [prepared](prepare) before they are drawn, and the results are kept for as long as the texts are shown.
//! Formulas and tables are drawn here and not by the viewer of Markdown. It gets their numbers as formulas, which it
//! hands back to be drawn at their places, in lists and quotations too.

mod math;
mod prepare;
mod table;

use eframe::egui::cache::{ComputerMut, FrameCache};
use eframe::egui::{Align, Context, Layout, OutputCommand, RichText, Stroke, TextStyle, Ui, vec2};
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

/// Drops requests to open links that must not be followed. [`prepare`] leaves no such links; this is a second line of
/// defence.
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
    /// The Markdown, in which the numbers of formulas and tables are between dollar signs.
    text: String,
    insets: Vec<Inset>,
}

/// A part of a text that the viewer of Markdown does not draw.
enum Inset {
    Formula(String),
    Table(Table),
}

impl Page {
    fn new(text: &str, keep_lines: bool) -> Self {
        let prepare::Prepared { mut text, formulas } = prepare::prepare(text, keep_lines);
        let tables = table::find(&text, &formulas);
        // From the last to the first, so that the positions of the others stay.
        for (number, (range, _)) in tables.iter().enumerate().rev() {
            let end = if text[range.clone()].ends_with('\n') { "\n" } else { "" };
            text.replace_range(range.clone(), &format!("$${}$${end}", formulas.len() + number));
        }
        let tables = tables.into_iter().map(|(_, table)| Inset::Table(table));
        Self { text, insets: formulas.into_iter().map(Inset::Formula).chain(tables).collect() }
    }

    /// Shows a formula or a table by its number.
    fn inset(&self, ui: &mut Ui, number: &str, inline: bool) {
        let found = number.parse().ok().and_then(|number: usize| Some((number, self.insets.get(number)?)));
        if !inline && ui.cursor().left() > ui.max_rect().left() {
            ui.end_row();
        }
        match found {
            Some((number, Inset::Table(table))) => {
                let width = ui.max_rect().right() - ui.cursor().left();
                let layout = Layout::top_down(Align::Min);
                ui.allocate_ui_with_layout(vec2(width, 0.0), layout, |ui| {
                    table.show(ui, number);
                    ui.add_space(4.0);
                });
            }
            Some((_, Inset::Formula(tex))) if inline => drop(ui.label(RichText::new(math::line(tex)).italics())),
            Some((_, Inset::Formula(tex))) => {
                for (number, line) in math::lines(tex).into_iter().enumerate() {
                    if number > 0 {
                        ui.end_row();
                    }
                    ui.add_space(24.0);
                    ui.label(RichText::new(line).italics());
                }
            }
            None => drop(ui.label(number)),
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
    let inset = move |ui: &mut Ui, number: &str, inline: bool| same.inset(ui, number, inline);
    // The viewer shows code in fields, so that it can be selected.
    ui.name_inputs("Code", |ui| {
        // In lines that are higher than the text, links and the numbers of lists would not be on its baseline.
        ui.spacing_mut().interact_size.y = ui.text_style_height(&TextStyle::Body);
        ui.visuals_mut().widgets.inactive.bg_stroke = Stroke::NONE; // code has a frame already
        CommonMarkViewer::new().render_math_fn(Some(&inset)).show(ui, cache, &page.text);
    });
}

/// The text, with the marks appended that are open in its last paragraph.
fn closed(text: &str) -> Cow<'_, str> {
    if in_fence(text) {
        return text.into(); // an open block of code ends with the text
    }
    let paragraph = text.rfind("\n\n").map_or(text, |blank| &text[blank + 2..]);
    let open = open_marks(paragraph);
    if open.is_empty() {
        return text.into();
    }
    // A mark after a space closes nothing, and a mark that was just opened has no content yet.
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
            _ => {} // a star between spaces, as in a list or a product
        }
        before = '*';
    }
    open
}

#[cfg(test)]
#[allow(clippy::panic)]
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

    const WIDTH: f32 = 600.0;

    /// The texts that are drawn, and where.
    fn shapes(text: &str) -> Vec<(String, egui::Rect)> {
        let context = egui::Context::default();
        crate::look::set(&context);
        let mut cache = CommonMarkCache::default();
        let screen_rect = Some(egui::Rect::from_min_size(egui::Pos2::ZERO, egui::vec2(WIDTH, 400.0)));
        let input = egui::RawInput { screen_rect, ..egui::RawInput::default() };
        let mut output = context.run_ui(input, |ui| show_unfinished(ui, &mut cache, text));
        output.textures_delta.clear(); // nothing is drawn here
        let shapes = output.shapes.iter().filter_map(|shape| match &shape.shape {
            egui::Shape::Text(text) => Some((text.galley.text().to_owned(), text.visual_bounding_rect())),
            _ => None,
        });
        shapes.collect()
    }

    fn drawn(text: &str) -> String {
        shapes(text).into_iter().map(|(text, _)| text).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn only_links_to_the_web_and_to_mail_are_opened() {
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

    /// Tables in lists and quotations wrap in the space that is left there, and footnotes are numbered next to them.
    #[test]
    fn tables_are_drawn_wherever_they_are() {
        let long = "many words ".repeat(40);
        for (first, next) in [("", ""), ("- ", "  "), ("> ", "> "), ("1. x\n\n   ", "   "), ("- a\n  - ", "    ")] {
            let text = format!("{first}| Owl[^1] | b |\n{next}|-|-:|\n{next}| x | {long}|\n\nend[^1]\n\n[^1]: A note.");
            let shapes = shapes(&text);
            let find = |part: &str| {
                shapes.iter().find(|(text, _)| text.contains(part)).unwrap_or_else(|| panic!("{part}: {shapes:?}"))
            };
            let (whole, place) = find("many words");
            assert!(whole.matches("many").count() == 40 && place.height() > 40.0, "{first:?}: {place:?}");
            assert!(place.right() < WIDTH && find("Owl1").1.left() < place.left(), "{first:?}: {shapes:?}");
            assert!(!shapes.iter().any(|(text, _)| text.contains("[^1]")), "{first:?}: {shapes:?}");
            find("A note.");
        }
    }

    #[test]
    fn the_number_and_the_links_of_an_item_are_on_the_line_of_its_text() {
        let shapes = shapes("Text\n\n1. Hill [link](https://a.org) **bold** hill");
        let find = |part: &str| shapes.iter().find(|(text, _)| text.contains(part)).map(|(_, place)| place.bottom());
        let [text, link, bold] = ["Hill", "link", "bold"].map(|part| find(part).unwrap_or_default());
        assert!(text > 0.0 && (text - link).abs() < 1.0 && (text - bold).abs() < 1.0, "{shapes:?}");
        assert!(find("1.").is_some_and(|number| (number - text).abs() < 2.0), "{shapes:?}");
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
