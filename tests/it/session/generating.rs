//! Tests generations: their events, their ends, and what they leave in the session.

use super::{model, session, session_of};
use std::sync::mpsc;
use std::time::Duration;
use wglm::sample::Sampler;
use wglm::text::{ChatInput, Message, ReplyParser};
use wglm::{Cancel, Error, Event, GenerateOptions, Generation, Result, SamplerParams, Session, Stats, Stop};

const OWL: &str = "Tell me a story about an owl.";

/// A prompt that the chat template rendered, and the parser for its reply.
fn prompt(question: &str, thinking: bool) -> (Vec<u32>, ReplyParser) {
    let messages = [Message::user(question)];
    let mut input = ChatInput::new(&messages);
    input.enable_thinking = Some(thinking);
    let prompt = model().template().unwrap().prompt(&input, model().tokenizer().unwrap()).unwrap();
    (prompt.tokens, ReplyParser::new(prompt.opens_thinking))
}

fn owl() -> Vec<u32> {
    prompt(OWL, false).0
}

fn greedy(max_tokens: Option<usize>) -> GenerateOptions {
    GenerateOptions { sampling: SamplerParams::greedy(), max_tokens, ..GenerateOptions::default() }
}

fn seeded(seed: u64) -> GenerateOptions {
    let sampling = SamplerParams { temperature: 1.0, seed: Some(seed), ..SamplerParams::default() };
    GenerateOptions { sampling, max_tokens: Some(20), ..GenerateOptions::default() }
}

/// Runs a generation to its end, without errors.
#[derive(Debug, PartialEq)]
struct Told {
    thinking: String,
    text: String,
    stats: Stats,
}

/// Collects events, and checks them: progress of the prompt first, `Done` last and once, no empty event, nothing after
/// the end.
fn collect(mut events: impl Iterator<Item = Result<Event>>) -> Told {
    let (mut thinking, mut text, mut done) = (String::new(), String::new(), None);
    let mut read = 0;
    for event in events.by_ref() {
        assert!(done.is_none(), "{event:?} after the end");
        match event.unwrap() {
            Event::Prompt { done, total } => {
                assert!(thinking.is_empty() && text.is_empty(), "a prompt after its reply");
                assert!(read <= done && done <= total, "from {read} to {done} of {total}");
                read = done;
            }
            Event::Thinking(piece) => {
                assert!(text.is_empty() && !piece.is_empty(), "thinking `{piece}` after `{text}`");
                thinking.push_str(&piece);
            }
            Event::Text(piece) => {
                assert!(!piece.is_empty());
                text.push_str(&piece);
            }
            Event::Done(stats) => done = Some(stats),
            other => panic!("{other:?}"),
        }
    }
    assert!(events.next().is_none() && events.next().is_none(), "an event after the end");
    Told { thinking, text, stats: done.expect("no `Done`") }
}

fn generate(session: &mut Session, prompt: Vec<u32>, options: GenerateOptions) -> Told {
    collect(Generation::new(session, prompt, None, options).unwrap())
}

#[test]
fn extended_a_story_is_told_the_same_every_time() {
    let mut session = session();
    let first = generate(&mut session, owl(), greedy(None));
    println!("{}", first.text);
    assert!(first.text.len() > 40 && first.text.to_lowercase().contains("owl"), "{}", first.text);
    assert_eq!(first.stats.stop, Stop::End);
    assert_eq!((first.stats.prompt.cached, first.stats.prompt.new), (0, owl().len()));
    assert_eq!(session.tokens().len(), owl().len() + first.stats.generated);
    let again = generate(&mut session, owl(), greedy(Some(24)));
    assert_eq!((again.stats.prompt.cached, again.stats.prompt.new), (owl().len() - 1, 1));
    let anew = generate(&mut super::session(), owl(), greedy(Some(24)));
    for (what, told) in [("with a warm cache", again), ("in a new session", anew)] {
        assert_eq!((told.stats.generated, told.stats.stop), (24, Stop::Length), "{what}");
        assert!(first.text.starts_with(&told.text), "{what}: {}", told.text);
    }
}

