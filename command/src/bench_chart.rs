//! Draws the results of `bench`: tokens a second over the depth of the cache, and over the length of prompts. The
//! heading shows what all results share, such as model and GPU; the names of lines show how they differ.

use super::chart::{Line, Panel, Scale, panels};
use anyhow::Context;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The fields of a test that are drawn. Fields have the names of `bench -o json`; those missing in older results are
/// empty.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Measured {
    pub test: String,
    pub n_prompt: usize,
    pub n_gen: usize,
    pub n_depth: usize,
    pub avg_ts: f64,
    pub stddev_ts: f64,
    #[serde(flatten)]
    pub about: About,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct About {
    pub model_type: String,
    pub gpu_info: String,
    pub backends: String,
    pub driver: String,
    pub arithmetic: String,
    pub cache_type: String,
}

/// Tests that were measured together, and a name for them.
pub type Results = (String, Vec<Measured>);

/// Results saved by `bench -o json` or `-o csv`, named by their files.
pub fn saved(files: &[PathBuf]) -> anyhow::Result<Vec<Results>> {
    let read = |path: &PathBuf| -> anyhow::Result<Results> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading `{}`", path.display()))?;
        let expected = || format!("`{}`: expected the output of `wglm bench -o json` or `-o csv`", path.display());
        let rows = parsed(path, &text).with_context(expected)?;
        let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        Ok((name, rows))
    };
    let mut all: Vec<Results> = files.iter().map(read).collect::<anyhow::Result<_>>()?;
    // Files of the same name in different folders are different results.
    let names: Vec<String> = all.iter().map(|(name, _)| name.clone()).collect();
    for (index, (name, _)) in all.iter_mut().enumerate() {
        let same = names[..index].iter().filter(|other| *other == name).count();
        if same > 0 {
            name.push_str(&format!(" ({})", same + 1));
        }
    }
    Ok(all)
}

fn parsed(path: &Path, text: &str) -> anyhow::Result<Vec<Measured>> {
    if path.extension().is_none_or(|ending| ending != "csv") {
        return Ok(serde_json::from_str(text)?);
    }
    // `csv` can only read flattened fields as text, so each row is converted to JSON first.
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let names = reader.headers()?.clone();
    let row = |record: csv::Result<csv::StringRecord>| {
        let record = record?;
        let cell = |(name, cell): (&str, &str)| {
            let number = name.starts_with("n_") || name.ends_with("_ts");
            let value = if number { serde_json::from_str(cell).unwrap_or_default() } else { cell.into() };
            (name.to_owned(), value)
        };
        let object: serde_json::Map<_, _> = names.iter().zip(&record).map(cell).collect();
        Ok(serde_json::from_value(object.into())?)
    };
    reader.records().map(row).collect()
}

/// The indices of the model and of the number of generated tokens among the facts of a row.
const MODEL: usize = 1;
const TOKENS: usize = 5;

/// A test with all facts that may name its line.
struct Row<'a> {
    measured: &'a Measured,
    facts: [String; TOKENS + 1],
}

impl<'a> Row<'a> {
    fn of(file: &str, measured: &'a Measured) -> Self {
        let About { model_type, gpu_info, backends, driver, arithmetic, cache_type } = &measured.about;
        let some =
            |before: &str, value: &str| if value.is_empty() { String::new() } else { format!("{before}{value}") };
        let interface =
            [backends.as_str(), driver].into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join(", ");
        let gpu = if interface.is_empty() { gpu_info.clone() } else { format!("{gpu_info} ({interface})") };
        let facts = [
            file.to_owned(),
            model_type.clone(),
            some("on ", &gpu),
            some("arithmetic ", arithmetic),
            some("cache ", cache_type),
            if measured.n_prompt == 0 { format!("{} tokens", measured.n_gen) } else { String::new() },
        ];
        Self { measured, facts }
    }
}

/// Draws results side by side.
pub fn draw(all: &[Results]) -> anyhow::Result<String> {
    let rows: Vec<Row<'_>> =
        all.iter().flat_map(|(file, rows)| rows.iter().map(|measured| Row::of(file, measured))).collect();
    let generated: Vec<&Row<'_>> = rows.iter().filter(|row| row.measured.n_prompt == 0).collect();
    let prompts: Vec<&Row<'_>> =
        rows.iter().filter(|row| row.measured.n_prompt > 0 && row.measured.n_gen == 0).collect();
    let together: Vec<&Row<'_>> = generated.iter().chain(&prompts).copied().collect();
    let after = |row: &Measured| match row.n_depth {
        0 => String::new(),
        depth => format!("after {depth} tokens"),
    };
    let drawn = lines(&generated, &together, &|row| how(&row.test), &|row| row.n_depth);
    let mut read = lines(&prompts, &together, &after, &|row| row.n_prompt);
    if read.len() > 1 {
        read.iter_mut().filter(|it| it.name.is_empty()).for_each(|it| it.name = "empty cache".into());
    }
    let panel = |title: &str, quantity, scale, lines| Panel {
        title: title.into(),
        axes: [quantity, "tokens per second"],
        scale,
        lines,
    };
    panels(
        &heading(&together),
        &[
            panel("Generated tokens", "tokens in the cache", Scale::Linear, drawn),
            panel("Prompts", "tokens of the prompt", Scale::Logarithmic, read),
        ],
    )
}

