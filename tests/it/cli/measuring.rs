//! Tests the measurements of speed, in the formats for people and for programs.

use super::{json, refuses, succeed, wglm};
use serde_json::{Map, Value};
use std::path::Path;

/// The fields of the rows of JSON.
fn rows(text: &str) -> Vec<Map<String, Value>> {
    json(text).as_array().unwrap().iter().map(|row| row.as_object().unwrap().clone()).collect()
}

/// The names of the columns, and the cells.
fn csv(text: &str) -> (Vec<String>, Vec<Vec<String>>) {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let names = reader.headers().unwrap().iter().map(str::to_owned).collect();
    (names, reader.records().map(|line| line.unwrap().iter().map(str::to_owned).collect()).collect())
}

fn number(row: &Map<String, Value>, name: &str) -> f64 {
    row[name].as_f64().unwrap_or_else(|| panic!("{name}: {}", row[name]))
}

#[test]
fn extended_bench_prints_its_table() {
    let text = succeed("bench -p 4,0 -n 2 -d 0,8 -r 2").out;
    let (table, remarks) = text.split_once("\n\n").unwrap();
    let cells = |row: &str| row.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let lines: Vec<Vec<String>> = table.lines().map(cells).collect();
    assert_eq!(lines[0], ["", "model", "size", "backend", "test", "t/s", ""], "{text}");
    let tests: Vec<&str> = lines[2..].iter().map(|row| row[4].as_str()).collect();
    assert_eq!(tests, ["pp4", "tg2", "pp4 @ d8", "tg2 @ d8"], "{text}");
    assert!(lines[2..].iter().all(|row| row[5].contains(" ± ") && row[2] == "5.9 MiB"), "{text}");
    let widths: Vec<usize> = table.lines().map(|line| line.chars().count()).collect();
    assert!(widths.iter().all(|width| *width == widths[0]), "{text}");
    for words in ["load: ", "first token: ", "GPU memory: ", "bandwidth: ", "tg2 @ d8 "] {
        assert!(remarks.contains(words), "expected {words:?}: {text}");
    }
}

/// Figures of several conversations are totals.
#[test]
fn extended_bench_measures_conversations_side_by_side() {
    let rows = rows(&succeed("bench -p 0 -n 4 --sessions 1,3 -d 8 -r 2 -o json").out);
    let named: Vec<(&Value, &Value)> = rows.iter().map(|row| (&row["test"], &row["n_sessions"])).collect();
    assert_eq!(named, [(&"tg4 @ d8".into(), &1.into()), (&"tg4 x3 @ d8".into(), &3.into())]);
    for (row, tokens) in rows.iter().zip([4.0, 12.0]) {
        let (sample, ns) = (&row["samples_ts"][0], &row["samples_ns"][0]);
        let product = sample.as_f64().unwrap() * ns.as_f64().unwrap() / 1e9;
        assert!((product / tokens - 1.0).abs() < 1e-9, "{row:?}");
    }
    assert!(rows[1]["floor_share"].is_null());
}

#[test]
fn extended_bench_prints_everything_as_json() {
    let rows = rows(&succeed("bench -p 3 -n 2 -d 8 -r 3 -o json").out);
    assert_eq!(rows.len(), 2);
    for (row, (name, prompt, generate)) in rows.iter().zip([("pp3 @ d8", 3, 0), ("tg2 @ d8", 0, 2)]) {
        assert_eq!((&row["test"], &row["n_prompt"], &row["n_gen"]), (&name.into(), &prompt.into(), &generate.into()));
        assert_eq!((&row["n_depth"], &row["model_type"]), (&8.into(), &"Fable 10M".into()));
        let samples: Vec<f64> = row["samples_ts"].as_array().unwrap().iter().map(|s| s.as_f64().unwrap()).collect();
        let mean = samples.iter().sum::<f64>() / 3.0;
        assert!(samples.len() == 3 && (number(row, "avg_ts") / mean - 1.0).abs() < 1e-9, "{row:?}");
        for name in ["stddev_ts", "load_seconds", "first_token_seconds", "weight_bytes", "copy_bandwidth"] {
            assert!(number(row, name) > 0.0, "{name}: {row:?}");
        }
        assert!(number(row, "gpu_memory_peak") >= number(row, "gpu_memory"), "{row:?}");
    }
    assert!(rows[0]["floor_share"].is_null());
    let token = number(&rows[1], "avg_ns") / 2e9;
    let floor =
        (number(&rows[1], "weight_bytes") + number(&rows[1], "cache_bytes")) / number(&rows[1], "copy_bandwidth");
    assert!((number(&rows[1], "floor_share") * token / floor - 1.0).abs() < 1e-9, "{:?}", rows[1]);
}

