//! Tests sessions, generations and chats of the demonstration model: the cache must not change results, and after any
//! failure everything must remain usable.

mod chatting;
mod choosing;
mod counting;
mod feeding;
mod fitting;
mod generating;
mod handing_over;
mod hidden;
mod in_place;
mod keeping;
mod limits;
mod losing;
mod many_texts;
mod mistakes;
mod side_by_side;
mod speculating;
mod syncing;
mod threads;
mod together;

use crate::common::gpu::gpu;
use crate::common::models::{fable_file, fixture, read_u32};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use wglm::{Arithmetic, CacheShape, CacheType, Error, Gguf, LoadOptions, Model, PromptOptions, Result, Session};

/// A context that suffices for every conversation here.
const CONTEXT: usize = 384;

/// Loads the demonstration model with these options. Its arithmetic is f32 unless they name another: rounded to bytes,
/// results would depend on how many tokens are computed together.
fn load(options: &LoadOptions) -> Result<Model> {
    let file = Gguf::open(fable_file("q4_0")).unwrap();
    let arithmetic = options.arithmetic.or(Some(Arithmetic::Float));
    Model::load(&file, gpu(), &LoadOptions { arithmetic, ..options.clone() })
}

/// Options that compute prompts token by token.
fn alone() -> PromptOptions {
    PromptOptions { chunk: Some(1), ..PromptOptions::default() }
}

/// The demonstration model, loaded once. Prompts are computed token by token, because these tests compare bits, which
/// are then the same however often a session is rewound. Chunks are tested in chunks.rs.
fn model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    let options = LoadOptions { context: Some(CONTEXT), prompt: alone(), ..LoadOptions::default() };
    MODEL.get_or_init(|| load(&options).unwrap())
}

/// A model on its own device, for one test at a time, so that its work can be counted and dropped.
fn exclusive(model: &'static Mutex<Model>) -> MutexGuard<'static, Model> {
    let model = model.lock().unwrap_or_else(PoisonError::into_inner);
    // What an earlier test may have left.
    model.gpu().before_submissions(|| ());
    model.gpu().drop_work(false);
    model
}

fn session() -> Session {
    Session::new(model()).unwrap()
}

fn session_of(context: usize) -> Session {
    Session::with_cache(model(), CacheShape { context, ty: CacheType::F32 }).unwrap()
}

/// The first tokens of a dialogue.
fn dialogue(length: usize) -> Vec<u32> {
    let mut tokens = read_u32(fixture("fable/dialog0.tokens.i32"));
    assert!(tokens.len() >= length, "the dialogue has {} tokens", tokens.len());
    tokens.truncate(length);
    tokens
}

/// Fails unless a result was missing from a device that still works.
#[track_caller]
fn nothing_came<T>(outcome: Result<T>) {
    match outcome {
        Err(Error::NoResult) => {}
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("a result of work that was never done"),
    }
}

/// The bits of logits, for exact comparisons.
fn bits(session: &mut Session) -> Vec<u32> {
    session.logits().unwrap().into_iter().map(f32::to_bits).collect()
}

/// The bits of the logits after `tokens` in a new session.
fn fresh(tokens: &[u32], context: usize) -> Vec<u32> {
    let mut session = session_of(context);
    session.feed(tokens).unwrap();
    bits(&mut session)
}

/// Fails unless the session holds `tokens` and has the same logits as a new session.
#[track_caller]
fn holds(session: &mut Session, tokens: &[u32], what: &str) {
    assert_eq!(session.tokens(), tokens, "{what}: the tokens");
    let context = session.context();
    assert!(bits(session) == fresh(tokens, context), "{what}: the logits differ from a fresh session's");
}
