//! Measures how long it takes to build a tokenizer with a vocabulary of GLM's size, and to encode text with it.
//!
//! `cargo bench --bench tokenizer`

#![allow(missing_docs)] // on what the macros below generate

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::collections::HashSet;
use wglm::text::{TokenType, Tokenizer, Vocab};

/// The size of GLM's vocabulary, without its control tokens, and the number of merges.
const TOKENS: usize = 154_820;
const MERGES: usize = 320_000;

fn tokenizer(c: &mut Criterion) {
    let mut group = c.benchmark_group("tokenizer");
    group.sample_size(10);
    let vocab = full_size();
    group.bench_function("build", |b| b.iter(|| Tokenizer::new(vocab.clone())));
    let Ok(tokenizer) = Tokenizer::new(vocab) else { return };
    let code = include_str!("../engine/src/text/tokenizer.rs").repeat(100);
    let runs = [" ", "a", "!", "\n"].map(|letter| (format!("1 MiB of {letter:?}"), letter.repeat(1 << 20)));
    for (name, text) in [("code".to_owned(), code)].into_iter().chain(runs) {
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function(name, |b| b.iter(|| tokenizer.encode(&text, true)));
    }
}

/// Tokens that are made by joining earlier ones, and merges that split them in every way.
fn full_size() -> Vocab {
    let bytes = (0x21..=0x7e).chain(0xa1..=0xac).chain(0xae..=0xff).chain(0x100..=0x143);
    let mut tokens: Vec<String> = bytes.filter_map(char::from_u32).map(String::from).collect();
    let mut merges: Vec<String> = Vec::new();
    let mut known: HashSet<String> = tokens.iter().cloned().collect();
    let mut state = 1u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    while tokens.len() < TOKENS {
        let (left, right) = (random(tokens.len()), random(tokens.len()));
        let joined = format!("{}{}", tokens[left], tokens[right]);
        if joined.chars().count() <= 16 && known.insert(joined.clone()) {
            merges.push(format!("{} {}", tokens[left], tokens[right]));
            tokens.push(joined);
        }
    }
    for token in &tokens {
        for (at, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(at);
            if known.contains(left) && known.contains(right) && merges.len() < MERGES {
                merges.push(format!("{left} {right}"));
            }
        }
    }
    while merges.len() < MERGES {
        let again = random(merges.len());
        merges.push(merges[again].clone());
    }
    tokens.extend((0..60).map(|n| format!("<|special_{n}|>")));
    let mut types = vec![TokenType::Normal; TOKENS];
    types.resize(tokens.len(), TokenType::Control);
    Vocab { tokens, types, merges, pre: "glm4".into(), ..Vocab::default() }
}

criterion_group!(benches, tokenizer);
criterion_main!(benches);