#[test]
fn extended_bench_prints_the_same_as_csv() {
    let (names, lines) = csv(&succeed("bench -p 2 -n 2 -r 2 -o csv --no-warmup").out);
    let row = &rows(&succeed("bench -p 0 -n 1 -r 1 -o json").out)[0];
    assert_eq!(names, row.keys().cloned().collect::<Vec<_>>());
    let column = |name: &str| -> Vec<&str> {
        let index = names.iter().position(|n| n == name).unwrap();
        lines.iter().map(|line| line[index].as_str()).collect()
    };
    assert_eq!(column("test"), ["pp2", "tg2"]);
    assert!(column("samples_ns").iter().all(|samples| samples.split(';').count() == 2));
    assert_eq!(column("floor_share").iter().map(|share| share.is_empty()).collect::<Vec<_>>(), [true, false]);
}

/// Without an option, the arithmetic is the one that `devices` prints for the adapter.
#[test]
fn extended_bench_names_the_arithmetic() {
    let of = |rest: &str| rows(&succeed(&format!("bench -p 0 -n 1 -r 1 -o json {rest}")).out)[0]["arithmetic"].clone();
    let listed = succeed("devices").out;
    let used = listed.split(" (default)").nth(1).unwrap();
    let usual = used.lines().find_map(|line| line.trim().strip_prefix("arithmetic ")).unwrap().trim();
    assert_eq!([of(""), of("--arithmetic float"), of("--arithmetic int")], [usual, "float", "int"]);
}

/// The times of all kinds of steps and the unaccounted time add up to the time of the token.
#[test]
fn extended_a_profile_adds_up() {
    let profile = json(&succeed("profile --arithmetic float -r 2 -d 20 -o json").out);
    let kinds = profile["kinds"].as_array().unwrap();
    let sum = |name: &str| kinds.iter().map(|kind| kind[name].as_f64().unwrap()).sum::<f64>();
    let times = |name: &str| profile["microseconds"][name].as_f64().unwrap();
    let planned = |table: &str| {
        json(&succeed(&format!("plan --json --arithmetic float --tiling-table {table}")).out)["dispatches"].as_f64()
    };
    assert!(["nvidia", "apple"].map(planned).contains(&Some(sum("count"))), "{profile:#}");
    assert!(times("pass") > 0.0 && times("steps") > 0.0 && times("whole") >= times("submit"), "{profile:#}");
    assert!((sum("microseconds") - times("steps")).abs() < 1e-6 * times("steps"), "{profile:#}");
    let rest = (times("pass") - times("steps")).max(0.0);
    assert!((times("unaccounted") - rest).abs() < 1e-6 * times("pass"), "{profile:#}");
    let shares = sum("share") + times("unaccounted") / times("pass").max(times("steps"));
    assert!((shares - 1.0).abs() < 1e-6, "{profile:#}");
    assert_eq!((&profile["n_depth"], &profile["repetitions"]), (&20.into(), &2.into()));
}

/// The steps that verify drafts, the block's, and those of each draft.
#[test]
fn extended_a_profile_of_drafts() {
    let profile = json(&succeed("profile -r 1 --drafts 2 -o json").out);
    let kinds = profile["kinds"].as_array().unwrap();
    let count = |step: &str| kinds.iter().find(|kind| kind["step"] == step).map(|kind| kind["count"].as_u64().unwrap());
    let counts = ["accept", "block eh_proj", "draft draft_output", "draft attention"].map(count);
    assert_eq!(counts, [Some(1), Some(1), Some(2), Some(2)], "{profile:#}");
    assert_eq!((&profile["n_drafts"], &profile["microseconds"]["submit"]), (&2.into(), &Value::Null));
    refuses("profile --drafts 16 -r 1", "drafts: expected at most 15, found 16");
}

