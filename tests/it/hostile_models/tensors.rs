//! Tests tensors that are missing, have another shape, or have a type that wglm cannot compute with.

use super::refused::{Broken, all_refused, load, plan, plan_file};
use super::small::{F32, Numbers, Q4_0, Small, Tensor};
use wglm::{DraftKind, LoadOptions};
use wglm_engine::gguf::TYPES;
use wglm_engine::quant;

/// Tensors that may be absent.
const OPTIONAL: [&str; 2] = ["output.weight", "blk.1.exp_probs_b.bias"];

pub fn cases() -> Vec<Broken> {
    [missing(), shapes(), types(), ragged(), cut_out(), further()].concat()
}

#[test]
fn every_broken_tensor_is_refused() {
    all_refused(&cases(), plan_file);
}

#[test]
fn optional_tensors_may_be_missing() {
    for name in OPTIONAL {
        let mut small = Small::default();
        small.remove(name);
        plan(&small).unwrap_or_else(|e| panic!("without {name}: {e}"));
    }
}

/// Biases and scales of weights that are in use, whatever tensor these are cut out of.
fn further() -> Vec<Broken> {
    let with = |name: &str, what: &str| {
        Broken::new(format!("with {name}"), |s| s.add(name, &[32], F32), "Unsupported", &[name, what])
    };
    let mut joint = with("blk.0.attn_kv_b.bias", "a bias of `blk.0.attn_kv_b.weight`");
    for half in ["blk.0.attn_k_b.weight", "blk.0.attn_v_b.weight"] {
        joint.small.remove(half);
    }
    joint.small.add("blk.0.attn_kv_b.weight", &[32, 64], Q4_0);
    vec![
        joint,
        with("blk.0.attn_q_a.bias", "a bias of `blk.0.attn_q_a.weight`"),
        with("blk.1.attn_norm.bias", "a bias of `blk.1.attn_norm.weight`"),
        with("blk.1.ffn_gate_exps.scale", "a scale of `blk.1.ffn_gate_exps.weight`"),
        with("output.bias", "a bias of `output.weight`"),
    ]
}

/// Tensors that may change the result are mentioned. Those of a block after the layers and those that are not needed
/// are not.
#[test]
fn tensors_that_nothing_uses_are_mentioned() {
    let options = LoadOptions { speculation: DraftKind::Off, ..LoadOptions::default() };
    let of = |mut small: Small, names: &[&str]| {
        names.iter().for_each(|name| small.add(name, &[32], F32));
        load(&small, &options).unwrap().config().notices.clone()
    };
    let notices = |names: &[&str]| of(Small::default(), names);
    assert_eq!(notices(&["blk.1.attn_kv_b.weight"]), [""; 0]);
    assert_eq!(of(Small::with_block(&Numbers::default()), &["blk.2.attn_q_a.bias"]), [""; 0]);
    // Factors of angles are values about 1 here, and not needed if they are 1.
    for name in ["blk.0.exp_probs_b.weight", "blk.2.attn_norm.weight", "rope_freqs.weight"] {
        let one = notices(&[name]);
        assert!(one.len() == 1 && one[0].contains(&format!("(`{name}`)")), "{one:?}");
    }
    let ones = Small { poison: Some(("rope_freqs.weight".into(), 1.0)), ..Small::default() };
    assert_eq!(of(ones, &["rope_freqs.weight"]), [""; 0]);
    let three = notices(&["blk.0.attn_sinks", "rope_factors_long.weight", "blk.1.attn_gate.weight"]);
    assert!(three.len() == 1 && three[0].contains("(`blk.0.attn_sinks` and 2 more)"), "{three:?}");
}

fn missing() -> Vec<Broken> {
    let names = Small::default().names().into_iter().filter(|name| !OPTIONAL.contains(&name.as_str()));
    names.map(|name| Broken::new(format!("no {name}"), |s| s.remove(&name), "Tensor", &[&name, "nothing"])).collect()
}

fn shape(dims: &[u64]) -> String {
    format!("{{{}}}", dims.iter().map(u64::to_string).collect::<Vec<_>>().join(", "))
}

/// Shapes that differ from `dims` by one more, one fewer, one dimension more or fewer, or the order.
fn other_shapes(dims: &[u64]) -> Vec<Vec<u64>> {
    let last = dims.len() - 1;
    let mut shapes = vec![dims.to_vec(); 3];
    shapes[0][last] += 1;
    shapes[1][last] -= 1;
    shapes[2].push(2);
    if last > 0 {
        shapes.push(dims[..last].to_vec());
        shapes.push(dims.iter().rev().copied().collect());
        shapes.push(vec![dims.iter().product()]);
    }
    shapes.retain(|shape| shape != dims);
    shapes
}

