//! Draws results as SVG: lines over some quantity, and bars.

use plotters::coord::ranged1d::{IntoSegmentedCoord, SegmentValue};
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::*;
use std::fmt::Display;

/// Values over a quantity of which a few were measured. These stand side by side at equal distances, whatever lies between.
pub struct Panel {
    pub title: String,
    /// What the quantity is, and what the values are.
    pub axes: [&'static str; 2],
    pub lines: Vec<Line>,
}

/// Values of one name.
pub struct Line {
    pub name: String,
    /// Of each the quantity, the value and its standard deviation.
    pub points: Vec<(usize, f64, f64)>,
}

/// A value with a part of it that stands out.
pub struct Bar {
    pub name: String,
    pub value: f64,
    pub part: f64,
}

const WIDTH: u32 = 960;
const PANEL_HEIGHT: u32 = 340;
const NAME_HEIGHT: u32 = 18;
/// What a panel's height has below its lines' names.
const NAMES_MARGIN: u32 = 12;
const BAR_HEIGHT: u32 = 18;
/// Colours that people who do not see some of them can tell apart too (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(90, 90, 90),
];

/// Draws panels one below the other, each with the names of its lines below it.
pub fn panels(panels: &[Panel]) -> anyhow::Result<String> {
    let panels: Vec<&Panel> =
        panels.iter().filter(|panel| panel.lines.iter().any(|it| !it.points.is_empty())).collect();
    let height = |panel: &Panel| PANEL_HEIGHT + NAME_HEIGHT * panel.lines.len() as u32;
    let whole = panels.iter().map(|panel| height(panel)).sum::<u32>().max(PANEL_HEIGHT);
    let mut svg = String::new();
    {
        let mut rest = SVGBackend::with_string(&mut svg, (WIDTH, whole)).into_drawing_area();
        rest.fill(&WHITE).map_err(failed)?;
        for panel in panels {
            let (area, below) = rest.split_vertically(height(panel));
            let (area, names) = area.split_vertically(PANEL_HEIGHT - NAMES_MARGIN);
            draw(&area, panel).map_err(failed)?;
            legend(&names, panel).map_err(failed)?;
            rest = below;
        }
        rest.present().map_err(failed)?;
    }
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

fn draw<'a>(area: &Area<'a>, panel: &Panel) -> Drawn<'a> {
    let mut places: Vec<usize> = panel.lines.iter().flat_map(|line| line.points.iter().map(|(x, ..)| *x)).collect();
    places.sort_unstable();
    places.dedup();
    let most = panel.lines.iter().flat_map(|line| &line.points).map(|(_, y, spread)| y + spread).fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, ("sans-serif", 18))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d((0..places.len().saturating_sub(1)).into_segmented(), 0.0..1.08 * most.max(1e-9))?;
    let label = |place: &SegmentValue<usize>| match place {
        SegmentValue::CenterOf(index) => places.get(*index).map_or_else(String::new, usize::to_string),
        _ => String::new(),
    };
    let [x, y] = panel.axes;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .x_labels(places.len() + 1)
        .x_label_formatter(&label)
        .y_label_formatter(&|value| format!("{value:.0}"))
        .x_desc(x)
        .y_desc(y)
        .label_style(("sans-serif", 13))
        .axis_desc_style(("sans-serif", 14))
        .draw()?;
    for ((line, colour), above) in panel.lines.iter().zip(COLOURS.iter().cycle()).zip([true, false].into_iter().cycle())
    {
        let place = |x: usize| SegmentValue::CenterOf(places.binary_search(&x).unwrap_or_default());
        let points: Vec<_> = line.points.iter().map(|(x, y, spread)| (place(*x), *y, *spread)).collect();
        let drawn = LineSeries::new(points.iter().map(|(x, y, _)| (x.clone(), *y)), colour.stroke_width(2));
        chart.draw_series(drawn)?;
        chart.draw_series(points.iter().map(|(x, y, _)| Circle::new((x.clone(), *y), 4, colour.filled())))?;
        let spread = |(x, y, spread): &(SegmentValue<usize>, f64, f64)| {
            PathElement::new(vec![(x.clone(), y - spread), (x.clone(), y + spread)], colour.stroke_width(1))
        };
        chart.draw_series(points.iter().map(spread))?;
        let value = |(x, y, _): &(SegmentValue<usize>, f64, f64)| {
            let (digits, at) = (if *y < 100.0 { 1 } else { 0 }, if above { (7, -14) } else { (7, 5) });
            EmptyElement::at((x.clone(), *y))
                + Text::new(format!("{y:.digits$}"), at, ("sans-serif", 12).into_font().color(colour))
        };
        chart.draw_series(points.iter().map(value))?;
    }
    Ok(())
}