/// Pictures of new measurements, and of saved ones.
#[test]
fn long_results_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("saved.json");
    std::fs::write(&file, succeed("bench -p 3 -n 2 -d 0,8 -r 1 -o json").out).unwrap();
    let svg = succeed(&format!("bench -o svg --from {0},{0}", file.display())).out;
    assert!(svg.starts_with("<svg ") && svg.contains("saved (2)") && svg.contains("Generated tokens"), "{svg}");
    assert!(svg.contains("Fable 10M on ") && svg.contains("(logarithmic)"), "{svg}");
    assert!(succeed("bench -p 0 -n 2 -r 1 -o svg").out.contains("Fable 10M on "));
    let svg = succeed("profile -r 1 -o svg").out;
    assert!(svg.contains("moe.gate_up x 3") && svg.contains("bandwidth of a copy"), "{svg}");
    assert!(svg.contains("Fable 10M: wglm "), "{svg}");
    let empty = folder.path().join("empty.json");
    std::fs::write(&empty, "[]").unwrap();
    for (rest, words) in [
        (format!("--from {}", file.display()), "--from: requires -o svg"),
        (format!("-o svg --from {0},{1}", file.display(), empty.display()), "--from: `empty` has no results to draw"),
        ("-o svg --from ,".to_owned(), "a value is required for '--from <FILES>'"),
    ] {
        let done = wglm(&format!("bench {rest}"));
        assert!(done.code == Some(2) && done.out.is_empty() && done.err.contains(words), "{rest}: {done:?}");
    }
    refuses("bench -o svg --from nowhere.json", "nowhere.json");
}

/// The names of rows say how they generated.
#[test]
fn extended_bench_guesses() {
    let name = |rest: &str| rows(&succeed(&format!("bench -p 0 -n 4 -r 1 -o json {rest}")).out)[0]["test"].clone();
    assert_eq!(name("--assume-acceptance 0.5,0.25"), "tg4 mtp, assuming 0.5/0.25");
    assert_eq!(name("--temp 1 --speculate auto"), "tg4 at temperature 1 auto");
    refuses("bench -md nowhere.gguf", "nowhere.gguf");
}

#[test]
fn long_a_profile_as_a_table_and_as_csv() {
    let text = succeed("profile -r 1").out;
    for words in ["| step ", "| between steps ", "| all in one pass ", "the steps take ", "the host takes "] {
        assert!(text.contains(words), "expected {words:?}: {text}");
    }
    let table = |text: &str| text.split_once("\n\n").unwrap().0.to_owned();
    for rest in ["", "-v"] {
        let text = table(&succeed(&format!("profile -r 1 {rest}")).out);
        let widths: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
        assert!(widths.iter().all(|width| *width == widths[0]) && !text.contains("-0."), "{text}");
    }
    assert!(succeed("profile -r 1 -v").out.contains("embed              get_rows.q4_0."));
    let (names, lines) = csv(&succeed("profile -r 1 -o csv").out);
    let step = names.iter().position(|name| name == "step").unwrap();
    let steps: Vec<&str> = lines.iter().map(|line| line[step].as_str()).collect();
    assert!(["embed", "attention", "sample", "pass", "steps", "unaccounted"].iter().all(|s| steps.contains(s)));
}

#[test]
fn extended_a_context_that_is_too_small_is_refused() {
    refuses("bench -c 64 -p 100 -n 0", "pp100 needs a context of 100 tokens, but -c gives 64");
    refuses("bench -c 64 -p 0 -n 8 -d 60", "tg8 @ d60 needs a context of 68 tokens, but -c gives 64");
    refuses("bench -c 0 -p 5000 -n 0", "pp5000 needs a context of 5000 tokens, but -c gives 4096");
    refuses("bench -p 18446744073709551615", "the maximum is 4294967295");
    refuses("profile -c 64 -d 100", "needs a context of 101 tokens, but -c gives 64");
    refuses("profile -ub 512 -p 600", "expected at most the prompt batch size of 512 tokens (-ub), found 600");
    assert_eq!(rows(&succeed("bench -c 64 -p 4 -n 0 -r 1 --json").out).len(), 1);
}

/// The picture of the recorded results shows exactly the last run among them, as `bench` draws it.
#[test]
fn the_picture_shows_recorded_results() {
    const ROWS: usize = 11;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let recorded = std::fs::read_to_string(root.join("benches/results/h100-vulkan-linux.csv")).unwrap();
    let lines: Vec<&str> = recorded.lines().collect();
    let last = [&lines[..1], &lines[lines.len() - ROWS..]].concat().join("\n");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("last.csv");
    std::fs::write(&file, last).unwrap();
    let drawn = succeed(&format!("bench --from {} -o svg", file.display())).out;
    let picture = std::fs::read_to_string(root.join("docs/pictures/bench.svg")).unwrap();
    assert!(drawn == picture, "draw docs/pictures/bench.svg again");
}
