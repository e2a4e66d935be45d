//! Tests the commands that show the steps of a token and the contents of a file, from the header only.

use super::{json, refuses, succeed, wglm};
use crate::common::models::fixture;

#[test]
fn extended_totals_of_a_plan_are_the_sums_of_its_steps() {
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

/// Every pipeline is counted once, where it is first needed; prompts need no more if tokens are computed one by one.
#[test]
fn extended_a_plan_counts_the_pipelines_of_a_conversation() {
    let count = |rest: &str| {
        let plan = json(&succeed(&format!("plan --json {rest}")).out);
        ["token", "prompts", "sampling", "total"].map(|key| plan["pipelines"][key].as_u64().unwrap())
    };
    let [token, prompts, sampling, total] = count("");
    assert!(token + prompts + sampling == total && total <= 64, "{token} + {prompts} + {sampling} = {total}");
    assert!(token > 10 && prompts > 10 && sampling == 2, "{token} + {prompts} + {sampling}");
    assert_eq!(count("-ub 1"), [token, 0, sampling, token + sampling]);
    let text = succeed("plan").out;
    assert!(text.contains(&format!("uses {total} pipelines: {token} for a token, {prompts} more ")), "{text}");
}

#[test]
fn a_plan_names_its_largest_step() {
    let largest = |rest: &str| json(&succeed(&format!("plan --json {rest}")).out)["largest_step"].clone();
    let [short, long, alone] = ["-c 300 -ub 32", "-c 4000 -ub 512", "-c 4000 -ub 1"].map(largest);
    for (step, tokens) in [(&short, 32), (&long, 512), (&alone, 1)] {
        let [flops, bytes, ms] = ["flops", "bytes", "ms"].map(|name| step[name].as_f64().unwrap());
        assert!((ms - (flops / 2.5e9 + bytes / 1e8)).abs() < 1e-9 && ms < 50.0, "{step}");
        assert!(step["tokens"] == tokens && !step["label"].as_str().unwrap().is_empty(), "{step}");
    }
    let ms = |step: &serde_json::Value| step["ms"].as_f64().unwrap();
    assert!(ms(&long) > ms(&short) && ms(&short) > ms(&alone), "{long}, {short}, {alone}");
    let told = succeed("plan -c 4000 -ub 512").out;
    let label = long["label"].as_str().unwrap();
    assert!(told.contains(&format!("largest step: {label} for 512 tokens with 4000 in the cache")), "{told}");
}

/// Names fit their columns, and the columns fit a terminal; longer names are at the end of the line.
#[test]
fn a_plan_has_columns() {
    let text = succeed("plan").out;
    let steps: Vec<&str> = text.lines().take_while(|line| !line.contains(" dispatches, ")).collect();
    // A number without a unit leaves the space of the unit free.
    assert!(steps.iter().all(|line| (79..=80).contains(&line.len()) && !line.ends_with(' ')), "{text}");
    let verbose = succeed("plan -v").out;
    let whole = |(short, long): (&&str, &str)| long.starts_with(*short) && long.len() > short.len();
    assert!(steps.iter().zip(verbose.lines()).skip(1).all(whole), "{verbose}");
}

#[test]
fn inspect_prints_the_same_as_json() {
    let told = json(&succeed("inspect --json").out);
    assert_eq!((&told["version"], &told["tensors"]), (&3.into(), &92.into()));
    assert_eq!(told["metadata"]["deepseek2.context_length"], 4096);
    assert_eq!(told["metadata"]["deepseek2.attention.layer_norm_rms_epsilon"], 1e-5);
    assert_eq!(told["metadata"]["tokenizer.ggml.tokens"]["length"], 2048);
    let plan = json(&succeed("plan --json -c 4096").out);
    let bytes = |part: &str| told["needs"][part].as_u64().unwrap();
    for part in ["total", "weights", "cache", "scratch"] {
        assert_eq!(bytes(part), plan["memory"][part].as_u64().unwrap(), "{part}");
    }
    assert_eq!(bytes("total"), bytes("weights") + bytes("cache") + bytes("scratch"));
    let a_layer = bytes("cache") / 5;
    assert!((a_layer..bytes("scratch")).contains(&bytes("draft_block")), "{told}");
    let tensors = told["tensor_types"].as_object().unwrap().values().map(|total| total["count"].as_u64().unwrap());
    assert_eq!(tensors.sum::<u64>(), 92);
}

#[test]
fn extended_a_plan_counts_the_depth() {
    assert_ne!(succeed("plan -d 100").out, succeed("plan").out);
}

#[test]
fn inspect_shows_contents_and_memory() {
    let report = succeed("inspect").out;
    for words in [
        "GGUF version 3",
        "deepseek2.context_length = u32 4096",
        "tokenizer.ggml.tokens = array of 2048 string",
        "tensors: 92",
        "weights",
        "per 1000 tokens",
        "12.5 MiB for 4096 tokens",
        "at most, for the model and one conversation",
        "scratch",
        "for the multi-token-prediction block",
    ] {
        assert!(report.contains(words), "expected {words:?}:\n{report}");
    }
    assert!(report.lines().all(|line| line.chars().count() <= 160), "{report}");
    let guessed = succeed(&format!("inspect {}", fixture("models/legacy-kv-b.gguf").display()));
    assert!((guessed.out + &guessed.err).contains("the file lacks `deepseek2.expert_gating_func`"));
}

/// The prediction follows from the plan's dispatches and bytes and the figures of the device.
#[test]
fn extended_a_plan_predicts_the_speed_of_a_device() {
    let predictions = |rest: &str| {
        let plan = json(&succeed(&format!("plan --json {rest}")).out);
        (plan["predictions"].as_array().unwrap().clone(), plan)
    };
    assert!(predictions("").0.is_empty());
    let (rows, plan) = predictions("--device m3-pro --tiling-table apple"); // as a Mac would plan
    let number = |of: &serde_json::Value, name: &str| of[name].as_f64().unwrap();
    assert_eq!(rows.iter().map(|row| row["depth"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 4096, 32768]);
    for row in &rows {
        let moved = number(&plan, "weight_bytes") + number(&plan, "activation_bytes");
        let bytes = moved + number(&plan, "cache_bytes") * (number(row, "depth") + 1.0);
        assert_eq!((number(row, "bytes"), row["device"].as_str()), (bytes, Some("m3-pro")), "{row}");
        let [dispatch, work] = ["dispatch_seconds", "work_seconds"].map(|name| number(row, name));
        assert!((dispatch / (number(&plan, "dispatches") * 2.4e-6) - 1.0).abs() < 1e-9, "{row}");
        // No memory is faster than its maker states, and no arithmetic is.
        assert!(bytes / 150e9 < work && number(row, "operations") / (18.0 * 0.34e12) < work, "{row}");
        let (most, others) = (number(row, "tokens_per_second_at_most"), &row["tokens_per_second_of_others"]);
        assert!((most * (dispatch + work) - 1.0).abs() < 1e-9, "{row}");
        let [low, high] = [0, 1].map(|end| others[end].as_f64().unwrap() / most);
        assert!((low - 0.4).abs() < 1e-9 && (high - 0.7).abs() < 1e-9, "{row}");
    }
    assert!(rows.windows(2).all(|pair| number(&pair[0], "work_seconds") < number(&pair[1], "work_seconds")));
    // More bandwidth gives more speed, and the table has a row for each device.
    let all = predictions("--device all").0;
    let fastest = |name: &str| {
        let of = all.iter().find(|row| row["device"] == name).unwrap();
        number(of, "tokens_per_second_at_most")
    };
    assert!(
        fastest("m2") < fastest("m3-pro")
            && fastest("m3-pro") < fastest("m5-max")
            && fastest("m5-max") < fastest("h100")
    );
    let text = succeed("plan --device all").out;
    assert!(all.iter().all(|row| text.contains(&format!("\n| {} ", row["device"].as_str().unwrap()))), "{text}");
    assert!(text.contains("predicted, not measured"), "{text}");
}

#[test]
fn extended_products_are_divided_as_requested() {
    let plan = json(&succeed("plan --json --tiling moe.down=8x2x128,output=64x1x256,attn_output=16x4x64d").out);
    for (step, tiling, direct, workgroup) in
        [("moe.down", "r2l8", false, "w128"), ("output", "r1l64", false, "w256"), ("attn_output", "r4l16", true, "w64")]
    {
        let steps = plan["steps"].as_array().unwrap().iter();
        let own: Vec<&str> = steps
            .filter(|planned| {
                planned["label"].as_str().is_some_and(|label| label == step || label.ends_with(&format!(".{step}")))
            })
            .filter_map(|planned| planned["variant"].as_str())
            .collect();
        let divided = |variant: &&str| {
            let tags = variant.rsplit('.').next().unwrap();
            tags.starts_with(tiling) && tags.contains('d') == direct && tags.ends_with(workgroup)
        };
        assert!(!own.is_empty() && own.iter().all(divided), "{step}: {own:?}");
    }
    let wrong =
        ["moe.down", "moe.down=3x1x64", "moe.down=32x5x256", "moe.down=64x1x32", "moe.down=d", "moe.down=32x1x32"];
    for wrong in wrong {
        let done = wglm(&format!("plan --tiling {wrong}"));
        assert!(done.code == Some(2) && done.err.contains("STEP=LANESxROWSxWORKGROUP"), "{wrong}: {done:?}");
    }
    refuses("plan --tiling nowhere=8x1x64", "tiling: expected the name of a step of the plan");
}
