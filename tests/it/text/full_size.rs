//! Measures how long a vocabulary of GLM's size takes.

use super::tokenizer::tiny;
use wglm::text::{TokenType, Tokenizer, Vocab};

/// GLM's size: 154,880 tokens, 320,000 merges. Timing belongs to the release profile:
/// `cargo test --release --test it text:: -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn a_vocabulary_of_full_size() {
    let vocab = full_size();
    let start = std::time::Instant::now();
    let tokenizer = Tokenizer::new(vocab).unwrap();
    println!("built in {:?}", start.elapsed());
    let text: String = include_str!("../../../src/text/tokenizer.rs").repeat(100);
    let start = std::time::Instant::now();
    let tokens = tokenizer.encode(&text, true).unwrap();
    println!("{} bytes to {} tokens in {:?}", text.len(), tokens.len(), start.elapsed());
    let fresh = include_str!("../../../src/text/template.rs");
    let start = std::time::Instant::now();
    let tokens = tokenizer.encode(fresh, true).unwrap();
    println!("{} bytes to {} tokens in {:?}, other words", fresh.len(), tokens.len(), start.elapsed());
    for run in [" ", "a", "!", "\n"] {
        let text = run.repeat(1 << 20);
        let start = std::time::Instant::now();
        let tokens = tokenizer.encode(&text, true).unwrap();
        println!("1 MiB of {run:?} to {} tokens in {:?}", tokens.len(), start.elapsed());
    }
}

/// Tokens that are made by joining earlier ones, and merges that split them in every way.
fn full_size() -> Vocab {
    let mut vocab = tiny(&[], &[]);
    let mut known: std::collections::HashSet<String> = vocab.tokens.iter().cloned().collect();
    let mut state = 1u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    while vocab.tokens.len() < 154_820 {
        let (left, right) = (random(vocab.tokens.len()), random(vocab.tokens.len()));
        let joined = format!("{}{}", vocab.tokens[left], vocab.tokens[right]);
        if joined.chars().count() <= 16 && known.insert(joined.clone()) {
            vocab.merges.push(format!("{} {}", vocab.tokens[left], vocab.tokens[right]));
            vocab.tokens.push(joined);
        }
    }
    for token in &vocab.tokens {
        for (at, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(at);
            if known.contains(left) && known.contains(right) && vocab.merges.len() < 320_000 {
                vocab.merges.push(format!("{left} {right}"));
            }
        }
    }
    while vocab.merges.len() < 320_000 {
        let again = random(vocab.merges.len());
        vocab.merges.push(vocab.merges[again].clone());
    }
    vocab.tokens.extend((0..60).map(|n| format!("<|special_{n}|>")));
    vocab.types.resize(154_820, TokenType::Normal);
    vocab.types.resize(154_880, TokenType::Control);
    vocab
}
