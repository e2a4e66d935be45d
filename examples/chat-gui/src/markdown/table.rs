//! Tables whose columns share the available width. Their texts wrap, and are aligned as the table says.

use super::{math, prepare};
use eframe::egui::text::LayoutJob;
use eframe::egui::{
    Align, FontSelection, Hyperlink, Label, Layout, Rect, RichText, Role, ScrollArea, TextStyle, Ui, UiBuilder, pos2,
    vec2,
};
use pulldown_cmark::{Alignment, Event, Options, Parser, Tag, TagEnd};
use std::ops::Range;

/// The space around the text of a cell.
const PAD: [f32; 2] = [8.0, 4.0];
/// The narrowest column. Where there is no space for all columns at this width, the table scrolls.
const NARROWEST: f32 = 56.0;

/// A table.
#[derive(Debug, Default, PartialEq)]
pub struct Table {
    alignments: Vec<Alignment>,
    /// The first row is the header.
    rows: Vec<Vec<Cell>>,
}

/// The text of a cell.
type Cell = Vec<Piece>;

/// A part of a text, in one style.
#[derive(Debug, Clone, Default, PartialEq)]
struct Piece {
    text: String,
    strong: bool,
    emphasis: bool,
    struck: bool,
    code: bool,
    /// Whether it is the number of a footnote.
    note: bool,
    link: Option<String>,
}

/// The tables in a text, wherever they are, and where.
pub fn find(text: &str, formulas: &[String]) -> Vec<(Range<usize>, Table)> {
    let mut events = Parser::new_ext(text, prepare::OPTIONS | Options::ENABLE_MATH).into_offset_iter();
    let mut tables = Vec::new();
    while let Some((event, range)) = events.next() {
        if let Event::Start(Tag::Table(alignments)) = event {
            let events = events.by_ref().map(|(event, _)| event);
            let inside = events.take_while(|event| !matches!(event, Event::End(TagEnd::Table)));
            tables.push((range, Table::read(alignments, inside, formulas)));
        }
    }
    tables
}

impl Table {
    /// Reads a table from the events of the parser.
    fn read<'a>(alignments: Vec<Alignment>, events: impl Iterator<Item = Event<'a>>, formulas: &[String]) -> Self {
        let (mut table, mut cell, mut style) = (Self { alignments, rows: Vec::new() }, Cell::new(), Piece::default());
        for event in events {
            match event {
                Event::Start(Tag::TableHead | Tag::TableRow) => table.rows.push(Vec::new()),
                Event::End(TagEnd::TableCell) => {
                    table.rows.last_mut().into_iter().for_each(|row| row.push(std::mem::take(&mut cell)));
                }
                Event::Text(text) | Event::InlineHtml(text) => cell.push(Piece { text: text.into(), ..style.clone() }),
                Event::Code(text) => cell.push(Piece { text: text.into(), code: true, ..style.clone() }),
                Event::InlineMath(number) | Event::DisplayMath(number) => {
                    let tex = number.parse().ok().and_then(|number: usize| formulas.get(number));
                    let text = tex.map_or_else(|| number.to_string(), |tex| math::line(tex));
                    cell.push(Piece { text, emphasis: true, ..style.clone() });
                }
                Event::FootnoteReference(name) => {
                    cell.push(Piece { text: name.to_string(), note: true, ..style.clone() })
                }
                event => style.note(&event),
            }
        }
        table
    }

    /// Shows the table. `id` is unique in the text.
    pub fn show(&self, ui: &mut Ui, id: usize) {
        let columns = self.alignments.len();
        let space = ui.available_width().max(NARROWEST * columns as f32) - 1.0;
        ScrollArea::horizontal().id_salt(("table", id)).show(ui, |ui| {
            let mut widths = self.widths(ui, space - 2.0 * PAD[0] * columns as f32);
            widths.iter_mut().for_each(|width| *width += 2.0 * PAD[0]);
            let frame = UiBuilder::new().accessibility_role(Role::Table);
            ui.scope_builder(frame, |ui| {
                ui.spacing_mut().item_spacing = vec2(0.0, 0.0);
                for number in 0..self.rows.len() {
                    self.row(ui, number, &widths);
                }
            });
        });
    }

    /// The widths of the columns' texts. If all fit, each has the width it needs. Otherwise each has the width of its
    /// longest word, as far as there is space for that, and a share of the remaining space.
    fn widths(&self, ui: &Ui, space: f32) -> Vec<f32> {
        let (mut needs, mut words) = (vec![0.0_f32; self.alignments.len()], vec![0.0_f32; self.alignments.len()]);
        for (number, row) in self.rows.iter().enumerate() {
            for (column, cell) in row.iter().enumerate().take(needs.len()) {
                // Rounded up, or sums that are rounded down might break a word.
                let width = |job| ui.fonts_mut(|fonts| fonts.layout_job(job)).size().x.ceil();
                needs[column] = needs[column].max(width(job(ui, cell, number == 0, f32::INFINITY)));
                for piece in cell {
                    for word in piece.text.split_whitespace() {
                        let word = vec![Piece { text: word.to_owned(), ..piece.clone() }];
                        words[column] = words[column].max(width(job(ui, &word, number == 0, f32::INFINITY)));
                    }
                }
            }
        }
        share(&needs, &words, space)
    }

    fn row(&self, ui: &mut Ui, number: usize, widths: &[f32]) {
        let (row, header) = (&self.rows[number], number == 0);
        let jobs: Vec<LayoutJob> =
            row.iter().zip(widths).map(|(cell, width)| job(ui, cell, header, width - 2.0 * PAD[0])).collect();
        let heights = jobs.iter().map(|job| ui.fonts_mut(|fonts| fonts.layout_job(job.clone())).size().y);
        let height = heights.fold(ui.text_style_height(&TextStyle::Body), f32::max) + 2.0 * PAD[1];
        let (_, place) = ui.allocate_space(vec2(widths.iter().sum(), height));
        let line = ui.visuals().widgets.noninteractive.bg_stroke;
        if number % 2 == 1 {
            ui.painter().rect_filled(place, 0.0, ui.visuals().faint_bg_color);
        }
        ui.painter().hline(place.x_range(), place.bottom(), line);
        let mut left = place.left();
        for (column, (cell, job)) in row.iter().zip(jobs).enumerate() {
            let inside = Rect::from_min_max(
                pos2(left + PAD[0], place.top() + PAD[1]),
                pos2(left + widths[column] - PAD[0], place.bottom() - PAD[1]),
            );
            let role = if header { Role::ColumnHeader } else { Role::Cell };
            let align = align(self.alignments[column]);
            let builder = UiBuilder::new().id_salt((number, column)).max_rect(inside).accessibility_role(role);
            show_cell(&mut ui.new_child(builder.layout(Layout::top_down(align))), cell, job, header);
            left += widths[column];
        }
    }
}

