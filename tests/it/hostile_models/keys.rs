//! Tests hyper-parameters that are missing, have the wrong type, or are impossible.

use super::refused::{Broken, all_refused, plan_file};
use super::small::{Small, key};
use crate::common::gguf_writer::Meta;
use wglm::{Config, ExpertGroups};

const MAX: u32 = u32::MAX;
const EPSILON: &str = "attention.layer_norm_rms_epsilon";
const BASE: &str = "rope.freq_base";
const FACTOR: &str = "rope.scaling.factor";
const ORIGINAL: &str = "rope.scaling.original_context_length";

/// Required keys that hold a number of at least 1.
const COUNTS: [&str; 8] = [
    "block_count",
    "context_length",
    "embedding_length",
    "attention.head_count",
    "attention.kv_lora_rank",
    "rope.dimension_count",
    "expert_used_count",
    "expert_feed_forward_length",
];

/// Keys that may have a number for each block, of which those that are used have to be the same.
const OF_LAYERS: [&str; 3] = ["feed_forward_length", "expert_used_count", "expert_feed_forward_length"];

pub fn cases() -> Vec<Broken> {
    [
        architecture(),
        missing(),
        wrong_types(),
        zeros(),
        floats(),
        absurd(),
        inconsistent(),
        unsupported(),
        groups(),
        yarn(),
    ]
    .concat()
}

#[test]
fn every_broken_key_is_refused() {
    all_refused(&cases(), plan_file);
}

/// A file in which one key has another value.
fn value(name: &str, value: impl Into<Meta> + std::fmt::Debug, variant: &'static str, says: &[&str]) -> Broken {
    Broken::new(format!("{name} = {value:?}"), |s| s.set(&key(name), value), variant, says)
}

fn architecture() -> Vec<Broken> {
    let other = |name: &str| {
        let edit = |s: &mut Small| s.set("general.architecture", name);
        Broken::new(format!("architecture {name}"), edit, "Unsupported", &["architecture", name, "deepseek2"])
    };
    vec![
        other("llama"),
        other("deepseek3"),
        other("`"),
        Broken::new("no architecture", |s| s.unset("general.architecture"), "Metadata", &["general.architecture"]),
        Broken::new(
            "a number",
            |s| s.set("general.architecture", 7u32),
            "Metadata",
            &["general.architecture", "string"],
        ),
    ]
}

fn missing() -> Vec<Broken> {
    let without = |name: &str, says: &str| {
        Broken::new(format!("no {name}"), |s| s.unset(&key(name)), "Metadata", &[says, "nothing"])
    };
    let mut cases: Vec<Broken> = COUNTS.iter().map(|name| without(name, &key(name))).collect();
    // The key has an older name that is read as well; if neither exists, and heads of width / heads contradict the
    // tensors, the error names the newer one.
    cases.push(without("attention.key_length_mla", &key("attention.key_length_mla")));
    cases.push(without(EPSILON, &key(EPSILON)));
    let no_vocabulary = |s: &mut Small| {
        s.unset(&key("vocab_size"));
        s.remove("token_embd.weight");
    };
    cases.push(Broken::new("no vocabulary at all", no_vocabulary, "Metadata", &["vocab_size", "nothing"]));
    // If these keys are absent, their defaults contradict the tensors.
    for (name, tensor) in [
        ("attention.q_lora_rank", "blk.0.attn_q.weight"),
        ("expert_count", "blk.1.ffn_gate.weight"),
        ("leading_dense_block_count", "blk.0.ffn_gate_inp.weight"),
    ] {
        cases.push(Broken::new(format!("no {name}"), |s| s.unset(&key(name)), "Tensor", &[tensor, "nothing"]));
    }
    cases
}

/// Invalid values for keys of each type.
fn wrong_types() -> Vec<Broken> {
    let mut cases = Vec::new();
    for (name, good) in Small::default().meta {
        let expected = match good {
            Meta::U32(_) => "an integer",
            Meta::F32(_) => "float",
            Meta::Bool(_) => "a bool",
            _ => continue,
        };
        let wrong: [Meta; 3] = ["nonsense".into(), Meta::Array(4, vec![]), [1u8, 2].into()];
        // Some keys may have a number for each block.
        let kinds = if OF_LAYERS.iter().any(|of| name == key(of)) { 2 } else { 3 };
        for wrong in wrong.into_iter().take(kinds) {
            let what = format!("{name} = {wrong:?}");
            cases.push(Broken::new(what, |s| s.set(&name, wrong), "Metadata", &[&name, expected]));
        }
        if matches!(good, Meta::U32(_)) {
            let what = format!("{name} = -1");
            cases.push(Broken::new(what, |s| s.set(&name, -1i32), "Metadata", &[&name, expected, "-1"]));
        }
    }
    cases.push(value("rope.scaling.type", 1u32, "Metadata", &["rope.scaling.type", "string"]));
    cases
}