/// The generated text is what the tokenizer makes of the session's tokens.
#[test]
fn extended_the_text_is_that_of_the_tokens() {
    let mut session = session();
    let told = generate(&mut session, owl(), greedy(Some(30)));
    let tokens = &session.tokens()[owl().len()..];
    assert_eq!(model().tokenizer().unwrap().decode(tokens, false).unwrap(), told.text);
}

/// Sampling on the GPU and sampling from the logits agree.
#[test]
fn extended_greedy_is_the_sampler_at_temperature_zero() {
    let mut session = session_of(64);
    let mut sampler = Sampler::new(SamplerParams::greedy()).unwrap();
    session.feed(&owl()).unwrap();
    for index in 0..12 {
        let token = session.most_likely().unwrap();
        assert_eq!(sampler.sample(&session.logits().unwrap()).unwrap(), token, "token {index}");
        session.feed(&[token]).unwrap();
    }
}

#[test]
fn extended_replies_have_the_requested_length() {
    let whole = generate(&mut session(), owl(), greedy(Some(12))).text;
    for most in [0, 1, 5] {
        let mut session = session();
        let told = generate(&mut session, owl(), greedy(Some(most)));
        assert_eq!((told.stats.generated, told.stats.stop), (most, Stop::Length), "at most {most}");
        assert!(whole.starts_with(&told.text), "at most {most}: `{}` does not begin `{whole}`", told.text);
        assert_eq!(told.text.is_empty(), most == 0, "at most {most}: `{}`", told.text);
        assert_eq!(session.tokens().len(), owl().len() + most, "at most {most}");
    }
}

#[test]
fn a_full_context_ends_the_reply() {
    let length = owl().len();
    for room in [0, 1, 4] {
        let mut session = session_of(length + room);
        let told = generate(&mut session, owl(), greedy(None));
        // The last token is reported, although the cache has no room for it.
        assert_eq!((told.stats.generated, told.stats.stop), (room + 1, Stop::Context), "room for {room}");
        assert_eq!(session.tokens().len(), length + room);
    }
}

/// The events of a generation that fails.
fn failing(session: &mut Session, prompt: Vec<u32>) -> Error {
    let mut events: Vec<_> = Generation::new(session, prompt, None, greedy(Some(3))).unwrap().collect();
    let error = events.pop().expect("an event").expect_err("an error");
    assert!(events.iter().all(|event| matches!(event, Ok(Event::Prompt { .. }))), "{events:?} before {error}");
    error
}

#[test]
fn failures_are_events_and_the_last_ones() {
    let mut session = session_of(8);
    let full = failing(&mut session, owl());
    assert!(matches!(full, Error::ContextFull { context: 8, .. }), "{full}");
    let empty = failing(&mut session, vec![]);
    assert!(matches!(empty, Error::Argument { .. }), "{empty}");
    let outside = failing(&mut session, vec![1, 5000]);
    assert!(matches!(outside, Error::TokenOutOfRange { token: 5000, .. }), "{outside}");
    assert_eq!(generate(&mut session, owl()[..4].to_vec(), greedy(Some(2))).stats.generated, 2);
}

/// Errors in a prompt of any length are found before any of it is computed.
#[test]
fn a_prompt_is_checked_before_it_is_read() {
    let mut session = session_of(100);
    let long: Vec<u32> = owl().into_iter().cycle().take(101).collect();
    let full = failing(&mut session, long.clone());
    assert!(matches!(full, Error::ContextFull { needed: 101, context: 100 }), "{full}");
    assert!(session.tokens().is_empty(), "{} tokens were computed first", session.tokens().len());
    let outside = failing(&mut session, [&long[..90], &[5000]].concat());
    assert!(matches!(outside, Error::TokenOutOfRange { token: 5000, .. }), "{outside}");
    assert!(session.tokens().is_empty(), "{} tokens were computed first", session.tokens().len());
}

