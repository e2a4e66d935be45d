//! Has the demonstration model say what a test wants, token by token, as it would say anything else: through bias and
//! penalties. Each token of the script is favoured less than the one before it, and the frequency penalty takes it back
//! once it was said. What stands in the prompt already is favoured more, by what that costs it.

use super::model;
use std::collections::HashMap;
use wglm::{Chat, Message, SamplerParams};

/// Between the favours of two tokens: more than logits ever differ by.
const STEP: f32 = 128.0;
/// What a token costs once it was said: more than all favours together.
const FREQUENCY: f32 = 8192.0;

/// The next reply will be `script` and the control token `end`, asked for by `question` if there is one. No token may
/// stand in it twice.
pub fn script(chat: &mut Chat, question: Option<&str>, script: &str, end: &str) {
    script_tokens(chat, question, model().tokenizer().unwrap().encode(script, true).unwrap(), end);
}

/// The same, token by token.
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
