//! Tests tokens that are sampled on the GPU, which continues with them before the host knows them.

use super::{bits, dialogue, fresh, holds, model, session_of};
use wglm::{Error, Event, GenerateOptions, Generation, SamplerParams, Session, Stop};

/// Two sessions with the same tokens: one in which the GPU runs ahead, and one to compare with.
fn pair(length: usize) -> [Session; 2] {
    [(); 2].map(|()| {
        let mut session = session_of(64);
        session.feed(&dialogue(length)).unwrap();
        session
    })
}

fn seeded(seed: u64) -> SamplerParams {
    SamplerParams { temperature: 1.5, seed: Some(seed), ..SamplerParams::default() }
}

fn chosen(session: &mut Session, count: usize) -> Vec<u32> {
    (0..count).map(|_| session.next_token().unwrap()).collect()
}

#[test]
fn extended_greedy_sampling_takes_the_likeliest_token() {
    let [mut ahead, mut behind] = pair(10);
    for index in 0..20 {
        let token = behind.most_likely().unwrap();
        assert_eq!(behind.sampled_token().unwrap(), token, "token {index}");
        behind.feed(&[token]).unwrap();
        assert_eq!(ahead.next_token().unwrap(), token, "token {index}");
        assert_eq!(ahead.tokens(), behind.tokens());
    }
    let all = ahead.tokens().to_vec();
    holds(&mut ahead, &all, "after going ahead");
}

/// Reading results in between changes nothing.
#[test]
fn extended_results_read_in_between_belong_to_the_last_token() {
    let [mut read, mut unread] = pair(3);
    for session in [&mut read, &mut unread] {
        session.set_sampling(&seeded(3)).unwrap();
    }
    for index in 0..7 {
        let next = read.sampled_token().unwrap();
        assert_eq!(read.next_token().unwrap(), next, "token {index}");
        assert!(bits(&mut read) == fresh(read.tokens(), 64), "the logits after token {index}");
        let likeliest = read.most_likely().unwrap() as usize;
        let logits = read.logits().unwrap();
        assert!(logits.iter().all(|logit| *logit <= logits[likeliest]), "the likeliest after token {index}");
    }
    chosen(&mut unread, 7);
    assert_eq!(read.tokens(), unread.tokens());
}

/// A draw depends on the position, and not on how the session got there.
#[test]
fn extended_a_rewound_session_draws_the_same_again() {
    let mut session = session_of(64);
    session.set_sampling(&seeded(8)).unwrap();
    session.feed(&dialogue(5)).unwrap();
    let first = chosen(&mut session, 24);
    for kept in [0, 4, 17, 28] {
        session.rewind(kept);
        let known = [&dialogue(5)[..], &first].concat();
        let from = kept.max(4); // tokens after the prompt are sampled
        session.feed(&known[kept..=from]).unwrap();
        let count = known.len() - 1 - from;
        assert_eq!(chosen(&mut session, count), known[from + 1..], "rewound to {kept}");
    }
    let [mut other, _] = pair(5);
    other.set_sampling(&seeded(8)).unwrap();
    assert_eq!(chosen(&mut other, 24), first, "set after the prompt");
    other.rewind(5);
    other.sync(&dialogue(5)).unwrap();
    other.set_sampling(&seeded(9)).unwrap();
    assert_ne!(chosen(&mut other, 24), first, "another seed");
}

#[test]
fn extended_another_way_to_choose_applies_at_once() {
    let [mut session, _] = pair(5);
    let likeliest = session.sampled_token().unwrap();
    let drawn: std::collections::HashSet<u32> = (0..20)
        .map(|seed| {
            session.set_sampling(&SamplerParams { temperature: 20.0, top_p: 1.0, ..seeded(seed) }).unwrap();
            assert_eq!(session.most_likely().unwrap(), likeliest);
            session.sampled_token().unwrap()
        })
        .collect();
    assert!(drawn.len() > 10, "{drawn:?}");
    session.set_sampling(&SamplerParams::greedy()).unwrap();
    assert_eq!(session.next_token().unwrap(), likeliest);
    holds(&mut session, &[&dialogue(5)[..], &[likeliest]].concat(), "greedy again");
}