/// A long prompt reports its progress, and the reply is that of the whole prompt computed at once.
#[test]
fn extended_a_long_prompt_reports_its_progress() {
    let long: Vec<u32> = owl().into_iter().cycle().take(120).collect();
    let mut session = session_of(160);
    let events: Vec<Event> =
        Generation::new(&mut session, long.clone(), None, greedy(Some(8))).unwrap().map(Result::unwrap).collect();
    let told = events.iter().filter(|e| matches!(e, Event::Prompt { total: 120, .. })).count();
    assert!(told > 1, "told {told} times: {events:?}");
    let mut whole = session_of(160);
    whole.feed(&long).unwrap();
    for &token in &session.tokens()[120..] {
        assert_eq!(whole.most_likely().unwrap(), token);
        whole.feed(&[token]).unwrap();
    }
    assert!(super::bits(&mut whole) == super::bits(&mut session), "the logits at the end");
}

#[test]
fn impossible_parameters_are_refused_at_once() {
    let usual = SamplerParams::default;
    let wrong = [
        ("temperature", SamplerParams { temperature: -1.0, ..usual() }),
        ("temperature", SamplerParams { temperature: f32::NAN, ..usual() }),
        ("top_p", SamplerParams { top_p: 1.5, ..usual() }),
        ("min_p", SamplerParams { min_p: -0.1, ..usual() }),
    ];
    for (name, sampling) in wrong {
        let mut session = session_of(16);
        let error = Generation::new(&mut session, vec![1], None, GenerateOptions { sampling, ..greedy(None) });
        let Err(Error::Argument { argument, .. }) = error.map(drop) else { panic!("{name} is accepted") };
        assert_eq!(argument, name);
    }
}

#[test]
fn a_seed_decides() {
    let mut session = session();
    let told: Vec<String> = (1..=4).map(|seed| generate(&mut session, owl(), seeded(seed)).text).collect();
    assert_eq!(generate(&mut session, owl(), seeded(3)).text, told[2], "the same seed in a warm session");
    assert_eq!(generate(&mut super::session(), owl(), seeded(3)).text, told[2], "the same seed in a new session");
    let different = told.iter().collect::<std::collections::HashSet<_>>().len();
    println!("{different} different stories of {}", told.len());
    assert!(different > 1, "four seeds tell one story: {}", told[0]);
}

/// A story without a seed reports the seed that was used, with which it can be generated again.
#[test]
fn extended_the_drawn_seed_is_reported() {
    let mut session = session();
    assert_eq!(generate(&mut session, owl(), greedy(Some(2))).stats.seed, None);
    assert_eq!(generate(&mut session, owl(), seeded(7)).stats.seed, Some(7));
    let mut options = seeded(0);
    options.sampling.seed = None;
    let drawn = generate(&mut session, owl(), options);
    let again = generate(&mut session, owl(), seeded(drawn.stats.seed.expect("a seed")));
    assert_eq!(again.text, drawn.text);
}

#[test]
fn thinking_and_answer_are_separated() {
    let mut session = session();
    let (tokens, parser) = prompt("What is seven plus five?", true);
    assert!(parser.is_thinking());
    let told = collect(Generation::new(&mut session, tokens, Some(parser), greedy(Some(120))).unwrap());
    println!("thinking: {}\nanswer: {}", told.thinking, told.text);
    assert!(!told.thinking.trim().is_empty() && !told.text.trim().is_empty(), "{told:?}");
    assert!(!told.thinking.contains("think>") && !told.text.contains("think>"), "{told:?}");
    assert!(told.text.to_lowercase().contains("twelve") || told.text.contains("12"), "{told:?}");
    assert_eq!(told.stats.stop, Stop::End);
    assert!(told.stats.speed() > 0.0 && told.stats.prompt_speed() > 0.0);
}

#[test]
fn extended_without_thinking_all_is_answer() {
    let (tokens, parser) = prompt(OWL, false);
    assert!(!parser.is_thinking());
    let with = collect(Generation::new(&mut session(), tokens, Some(parser), greedy(Some(30))).unwrap());
    assert_eq!(with.thinking, "");
    assert_eq!(with.text, generate(&mut session(), owl(), greedy(Some(30))).text);
}

