//! Draws results as SVG: lines over some quantity, and bars.
//!
//! Texts never overlap: values and axis marks without space are left out, and names and titles are broken into lines.

mod labels;
mod scale;

use super::wrap::filled;
use labels::{Box2, Labels, columns};
use plotters::coord::Shift;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
pub use scale::Scale;
use scale::steps;
use std::fmt::Display;

/// Values over a quantity, measured at a few points.
pub struct Panel {
    pub title: String,
    /// The names of the quantity and of the values.
    pub axes: [&'static str; 2],
    pub scale: Scale,
    pub lines: Vec<Line>,
}

/// Values of one name.
pub struct Line {
    /// The name that distinguishes the line; may be empty.
    pub name: String,
    /// For each point the quantity, the value and its standard deviation.
    pub points: Vec<(usize, f64, f64)>,
}

/// A value with a highlighted part.
pub struct Bar {
    pub name: String,
    pub value: f64,
    pub part: f64,
}

const WIDTH: i32 = 960;
/// The space around everything.
const MARGIN: i32 = 14;
/// The plot inside a panel: its left edge, and its height.
const LEFT: i32 = 78;
const PLOT_HEIGHT: i32 = 240;
/// The heights of a panel's title, and of its axis with marks and labels.
const TITLE: i32 = 42;
const AXIS: i32 = 52;
/// A line of text, and a bar.
const LINE: i32 = 18;
/// The font sizes in the units of plotters.
const LARGE: i32 = 18;
const NORMAL: i32 = 13;
const SMALL: i32 = 12;
/// Colours that colour-blind people can distinguish too (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(90, 90, 90),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

/// Draws panels one below the other under a heading, each with the names of its lines below it.
pub fn panels(heading: &str, panels: &[Panel]) -> anyhow::Result<String> {
    let panels: Vec<&Panel> =
        panels.iter().filter(|panel| panel.lines.iter().any(|it| !it.points.is_empty())).collect();
    let heading = filled(heading, columns(WIDTH - 2 * MARGIN, LARGE));
    let legends: Vec<Vec<(usize, Vec<String>)>> = panels.iter().map(|panel| legend(panel)).collect();
    let lines =
        |legend: &[(usize, Vec<String>)]| legend.iter().map(|(_, lines)| lines.len() as i32).sum::<i32>() * LINE;
    let above = MARGIN + heading.len() as i32 * (LINE + 6);
    let height = above + legends.iter().map(|it| TITLE + PLOT_HEIGHT + AXIS + lines(it)).sum::<i32>() + MARGIN;
    picture(height, |area| {
        for (index, line) in heading.iter().enumerate() {
            area.draw(&text(line.clone(), (MARGIN, MARGIN + index as i32 * (LINE + 6)), LARGE))?;
        }
        let mut top = above;
        for (panel, legend) in panels.iter().zip(&legends) {
            draw(area, panel, top + TITLE)?;
            area.draw(&text(panel.title.clone(), (LEFT, top + 14), LARGE - 2))?;
            top += TITLE + PLOT_HEIGHT + AXIS;
            draw_legend(area, legend, top)?;
            top += lines(legend);
        }
        Ok(())
    })
}

/// A picture of the default width, in which `draw` draws.
fn picture(height: i32, draw: impl for<'a> FnOnce(&Area<'a>) -> Drawn<'a>) -> anyhow::Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32)).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        draw(&area).map_err(failed)?;
        area.present().map_err(failed)?;
    }
    Ok(svg)
}

fn text(words: String, at: (i32, i32), size: i32) -> Text<'static, (i32, i32), String> {
    Text::new(words, at, ("sans-serif", size))
}

