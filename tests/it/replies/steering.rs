//! Tests replies in which a caller's `Chooser` takes part.

use super::{OWL, chat, model, text, told};
use std::collections::HashSet;
use wglm::serde_json::json;
use wglm::{Chooser, Error, Event, Result, Sampler, SamplerParams, Session, Stop};

/// Changes nothing, and records what it sees.
#[derive(Default)]
struct Watch {
    prompts: Vec<usize>,
    accepted: Vec<u32>,
}

impl Chooser for Watch {
    fn mask(&mut self, logits: &mut [f32], tokens: &[u32]) -> Result<()> {
        assert_eq!(logits.len(), model().config().vocab);
        self.prompts.push(tokens.len());
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<()> {
        self.accepted.push(token);
        Ok(())
    }
}

/// A chooser that only records changes nothing. It is called once for each token, and receives the end token too.
#[test]
fn extended_observing_changes_nothing() {
    let mut plain = chat();
    plain.options.sampling.repeat_penalty = 1.3;
    let (want, stats) = told(plain.send(OWL).unwrap());
    let (mut watched, mut watch) = (chat(), Watch::default());
    watched.options = plain.options.clone();
    watched.options.logprobs = Some(1);
    let (events, with) = told(watched.send(OWL).unwrap().with_chooser(&mut watch));
    assert_eq!((text(&events), with.generated, with.stop), (text(&want), stats.generated, Stop::End));
    let reported = events.iter().filter(|event| matches!(event, Event::Token(_))).count();
    assert_eq!(reported, stats.generated + 1, "the end token is reported, and not counted as generated");
    let tokens = watched.session().tokens();
    assert_eq!(watch.accepted[..stats.generated], tokens[tokens.len() - stats.generated..]);
    assert!(model().tokenizer().unwrap().is_end(*watch.accepted.last().unwrap()));
    let first = tokens.len() - stats.generated;
    assert_eq!(watch.prompts, (first..=tokens.len()).collect::<Vec<_>>());
    // The cache is as valid as without a chooser.
    let held = tokens.len();
    watched.options.max_tokens = Some(1);
    let (_, stats) = told(watched.send("And a fox?").unwrap());
    assert!(stats.prompt.cached + 2 >= held, "{:?}", stats.prompt);
}

/// Allows only some tokens.
struct Only(HashSet<u32>);

impl Chooser for Only {
    fn mask(&mut self, logits: &mut [f32], _: &[u32]) -> Result<()> {
        for (token, logit) in (0..).zip(logits) {
            if !self.0.contains(&token) {
                *logit = f32::NEG_INFINITY;
            }
        }
        Ok(())
    }
}

/// A mask holds for any sampling parameters, and parsing, stop strings and statistics work as usual.
#[test]
fn extended_a_mask_applies_always() {
    let allowed: HashSet<u32> = ["one", "two", " and", " or"]
        .iter()
        .flat_map(|word| model().tokenizer().unwrap().encode(word, false).unwrap())
        .collect();
    for sampling in [SamplerParams::greedy(), SamplerParams { temperature: 5.0, ..SamplerParams::default() }] {
        let mut chat = chat();
        chat.options.sampling = sampling;
        chat.options.max_tokens = Some(20);
        let start = chat.session().tokens().len();
        let (events, stats) = told(chat.send(OWL).unwrap().with_chooser(Only(allowed.clone())));
        assert_eq!((stats.generated, stats.stop, start), (20, Stop::Length, 0));
        let tokens = chat.session().tokens();
        assert!(tokens[tokens.len() - 20..].iter().all(|token| allowed.contains(token)), "{events:?}");
    }
    let mut chat = chat();
    let events: Vec<_> = chat.send(OWL).unwrap().with_chooser(Only(HashSet::new())).collect();
    assert!(matches!(events.last(), Some(Err(Error::Argument { argument: "chooser", .. }))), "{events:?}");
    assert_eq!(chat.unanswered().len(), 1);
}

/// Chooses the tokens of a script.
struct Script(std::vec::IntoIter<u32>);

impl Script {
    fn of(text: &str) -> Self {
        Self(model().tokenizer().unwrap().encode(text, true).unwrap().into_iter())
    }
}

impl Chooser for Script {
    fn choose(&mut self, _: &[f32]) -> Result<Option<u32>> {
        self.0.next().map(Some).ok_or(Error::Argument {
            argument: "script",
            expected: "more".into(),
            found: "none".into(),
        })
    }
}

/// Chosen tokens are parsed as any reply: thinking, text, calls with ids, the end.
#[test]
fn extended_chosen_tokens_make_a_reply_like_any_other() {
    let mut chat = chat();
    chat.reasoning = Some(true);
    chat.tools = vec![json!({"name": "dice", "parameters": {}})];
    let script = "Well.</think>Let us see.<tool_call>dice</tool_call><|observation|>";
    let (events, stats) = told(chat.send("Roll.").unwrap().with_chooser(Script::of(script)));
    assert_eq!((text(&events).as_str(), stats.stop), ("Let us see.", Stop::End));
    let message = &chat.messages()[1];
    assert_eq!(message.reasoning_content.as_deref(), Some("Well."));
    assert_eq!(message.tool_calls[0].id.as_deref(), Some("call_0"));
    chat.options.stop = vec!["see".to_owned()];
    chat.clear();
    let (events, stats) = told(chat.send("Roll.").unwrap().with_chooser(Script::of("</think>Let us see.<|user|>")));
    assert_eq!((text(&events).as_str(), stats.stop), ("Let us ", Stop::StopString));
    assert_eq!(stats.stop_string, Some(0));
    // An error of the chooser ends the reply, which keeps the text so far; so does a token that does not exist.
    let mut reply = chat.send("Roll.").unwrap().with_chooser(Script::of("</think>One"));
    let error = reply.find_map(Result::err).unwrap();
    assert!(matches!(error, Error::Argument { argument: "script", .. }) && reply.next().is_none(), "{error}");
    drop(reply);
    assert_eq!(chat.messages().last().unwrap().text(), "One");
    let error = chat.send("Roll.").unwrap().with_chooser(Script(vec![u32::MAX].into_iter())).find_map(Result::err);
    assert!(matches!(error, Some(Error::TokenOutOfRange { .. })), "{error:?}");
    assert!(!told(chat.send("What is seven plus five?").unwrap()).0.is_empty());
}

/// As a chooser, the crate's sampler chooses the same tokens as by itself.
#[test]
fn extended_a_sampler_on_the_host() {
    struct Own(Sampler);
    impl Chooser for Own {
        fn choose(&mut self, logits: &[f32]) -> Result<Option<u32>> {
            self.0.sample(logits).map(Some)
        }
    }
    let sampler = || Sampler::new(SamplerParams { seed: Some(5), ..SamplerParams::default() }).unwrap();
    let mut chat = chat();
    chat.options.max_tokens = Some(40);
    let (events, stats) = told(chat.send(OWL).unwrap().with_chooser(Own(sampler())));
    assert!(!text(&events).is_empty());
    let tokens = chat.session().tokens();
    let (prompt, chosen) = tokens.split_at(tokens.len() - stats.generated);
    let (mut session, mut alone) = (Session::new(model()).unwrap(), sampler());
    session.feed(prompt).unwrap();
    for (index, token) in chosen.iter().enumerate() {
        assert_eq!(alone.sample(&session.logits().unwrap()).unwrap(), *token, "token {index}");
        session.feed(&[*token]).unwrap();
    }
}