/// A thread that cancels on request, and reports when it has.
fn cancel_after(events: usize, session: &mut Session) -> Told {
    let cancel = Cancel::default();
    let pressed = cancel.clone();
    let (ask, asked) = mpsc::channel();
    let (confirm, confirmed) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            asked.recv().expect("a generation of so many events");
            pressed.cancel();
            confirm.send(()).unwrap();
        });
        let mut seen = 0;
        // Takes ownership of `ask`, so that the thread never waits forever.
        let watched = Generation::new(session, owl(), None, greedy(None)).unwrap().with_cancel(&cancel);
        let watched = watched.inspect(move |_| {
            seen += 1;
            if seen == events {
                ask.send(()).unwrap();
                confirmed.recv().unwrap();
            }
        });
        collect(watched)
    })
}

#[test]
fn extended_cancelled_from_another_thread() {
    let whole = generate(&mut session(), owl(), greedy(Some(32))).text;
    let mut session = session();
    for events in [1, 3, 10] {
        let told = cancel_after(events, &mut session);
        assert_eq!(told.stats.stop, Stop::Cancelled, "after {events} events");
        assert!(whole.starts_with(&told.text) && told.text.len() < whole.len(), "after {events}: {}", told.text);
        assert!(told.stats.generated <= events + 8, "{} tokens after {events} events", told.stats.generated);
    }
    assert_eq!(generate(&mut session, owl(), greedy(Some(32))).text, whole, "the next one is whole");
}

/// If it is cancelled during the prompt, the computed part stays in the cache.
#[test]
fn cancelled_while_reading() {
    let tokens: Vec<u32> = owl().into_iter().cycle().take(380).collect();
    let mut session = session();
    let cancel = Cancel::default();
    let waiting = cancel.clone();
    let told = std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            waiting.cancel();
        });
        let generation = Generation::new(&mut session, tokens.clone(), None, greedy(Some(1))).unwrap();
        collect(generation.with_cancel(&cancel))
    });
    let read = session.tokens().len();
    println!("cancelled after {read} of {} tokens", tokens.len());
    assert_eq!((told.stats.stop, told.stats.generated), (Stop::Cancelled, 0));
    assert!(read > 0 && read < tokens.len() && session.tokens() == &tokens[..read]);
    assert!(cancel.is_cancelled());
    let next = tokens[..read + 5].to_vec();
    let whole = generate(&mut self::session(), next.clone(), greedy(Some(1)));
    let told = generate(&mut session, next, greedy(Some(1)));
    assert_eq!(
        (&told.text, told.stats.stop, told.stats.generated),
        (&whole.text, whole.stats.stop, whole.stats.generated)
    );
    assert_eq!((told.stats.prompt.cached, told.stats.prompt.new), (read, 5));
}

/// If it is cancelled before it begins, at most one token is computed.
fn cancelled_at_once(session: &mut Session) -> Told {
    session.feed(&owl()).unwrap();
    let cancel = Cancel::default();
    cancel.cancel();
    let generation = Generation::new(session, [owl(), owl()].concat(), None, greedy(Some(5))).unwrap();
    collect(generation.with_cancel(&cancel))
}

#[test]
fn cancelled_before_it_began() {
    let mut session = session();
    let told = cancelled_at_once(&mut session);
    assert_eq!((told.stats.stop, told.stats.generated, told.text.as_str()), (Stop::Cancelled, 0, ""));
    assert!(session.tokens().len() <= owl().len() + 1);
    session.sync(&owl()).unwrap();
    super::holds(&mut session, &owl(), "after it was cancelled");
}

/// Tokens that were in the cache before are not counted as computed.
#[test]
fn a_cancelled_prompt_is_counted_correctly() {
    let stats = cancelled_at_once(&mut session()).stats;
    assert_eq!(stats.prompt.cached, owl().len());
    assert!(stats.prompt.new <= 1, "{:?}", stats.prompt);
}