impl Piece {
    /// Notes where a style begins or ends.
    fn note(&mut self, event: &Event<'_>) {
        match event {
            Event::Start(Tag::Strong) => self.strong = true,
            Event::End(TagEnd::Strong) => self.strong = false,
            Event::Start(Tag::Emphasis) => self.emphasis = true,
            Event::End(TagEnd::Emphasis) => self.emphasis = false,
            Event::Start(Tag::Strikethrough) => self.struck = true,
            Event::End(TagEnd::Strikethrough) => self.struck = false,
            Event::Start(Tag::Link { dest_url, .. }) => self.link = Some(dest_url.to_string()),
            Event::End(TagEnd::Link) => self.link = None,
            _ => {}
        }
    }

    fn rich(&self, header: bool) -> RichText {
        let text = RichText::new(&self.text);
        let text = if self.strong || header { text.strong() } else { text };
        let text = if self.emphasis { text.italics() } else { text };
        let text = if self.struck { text.strikethrough() } else { text };
        let text = if self.note { text.raised().strong().small() } else { text };
        if self.code { text.code() } else { text }
    }
}

/// The text of a cell, wrapped at a width.
fn job(ui: &Ui, cell: &Cell, header: bool, width: f32) -> LayoutJob {
    let mut job = LayoutJob::default();
    for piece in cell {
        piece.rich(header).append_to(&mut job, ui.style(), FontSelection::Default, Align::BOTTOM);
    }
    job.wrap.max_width = width;
    job
}

/// Shows a cell. Links are widgets of their own, so that the keyboard and screen readers reach them.
fn show_cell(ui: &mut Ui, cell: &Cell, job: LayoutJob, header: bool) {
    if cell.iter().all(|piece| piece.link.is_none()) {
        ui.add(Label::new(job).wrap());
        return;
    }
    ui.horizontal_wrapped(|ui| {
        for piece in cell {
            match &piece.link {
                Some(link) if prepare::leads(link) => {
                    drop(ui.add(Hyperlink::from_label_and_url(piece.rich(header), link)))
                }
                _ => drop(ui.label(piece.rich(header))),
            }
        }
    });
}

fn align(alignment: Alignment) -> Align {
    match alignment {
        Alignment::None | Alignment::Left => Align::Min,
        Alignment::Center => Align::Center,
        Alignment::Right => Align::Max,
    }
}

