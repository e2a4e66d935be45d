//! What a token takes and what a file holds, from its header.

use crate::common::models::fixture;
use crate::{json, succeed};

#[test]
fn totals_of_a_plan_are_the_sums_of_its_steps() {
    for rest in ["", "-d 100", "-c 0 --no-subgroups", "-c 99999"] {
        let plan = json(&succeed(&format!("plan --json {rest}")).out);
        let steps = plan["steps"].as_array().unwrap();
        assert_eq!(plan["dispatches"], steps.len(), "{rest}");
        for total in ["weight_bytes", "cache_bytes", "activation_bytes"] {
            let sum: u64 = steps.iter().map(|step| step[total].as_u64().unwrap()).sum();
            assert!(plan[total] == sum && sum > 0, "{rest}: {total}");
        }
        for step in steps {
            let grid = step["grid"].as_array().unwrap();
            assert!(grid.len() == 3 && grid.iter().all(|size| size.as_u64() > Some(0)), "{step}");
            let [label, kernel, variant] = ["label", "kernel", "variant"].map(|key| step[key].as_str().unwrap());
            assert!(!label.is_empty() && variant.starts_with(kernel), "{step}");
        }
    }
    let [near, far] = ["0", "99"].map(|depth| json(&succeed(&format!("plan --json -d {depth}")).out));
    assert_eq!(near["cache_bytes"].as_u64().map(|bytes| bytes * 100), far["cache_bytes"].as_u64());
    let text = succeed("plan").out;
    assert!(text.contains(&format!("\n{} dispatches, ", near["dispatches"])), "{text}");
    let weights = near["weight_bytes"].as_f64().unwrap() / 1e3;
    assert!(text.contains(&format!("a token moves {weights:.0} kB of weights")), "{weights}: {text}");
}

#[test]
fn a_plan_in_words_heeds_the_depth() {
    assert_ne!(succeed("plan -d 100").out, succeed("plan").out);
}

#[test]
fn inspect_tells_what_a_file_holds_and_needs() {
    let report = succeed("inspect").out;
    for words in [
        "GGUF version 3",
        "deepseek2.context_length = u32 4096",
        "tokenizer.ggml.tokens = array of 2048 string",
        "tensors: 92",
        "weights",
        "cache per 1k tokens",
        "10.00 MiB for 4096 tokens",
        "scratch",
        "1 multi-token-prediction block",
    ] {
        assert!(report.contains(words), "expected {words:?}:\n{report}");
    }
    assert!(report.lines().all(|line| line.chars().count() <= 160), "{report}");
    let guessed = succeed(&format!("inspect {}", fixture("models/legacy-kv-b.gguf").display()));
    assert!((guessed.out + &guessed.err).contains("the file lacks `deepseek2.expert_gating_func`"));
}
