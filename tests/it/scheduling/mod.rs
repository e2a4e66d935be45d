//! Tests replies side by side: each is what it would be alone, whichever thread waits for it, and whichever replies
//! join, leave or are slow.

mod beside;
mod compiling;
#[cfg(feature = "constrain")]
mod constrained;
mod continuing;
mod crowded;
mod embedding;
mod ending;
mod guessing;
mod overflowing;
mod polled;
mod prompting;
mod reusing;
mod scoring;
mod storing;
mod taking_turns;
mod tenants;
mod threads;
mod visiting;

use crate::common::gpu::gpu;
use crate::common::models::fable_file;
use crate::hostile_models::small::Small;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, OnceLock, PoisonError};
use wglm::{
    Arithmetic, CacheShape, Chat, ChatState, Event, GenerateOptions, Gguf, Gpu, LoadOptions, Message, Model,
    PromptOptions, Result, SamplerParams, ScheduledReply, Scheduler, SchedulerOptions, Session, Speculation, Stats,
};

/// A context that suffices for every conversation here.
const CONTEXT: usize = 512;
/// The number of tokens of a prompt that are computed at a time.
const PART: usize = 16;

/// The demonstration model, loaded once. Prompts are computed token by token, so that their cache does not depend on
/// how they are divided.
fn model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| model_on(gpu(), 1))
}

/// The same on a device, with prompts in chunks of this many tokens.
fn model_on(gpu: &Gpu, chunk: usize) -> Model {
    load(&Gguf::open(fable_file("q4_0")).unwrap(), gpu, chunk)
}

/// Loads a file with f32 arithmetic: rounded to bytes, results would depend on how many tokens are computed together.
fn load(file: &Gguf, gpu: &Gpu, chunk: usize) -> Model {
    let prompt = PromptOptions { chunk: Some(chunk), ..PromptOptions::default() };
    let arithmetic = Some(Arithmetic::Float);
    let options = LoadOptions { context: Some(CONTEXT), prompt, arithmetic, ..LoadOptions::default() };
    Model::load(file, gpu, &options).unwrap()
}

/// A small model with the tokenizer of the demonstration model, whose conversations take steps together and guess
/// tokens as well. It is for tests in which it does not matter what replies say.
fn small_file() -> Gguf {
    Small::like_fable_with(4).open().unwrap()
}

/// The same, loaded once. Its prompts are computed eight tokens at a time.
fn small() -> &'static Model {
    static SMALL: OnceLock<Model> = OnceLock::new();
    SMALL.get_or_init(|| load(&small_file(), gpu(), 8))
}

fn small_scheduler(sessions: usize) -> Scheduler {
    small_scheduler_with(SchedulerOptions { sessions, ..SchedulerOptions::default() })
}

fn small_scheduler_with(options: SchedulerOptions) -> Scheduler {
    Scheduler::new(small(), &options).unwrap()
}

/// A greedy request to the small model without thinking. Its reply has exactly this many tokens, generated one by one.
/// Each of them is one of a few words: many of the other tokens have no text.
fn words(text: &str, max_tokens: usize) -> ChatState {
    words_of(small(), text, max_tokens)
}

/// The same request to another small model. The more often a word occurs, the less likely it becomes: otherwise all
/// replies would repeat the same word.
fn words_of(model: &Model, text: &str, max_tokens: usize) -> ChatState {
    let words = " owl fox mouse hill wood day tree river night story snow cat crow bear frog star";
    let tokens: BTreeSet<u32> = model.tokenizer().unwrap().encode(words, false).unwrap().into_iter().collect();
    let mut request = request(text, max_tokens);
    request.options.sampling = SamplerParams {
        logit_bias: tokens.into_iter().map(|token| (token, 100.0)).collect(),
        frequency_penalty: 0.5,
        repeat_last_n: usize::MAX,
        ..SamplerParams::greedy()
    };
    request.options.speculation = Speculation::OFF;
    request
}

/// Fails if one of the texts begins with another, since then one could be taken for the other.
#[track_caller]
fn all_differ(texts: &[String]) {
    for (index, text) in texts.iter().enumerate() {
        let mut others = texts.iter().enumerate().filter(|(other, _)| *other != index);
        assert!(others.all(|(_, other)| !text.starts_with(other.as_str())), "{texts:?}");
    }
}

