//! Makes the demonstration model generate given tokens, one by one, through bias and penalties. Each token of the
//! script is favoured less than the one before it, and the frequency penalty cancels the favour once the token was
//! generated. Tokens that occur in the prompt are favoured more, by the penalty for those occurrences.

use super::model;
use std::collections::HashMap;
use wglm::{Chat, Message, SamplerParams};

/// The difference between the favours of two tokens, which is larger than any difference of logits.
const STEP: f32 = 128.0;
/// The penalty for an occurrence, which is larger than all favours together.
const FREQUENCY: f32 = 8192.0;

/// Sets the next reply to `script` and the control token `end`, in answer to `question` if there is one. No token may
/// occur twice in the script.
pub fn script(chat: &mut Chat, question: Option<&str>, script: &str, end: &str) {
    script_tokens(chat, question, model().tokenizer().unwrap().encode(script, true).unwrap(), end);
}

/// The same for given tokens.
pub fn script_tokens(chat: &mut Chat, question: Option<&str>, mut tokens: Vec<u32>, end: &str) {
    let tokenizer = model().tokenizer().unwrap();
    tokens.push(tokenizer.special(end).expect(end));
    assert!(tokens.len() as f32 * STEP < FREQUENCY);
    let mut counts: HashMap<u32, f32> = HashMap::new();
    prompt(chat, question).into_iter().for_each(|token| *counts.entry(token).or_default() += 1.0);
    let mut logit_bias: Vec<(u32, f32)> = Vec::new();
    for (token, left) in tokens.iter().copied().zip((1..=tokens.len()).rev()) {
        let text = tokenizer.decode(&[token], true).unwrap();
        assert!(!logit_bias.iter().any(|(known, _)| *known == token), "{text:?} twice in {tokens:?}");
        logit_bias.push((token, STEP * (left + 1) as f32 + FREQUENCY * counts.get(&token).unwrap_or(&0.0)));
    }
    let greedy = SamplerParams::greedy();
    let repeat_last_n = usize::MAX;
    chat.options.sampling = SamplerParams { logit_bias, frequency_penalty: FREQUENCY, repeat_last_n, ..greedy };
}

/// The tokens of the prompt for the next reply.
fn prompt(chat: &mut Chat, question: Option<&str>) -> Vec<u32> {
    let before = chat.messages().len();
    question.into_iter().for_each(|question| chat.push(Message::user(question)));
    let prompt = chat.prompt().unwrap();
    chat.truncate(before);
    prompt
}
