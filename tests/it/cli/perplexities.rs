//! Tests the measurement of perplexity.

use super::{VOCAB, json, refuses, succeed, written};
use crate::common::models::{fixture, read_f32, read_u32};
use serde_json::Value;
use tempfile::TempDir;

/// The beginning of a text that the model was trained to write, without the tags, which would be plain text here.
fn story() -> String {
    let text = std::fs::read_to_string(fixture("fable/text.txt")).unwrap();
    let pieces = text.split(['<', '[']).map(|piece| piece.rsplit(['>', ']']).next().unwrap());
    pieces.filter(|piece| piece.len() > 60).take(3).collect::<Vec<_>>().join("\n")
}

/// Runs `perplexity` on the story.
fn told(rest: &str) -> String {
    let dir = TempDir::new().unwrap();
    let text = written(&dir, "story.txt", story().as_bytes());
    succeed(&format!("perplexity --arithmetic float -f {} {rest}", text.display())).out
}

fn measured(rest: &str) -> Value {
    json(&told(&format!("-o json {rest}")))
}

fn number(result: &Value, name: &str) -> f64 {
    result[name].as_f64().unwrap_or_else(|| panic!("{name}: {result}"))
}

#[test]
fn extended_the_final_estimate_is_on_stdout() {
    let told = told("-c 64");
    let line = told.lines().next().unwrap();
    let (ppl, error) = line.strip_prefix("Final estimate: PPL = ").and_then(|l| l.split_once(" +/- ")).unwrap();
    let [ppl, error]: [f64; 2] = [ppl, error].map(|number| number.parse().unwrap());
    assert!((1.0..6.0).contains(&ppl) && error > 0.0 && error < ppl, "{told}");
}

/// Computes the same windows from the output of `logits`.
#[test]
fn extended_it_follows_from_the_logits() {
    let dir = TempDir::new().unwrap();
    let model = wglm::Gguf::from_static(wglm::DEMO_MODEL).unwrap();
    let tokenizer = wglm::text::Tokenizer::new(wglm::text::Vocab::read(&model).unwrap().unwrap()).unwrap();
    let tokens = tokenizer.encode(&story(), false).unwrap();
    let result = measured("-c 64 --chunks 2");
    assert_eq!((&result["windows"], &result["count"]), (&2.into(), &62.into()));
    assert_eq!(result["n_tokens"], tokens.len());
    let mut all = Vec::new();
    for window in tokens.chunks(64).take(2) {
        let ids: Vec<i32> = window.iter().map(|id| *id as i32).collect();
        let (from, to) = (super::token_file(&dir, "window.i32", &ids), dir.path().join("window.f32"));
        succeed(&format!("logits --arithmetic float --tokens {} --out {}", from.display(), to.display()));
        let logits = read_f32(to);
        for position in 32..63 {
            let row = &logits[position * VOCAB..][..VOCAB];
            let total: f64 = row.iter().map(|logit| f64::from(*logit).exp()).sum();
            all.push(total.ln() - f64::from(row[window[position + 1] as usize]));
        }
        assert_eq!(read_u32(from).len(), 64);
    }
    let count = all.len() as f64;
    let mean = all.iter().sum::<f64>() / count;
    let deviation = (all.iter().map(|nats| (nats - mean).powi(2)).sum::<f64>() / count).sqrt();
    let error = deviation / (count - 1.0).sqrt() * mean.exp();
    assert!((number(&result, "nll") / mean - 1.0).abs() < 1e-5, "{mean}: {result}");
    assert!((number(&result, "error") / error - 1.0).abs() < 1e-4, "{error}: {result}");
}

/// With a stride every token after the first window is scored once, with more tokens before it.
#[test]
fn long_a_stride_scores_the_ends_of_windows() {
    let (whole, strided) = (measured("-c 64"), measured("-c 64 --ppl-stride 24"));
    assert_eq!(strided["count"].as_u64(), strided["windows"].as_u64().map(|windows| 24 * windows));
    assert!(strided["windows"].as_u64() > whole["windows"].as_u64(), "{whole} {strided}");
    assert!((number(&strided, "ppl") / number(&whole, "ppl") - 1.0).abs() < 0.3, "{whole} {strided}");
}

/// The result does not depend on how many tokens are computed together.
#[test]
fn long_chunks_do_not_change_it() {
    let [alone, some, all] =
        ["1", "7", "512"].map(|chunk| number(&measured(&format!("-c 48 --chunks 1 -ub {chunk}")), "nll"));
    assert!((some / alone - 1.0).abs() < 1e-5 && (all / alone - 1.0).abs() < 1e-5, "{alone} {some} {all}");
}

/// With the same type of cache the divergence is zero; with a cache of bytes it is small.
#[test]
fn long_types_of_cache_are_compared() {
    let same = measured("-c 48 --chunks 1 --cache-type f32 --kl-divergence f32");
    assert_eq!((number(&same, "kl_max"), number(&same, "same_top")), (0.0, 1.0), "{same}");
    assert_eq!(number(&same, "base_ppl"), number(&same, "ppl"));
    let other = measured("-c 48 --chunks 1 --cache-type q8_0 --kl-divergence f32");
    assert_eq!((&other["cache_type"], &other["base_cache_type"]), (&"q8_0".into(), &"f32".into()));
    assert_eq!(number(&other, "base_ppl"), number(&same, "ppl"));
    assert!((1e-9..1e-2).contains(&number(&other, "kl_mean")), "{other}");
    assert!(number(&other, "kl_median") <= number(&other, "kl_max"), "{other}");
    assert!(told("-c 32 --chunks 1 --cache-type q8_0 --kl-divergence f16").contains("\nAgainst a cache in f16, PPL"));
}

/// The default window is the one that the help states, and 0 stands for the model's context.
#[test]
fn extended_the_default_window_is_the_one_in_the_help() {
    let dir = TempDir::new().unwrap();
    let text = written(&dir, "short.txt", b"Once").display().to_string();
    let help = succeed("perplexity -h").out.split_whitespace().collect::<Vec<_>>().join(" ");
    let told = help.split_once("--ctx-size <N>").unwrap().1.split_once("[default: ").unwrap().1;
    refuses(&format!("perplexity -f {text}"), &format!("need {};", told.split_once(']').unwrap().0));
    refuses(&format!("perplexity -f {text} -c 0"), "need 4096;");
}

#[test]
fn invalid_texts_and_windows_are_refused() {
    let text = fixture("fable/text.txt").display().to_string();
    refuses(&format!("perplexity -f {text} -c 100000"), "tokens, need 100000; lower -c");
    refuses(&format!("perplexity -f {text} -c 64 --ppl-stride 64"), "expected less than the 64 tokens of a window");
    refuses("perplexity -f nosuch.txt", "cannot read nosuch.txt");
}