/// Tests that the whole shape is compared. The type is f32, so that no row ends inside a block.
fn shapes() -> Vec<Broken> {
    let mut cases = Vec::new();
    for Tensor { name, dims, .. } in Small::default().tensors {
        for wrong in other_shapes(&dims) {
            let (expected, found) = (shape(&dims), shape(&wrong));
            let edit = |s: &mut Small| {
                let tensor = s.tensor(&name);
                (tensor.dims, tensor.ty) = (wrong, F32);
            };
            let what = format!("{name} {found} for {expected}");
            // The end is left open, because the error may describe a matrix as a stack of one.
            let expected = format!("expected {}", expected.trim_end_matches('}'));
            cases.push(Broken::new(what, edit, "Tensor", &[&name, &expected, &format!("found {found}")]));
        }
    }
    cases
}

/// Tries every type of GGML that wglm cannot compute with, in every tensor whose rows can have it.
fn types() -> Vec<Broken> {
    let mut cases = Vec::new();
    for ty in TYPES.iter().filter(|ty| quant::by_id(ty.id).is_none()) {
        let fits = |t: &Tensor| t.dims[0].is_multiple_of(ty.values as u64);
        for Tensor { name, .. } in Small::default().tensors.into_iter().filter(fits) {
            let edit = |s: &mut Small| s.tensor(&name).ty = ty.id;
            let says = [name.as_str(), &format!("`{}`", ty.name), "q4_0"];
            cases.push(Broken::new(format!("{name} as {}", ty.name), edit, "Unsupported", &says));
        }
    }
    let covered = |name: &str| cases.iter().any(|c| c.what.ends_with(name));
    assert!(covered("as iq1_s") && covered("as i32"), "the small model has no tensor for these types");
    for id in [4, 31, 99, u32::MAX] {
        let edit = |s: &mut Small| s.tensor("blk.1.attn_v_b.weight").ty = id;
        let says = ["blk.1.attn_v_b.weight", &format!("type number {id}")];
        cases.push(Broken::new(format!("type {id}"), edit, "Unsupported", &says));
    }
    cases
}

/// Tests rows that end inside a block.
fn ragged() -> Vec<Broken> {
    let name = "blk.0.attn_k_b.weight"; // rows of 16
    let ragged = |ty: u32, block: &str| {
        let edit = |s: &mut Small| s.tensor(name).ty = ty;
        Broken::new(format!("{name} of {block}"), edit, "Gguf", &[name, block, "{16, 32, 2}"])
    };
    vec![
        ragged(Q4_0, "whole q4_0 blocks of 32"),
        ragged(14, "whole q6_k blocks of 256"),
        ragged(39, "whole mxfp4 blocks of 32"),
        ragged(22, "whole iq2_s blocks of 256"),
    ]
}

/// Tests tensors that contain several others.
fn cut_out() -> Vec<Broken> {
    let joint = "blk.0.attn_kv_b.weight";
    let halves = |s: &mut Small| {
        s.remove("blk.0.attn_k_b.weight");
        s.remove("blk.0.attn_v_b.weight");
    };
    let early = |dims: [u64; 2], ty: u32| {
        move |s: &mut Small| {
            halves(s);
            s.tensors.push(Tensor { name: joint.into(), dims: dims.to_vec(), ty });
        }
    };
    let fused = "blk.1.ffn_gate_up_exps.weight";
    let fuse = |dims: [u64; 3], ty: u32| {
        move |s: &mut Small| {
            s.remove("blk.1.ffn_gate_exps.weight");
            s.remove("blk.1.ffn_up_exps.weight");
            s.tensors.push(Tensor { name: fused.into(), dims: dims.to_vec(), ty });
        }
    };
    let mut sound = Small::default();
    (early([32, 64], Q4_0))(&mut sound);
    (fuse([32, 64, 4], Q4_0))(&mut sound);
    plan(&sound).expect("an early file with fused experts is sound");
    vec![
        Broken::new("neither kv_b nor k_b", halves, "Tensor", &["blk.0.attn_k_b.weight", "nothing"]),
        Broken::new("kv_b a row short", early([32, 63], Q4_0), "Tensor", &[joint, "{32, 64}", "{32, 63}"]),
        Broken::new("kv_b of i8", early([32, 64], 24), "Unsupported", &[joint, "`i8`"]),
        Broken::new("experts half fused", fuse([32, 32, 4], Q4_0), "Tensor", &[fused, "{32, 64, 4}", "{32, 32, 4}"]),
        Broken::new("an expert too few", fuse([32, 64, 3], Q4_0), "Tensor", &[fused, "{32, 64, 4}", "{32, 64, 3}"]),
        Broken::new("fused experts of i32", fuse([32, 64, 4], 26), "Unsupported", &[fused, "`i32`"]),
    ]
}