/// Divides a space among columns whose full widths and longest words are known.
fn share(needs: &[f32], words: &[f32], space: f32) -> Vec<f32> {
    if needs.iter().sum::<f32>() <= space {
        return needs.to_vec();
    }
    // A word longer than an equal part of the space may have to break.
    let part = space / needs.len() as f32;
    let least: Vec<f32> = words.iter().map(|word| word.min(part)).collect();
    let wants: Vec<f32> = needs.iter().zip(&least).map(|(need, least)| (need - least).max(0.0)).collect();
    let (left, wanted) = (space - least.iter().sum::<f32>(), wants.iter().sum::<f32>().max(1.0));
    least.iter().zip(wants).map(|(least, want)| least + want / wanted * left).collect()
}

#[cfg(test)]
mod tests {
    use super::{Alignment, PAD, Piece, find, job, share};
    use eframe::egui::{Context, RawInput};

    const TEXT: &str = "An *owl*:\n\n| a | b |\n|:-:|--:|\n| **x** `y` | $0$ |\n| [l](https://a.org) | |\n\nend";

    #[test]
    fn tables_are_found_and_read() {
        let found = find(TEXT, &["\\alpha".into()]);
        assert_eq!(found.len(), 1);
        let (range, table) = &found[0];
        assert_eq!(&TEXT[range.clone()], "| a | b |\n|:-:|--:|\n| **x** `y` | $0$ |\n| [l](https://a.org) | |\n");
        assert_eq!(table.alignments, [Alignment::Center, Alignment::Right]);
        let piece = |text: &str| Piece { text: text.into(), ..Piece::default() };
        assert_eq!(table.rows[0], [vec![piece("a")], vec![piece("b")]]);
        let first = vec![Piece { strong: true, ..piece("x") }, piece(" "), Piece { code: true, ..piece("y") }];
        assert_eq!(table.rows[1], [first, vec![Piece { emphasis: true, ..piece("α") }]]);
        assert_eq!(table.rows[2], [vec![Piece { link: Some("https://a.org".into()), ..piece("l") }], vec![]]);
        for nested in
            ["- x\n\n  | a |\n  |-|\n  | b[^1] |", "> | a |\n> |-|\n> | b[^1] |", "x\n: | a |\n  |-|\n  | b[^1] |"]
        {
            let found = find(&format!("{nested}\n\n[^1]: A note."), &[]);
            let note = Piece { note: true, ..piece("1") };
            assert_eq!(found[0].1.rows, [[vec![piece("a")]], [vec![piece("b"), note]]], "of {nested:?}");
        }
    }

    #[test]
    fn words_stay_whole_beside_a_long_text() {
        let long = "many words ".repeat(40);
        let found = find(&format!("| Name | b |\n|-|-|\n| owl | {long} |"), &[]);
        let table = &found[0].1;
        let context = Context::default();
        let output = context.run_ui(RawInput::default(), |ui| {
            let word = job(ui, &vec![Piece { text: "Name".into(), ..Piece::default() }], true, f32::INFINITY);
            let word = ui.fonts_mut(|fonts| fonts.layout_job(word)).size().x;
            let widths = table.widths(ui, 400.0);
            assert!(widths[0] >= word && widths[1] > 300.0, "{widths:?} for {word}");
        });
        output.drop_without_applying_deltas();
    }

    #[test]
    fn words_that_have_space_do_not_break() {
        let words = "one hundred | two hundred | three | four | five | six | seven | eight | nine | ten";
        let found = find(&format!("{}\n{}\n{words}", "| a ".repeat(10), "|-".repeat(10)), &[]);
        let table = &found[0].1;
        let context = Context::default();
        crate::look::set(&context);
        let output = context.run_ui(RawInput::default(), |ui| {
            for space in (4000..8000).step_by(7).map(|tenths| tenths as f32 / 10.0) {
                for (cell, width) in table.rows[1].iter().zip(table.widths(ui, space)).skip(2) {
                    let job = job(ui, cell, false, width + 2.0 * PAD[0] - 2.0 * PAD[0]);
                    let rows = ui.fonts_mut(|fonts| fonts.layout_job(job)).rows.len();
                    assert_eq!(rows, 1, "{cell:?} in {width} of {space}");
                }
            }
        });
        output.drop_without_applying_deltas();
    }

    #[test]
    fn columns_share_the_space() {
        assert_eq!(share(&[50.0, 30.0], &[50.0, 30.0], 100.0), [50.0, 30.0], "all fit");
        let long = share(&[400.0, 30.0], &[60.0, 30.0], 200.0);
        assert_eq!(long, [170.0, 30.0], "a short text stays on its line");
        let words = share(&[900.0, 900.0], &[500.0, 500.0], 200.0);
        assert_eq!(words, [100.0, 100.0]);
        let three = share(&[300.0, 600.0, 20.0], &[40.0, 40.0, 20.0], 400.0);
        assert!((three.iter().sum::<f32>() - 400.0).abs() < 0.1 && three[1] > three[0], "{three:?}");
    }
}
