//! Tests that a picture contains all texts and values.

#![allow(clippy::unwrap_used)]

use super::{Bar, Line, Panel, Scale, bars, panels};

fn line(name: &str, points: &[(usize, f64, f64)]) -> Line {
    Line { name: name.into(), points: points.to_vec() }
}

fn panel(title: &str, scale: Scale, lines: Vec<Line>) -> Panel {
    Panel { title: title.into(), axes: ["tokens in the cache", "tokens per second"], scale, lines }
}

/// The texts of a picture, with their positions and sizes.
fn texts(svg: &str) -> Vec<(f64, f64, f64, String)> {
    let attribute = |tag: &str, name: &str| {
        let rest = tag.split_once(&format!(" {name}=\"")).unwrap().1;
        rest[..rest.find('"').unwrap()].parse().unwrap()
    };
    let parts = svg.split("<text").skip(1).map(|part| part.split_once('>').unwrap());
    parts
        .map(|(tag, rest)| {
            let words = rest[..rest.find("</text>").unwrap()].trim().to_owned();
            (attribute(tag, "x"), attribute(tag, "y"), attribute(tag, "font-size"), words)
        })
        .collect()
}

#[test]
fn panels_show_every_value() {
    let lines = vec![line("a <b>", &[(0, 331.2, 1.0), (4096, 294.8, 0.1)]), line("c", &[(4096, 42.5, 0.0)])];
    let svg = panels("a model on a GPU", &[panel("decode", Scale::Linear, lines)]).unwrap();
    let wanted =
        ["a &lt;b&gt;", ">\nc\n<", "331", "295", "42.5", "4096", "tokens in the cache", "decode", "a model on a GPU"];
    for words in wanted {
        assert!(svg.contains(words), "expected {words:?}: {svg}");
    }
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>") && !svg.contains("logarithmic"));
    let nothing = panel("unmeasured", Scale::Linear, Vec::new());
    assert!(!panels("", &[nothing]).unwrap().contains("unmeasured"));
}

/// Depths are not equally spaced, and an axis that is not linear says so.
#[test]
fn the_axis_is_to_scale() {
    let points: Vec<(usize, f64, f64)> = [0, 4096, 16384, 32768].map(|depth| (depth, 300.0, 0.0)).to_vec();
    let svg = panels("", &[panel("decode", Scale::Linear, vec![line("", &points)])]).unwrap();
    // The other axis has a 0 too, further left.
    let at =
        |words: &str| texts(&svg).into_iter().filter(|text| text.3 == words).map(|text| text.0).fold(0.0, f64::max);
    let part = |words: &str| (at(words) - at("0")) / (at("32768") - at("0"));
    assert!((part("4096") - 0.125).abs() < 0.01 && (part("16384") - 0.5).abs() < 0.01, "{}", part("4096"));
    let prompts: Vec<(usize, f64, f64)> = [64, 512, 4096].map(|tokens| (tokens, 300.0, 0.0)).to_vec();
    let svg = panels("", &[panel("prompts", Scale::Logarithmic, vec![line("", &prompts)])]).unwrap();
    assert!(svg.contains("(logarithmic)"));
}

/// Names that are too long for a line are complete and inside the picture, and so are those of many lines.
#[test]
fn legends_are_whole() {
    let long = |index: usize| format!("series {index} of a GPU whose name goes on: {}", "word ".repeat(60));
    let lines = (0..12).map(|index| line(&long(index), &[(512, 100.0 + index as f64, 1.0)])).collect();
    let svg = panels(&long(99), &[panel("decode", Scale::Linear, lines)]).unwrap();
    let found = texts(&svg);
    let all = found.iter().map(|text| text.3.as_str()).collect::<Vec<_>>().join(" ");
    for index in (0..12).chain([99]) {
        assert!(all.contains(long(index).trim()), "{index}: {all}");
    }
    let head = svg.split_once("height=\"").unwrap().1;
    let height: f64 = head[..head.find('"').unwrap()].parse().unwrap();
    for (x, y, size, words) in found {
        assert!(x + 0.56 * size * words.chars().count() as f64 <= 960.0, "{words}");
        assert!(y + size <= height, "{words}: {y} of {height}");
    }
}

#[test]
fn bars_are_sorted() {
    let bar = |name: &str, value, part| Bar { name: name.into(), value, part };
    let given = [bar("small", 10.0, 2.0), bar("idle", 0.0, 0.0), bar("large", 30.0, 90.0)];
    let svg = bars(["a token", "a model on a GPU"], ["us", "the memory's floor"], &given).unwrap();
    let place = |words: &str| svg.find(words).unwrap();
    assert!(place("large") < place("10.0, 25.0 %") && place("30.0, 75.0 %") < place("small"));
    assert!(!svg.contains("idle") && svg.contains("25.0 %") && svg.contains("a model on a GPU"));
}

/// Names do not run into the bars, however long they are.
#[test]
fn names_of_bars_have_space() {
    let name = "L00.a_step_with_a_name_that_is_as_long_as_nobody_expects x 47";
    let svg = bars(["", ""], ["us", ""], &[Bar { name: name.into(), value: 1.0, part: 0.5 }]).unwrap();
    let rectangle = svg.split("<rect").nth(2).unwrap(); // the first is the paper
    let left = rectangle.split_once(" x=\"").unwrap().1;
    let left: f64 = left[..left.find('"').unwrap()].parse().unwrap();
    let (x, _, size, words) = texts(&svg).into_iter().find(|text| text.3 == name).unwrap();
    assert!(x + 0.56 * size * words.chars().count() as f64 <= left, "{left}");
}
