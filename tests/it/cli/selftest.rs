//! Tests the command `selftest`, which is meant for users of other GPUs.

use super::{json, refuses, succeed, wglm};
use wglm_engine::kernels::KERNELS;
use wglm_engine::quant::QUANTS;

/// Every kernel is tested, in every format if it has weights, and a summary names the adapter.
#[test]
fn extended_selftest_prints_its_table() {
    let text = succeed("selftest -k mla_output").out;
    let (table, summary) = text.split_once("\n\n").unwrap();
    let cells = |row: &str| row.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows: Vec<Vec<String>> = table.lines().map(cells).collect();
    assert_eq!(rows[0], ["", "kernel", "format", "arithmetic", "cases", "error", "bound", "result", ""], "{text}");
    for quant in QUANTS {
        let of = rows.iter().filter(|row| row[1] == "mla_output" && row[2] == quant.name);
        assert!(of.clone().count() > 0 && of.clone().all(|row| row[7] == "pass"), "{}: {text}", quant.name);
        for row in of {
            let [error, bound] = [&row[5], &row[6]].map(|cell| cell.parse::<f64>().unwrap());
            assert!(error <= bound && bound > 0.0, "{row:?}");
        }
    }
    let widths: Vec<usize> = table.lines().map(|line| line.chars().count()).collect();
    assert!(widths.iter().all(|width| *width == widths[0]), "{text}");
    let passed = format!("{} passed, 0 failed, 0 skipped (", rows.len() - 2);
    assert!(summary.contains(&passed) && summary.contains("worst error 0."), "{text}");
    let listed = succeed("devices").out;
    let name = listed.lines().find_map(|l| l.strip_suffix(" (default)")).unwrap();
    assert!(summary.contains(name) && summary.contains(std::env::consts::ARCH), "{text}");
}

/// With bounds that allow no rounding the same kernels fail, and so does the command.
#[test]
fn selftest_fails_with_a_kernel() {
    let done = wglm("selftest -k sum_normed --bounds 0");
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.out.contains("FAIL") && done.out.contains("0 passed, 1 failed, 0 skipped ("), "{done:?}");
    assert!(done.out.contains("expected"), "the values are told: {done:?}");
    assert!(!done.err.contains("panicked"), "{done:?}");
}

#[test]
fn selftest_prints_everything_as_json() {
    let rows = json(&succeed("selftest -k rope_query -o json").out);
    for row in rows.as_array().unwrap() {
        assert_eq!((row["kernel"].as_str(), row["result"].as_str()), (Some("rope_query"), Some("pass")), "{row}");
        assert!(row["error"].as_f64() <= row["bound"].as_f64() && row["cases"].as_u64() > Some(0), "{row}");
        assert!(["gpu_info", "driver", "system"].iter().all(|name| !row[name].as_str().unwrap().is_empty()), "{row}");
    }
    let done = wglm("selftest -k rope_query -o csv --bounds 0");
    let mut reader = csv::Reader::from_reader(done.out.as_bytes());
    let names: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    assert_eq!(names, rows[0].as_object().unwrap().keys().cloned().collect::<Vec<_>>());
    let result = names.iter().position(|name| name == "result").unwrap();
    assert!(reader.records().all(|row| row.unwrap()[result] == *"fail"), "{done:?}");
    assert_eq!(done.code, Some(1), "{done:?}");
}

/// Without subgroups other kernels are tested.
#[test]
fn selftest_uses_the_requested_adapter() {
    let text = succeed("selftest -k sum_normed --no-subgroups").out;
    assert!(text.contains("no subgroups") && text.contains("1 passed, 0 failed, 0 skipped ("), "{text}");
    for kernel in ["moe_gate_up_grouped", "mul_mv_places"] {
        let text = succeed(&format!("selftest -k {kernel} --no-subgroups")).out;
        assert!(text.contains("0 passed, 0 failed, 1 skipped ("), "{text}");
    }
    refuses("selftest --gpu nosuch", "no GPU found named `nosuch`; available: `");
    refuses("selftest -k nosuch", KERNELS[0].name);
}
