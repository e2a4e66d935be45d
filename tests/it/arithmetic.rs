//! Compares products of bytes with products in f32: how far rounding activations moves logits, greedy continuations and
//! perplexity.

use crate::common::goldens::goldens;
use crate::common::models::{fable, fable_file, fixture, load_as_on_nvidia, relative_l2};
use std::sync::OnceLock;
use wglm::{Arithmetic, CacheShape, CacheType, Model, Session};

/// The bound on the relative L2 distance between the logits: a rounded activation is off by up to half a 127th of the
/// largest of its sixteen.
const MOVED: f64 = 3e-2;
/// The share of positions, in percent, at which the distance may exceed the bound. If two experts are nearly tied,
/// rounding can select the other one, and the logits are those of another mixture: at position 40 of dialog0 the margin
/// of the first router is 6e-4 (by its scores in f64 from tests/reference), and the logits move by 0.55.
const TIED: f64 = 0.03;
/// The bound on the relative change of perplexity.
const PERPLEXITY: f64 = 5e-3;

fn in_bytes(precision: &str) -> Model {
    load_as_on_nvidia(&fable_file(precision), Arithmetic::Int)
}

/// The demonstration model in each arithmetic, loaded once.
fn q4_0() -> [&'static Model; 2] {
    static BYTES: OnceLock<Model> = OnceLock::new();
    [fable("q4_0"), BYTES.get_or_init(|| in_bytes("q4_0"))]
}

/// The logits at each of the positions.
fn logits(model: &Model, tokens: &[u32], positions: &[usize]) -> Vec<Vec<f32>> {
    let cache = CacheShape { context: tokens.len(), ty: CacheType::F32 };
    let mut session = Session::with_cache(model, cache).unwrap();
    let after = |&position: &usize| {
        session.feed(&tokens[session.tokens().len()..=position]).unwrap();
        session.logits().unwrap()
    };
    positions.iter().map(after).collect()
}

/// The relative L2 distance between the logits of the two arithmetics at each of the positions.
fn moved(models: [&Model; 2], tokens: &[u32], positions: &[usize]) -> Vec<f64> {
    let [float, int] = models.map(|model| logits(model, tokens, positions));
    int.iter().zip(&float).map(|(int, float)| relative_l2(int, float)).collect()
}

#[test]
fn extended_logits_move_little() {
    let models = q4_0();
    let mut all = Vec::new();
    for mut golden in goldens() {
        golden.positions.truncate(16); // the first known ones of each, so that no dialogue outweighs the others
        let moved = moved(models, &golden.tokens, &golden.positions);
        for (at, moved) in golden.positions.iter().zip(&moved).filter(|(_, moved)| **moved >= MOVED) {
            println!("{} position {at}: relative L2 {moved:.2e}", golden.name);
        }
        all.extend(moved);
    }
    all.sort_by(f64::total_cmp);
    let within = all.partition_point(|moved| *moved < MOVED);
    let [count, middle, worst] = [all.len(), all.len() / 2, within - 1];
    println!(
        "{within} of {count} positions within {MOVED}: median {:.2e}, worst of them {:.2e}",
        all[middle], all[worst]
    );
    assert!((count - within) as f64 <= TIED * count as f64, "{} of {count} positions off", count - within);
    assert!(all[0] > 0.0 && all[middle] < MOVED / 5.0, "median {:.2e}, least {:.2e}", all[middle], all[0]);
}

/// The f16 file has no quantised weights, so its products do not change: a continuation is that of other programs, and
/// its logits are exactly those in f32.
#[test]
fn long_plain_formats_are_not_rounded() {
    let rounded = in_bytes("f16");
    let (golden, float) = (&goldens()[1], load_as_on_nvidia(&fable_file("f16"), Arithmetic::Float));
    golden.check_greedy(&rounded, "f16");
    assert!(moved([&float, &rounded], &golden.tokens, &golden.positions).iter().all(|moved| *moved == 0.0));
}

#[test]
fn long_continuations_are_the_same() {
    goldens().iter().for_each(|golden| golden.check_greedy(q4_0()[1], "q4_0"));
}

/// The negative log-likelihood of a token under the logits.
fn surprise(logits: &[f32], token: u32) -> f64 {
    let top = logits.iter().copied().fold(f32::MIN, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - top).exp()).sum();
    sum.ln() - f64::from(logits[token as usize] - top)
}

/// The sum of the negative log-likelihood over all tokens of the dialogues but the first of each, and the number of
/// these tokens.
fn perplexity(model: &Model, dialogues: &[Vec<u32>]) -> (f64, usize) {
    let (mut sum, mut count) = (0.0, 0);
    for tokens in dialogues {
        let mut session = Session::with_cache(model, CacheShape { context: tokens.len(), ..model.cache() }).unwrap();
        for pair in tokens.windows(2) {
            session.feed(&pair[..1]).unwrap();
            sum += surprise(&session.logits().unwrap(), pair[1]);
            count += 1;
        }
    }
    ((sum / count as f64).exp(), count)
}

/// The text is of the kind that models/training/train_demo.py generates. Its two longest dialogues are left out: a
/// third one tells a story as well.
#[test]
fn long_perplexity_is_the_same() {
    let text = std::fs::read_to_string(fixture("fable/text.txt")).unwrap();
    let models = q4_0();
    let encode = |line: &str| models[0].tokenizer().unwrap().encode(line, true).unwrap();
    let mut dialogues: Vec<Vec<u32>> = text.lines().map(encode).collect();
    dialogues.sort_by_key(Vec::len);
    dialogues.truncate(dialogues.len() - 2);
    let [(float, count), (int, _)] = models.map(|model| perplexity(model, &dialogues));
    let change = int / float - 1.0;
    println!("perplexity over {count} tokens: {float:.5} in f32, {int:.5} in bytes: {:+.3} %", 100.0 * change);
    assert!(float < 3.0, "the text is none that the model knows: {float}");
    assert!(change.abs() < PERPLEXITY, "{float} in f32, {int} in bytes");
}