fn zeros() -> Vec<Broken> {
    let widths = ["attention.key_length_mla", "attention.value_length_mla"];
    let zero = |name: &&str| value(name, 0u32, "Metadata", &[&key(name), "at least 1", "0"]);
    COUNTS.iter().chain(&widths).map(zero).collect()
}

fn floats() -> Vec<Broken> {
    let (nan, infinite) = (f32::NAN, f32::INFINITY);
    let mut cases = Vec::new();
    for bad in [nan, infinite, -infinite] {
        for name in [EPSILON, BASE, "expert_weights_scale"] {
            cases.push(value(name, bad, "Metadata", &[&key(name), "finite float"]));
        }
    }
    cases.extend([-1e-5f32, 1.0, 1e30].map(|bad| value(EPSILON, bad, "Metadata", &[&key(EPSILON), "0 to 1"])));
    cases.extend([0f32, -0.0, -1e4].map(|bad| value(BASE, bad, "Metadata", &[&key(BASE), "more than 0"])));
    for bad in [Meta::F32(-2.0), Meta::F32(nan), Meta::F64(1e300), Meta::from("2")] {
        let what = format!("scaling factor {bad:?}");
        let edit = |s: &mut Small| {
            s.set(&key("rope.scaling.type"), "linear");
            s.set(&key(FACTOR), bad);
        };
        cases.push(Broken::new(what, edit, "Metadata", &[&key(FACTOR)]));
    }
    for bad in [-2f32, nan, infinite] {
        cases.push(value("rope.scale_linear", bad, "Metadata", &[&key("rope.scale_linear")]));
    }
    cases
}

/// Numbers that contradict the rest of the file.
fn absurd() -> Vec<Broken> {
    let tensor = |name: &str, count: u32, tensor: &str| value(name, count, "Tensor", &[tensor]);
    let metadata = |name: &str, says: &str| value(name, MAX, "Metadata", &[&key(name), says]);
    let several = |counts: &[(&str, u32)], variant, says: &str| {
        let edit = |s: &mut Small| counts.iter().for_each(|(name, count)| s.set(&key(name), *count));
        Broken::new(format!("{counts:?}"), edit, variant, &[says])
    };
    vec![
        tensor("block_count", MAX, "blk.2.attn_norm.weight"),
        several(&[("block_count", MAX), ("leading_dense_block_count", MAX)], "Tensor", "blk.1.ffn_gate.weight"),
        several(&[("block_count", MAX), ("nextn_predict_layers", MAX - 3)], "Tensor", "blk.2.attn_norm.weight"),
        tensor("leading_dense_block_count", MAX, "blk.1.ffn_gate.weight"),
        metadata("nextn_predict_layers", "less than the 2 blocks"),
        metadata("expert_used_count", "at most the 4 experts"),
        metadata("rope.dimension_count", "less than the key width 24"),
        tensor("embedding_length", MAX, "token_embd.weight"),
        tensor("feed_forward_length", MAX, "blk.0.ffn_gate.weight"),
        tensor("attention.head_count", MAX, "blk.0.attn_q_b.weight"),
        tensor("attention.q_lora_rank", MAX, "blk.0.attn_q_a.weight"),
        tensor("attention.kv_lora_rank", 16_384, "blk.0.attn_kv_a_mqa.weight"),
        tensor("attention.key_length_mla", 16_384, "blk.0.attn_q_b.weight"),
        tensor("attention.value_length_mla", MAX, "blk.0.attn_v_b.weight"),
        several(
            &[("attention.key_length_mla", 16_384), ("rope.dimension_count", 16_382)],
            "Tensor",
            "blk.0.attn_kv_a_mqa.weight",
        ),
        tensor("expert_count", 1024, "blk.1.ffn_gate_inp.weight"),
        several(&[("expert_count", 1024), ("expert_used_count", 1024)], "Tensor", "blk.1.ffn_gate_inp.weight"),
        tensor("expert_feed_forward_length", MAX, "blk.1.ffn_gate_exps.weight"),
        tensor("expert_shared_count", MAX, "blk.1.ffn_gate_shexp.weight"),
    ]
}

