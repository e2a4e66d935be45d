//! Tests replies that end at a stop string, and log-probabilities of tokens.

use super::{OWL, chat, model, story, text, told};
use wglm::{Error, Event, GenerateOptions, Generation, SamplerParams, Session, Stop, TokenLogprobs};

#[test]
fn extended_a_stop_string_is_never_reported() {
    let (mut chat, whole) = (chat(), story()[1].text());
    // Stop strings that span tokens, lie inside one, stand at the very start, and do not occur.
    for stop in [&whole[9..14], &whole[20..21], &whole[..3], "no such text"] {
        chat.clear();
        chat.options.stop = vec![stop.to_owned()];
        let (events, stats) = told(chat.send(OWL).unwrap());
        let said = text(&events);
        assert_eq!(said, whole.split(stop).next().unwrap(), "stopped by {stop:?}");
        let stopped = if whole.contains(stop) { Stop::StopString } else { Stop::End };
        assert_eq!(stats.stop, stopped, "{stop:?}");
    }
    chat.options.stop.clear();
    let (events, _) = told(chat.send("What is seven plus five?").unwrap());
    assert!(text(&events).contains("twelve"), "{events:?}");
}

/// A stop string does not end thinking.
#[test]
fn extended_thinking_continues() {
    let mut chat = chat();
    chat.reasoning = Some(true);
    let (events, _) = told(chat.send("What is seven plus five?").unwrap());
    let thinking: String =
        events.iter().filter_map(|e| if let Event::Thinking(t) = e { Some(t.as_str()) } else { None }).collect();
    let answer = text(&events);
    let word = thinking.split_whitespace().find(|word| !answer.contains(word)).expect("a word that is only thought");
    chat.clear();
    chat.options.stop = vec![word.to_owned()];
    let (events, stats) = told(chat.send("What is seven plus five?").unwrap());
    assert_eq!((text(&events), stats.stop), (answer, Stop::End), "{word:?}");
}

#[test]
fn an_empty_stop_string_is_refused() {
    let mut chat = chat();
    chat.options.stop = vec![String::new()];
    let error = chat.send(OWL).map(drop).unwrap_err();
    assert!(matches!(error, Error::Argument { argument: "stop", .. }), "{error}");
    assert!(chat.messages().is_empty());
}

/// Text that was held back because a stop string might have begun is in an event at the end.
#[test]
fn extended_held_back_text_is_reported() {
    let mut chat = chat();
    chat.options.max_tokens = Some(6);
    let (events, _) = told(chat.send(OWL).unwrap());
    let whole = text(&events);
    chat.clear();
    chat.options.stop = vec![format!("{}?", &whole[2..])];
    let (events, stats) = told(chat.send(OWL).unwrap());
    assert_eq!((text(&events), stats.stop), (whole, Stop::Length));
}

/// A stop string in text that was held back until the end: a character of which only the first byte came.
#[test]
fn a_stop_string_in_the_last_text_is_reported() {
    let tokenizer = model().tokenizer().unwrap();
    let is_half = |token: &u32| tokenizer.token_bytes(*token).is_ok_and(|bytes| bytes == [0xc3]);
    let half = (0..tokenizer.vocab_size() as u32).find(is_half).expect("a token of that byte");
    let sampling = SamplerParams { logit_bias: vec![(half, 1000.0)], ..SamplerParams::greedy() };
    for (stop, said, reason) in [("\u{fffd}", "", Stop::StopString), ("no such text", "\u{fffd}", Stop::Length)] {
        let (mut session, sampling) = (Session::new(model()).unwrap(), sampling.clone());
        let options = GenerateOptions { sampling, max_tokens: Some(1), stop: vec![stop.into()], ..Default::default() };
        let prompt = tokenizer.encode("An owl", true).unwrap();
        let (events, stats) = told(Generation::new(&mut session, prompt, None, options).unwrap());
        assert_eq!((text(&events).as_str(), stats.stop), (said, reason));
        assert_eq!(stats.stop_string, (reason == Stop::StopString).then_some(0));
    }
}

fn tokens(events: &[Event]) -> Vec<&TokenLogprobs> {
    events.iter().filter_map(|event| if let Event::Token(token) = event { Some(token) } else { None }).collect()
}

#[test]
fn extended_every_token_has_its_probability() {
    let prompt =
        model().tokenizer().unwrap().encode("[gMASK]<sop><|user|>My name is Anna.<|assistant|></think>", true).unwrap();
    for sampling in [
        SamplerParams::greedy(),
        SamplerParams { seed: Some(5), temperature: 1.5, repeat_penalty: 1.5, ..SamplerParams::default() },
    ] {
        let mut session = Session::new(model()).unwrap();
        let options = GenerateOptions { sampling, max_tokens: Some(10), ..GenerateOptions::default() };
        let plain = text(&told(Generation::new(&mut session, prompt.clone(), None, options.clone()).unwrap()).0);
        let with = GenerateOptions { logprobs: Some(3), ..options };
        let (events, stats) = told(Generation::new(&mut session, prompt.clone(), None, with).unwrap());
        assert_eq!(text(&events), plain, "asking changes the reply");
        let mut tokens = tokens(&events);
        if stats.stop == Stop::End {
            let end = tokens.pop().unwrap().chosen.token;
            assert!(model().tokenizer().unwrap().is_end(end), "reported, not counted");
        }
        assert_eq!(tokens.len(), stats.generated);
        assert_eq!(tokens.iter().flat_map(|t| t.bytes.clone()).collect::<Vec<u8>>(), plain.as_bytes());
        let held = session.tokens()[prompt.len()..].to_vec();
        assert_eq!(tokens.iter().map(|t| t.chosen.token).collect::<Vec<_>>(), held);
        let mut fresh = Session::new(model()).unwrap();
        for (index, token) in tokens.iter().enumerate() {
            fresh.sync(&[&prompt, &held[..index]].concat()).unwrap();
            let logits = fresh.logits().unwrap();
            let mass: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
            let log = |token: u32| f64::from(logits[token as usize]) - mass.ln();
            for it in token.top.iter().chain([&token.chosen]) {
                assert!(
                    (f64::from(it.logprob) - log(it.token)).abs() < 1e-3,
                    "token {index}: {it:?}, {}",
                    log(it.token)
                );
            }
            assert_eq!(token.top.len(), 3);
            assert_eq!(token.top[0].token, fresh.most_likely().unwrap(), "token {index}");
            assert!(token.top.is_sorted_by(|a, b| a.logprob >= b.logprob));
        }
    }
}