/// The same around a point.
fn centred(words: String, at: (i32, i32), style: TextStyle<'static>) -> Text<'static, (i32, i32), String> {
    Text::new(words, at, style.pos(Pos::new(HPos::Center, VPos::Center)))
}

fn draw<'a>(area: &Area<'a>, panel: &Panel, top: i32) -> Drawn<'a> {
    let mut measured: Vec<usize> = panel.lines.iter().flat_map(|line| line.points.iter().map(|(x, ..)| *x)).collect();
    measured.sort_unstable();
    measured.dedup();
    let most = panel.lines.iter().flat_map(|line| &line.points).map(|(_, y, spread)| y + spread).fold(0.0, f64::max);
    let (right, bottom) = (WIDTH - MARGIN, top + PLOT_HEIGHT);
    let across = panel.scale.over(&measured, (LEFT + 24, right - 48));
    let step = steps(most);
    let full = (most / step).ceil().max(1.0) * step;
    let up = |value: f64| bottom - (f64::from(PLOT_HEIGHT) * value / full).round() as i32;
    for index in 0..=(full / step).round() as usize {
        let value = index as f64 * step;
        let decimals = (-step.log10().floor()).max(0.0) as usize;
        area.draw(&PathElement::new(vec![(LEFT, up(value)), (right, up(value))], RGBColor(205, 205, 205)))?;
        let at = Pos::new(HPos::Right, VPos::Center);
        let style = ("sans-serif", NORMAL).into_font().into_text_style(area).pos(at);
        area.draw(&Text::new(format!("{value:.decimals$}"), (LEFT - 8, up(value)), style))?;
    }
    area.draw(&PathElement::new(vec![(LEFT, top), (LEFT, bottom), (right, bottom)], BLACK))?;
    let plain = ("sans-serif", NORMAL).into_font().into_text_style(area);
    let named = labels::spaced(&measured, &across, NORMAL);
    for &x in &measured {
        area.draw(&PathElement::new(vec![(across(x), bottom), (across(x), bottom + 5)], BLACK))?;
        if named.contains(&x) {
            area.draw(&centred(x.to_string(), (across(x), bottom + 15), plain.clone()))?;
        }
    }
    let [x, y] = panel.axes;
    area.draw(&centred(format!("{x}{}", panel.scale.words()), ((LEFT + right) / 2, bottom + 34), plain.clone()))?;
    let turned = ("sans-serif", NORMAL).into_font().transform(FontTransform::Rotate270).into_text_style(area);
    area.draw(&centred(y.into(), (MARGIN + 6, (top + bottom) / 2), turned))?;
    draw_lines(area, panel, (&across, &up), [LEFT, top, right + MARGIN - 2, bottom])
}

fn draw_lines<'a>(
    area: &Area<'a>,
    panel: &Panel,
    (across, up): (&dyn Fn(usize) -> i32, &dyn Fn(f64) -> i32),
    plot: Box2,
) -> Drawn<'a> {
    let mut labels = Labels::within(plot);
    let place = |(x, y, _): &(usize, f64, f64)| (across(*x), up(*y));
    for (line, (colour, mark)) in panel.lines.iter().zip(looks()) {
        let points: Vec<(i32, i32)> = line.points.iter().map(place).collect();
        area.draw(&PathElement::new(points.clone(), colour.stroke_width(2)))?;
        for ((x, y, spread), &at) in line.points.iter().zip(&points) {
            let (low, high) = ((across(*x), up(y - spread)), (across(*x), up(y + spread)));
            area.draw(&PathElement::new(vec![low, high], colour.stroke_width(1)))?;
            draw_mark(area, at, colour, mark)?;
        }
        labels.avoid(&points);
    }
    for (line, (colour, _)) in panel.lines.iter().zip(looks()) {
        for point @ (_, y, _) in &line.points {
            let words = format!("{y:.*}", usize::from(*y < 100.0));
            if let Some(at) = labels.place(place(point), &words, SMALL) {
                area.draw(&Text::new(words, at, ("sans-serif", SMALL).into_font().color(&colour)))?;
            }
        }
    }
    Ok(())
}

/// Colours and marks of lines, none twice among the first 21.
fn looks() -> impl Iterator<Item = (RGBColor, usize)> {
    (0..).map(|index| (COLOURS[index % COLOURS.len()], index / COLOURS.len() % 3))
}

/// A filled circle, a hollow one, or a square.
fn draw_mark<'a>(area: &Area<'a>, (x, y): (i32, i32), colour: RGBColor, mark: usize) -> Drawn<'a> {
    match mark {
        0 => area.draw(&Circle::new((x, y), 4, colour.filled())),
        1 => {
            area.draw(&Circle::new((x, y), 4, WHITE.filled()))?;
            area.draw(&Circle::new((x, y), 4, colour.stroke_width(2)))
        }
        _ => area.draw(&Rectangle::new([(x - 4, y - 4), (x + 4, y + 4)], colour.filled())),
    }
}