fn inconsistent() -> Vec<Broken> {
    let metadata = |name: &str, n: u32, says: &str| value(name, n, "Metadata", &[&key(name), says, &n.to_string()]);
    vec![
        metadata("nextn_predict_layers", 2, "less than the 2 blocks"),
        metadata("nextn_predict_layers", 3, "less than the 2 blocks"),
        metadata("expert_used_count", 5, "at most the 4 experts"),
        metadata("rope.dimension_count", 24, "less than the key width 24"),
        metadata("rope.dimension_count", 26, "less than the key width 24"),
        metadata("rope.dimension_count", 7, "a multiple of 2"),
        metadata("attention.key_length_mla", 26, "a multiple of 4"),
        metadata("attention.kv_lora_rank", 30, "a multiple of 4"),
    ]
}

fn unsupported() -> Vec<Broken> {
    let number = |name: &str, n: u32| value(name, n, "Unsupported", &[&key(name), &format!("`{n}`")]);
    vec![
        number("expert_gating_func", 7),
        number("expert_count", 1025),
        number("expert_count", MAX),
        number("attention.kv_lora_rank", 16_388),
        number("attention.kv_lora_rank", MAX),
        number("attention.key_length_mla", 16_388),
        number("attention.key_length_mla", MAX),
        value("rope.scaling.type", "dynamic", "Unsupported", &["rope.scaling.type", "dynamic", "linear", "yarn"]),
        value("rope.scaling.type", "longrope", "Unsupported", &["rope.scaling.type", "longrope"]),
        value("attention.temperature_scale", 0.1f32, "Unsupported", &["attention.temperature_scale", "only 0"]),
    ]
}

/// A file with this number of experts, of which some are selected, in groups, of which some are used.
fn with_groups([experts, top_k]: [u32; 2], groups: u32, used: impl Into<Option<u32>>) -> Small {
    let mut small = Small::default();
    small.set(&key("expert_count"), experts);
    small.set(&key("expert_used_count"), top_k);
    small.set(&key("expert_group_count"), groups);
    used.into().iter().for_each(|used| small.set(&key("expert_group_used_count"), *used));
    small
}

fn groups() -> Vec<Broken> {
    let of = |experts, groups, used: Option<u32>, name: &str, says: &[&str]| {
        let what = format!("{experts:?} experts, {used:?} of {groups} groups");
        let edit = |s: &mut Small| *s = with_groups(experts, groups, used);
        Broken::new(what, edit, "Metadata", &[says, &[&key(name)]].concat())
    };
    let (count, used, top_k) = ("expert_group_count", "expert_group_used_count", "expert_used_count");
    let uneven = |groups: u32, found: &str| {
        of([12, 2], groups, Some(1), count, &["equal groups of two or more of the 12 experts", found])
    };
    vec![
        uneven(5, "5"),
        uneven(12, "12"),
        uneven(24, "24"),
        uneven(MAX, "4294967295"),
        of([12, 2], 3, None, used, &["nothing"]),
        of([12, 2], 3, Some(0), used, &["at least 1", "0"]),
        of([12, 2], 3, Some(4), used, &["at most the 3 groups", "4"]),
        of([12, 2], 3, Some(MAX), used, &["at most the 3 groups"]),
        of([12, 5], 3, Some(1), top_k, &["at most the 4 experts in the used groups", "5"]),
        of([12, 9], 3, Some(2), top_k, &["at most the 8 experts in the used groups", "9"]),
        of([12, 13], 3, Some(3), top_k, &["at most the 12 experts", "13"]),
    ]
}