/// What rows have in common.
fn heading(rows: &[&Row<'_>]) -> String {
    let shared = (MODEL..TOKENS).filter(|index| !differ(rows, *index));
    let facts: Vec<&str> = shared.filter_map(|index| Some(rows.first()?.facts[index].as_str())).collect();
    let facts: Vec<&str> = facts.into_iter().filter(|fact| !fact.is_empty()).collect();
    facts.join(", ").replacen(", on ", " on ", 1)
}

/// The lines of a panel's rows, named by the facts that differ between rows of the picture, and by `always`. `over`
/// gives the horizontal position.
fn lines(
    rows: &[&Row<'_>],
    all: &[&Row<'_>],
    always: &dyn Fn(&Measured) -> String,
    over: &dyn Fn(&Measured) -> usize,
) -> Vec<Line> {
    let distinguishing: Vec<usize> =
        (0..=TOKENS).filter(|index| differ(if *index == TOKENS { rows } else { all }, *index)).collect();
    let mut lines = Vec::new();
    for Row { measured, facts } in rows {
        let named = distinguishing.iter().map(|index| facts[*index].clone()).chain([always(measured)]);
        let name = named.filter(|fact| !fact.is_empty()).collect::<Vec<_>>().join(", ");
        add(&mut lines, name, (over(measured), measured.avg_ts, measured.stddev_ts));
    }
    lines.iter_mut().for_each(|line: &mut Line| line.points.sort_by_key(|(x, ..)| *x));
    lines
}

/// Whether rows differ in a fact.
fn differ(rows: &[&Row<'_>], index: usize) -> bool {
    rows.windows(2).any(|pair| pair[0].facts[index] != pair[1].facts[index])
}

/// How tokens are generated, from a test's name, without their number and the depth.
fn how(test: &str) -> String {
    let words: Vec<&str> = test.split_whitespace().skip(1).collect();
    let is_depth = |index: usize| words[index] == "@" || index > 0 && words[index - 1] == "@";
    let rest = (0..words.len()).filter(|index| !is_depth(*index)).map(|index| match words[index].strip_prefix('x') {
        Some(count) if count.parse::<usize>().is_ok() => format!("{count} side by side"),
        _ => words[index].to_owned(),
    });
    rest.collect::<Vec<_>>().join(" ")
}

/// Adds a point to the line with this name. Of several results of the same test, the last one wins.
fn add(lines: &mut Vec<Line>, name: String, point: (usize, f64, f64)) {
    match lines.iter_mut().find(|line| line.name == name) {
        Some(line) => {
            line.points.retain(|(x, ..)| *x != point.0);
            line.points.push(point);
        }
        None => lines.push(Line { name, points: vec![point] }),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{About, Measured, draw, how, saved};

    fn test(test: &str, [n_prompt, n_gen, n_depth]: [usize; 3], avg_ts: f64, arithmetic: &str) -> Measured {
        let about = About {
            model_type: "some model".into(),
            gpu_info: "some GPU".into(),
            backends: "vulkan".into(),
            arithmetic: arithmetic.into(),
            ..About::default()
        };
        Measured { test: test.into(), n_prompt, n_gen, n_depth, avg_ts, stddev_ts: 1.0, about }
    }

    #[test]
    fn names_say_how_tokens_are_generated() {
        let names = [
            "tg128",
            "tg128 @ d4096",
            "tg128 mtp, assuming 0.5",
            "tg128 @ d4096 at temperature 1 auto",
            "tg128 x8 @ d4096",
        ];
        assert_eq!(names.map(how), ["", "", "mtp, assuming 0.5", "at temperature 1 auto", "8 side by side"]);
    }

    /// A line for each file, way of generating, and depth of prompts.
    #[test]
    fn results_are_drawn_beside_each_other() {
        let before = vec![test("tg8", [0, 8, 0], 111.0, "int"), test("pp64", [64, 0, 0], 222.0, "int")];
        let after = vec![test("tg8 auto", [0, 8, 512], 333.0, "int"), test("pp64 @ d512", [64, 0, 512], 444.0, "int")];
        let svg = draw(&[("before".into(), before), ("later".into(), after)]).unwrap();
        for words in ["111", "222", "333", "444", "later, auto", "later, after 512 tokens", "Prompts", "Generated"] {
            assert!(svg.contains(words), "expected {words:?}: {svg}");
        }
        assert!(svg.contains("some model on some GPU (vulkan), arithmetic int"), "{svg}");
    }

    /// Shared facts are not repeated in each name, and facts that differ are in all names.
    #[test]
    fn lines_are_named_by_what_differs() {
        let rows = vec![
            test("tg8", [0, 8, 0], 1.0, "int"),
            test("tg8", [0, 8, 0], 111.0, "int"),
            test("tg8", [0, 8, 0], 222.0, "float"),
            test("tg16 x4 @ d4096", [0, 16, 4096], 333.0, "float"),
        ];
        let svg = draw(&[("file".into(), rows)]).unwrap();
        for words in
            ["some model on some GPU (vulkan)\n", "arithmetic int, 8 tokens", "16 tokens, 4 side by side", "111"]
        {
            assert!(svg.contains(words), "expected {words:?}: {svg}");
        }
        assert!(!svg.contains("file") && !svg.contains(">\n1.0\n<"), "{svg}");
    }

    /// The results in this repository have that form too.
    #[test]
    fn recorded_results_are_read() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/results/h100-vulkan-linux.csv");
        let results = saved(&[path.into()]).unwrap();
        let row = &results[0].1[0];
        assert_eq!((results[0].0.as_str(), row.test.as_str(), row.n_gen), ("h100-vulkan-linux", "tg128", 128));
        assert!(row.avg_ts > 300.0 && row.about.gpu_info == "NVIDIA H100 80GB HBM3", "{row:?}");
        let svg = draw(&results).unwrap();
        assert!(svg.contains("glm-flash-shaped on NVIDIA H100 80GB HBM3") && svg.contains("arithmetic float"), "{svg}");
    }
}