/// Draws the names of a panel's lines, each behind a piece of the line.
fn legend<'a>(area: &Area<'a>, panel: &Panel) -> Drawn<'a> {
    for (index, (line, colour)) in panel.lines.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let y = (NAME_HEIGHT * index as u32) as i32;
        area.draw(&PathElement::new(vec![(78, y + 8), (98, y + 8)], colour.stroke_width(2)))?;
        area.draw(&Text::new(line.name.clone(), (106, y + 1), ("sans-serif", 13)))?;
    }
    Ok(())
}

/// Draws bars below each other, the largest first, each with its value, and the part that stands out darker. `unit` is
/// that of the values; `what` says what the darker part is.
pub fn bars(title: &str, [unit, what]: [&str; 2], bars: &[Bar]) -> anyhow::Result<String> {
    let mut bars: Vec<&Bar> = bars.iter().filter(|bar| bar.value > 0.0).collect();
    bars.sort_by(|a, b| b.value.total_cmp(&a.value));
    let (whole, most) = (bars.iter().map(|bar| bar.value).sum::<f64>(), bars.first().map_or(1.0, |bar| bar.value));
    let (left, right, top) = (190, 150, 64);
    let height = top + BAR_HEIGHT * bars.len() as u32 + 16;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        let text = |words: String, at: (i32, i32), size: u32| Text::new(words, at, ("sans-serif", size));
        area.draw(&text(title.to_owned(), (14, 12), 18)).map_err(failed)?;
        area.draw(&text(format!("in {unit}; darker: {what}"), (14, 38), 13)).map_err(failed)?;
        for (index, bar) in bars.iter().enumerate() {
            let y = (top + BAR_HEIGHT * index as u32) as i32;
            let end = |value: f64| left + (f64::from(WIDTH as i32 - left - right) * value / most) as i32;
            let rectangle = |value: f64, colour: RGBColor| {
                Rectangle::new([(left, y + 2), (end(value).max(left + 1), y + BAR_HEIGHT as i32 - 2)], colour.filled())
            };
            area.draw(&text(bar.name.clone(), (14, y + 2), 13)).map_err(failed)?;
            area.draw(&rectangle(bar.value, COLOURS[4])).map_err(failed)?;
            area.draw(&rectangle(bar.part.min(bar.value), COLOURS[0])).map_err(failed)?;
            let share = 100.0 * bar.value / whole;
            let figures = format!("{:.1}, {share:.1} %", bar.value);
            area.draw(&text(figures, (end(bar.value) + 6, y + 2), 13)).map_err(failed)?;
        }
        area.present().map_err(failed)?;
    }
    Ok(svg)
}

fn failed(error: impl Display) -> anyhow::Error {
    anyhow::anyhow!("drawing: {error}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Bar, Line, Panel, bars, panels};

    #[test]
    fn panels_show_every_value() {
        let line = |name: &str, points: &[(usize, f64, f64)]| Line { name: name.into(), points: points.to_vec() };
        let lines = vec![line("a <b>", &[(0, 331.2, 1.0), (4096, 294.8, 0.1)]), line("c", &[(4096, 42.5, 0.0)])];
        let axes = ["tokens in the cache", "tokens a second"];
        let svg = panels(&[Panel { title: "decode".into(), axes, lines }]).unwrap();
        for words in ["a &lt;b&gt;", ">\nc\n<", "331", "295", "42.5", "4096", "tokens in the cache", "decode"] {
            assert!(svg.contains(words), "expected {words:?}: {svg}");
        }
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
        let nothing = Panel { title: "unmeasured".into(), axes, lines: Vec::new() };
        assert!(!panels(&[nothing]).unwrap().contains("unmeasured"));
    }

    #[test]
    fn bars_are_sorted() {
        let bar = |name: &str, value, part| Bar { name: name.into(), value, part };
        let given = [bar("small", 10.0, 2.0), bar("idle", 0.0, 0.0), bar("large", 30.0, 90.0)];
        let svg = bars("a token", ["us", "the memory's floor"], &given).unwrap();
        let place = |words: &str| svg.find(words).unwrap();
        assert!(place("large") < place("30.0, 75.0 %") && place("75.0 %") < place("small"));
        assert!(!svg.contains("idle") && svg.contains("25.0 %"));
    }
}
