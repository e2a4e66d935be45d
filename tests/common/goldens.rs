//! Results of other programs for the demonstration model (tests/fixtures/fable).

use super::models::{fixture, read_f32, read_u32};
use serde_json::Value;
use wglm::{Model, Session};

/// A sequence of tokens with known results.
pub struct Golden {
    pub name: String,
    pub tokens: Vec<u32>,
    /// The number of `tokens` that are the prompt.
    pub prompt: usize,
    /// The positions whose logits are known.
    pub positions: Vec<usize>,
    meta: Value,
}

/// All sequences.
pub fn goldens() -> Vec<Golden> {
    let meta: Value = serde_json::from_slice(&std::fs::read(fixture("fable/meta.json")).unwrap()).unwrap();
    meta["cases"].as_array().unwrap().iter().map(Golden::of).collect()
}

impl Golden {
    fn of(meta: &Value) -> Self {
        let name = meta["name"].as_str().unwrap().to_owned();
        Self {
            tokens: read_u32(fixture(&format!("fable/{name}.tokens.i32"))),
            prompt: meta["prompt_len"].as_u64().unwrap() as usize,
            positions: numbers(&meta["positions"]),
            meta: meta.clone(),
            name,
        }
    }

    /// The logits at these positions, row after row, for the model in this precision.
    pub fn logits(&self, precision: &str) -> Vec<f32> {
        read_f32(fixture(&format!("fable/{}.{precision}.logits.f32", self.name)))
    }

    /// The positions for which the logits of the multi-token-prediction block are known, and these logits, row after
    /// row. They predict the token after the next one.
    pub fn mtp_logits(&self) -> (Vec<usize>, Vec<f32>) {
        let logits = read_f32(fixture(&format!("fable/{}.f16.mtp_logits.f32", self.name)));
        (numbers(&self.meta["mtp_positions"]), logits)
    }

    /// The greedy continuation of the prompt.
    pub fn greedy(&self, precision: &str) -> Vec<usize> {
        numbers(&self.meta[format!("greedy_{precision}")])
    }

    /// Fails unless the model continues the prompt as other programs do in this precision.
    pub fn check_greedy(&self, model: &Model, precision: &str) {
        let mut session = Session::new(model).unwrap();
        session.feed(&self.tokens[..self.prompt]).unwrap();
        for (index, want) in self.greedy(precision).into_iter().enumerate() {
            let got = session.most_likely().unwrap();
            assert_eq!(got as usize, want, "{precision} {}: token {index} of the continuation", self.name);
            session.feed(&[got]).unwrap();
        }
    }
}

fn numbers(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect()
}
