//! Tests embeddings beside replies: they are those of a session, whatever the cache holds and whoever else needs its
//! memory, and they leave the caches of conversations alone.

use super::{CONTEXT, load, rest, said, session_of, small_file, stats, words_of};
use crate::common::gpu::gpu;
use crate::common::models::relative_l2;
use crate::hostile_models::small::{Numbers, Small};
use std::sync::OnceLock;
use wglm::{Cancel, ChatState, Error, Event, Model, Scheduler, SchedulerOptions, Stop};

/// A small model whose prompts are computed in parts of 64 tokens.
fn model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| load(&small_file(), gpu(), 64))
}

fn scheduler(options: SchedulerOptions) -> Scheduler {
    Scheduler::new(model(), &options).unwrap()
}

fn story(sentences: usize) -> String {
    "An owl sat on a branch and looked at a hill. ".repeat(sentences)
}

/// The same by a session.
fn wanted(text: &str) -> Vec<f32> {
    session_of(model()).embed(text).unwrap()
}

fn words(text: &str, max_tokens: usize) -> ChatState {
    words_of(model(), text, max_tokens)
}

/// The vector among the events of a request.
fn vector(events: &[Event]) -> Vec<f32> {
    let vectors =
        events.iter().filter_map(|event| if let Event::Embedding(vector) = event { Some(vector) } else { None });
    let all: Vec<&Vec<f32>> = vectors.collect();
    assert_eq!(all.len(), 1, "{events:?}");
    all[0].clone()
}

/// Texts of a part and less, of several parts, and twice the same one.
#[test]
fn a_text_has_the_mean_of_a_session() {
    let scheduler = scheduler(SchedulerOptions { sessions: 2, ..SchedulerOptions::default() });
    for text in ["owl", "The fox ran.", &story(6), &story(20), &story(20)] {
        assert_eq!(scheduler.embed(text, &Cancel::default()).unwrap(), wanted(text), "{} bytes", text.len());
    }
    let slots = scheduler.state().slots;
    assert!(slots.iter().all(|slot| !slot.busy && slot.tokens == 0), "{slots:?}");
}

/// The hidden states of a part take 2 MiB here, so they are read in slices.
#[test]
fn extended_wide_hidden_states_are_read_in_slices() {
    let file = Small::like_fable_of(&Numbers { width: 2048, ..Numbers::default() }).open().unwrap();
    let model = load(&file, gpu(), 256);
    let scheduler = Scheduler::new(&model, &SchedulerOptions { sessions: 1, ..SchedulerOptions::default() }).unwrap();
    let (text, cancel) = (story(25), Cancel::default());
    assert!(model.tokenizer().unwrap().encode(&text, false).unwrap().len() > 256);
    let mean = scheduler.embed(&text, &cancel).unwrap();
    assert_eq!(mean.len(), 2048);
    assert_eq!(mean, session_of(&model).embed(&text).unwrap());
    assert!(mean.iter().any(|value| *value != 0.0));
}

#[test]
fn the_tokens_of_a_text_are_reported_like_a_prompt() {
    let scheduler = scheduler(SchedulerOptions { sessions: 1, ..SchedulerOptions::default() });
    let tokens = model().tokenizer().unwrap().encode(&story(20), false).unwrap();
    let count = tokens.len();
    let events = rest(&mut scheduler.embed_tokens(tokens).unwrap());
    assert_eq!(vector(&events), wanted(&story(20)));
    assert_eq!(events[0], Event::Prompt { done: 0, total: count });
    assert!(events.len() > 4 && said(&events).is_empty(), "{events:?}");
    let stats = stats(&events);
    assert_eq!((stats.prompt.cached, stats.prompt.new, stats.generated, stats.stop), (0, count, 0, Stop::Length));
}

/// A conversation that waits for its next message keeps its slot, however many texts there are.
#[test]
fn conversations_keep_their_caches() {
    let scheduler = scheduler(SchedulerOptions { sessions: 2, ..SchedulerOptions::default() });
    rest(&mut scheduler.chat(words("the owl", 6)).unwrap());
    let held =
        |scheduler: &Scheduler| -> Vec<usize> { scheduler.state().slots.iter().map(|slot| slot.tokens).collect() };
    let before = held(&scheduler);
    for text in ["one", "two", "three"] {
        scheduler.embed(text, &Cancel::default()).unwrap();
    }
    assert_eq!(held(&scheduler), before);
    assert!(before.iter().any(|tokens| *tokens > 0));
}

