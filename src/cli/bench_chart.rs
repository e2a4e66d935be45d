//! Draws the results of `bench`: tokens a second over the depth of the cache, and over the length of prompts.

use super::chart::{Line, Panel, panels};
use anyhow::Context;
use serde::Deserialize;
use std::path::PathBuf;

/// What is drawn of a test. Fields have the names that `bench -o json` gives them.
#[derive(Debug, Clone, Deserialize)]
pub struct Measured {
    pub test: String,
    pub n_prompt: usize,
    pub n_gen: usize,
    pub n_depth: usize,
    pub avg_ts: f64,
    pub stddev_ts: f64,
}

/// Tests that were measured together, and a name for them.
pub type Results = (String, Vec<Measured>);

/// Results saved by `bench -o json`, named by their files.
pub fn saved(files: &[PathBuf]) -> anyhow::Result<Vec<Results>> {
    let read = |path: &PathBuf| -> anyhow::Result<Results> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading `{}`", path.display()))?;
        let expected = || format!("`{}`: expected what `wglm bench -o json` prints", path.display());
        let rows = serde_json::from_str(&text).with_context(expected)?;
        let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        Ok((name, rows))
    };
    files.iter().map(read).collect()
}

/// Draws results beside each other.
pub fn draw(all: &[Results]) -> anyhow::Result<String> {
    let (mut generated, mut prompts) = (Vec::new(), Vec::new());
    for (name, rows) in all {
        for row in rows {
            let point = |x| (x, row.avg_ts, row.stddev_ts);
            if row.n_prompt == 0 {
                let name = [name.as_str(), how(&row.test)].join(" ");
                add(&mut generated, name.trim().to_owned(), point(row.n_depth));
            } else if row.n_gen == 0 {
                let behind =
                    if row.n_depth > 0 { format!("{name} behind {} tokens", row.n_depth) } else { name.clone() };
                add(&mut prompts, behind, point(row.n_prompt));
            }
        }
    }
    let panel =
        |title: &str, quantity, lines| Panel { title: title.into(), axes: [quantity, "tokens a second"], lines };
    panels(&[
        panel("Generated tokens", "tokens in the cache", generated),
        panel("Prompts", "tokens of the prompt", prompts),
    ])
}

/// What a test's name says of how tokens are generated, behind their number and the depth.
fn how(test: &str) -> &str {
    let behind_first = test.split_once(' ').map_or("", |(_, rest)| rest);
    match behind_first.strip_prefix("@ ") {
        Some(depth) => depth.split_once(' ').map_or("", |(_, rest)| rest),
        None => behind_first,
    }
}

fn add(lines: &mut Vec<Line>, name: String, point: (usize, f64, f64)) {
    match lines.iter_mut().find(|line| line.name == name) {
        Some(line) => line.points.push(point),
        None => lines.push(Line { name, points: vec![point] }),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Measured, draw, how};

    #[test]
    fn names_say_how_tokens_are_generated() {
        let names = ["tg128", "tg128 @ d4096", "tg128 mtp, assuming 0.5", "tg128 @ d4096 at temperature 1 auto"];
        assert_eq!(names.map(how), ["", "", "mtp, assuming 0.5", "at temperature 1 auto"]);
    }

    /// A line for each file, way of generating, and depth of prompts.
    #[test]
    fn results_are_drawn_beside_each_other() {
        let test = |test: &str, [n_prompt, n_gen, n_depth]: [usize; 3], avg_ts| Measured {
            test: test.into(),
            n_prompt,
            n_gen,
            n_depth,
            avg_ts,
            stddev_ts: 1.0,
        };
        let before = vec![test("tg8", [0, 8, 0], 111.0), test("pp64", [64, 0, 0], 222.0)];
        let after = vec![test("tg8 auto", [0, 8, 512], 333.0), test("pp64 @ d512", [64, 0, 512], 444.0)];
        let svg = draw(&[("before".into(), before), ("after".into(), after)]).unwrap();
        for words in ["111", "222", "333", "444", "after auto", "after behind 512 tokens", "Prompts", "Generated"] {
            assert!(svg.contains(words), "expected {words:?}: {svg}");
        }
    }
}