/// The names of a panel's lines, each with the line's number and broken into lines of text; those without one are left
/// out.
fn legend(panel: &Panel) -> Vec<(usize, Vec<String>)> {
    let most = columns(WIDTH - MARGIN - LEFT - 28, NORMAL);
    let named = panel.lines.iter().enumerate().filter(|(_, line)| !line.name.is_empty());
    named.map(|(index, line)| (index, filled(&line.name, most))).collect()
}

fn draw_legend<'a>(area: &Area<'a>, legend: &[(usize, Vec<String>)], mut top: i32) -> Drawn<'a> {
    for (index, lines) in legend {
        let Some((colour, mark)) = looks().nth(*index) else { continue };
        area.draw(&PathElement::new(vec![(LEFT, top + 7), (LEFT + 20, top + 7)], colour.stroke_width(2)))?;
        draw_mark(area, (LEFT + 10, top + 7), colour, mark)?;
        for line in lines {
            area.draw(&text(line.clone(), (LEFT + 28, top), NORMAL))?;
            top += LINE;
        }
    }
    Ok(())
}

/// Draws bars below each other, the largest first, each with its value and its highlighted part darker, under a title
/// and a line that says what was measured. `unit` is that of the values; `what` describes the darker part.
pub fn bars([title, about]: [&str; 2], [unit, what]: [&str; 2], bars: &[Bar]) -> anyhow::Result<String> {
    let mut bars: Vec<&Bar> = bars.iter().filter(|bar| bar.value > 0.0).collect();
    bars.sort_by(|a, b| b.value.total_cmp(&a.value));
    let within = columns(WIDTH - 2 * MARGIN, NORMAL);
    let large = filled(title, columns(WIDTH - 2 * MARGIN, LARGE));
    let legend = format!("in {unit}; darker: {what}");
    let small: Vec<String> = [about, &legend].iter().flat_map(|line| filled(line, within)).collect();
    let longest = bars.iter().map(|bar| labels::width(&bar.name, NORMAL)).max().unwrap_or(0);
    let left = MARGIN + 14 + longest.min(WIDTH / 2);
    let fits = columns(left - MARGIN - 8, NORMAL);
    let names: Vec<Vec<String>> = bars.iter().map(|bar| filled(&bar.name, fits)).collect();
    let top = MARGIN + large.len() as i32 * (LINE + 6) + small.len() as i32 * LINE + 10;
    let height = top + LINE * names.iter().map(|lines| lines.len() as i32).sum::<i32>() + MARGIN;
    picture(height, |area| {
        let mut y = MARGIN;
        for line in &large {
            area.draw(&text(line.clone(), (MARGIN, y), LARGE))?;
            y += LINE + 6;
        }
        for line in &small {
            area.draw(&text(line.clone(), (MARGIN, y), NORMAL))?;
            y += LINE;
        }
        draw_bars(area, &bars, &names, (left, top))
    })
}

fn draw_bars<'a>(area: &Area<'a>, bars: &[&Bar], names: &[Vec<String>], (left, mut y): (i32, i32)) -> Drawn<'a> {
    let (whole, most) = (bars.iter().map(|bar| bar.value).sum::<f64>(), bars.first().map_or(1.0, |bar| bar.value));
    let figures = |bar: &Bar| format!("{:.1}, {:.1} %", bar.value, 100.0 * bar.value / whole);
    let right = MARGIN + 8 + bars.iter().map(|bar| labels::width(&figures(bar), NORMAL)).max().unwrap_or(0);
    let end = |value: f64| (left + (f64::from(WIDTH - left - right) * value / most) as i32).max(left + 1);
    for (bar, name) in bars.iter().zip(names) {
        let rectangle =
            |value: f64, colour: RGBColor| Rectangle::new([(left, y + 2), (end(value), y + LINE - 2)], colour.filled());
        area.draw(&rectangle(bar.value, COLOURS[4]))?;
        area.draw(&rectangle(bar.part.min(bar.value), COLOURS[0]))?;
        area.draw(&text(figures(bar), (end(bar.value) + 6, y + 2), NORMAL))?;
        for line in name {
            area.draw(&text(line.clone(), (MARGIN, y + 2), NORMAL))?;
            y += LINE;
        }
    }
    Ok(())
}

fn failed(error: impl Display) -> anyhow::Error {
    anyhow::anyhow!("drawing: {error}")
}

#[cfg(test)]
mod tests;