/// Replies go on while a text is computed: each part of it is followed by a step of the reply.
#[test]
fn extended_replies_go_on_beside_a_long_text() {
    let scheduler = scheduler(SchedulerOptions { sessions: 2, ..SchedulerOptions::default() });
    let request = words("the fox", 40);
    let mut reply = scheduler.chat(request.clone()).unwrap();
    let mut events = super::begin(&mut reply);
    let tokens = model().tokenizer().unwrap().encode(&story(25), false).unwrap();
    let mut text = scheduler.embed_tokens(tokens).unwrap();
    let (mut computed, mut between) = (Vec::new(), 0);
    for event in text.by_ref() {
        computed.push(event.unwrap());
        events.push(reply.next().unwrap().unwrap());
        between += 1;
    }
    assert!(between > 4, "{computed:?}");
    assert!(relative_l2(&vector(&computed), &wanted(&story(25))) < 1e-5);
    events.extend(rest(&mut reply));
    let alone = super::alone_in(session_of(model()), &request).0;
    assert_eq!(said(&events), said(&alone));
}

/// Texts that do not fit together take turns, and are computed again from where they were.
#[test]
fn extended_texts_that_share_too_little_memory_are_computed() {
    let scheduler = scheduler(SchedulerOptions { sessions: 2, tokens: Some(256), ..SchedulerOptions::default() });
    let texts = [story(12), format!("The hen slept. {}", story(11))];
    let encode = |text: &String| model().tokenizer().unwrap().encode(text, false).unwrap();
    let mut requests = texts.each_ref().map(|text| scheduler.embed_tokens(encode(text)).unwrap());
    for (events, text) in super::rest_by_turns(&mut requests).iter().zip(&texts) {
        // Another context has other plans, which round differently.
        assert!(relative_l2(&vector(events), &wanted(text)) < 1e-2);
    }
}

#[test]
fn a_text_can_be_cancelled() {
    let scheduler = scheduler(SchedulerOptions { sessions: 1, ..SchedulerOptions::default() });
    let cancelled = Cancel::default();
    cancelled.cancel();
    assert!(matches!(scheduler.embed("The fox ran.", &cancelled), Err(Error::Cancelled)));
    let tokens = model().tokenizer().unwrap().encode(&story(20), false).unwrap();
    let mut text = scheduler.embed_tokens(tokens).unwrap();
    text.by_ref().take(2).for_each(drop);
    text.cancel().cancel();
    let events = rest(&mut text);
    assert!(!events.iter().any(|event| matches!(event, Event::Embedding(_))), "{events:?}");
    assert_eq!(stats(&events).stop, Stop::Cancelled);
    assert_eq!(scheduler.state().slots[0].tokens, 0, "nothing of it is kept");
    assert_eq!(scheduler.embed("The fox ran.", &Cancel::default()).unwrap(), wanted("The fox ran."));
}

#[test]
fn texts_that_cannot_be_embedded_are_refused() {
    let scheduler = scheduler(SchedulerOptions { sessions: 1, ..SchedulerOptions::default() });
    assert!(matches!(scheduler.embed_tokens(Vec::new()), Err(Error::Argument { argument: "text", .. })));
    let vocab = model().config().vocab;
    let unknown = scheduler.embed_tokens(vec![0, vocab as u32]);
    assert!(matches!(unknown, Err(Error::TokenOutOfRange { token, .. }) if token as usize == vocab));
    let long = scheduler.embed_tokens(vec![0; CONTEXT + 1]);
    assert!(matches!(long, Err(Error::ContextFull { needed, context: CONTEXT }) if needed == CONTEXT + 1));
    let full = rest(&mut scheduler.embed_tokens(vec![1; CONTEXT]).unwrap());
    assert_eq!(vector(&full).len(), model().config().width);
}
