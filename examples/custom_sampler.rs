//! A custom sampler over the logits: Mirostat 2.0 of Basu et al., "Mirostat: A Neural Text Decoding Algorithm that
//! Directly Controls Perplexity" (2021), which keeps the surprise of the text near a target.
//!
//! `cargo run --release --example custom_sampler [FILE]`
#![allow(clippy::print_stdout)]

use std::io::Write;
use wglm::{Chat, Chooser, Event, Gguf, Gpu, GpuOptions, LoadOptions, Model};

/// The target: the surprise of a token in bits.
const TARGET: f64 = 3.0;
/// How fast the bound follows the difference between a token's surprise and the target.
const RATE: f64 = 0.1;
const MAX_TOKENS: usize = 120;

fn main() -> anyhow::Result<()> {
    let file = match std::env::args().nth(1) {
        Some(path) => Gguf::open(path)?,
        None => Gguf::from_static(wglm::DEMO_MODEL)?,
    };
    let gpu = Gpu::open(&GpuOptions::from_env()?)?;
    let model = Model::load(&file, &gpu, &LoadOptions::default())?;

    let mut chat = Chat::new(&model)?;
    chat.reasoning = Some(false);
    chat.options.max_tokens = Some(MAX_TOKENS);
    let mut sampler = Mirostat { most: 2.0 * TARGET, random: Random(7), surprise: 0.0, count: 0 };
    for event in chat.send("Tell me a story about an owl.")?.with_chooser(&mut sampler) {
        if let Event::Text(text) = event? {
            print!("{text}");
            std::io::stdout().flush()?;
        }
    }
    let (surprise, count) = (sampler.surprise, sampler.count);
    println!("\n[{count} tokens, {:.2} bits each]", surprise / count.max(1) as f64);
    Ok(())
}

/// Draws among the tokens whose surprise is below a bound, and adjusts the bound after every token.
struct Mirostat {
    /// The bound, in bits.
    most: f64,
    random: Random,
    /// The surprise of the tokens so far, in bits.
    surprise: f64,
    count: usize,
}

impl Chooser for Mirostat {
    fn choose(&mut self, logits: &[f32]) -> wglm::Result<Option<u32>> {
        let (token, bits) = self.sample(logits);
        (self.surprise, self.count) = (self.surprise + bits, self.count + 1);
        Ok(Some(token))
    }
}

impl Mirostat {
    /// A token and its surprise in bits.
    fn sample(&mut self, logits: &[f32]) -> (u32, f64) {
        let mut tokens: Vec<(u32, f64)> = (0..).zip(logits.iter().map(|logit| f64::from(*logit))).collect();
        tokens.retain(|(_, logit)| logit.is_finite());
        tokens.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mass: f64 = tokens.iter().map(|(_, logit)| logit.exp()).sum();
        let bits = |logit: f64| (mass.ln() - logit) / std::f64::consts::LN_2;
        let kept = tokens.iter().take_while(|(_, logit)| bits(*logit) <= self.most).count().max(1);
        let (token, logit) = self.draw(&tokens[..kept.min(tokens.len())]);
        self.most -= RATE * (bits(logit) - TARGET);
        (token, bits(logit))
    }

    fn draw(&mut self, tokens: &[(u32, f64)]) -> (u32, f64) {
        let mass: f64 = tokens.iter().map(|(_, logit)| logit.exp()).sum();
        let mut left = self.random.next() * mass;
        let reached = |(_, logit): &&(u32, f64)| {
            left -= logit.exp();
            left < 0.0
        };
        *tokens.iter().find(reached).unwrap_or(&tokens[tokens.len() - 1])
    }
}

/// Random numbers from 0 to 1, by SplitMix64: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators",
/// 2014, with Stafford's mix 13, as in Vigna's splitmix64.c.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ bits >> 31) >> 11) as f64 * (-53f64).exp2()
    }
}