/// Groups limit the selection only if there are several, and if not all are used. DeepSeek-V2's are scored differently.
#[test]
fn groups_of_experts() {
    let read = |experts, groups, used: Option<u32>, softmax| {
        let mut small = with_groups(experts, groups, used);
        small.set(&key("expert_gating_func"), if softmax { 1u32 } else { 2 });
        let config = Config::read(&small.open().unwrap()).unwrap();
        (config.experts.unwrap().routing.groups, config.notices)
    };
    for (groups, used) in [(0, None), (1, None), (1, Some(1)), (0, Some(7)), (1, Some(MAX)), (8, Some(8)), (2, Some(2))]
    {
        assert_eq!(read([256, 8], groups, used, true), (None, vec![]), "{used:?} of {groups}");
    }
    let of = |count, used| Some(ExpertGroups { count, used });
    assert_eq!(read([256, 8], 8, Some(4), false), (of(8, 4), vec![]));
    assert_eq!(read([12, 8], 3, Some(2), false), (of(3, 2), vec![]));
    assert_eq!(read([12, 2], 6, Some(1), false), (of(6, 1), vec![]));
    let (groups, told) = read([160, 6], 8, Some(3), true);
    assert_eq!(groups, of(8, 3));
    assert!(
        told.len() == 1 && told[0].contains("each of the 8 groups of experts is scored by its two best"),
        "{told:?}"
    );
}

/// Sets valid keys of YaRN.
fn with_yarn(s: &mut Small) {
    s.set(&key("rope.scaling.type"), "yarn");
    s.set(&key(FACTOR), 40f32);
    s.set(&key(ORIGINAL), 4096u32);
    s.set(&key("rope.scaling.yarn_log_multiplier"), 0.0707f32);
}

/// A file with valid keys of YaRN, except one of them.
fn yarn_but(name: &str, value: Meta, variant: &'static str, says: &[&str]) -> Broken {
    let what = format!("YaRN with {name} = {value:?}");
    let edit = |s: &mut Small| {
        with_yarn(s);
        s.set(&key(name), value);
    };
    Broken::new(what, edit, variant, &[says, &[&key(name)]].concat())
}

fn yarn() -> Vec<Broken> {
    let mut cases = vec![
        yarn_but(ORIGINAL, "4096".into(), "Metadata", &["integer"]),
        yarn_but("rope.scaling.yarn_log_multiplier", (-0.1f32).into(), "Metadata", &["0 or more"]),
        yarn_but("rope.scaling.yarn_ext_factor", "1".into(), "Metadata", &["float"]),
        yarn_but(BASE, 1f32.into(), "Metadata", &["more than 1"]),
    ];
    let positive = ["factor", "attn_factor", "yarn_beta_fast", "yarn_beta_slow"].map(|n| format!("rope.scaling.{n}"));
    for name in &positive {
        let zero = (name != FACTOR).then_some(0f32);
        for bad in [-1.0, f32::NAN, f32::INFINITY].into_iter().chain(zero) {
            cases.push(yarn_but(name, bad.into(), "Metadata", &[]));
        }
        cases.push(yarn_but(name, "40".into(), "Metadata", &["float"]));
    }
    cases
}

/// Keys that are absent or neutral have the values that llama.cpp gives them.
#[test]
fn defaults_of_keys_of_scaling() {
    let rope = |edit: &dyn Fn(&mut Small)| {
        let mut small = Small::default();
        edit(&mut small);
        Config::read(&small.open().unwrap()).unwrap().rope
    };
    let context = |s: &mut Small| s.set(&key("context_length"), 8192u32);
    let plain = rope(&|_| ());
    assert_eq!((plain.factor, plain.yarn), (1.0, None));
    for kind in ["linear", "none"] {
        assert_eq!(rope(&|s| s.set(&key("rope.scaling.type"), kind)), plain, "{kind}");
    }
    assert_eq!(rope(&|s| s.set(&key(FACTOR), 0f32)), plain);
    // The factor of old files, which a new key overrides.
    assert_eq!(rope(&|s| s.set(&key("rope.scale_linear"), 2f32)).factor, 2.0);
    let both = |s: &mut Small| {
        s.set(&key("rope.scale_linear"), 2f32);
        s.set(&key(FACTOR), 4f32);
    };
    assert_eq!(rope(&both).factor, 4.0);

    let stretched = rope(&with_yarn);
    assert_eq!((stretched.factor, stretched.yarn.unwrap().original_context), (40.0, 4096));
    let but = |name: &'static str, value: Option<Meta>| {
        rope(&|s| {
            with_yarn(s);
            context(s);
            s.unset(&key(name));
            value.iter().for_each(|value| s.set(&key(name), value.clone()));
        })
    };
    for value in [None, Some(Meta::U32(0))] {
        assert_eq!(but(ORIGINAL, value).yarn.unwrap().original_context, 8192);
    }
    for value in [None, Some(Meta::F32(0.0))] {
        assert_eq!(but(FACTOR, value).factor, 1.0);
    }
    for (name, value) in [
        ("rope.scaling.yarn_attn_factor", 0.5),
        ("rope.scaling.yarn_ext_factor", -1.0),
        ("rope.scaling.yarn_ext_factor", 0.5),
    ] {
        assert_eq!(but(name, Some(Meta::F32(value))), stretched, "{name}");
    }
}