/// A token that was submitted in vain leaves no trace.
#[test]
fn extended_the_token_ahead_is_forgotten() {
    let [mut session, _] = pair(8);
    chosen(&mut session, 3);
    let kept = session.tokens()[..10].to_vec();
    session.rewind(10);
    assert!(matches!(session.next_token(), Err(Error::Argument { argument: "session", .. })));
    assert_eq!(session.reusable(&kept), 9, "its logits went with the token");
    let other = [&kept[..], &[900, 901]].concat();
    session.feed(&other[10..]).unwrap();
    holds(&mut session, &other, "fed something else");
    let reuse = session.sync(&kept).unwrap();
    assert_eq!((reuse.cached, reuse.new), (9, 1));
    holds(&mut session, &kept, "synced");
}

#[test]
fn extended_a_full_context_is_refused_and_the_choice_stays() {
    let mut session = session_of(6);
    session.feed(&dialogue(5)).unwrap();
    session.next_token().unwrap();
    for _ in 0..2 {
        let error = session.next_token().unwrap_err();
        assert!(matches!(error, Error::ContextFull { needed: 7, context: 6 }), "{error}");
        assert_eq!(session.sampled_token().unwrap(), session.most_likely().unwrap());
    }
    let tokens = session.tokens().to_vec();
    holds(&mut session, &tokens, "full");
}

#[test]
fn parameters_out_of_range_change_nothing() {
    let [mut session, _] = pair(4);
    let before = session.sampled_token().unwrap();
    let wrong = SamplerParams { top_p: 2.0, ..seeded(1) };
    assert!(matches!(session.set_sampling(&wrong), Err(Error::Argument { argument: "top_p", .. })));
    assert_eq!(session.sampled_token().unwrap(), before);
}

/// A bias for a token outside of the vocabulary is refused when penalties are already set, and these stay.
#[test]
fn extended_a_bias_on_no_token_leaves_the_penalties() {
    let penalised = SamplerParams { repeat_penalty: 1.3, ..seeded(5) };
    let wrong = SamplerParams { logit_bias: vec![(u32::MAX, 1.0)], ..penalised.clone() };
    let [mut known, mut refused] = pair(6);
    known.set_sampling(&penalised).unwrap();
    refused.set_sampling(&penalised).unwrap();
    assert!(matches!(refused.set_sampling(&wrong), Err(Error::TokenOutOfRange { .. })));
    assert_eq!(chosen(&mut refused, 12), chosen(&mut known, 12));
}

fn generate(session: &mut Session, prompt: &[u32], sampling: SamplerParams, most: Option<usize>) -> Stop {
    let options = GenerateOptions { sampling, max_tokens: most, ..GenerateOptions::default() };
    let events = Generation::new(session, prompt.to_vec(), None, options).unwrap();
    let Some(Event::Done(stats)) = events.map(Result::unwrap).last() else { panic!("no end") };
    stats.stop
}

/// A generation gives the same tokens as this loop, whether the prompt has to be computed or is in the cache.
#[test]
fn extended_a_generation_chooses_the_same() {
    let prompt = dialogue(12);
    let [mut session, mut stepped] = pair(12);
    for seed in [1, 2] {
        generate(&mut session, &prompt, seeded(seed), Some(16));
        stepped.sync(&prompt).unwrap();
        stepped.set_sampling(&seeded(seed)).unwrap();
        let count = session.tokens().len() - 12;
        assert_eq!(chosen(&mut stepped, count), session.tokens()[12..], "seed {seed}");
    }
    generate(&mut session, &prompt, SamplerParams::greedy(), Some(16));
    stepped.sync(&prompt).unwrap();
    stepped.set_sampling(&SamplerParams::greedy()).unwrap();
    assert_eq!(chosen(&mut stepped, session.tokens().len() - 12), session.tokens()[12..], "greedy after draws");
}

/// The token that ends a reply is submitted before the host knows it.
#[test]
fn extended_the_end_of_a_reply_is_not_kept() {
    let text = "My name is Anna.";
    let tokenizer = model().tokenizer().unwrap();
    let messages = [wglm::Message::user(text)];
    let mut input = wglm::text::ChatInput::new(&messages);
    input.enable_thinking = Some(false);
    let prompt = tokenizer.encode(&model().template().unwrap().render(&input).unwrap(), true).unwrap();
    let mut session = session_of(super::CONTEXT);
    assert_eq!(generate(&mut session, &prompt, SamplerParams::greedy(), None), Stop::End);
    let tokens = session.tokens().to_vec();
    assert!(tokens.len() > prompt.len() && !tokens[prompt.len()..].iter().any(|token| tokenizer.is_end(*token)));
    let more = [&tokens[..], &dialogue(3)].concat();
    let reuse = session.sync(&more).unwrap();
    assert_eq!((reuse.cached, reuse.new), (tokens.len(), 3));
    holds(&mut session, &more, "gone on after the end");
}