/// The events of the same request to the small model alone.
fn small_alone(request: &ChatState) -> Vec<Event> {
    alone_in(session_of(small()), request).0
}

fn scheduler(sessions: usize) -> Scheduler {
    scheduler_with(SchedulerOptions { sessions, ..SchedulerOptions::default() })
}

fn scheduler_with(options: SchedulerOptions) -> Scheduler {
    Scheduler::new(model(), &options).unwrap()
}

/// Greedy sampling of up to this many tokens.
fn greedy(max_tokens: usize) -> GenerateOptions {
    let sampling = SamplerParams::greedy();
    GenerateOptions { sampling, max_tokens: Some(max_tokens), ..GenerateOptions::default() }
}

/// A greedy request without thinking.
fn request(text: &str, max_tokens: usize) -> ChatState {
    let (messages, options) = (vec![Message::user(text)], greedy(max_tokens));
    ChatState { messages, reasoning: Some(false), options, ..ChatState::default() }
}

/// The events of the same request alone. Each request is computed once, all of them in one session, whose cache was
/// computed token by token, so reusing it changes nothing.
fn alone(request: &ChatState) -> Vec<Event> {
    /// The events, by the request as JSON.
    type Known = BTreeMap<String, Vec<Event>>;
    static ALONE: Mutex<(Option<Session>, Known)> = Mutex::new((None, Known::new()));
    let (session, known) = &mut *ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let key = serde_json::to_string(request).unwrap();
    if !known.contains_key(&key) {
        let (events, used) = alone_in(session.take().unwrap_or_else(|| session_of(model())), request);
        *session = Some(used);
        known.insert(key.clone(), events);
    }
    known[&key].clone()
}

fn session_of(model: &Model) -> Session {
    Session::with_cache(model, CacheShape { context: CONTEXT, ..model.cache() }).unwrap()
}

/// The events of the same request in a session, and the session.
fn alone_in(session: Session, request: &ChatState) -> (Vec<Event>, Session) {
    let mut chat = Chat::with_session(session).unwrap();
    chat.restore(request.clone());
    let events = chat.reply().unwrap().map(Result::unwrap).collect();
    (events, chat.into_session())
}

/// The events of replies to simultaneous requests, one event of each reply per turn.
fn by_turns(scheduler: &Scheduler, requests: &[ChatState]) -> Vec<Vec<Event>> {
    let ask = |request: &ChatState| scheduler.chat(request.clone()).unwrap();
    let mut replies: Vec<ScheduledReply> = requests.iter().map(ask).collect();
    rest_by_turns(&mut replies)
}

/// All remaining events of replies, one event of each reply per turn.
fn rest_by_turns(replies: &mut [ScheduledReply]) -> Vec<Vec<Event>> {
    let mut told = vec![Vec::new(); replies.len()];
    let mut over = vec![false; replies.len()];
    while over.contains(&false) {
        for ((reply, events), over) in replies.iter_mut().zip(&mut told).zip(&mut over) {
            match reply.next() {
                Some(event) => events.push(event.unwrap()),
                None => *over = true,
            }
        }
    }
    told
}

/// The content of events: thinking, text and calls.
fn said(events: &[Event]) -> String {
    let piece = |event: &Event| match event {
        Event::Thinking(text) | Event::Text(text) => text.clone(),
        Event::ToolCall(call) => format!("{call:?}"),
        _ => String::new(),
    };
    events.iter().map(piece).collect()
}

/// The statistics at the end of a reply.
#[track_caller]
fn stats(events: &[Event]) -> Stats {
    match events.last() {
        Some(Event::Done(stats)) => *stats,
        other => panic!("no `Done` but {other:?}"),
    }
}

/// All remaining events.
fn rest(reply: &mut ScheduledReply) -> Vec<Event> {
    reply.map(Result::unwrap).collect()
}

/// Takes events until one has text.
fn begin(reply: &mut ScheduledReply) -> Vec<Event> {
    let mut events = Vec::new();
    while said(&events).is_empty() {
        events.push(reply.next().expect("a text").unwrap());
    }
    events
}

/// Random numbers, the same in each run.
struct Lot(u64);

impl Lot {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % count
    }
}