/// DeepSeek's models with 160 and 256 experts have groups of them, which files that lack the key do not tell.
#[test]
fn files_that_may_have_lost_their_groups_of_experts() {
    let notices = |experts: u32, groups: Option<u32>| {
        let mut small = Small::default();
        small.set(&key("expert_count"), experts);
        groups.iter().for_each(|groups| small.set(&key("expert_group_count"), *groups));
        Config::read(&small.open().unwrap()).unwrap().notices
    };
    for (experts, groups) in [(4, None), (64, None), (384, None), (160, Some(1)), (256, Some(0))] {
        assert_eq!(notices(experts, groups), [""; 0], "{experts} experts, {groups:?} groups");
    }
    for experts in [160, 256] {
        let told = notices(experts, None);
        let words = format!("lacks `{}`: assuming one group of {experts} experts", key("expert_group_count"));
        assert!(told.len() == 1 && told[0].contains(&words), "{told:?}");
    }
}

/// The error about the width of the dense layers names its key, and not a tensor {32, 0} that no file could have.
#[test]
fn dense_layers_without_their_width() {
    let name = key("feed_forward_length");
    let missing = Broken::new("missing", |s| s.unset(&name), "Metadata", &[&name, "dense layers", "nothing"]);
    let zero = Broken::new("zero", |s| s.set(&name, 0u32), "Metadata", &[&name, "dense layers"]);
    all_refused(&[missing, zero], plan_file);
}

fn config(edit: impl FnOnce(&mut Small)) -> Config {
    let mut small = Small::default();
    edit(&mut small);
    let file = small.open().unwrap();
    plan_file(&file).unwrap();
    Config::read(&file).unwrap()
}

/// What llama.cpp computes too, although the keys are odd.
#[test]
fn odd_keys_that_mean_the_same() {
    let usual = config(|_| ());
    let odd: [(&str, Meta); 6] = [
        ("vocab_size", MAX.into()),
        // Layer 0 is dense, and layer 1 has experts.
        ("feed_forward_length", [256u32, 7].into()),
        ("attention.head_count", [2u32, 2, 9].into()),
        ("expert_used_count", [0u32, 2].into()),
        ("expert_feed_forward_length", [0u32, 32].into()),
        ("rope.scaling.factor", 0f32.into()),
    ];
    for (name, value) in odd {
        let mut read = config(|s| s.set(&key(name), value));
        read.notices.clear();
        assert_eq!(read, usual, "{name}");
    }
    assert_eq!(config(|s| s.unset(&key("attention.value_length_mla"))), usual, "the width by the number of heads");
    let told = config(|s| s.set(&key("vocab_size"), 39u32)).notices;
    assert!(told.len() == 1 && told[0].contains("39") && told[0].contains("40 rows"), "{told:?}");
}

/// As in llama.cpp, 0 says as little about the scores of experts as a missing key.
#[test]
fn a_kind_of_scores_that_says_nothing() {
    let missing = config(|s| s.unset(&key("expert_gating_func")));
    let zero = config(|s| s.set(&key("expert_gating_func"), 0u32));
    assert_eq!(zero.experts, missing.experts);
    assert!(missing.notices[0].contains("lacks") && zero.notices[0].contains("is 0"), "{:?}", zero.notices);
}

#[test]
fn an_extent_that_llama_cpp_ignores() {
    let told = config(|s| {
        with_yarn(s);
        s.set(&key("rope.scaling.yarn_ext_factor"), 0.5f32);
    });
    assert!(told.notices.len() == 1 && told.notices[0].contains("yarn_ext_factor` is 0.5"), "{:?}", told.notices);
}
