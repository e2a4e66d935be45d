//! Tests how work is submitted to the GPU: in how many submissions, and what happens if the GPU drops some.

use super::{dialogue, exclusive, nothing_came};
use crate::common::gpu::{drop_submissions, dropping, open};
use crate::common::models::{fable_file, fixture, load_on};
use crate::hostile_models::small::Small;
use std::path::Path;
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::time::Duration;
use wglm::{CacheShape, Cancel, Error, Gguf, Gpu, LoadOptions, Model, Pool, PromptOptions, SamplerParams, Session};
use wglm_engine::gpu::Work;

/// The demonstration model on a device that only one test at a time uses.
fn alone() -> MutexGuard<'static, Model> {
    static MODEL: LazyLock<Mutex<Model>> = LazyLock::new(|| Mutex::new(load_on(&fable_file("q4_0"), &open(true))));
    exclusive(&MODEL)
}

/// The work that `act` submits.
fn work<T>(model: &Model, act: impl FnOnce() -> T) -> Work {
    let before = model.gpu().work();
    act();
    let after = model.gpu().work();
    Work {
        submissions: after.submissions - before.submissions,
        passes: after.passes - before.passes,
        dispatches: after.dispatches - before.dispatches,
        pipelines: after.pipelines - before.pipelines,
        ..after
    }
}

#[test]
fn extended_a_token_is_one_pass_of_one_submission() {
    let model = alone();
    let mut session = Session::new(&model).unwrap();
    let steps = session.plan().steps.len() as u64;
    // Only filters need the histogram, and greedy sampling has none.
    let token = |dispatches| (1, 1, dispatches);
    let told = |work: Work| (work.submissions, work.passes, work.dispatches);
    assert_eq!(told(work(&model, || session.feed(&[5]).unwrap())), token(steps - 1));
    assert_eq!(told(work(&model, || session.next_token().unwrap())), token(steps - 1));
    assert_eq!(told(work(&model, || session.sampled_token().unwrap())), (0, 0, 0), "reading is no work");
    for token_of_prompt in dialogue(3) {
        assert_eq!(told(work(&model, || session.feed(&[token_of_prompt]).unwrap())), token(steps - 1));
    }
    // A chunk of a few tokens takes the steps of a token, and one more, which passes the last token's values to the
    // head.
    assert_eq!(work(&model, || session.feed(&dialogue(3)).unwrap()).dispatches, steps);
    session.set_sampling(&SamplerParams { temperature: 1.0, top_k: 40, ..SamplerParams::default() }).unwrap();
    assert_eq!(told(work(&model, || session.next_token().unwrap())), token(steps));
}

/// All shaders of a token are compiled while the model loads, on several threads, and none later.
#[test]
fn extended_pipelines_are_compiled_at_load_and_at_once() {
    let options = LoadOptions { compile_all: Some(false), ..LoadOptions::default() };
    let model = Model::load(&Gguf::open(fable_file("q4_0")).unwrap(), &open(true), &options).unwrap();
    let loaded = model.gpu().work();
    let mut session = Session::new(&model).unwrap();
    // And the one that verifies the weights.
    assert_eq!(loaded.pipelines, session.plan().variants.len() as u64 + 1);
    let threads = std::thread::available_parallelism().unwrap().get().min(2) as u64;
    assert!(loaded.pipelines_at_once >= threads, "{loaded:?}, {threads} threads");
    let later = work(&model, || {
        session.feed(&[5]).unwrap();
        session.next_token().unwrap();
    });
    assert_eq!(later.pipelines, 0);
}

/// If everything is compiled at load, prompts of any length, all ways of sampling and penalties need no other shaders.
#[test]
fn extended_a_conversation_compiles_nothing_after_the_load() {
    let options = LoadOptions { compile_all: Some(true), ..LoadOptions::default() };
    let model = Model::load(&Gguf::open(fable_file("q4_0")).unwrap(), &open(true), &options).unwrap();
    let mut session = Session::new(&model).unwrap();
    let filtered = SamplerParams { temperature: 0.7, top_k: 40, top_p: 0.9, ..SamplerParams::default() };
    let penalised = SamplerParams { repeat_penalty: 1.2, logit_bias: vec![(7, 1.0)], ..filtered.clone() };
    let later = work(&model, || {
        for length in [3, 40, 600] {
            session.rewind(0);
            session.feed(&(0..length).map(|token| 5 + token % 500).collect::<Vec<u32>>()).unwrap();
            session.next_token().unwrap();
        }
        for params in [filtered, penalised] {
            session.set_sampling(&params).unwrap();
            session.next_token().unwrap();
            session.sampled_token().unwrap();
        }
    });
    assert_eq!(later.pipelines, 0, "{later:?}");
    assert!(later.dispatches > 300, "{later:?}");
}

/// Neither the result of an earlier token nor zeros are accepted in place of a missing result, however often work is
/// dropped. Tokens whose work was dropped are no longer in the session, so that they are computed when they are needed
/// again.
#[test]
fn work_that_was_dropped_leaves_no_token() {
    let model = alone();
    let mut session = Session::new(&model).unwrap();
    session.feed(&dialogue(5)).unwrap();
    let (chosen, logits) = (session.sampled_token().unwrap(), session.logits().unwrap());
    session.rewind(3);
    let reads: [fn(&mut Session) -> wglm::Result<()>; 4] = [
        |session| session.sampled_token().map(drop),
        |session| session.most_likely().map(drop),
        |session| session.logits().map(drop),
        |session| session.next_token().map(drop),
    ];
    let feed_in_vain = |session: &mut Session, tokens: &[u32]| {
        model.gpu().drop_work(true);
        session.feed(tokens).unwrap();
        model.gpu().drop_work(false);
    };
    for read in reads {
        feed_in_vain(&mut session, &dialogue(5)[3..]);
        nothing_came(read(&mut session));
        assert_eq!(session.tokens(), &dialogue(5)[..3], "what an earlier result vouches for");
        let none = read(&mut session).unwrap_err();
        assert!(matches!(none, Error::Argument { argument: "session", .. }), "{none}");
    }
    nothing_came(Session::new(&model).and_then(|mut fresh| {
        feed_in_vain(&mut fresh, &[1]);
        fresh.sampled_token()
    }));
    let reuse = session.sync(&dialogue(5)).unwrap();
    assert_eq!((reuse.cached, reuse.new), (3, 2));
    assert_eq!(session.sampled_token().unwrap(), chosen, "afterwards");
    assert!(session.logits().unwrap() == logits, "afterwards");
}

/// A token that is sampled again at the same position is distinguished from the one before.
#[test]
fn extended_a_dropped_choice_is_not_taken_for_the_previous_one() {
    let model = alone();
    let mut session = Session::new(&model).unwrap();
    session.feed(&dialogue(5)).unwrap();
    session.sampled_token().unwrap();
    model.gpu().drop_work(true);
    session.set_sampling(&SamplerParams::greedy()).unwrap();
    model.gpu().drop_work(false);
    nothing_came(session.sampled_token());
    assert_eq!(session.tokens(), dialogue(5), "the tokens were computed");
}

/// A snapshot fails if the cache was not read, and a restore fails if it was not written.
#[test]
fn caches_that_were_dropped_are_noticed() {
    let model = alone();
    let mut session = Session::new(&model).unwrap();
    session.feed(&dialogue(5)).unwrap();
    let whole = session.snapshot().unwrap();
    session.rewind(4);
    let without_logits = session.snapshot().unwrap();
    nothing_came(dropping(model.gpu(), 1..2, || session.snapshot()));
    for snapshot in [&whole, &without_logits] {
        let all = work(&model, || session.restore(snapshot).unwrap()).submissions;
        nothing_came(dropping(model.gpu(), 1..all + 1, || session.restore(snapshot)));
        assert!(session.tokens().is_empty());
    }
    session.restore(&whole).unwrap();
    assert_eq!(session.tokens(), dialogue(5));
}

/// A dropped part of a prompt is detected, although the parts after it are computed.
#[test]
fn extended_a_part_of_a_prompt_that_was_dropped_is_noticed() {
    let model = alone();
    for (chunk, dropped) in [(16, 1), (16, 5), (1, 3)] {
        let mut session = Session::new(&model).unwrap();
        session.set_prompt_options(PromptOptions { chunk: Some(chunk), limit: Duration::ZERO });
        session.feed(&dialogue(3)).unwrap();
        session.sampled_token().unwrap();
        let mut count = 0;
        let mut drop_one = |_| {
            count += 1;
            model.gpu().drop_work(count == dropped);
        };
        session.feed_with(&dialogue(24)[3..], &Cancel::default(), &mut drop_one).unwrap();
        assert!(count > dropped + 1, "{count} parts");
        nothing_came(session.sampled_token());
        assert_eq!(session.tokens(), &dialogue(24)[..3], "chunks of {chunk}, without part {dropped}");
        session.feed(&dialogue(24)[3..]).unwrap();
        session.sampled_token().unwrap();
    }
}

/// So does a token whose result nobody read, by the next result or by a snapshot.
#[test]
fn extended_a_token_that_was_dropped_unread_is_noticed() {
    let model = alone();
    let reads: [fn(&mut Session) -> wglm::Result<()>; 2] = [
        |session| session.sampled_token().map(drop),
        |session| {
            session.rewind(4);
            session.snapshot().map(drop)
        },
    ];
    for read in reads {
        let mut session = Session::new(&model).unwrap();
        session.feed(&dialogue(3)).unwrap();
        session.sampled_token().unwrap();
        model.gpu().drop_work(true);
        session.feed(&dialogue(4)[3..]).unwrap();
        model.gpu().drop_work(false);
        session.feed(&dialogue(5)[4..]).unwrap();
        nothing_came(read(&mut session));
        assert_eq!(session.tokens(), dialogue(3));
    }
}

/// A prompt with more submissions than can be recorded is computed like any other, whether the host waits in between or
/// not.
#[test]
fn extended_a_prompt_of_many_parts_is_complete() {
    let model = Model::load(&Small::like_fable().open().unwrap(), &open(true), &LoadOptions::default()).unwrap();
    let tokens: Vec<u32> = (20..320).collect();
    for first in [257, 299] {
        let mut session = Session::new(&model).unwrap();
        session.set_prompt_options(PromptOptions { chunk: Some(1), ..PromptOptions::default() });
        session.feed(&tokens[..first]).unwrap();
        session.wait().unwrap();
        session.feed(&tokens[first..]).unwrap();
        session.sampled_token().unwrap();
        assert_eq!(session.tokens(), tokens, "{first} tokens first");
    }
    // A missing submission may be noticed before there is a result.
    let mut session = Session::new(&model).unwrap();
    session.set_prompt_options(PromptOptions { chunk: Some(1), ..PromptOptions::default() });
    let mut drop_one = |fed| {
        model.gpu().drop_work(fed == 5);
    };
    nothing_came(session.feed_with(&tokens, &Cancel::default(), &mut drop_one));
    assert!(session.tokens().is_empty());
}

/// Logits of a whole text are not confused with those of another.
#[test]
fn extended_rows_of_logits_that_were_dropped_are_noticed() {
    let model = alone();
    let mut session = Session::new(&model).unwrap();
    session.set_prompt_options(PromptOptions::default());
    let mut none = |_, _: &[f32]| Ok(());
    session.feed_all(&dialogue(8), &mut none).unwrap();
    session.rewind(0);
    nothing_came(dropping(model.gpu(), 1..2, || session.feed_all(&dialogue(8), &mut none)));
    assert!(session.tokens().is_empty());
}

#[test]
fn a_model_whose_work_is_dropped_does_not_load() {
    let gpu = open(true);
    gpu.drop_work(true);
    let file = Gguf::open(fable_file("q4_0")).unwrap();
    let loaded = Model::load(&file, &gpu, &LoadOptions::default());
    assert!(matches!(loaded, Err(Error::DeviceLost { .. })), "{loaded:?}");
}

/// More sessions than a batch has rows take several steps of the same size. Each step takes the result of the one
/// before. If that was lost, the sessions of earlier steps get their tokens anyway.
#[test]
fn extended_tokens_of_steps_before_a_failed_one_are_reported() {
    const ROWS: usize = 17; // of each of two steps: together they exceed the 32 of a batch
    let model = alone();
    let cache = CacheShape { context: 16, ..model.cache() };
    let pool = Pool::new(&model, 2 * ROWS, cache, 2 * ROWS * 256).unwrap();
    let mut sessions: Vec<Session> = (0..2 * ROWS).map(|_| pool.session().unwrap()).collect();
    sessions.iter_mut().for_each(|session| session.feed(&dialogue(1)).unwrap());
    let tokens =
        |sessions: &mut [Session]| pool.next_token_of_each(&mut sessions.iter_mut().collect::<Vec<_>>()).unwrap();
    assert!(tokens(&mut sessions).iter().all(Result::is_ok));
    drop_submissions(model.gpu(), 1..2);
    let told = tokens(&mut sessions);
    assert!(told[ROWS..].iter().all(|token| matches!(token, Err(Error::NoResult))), "{told:?}");
    let (first, second) = sessions.split_at(ROWS);
    for (session, token) in first.iter().zip(told) {
        assert_eq!((session.tokens().len(), session.tokens().last()), (3, Some(&token.unwrap())));
    }
    assert!(second.iter().all(|session| session.tokens() == dialogue(1)), "what an earlier result vouches for");
}

/// The error of a failed load: the weight that it names, and how many are corrupted.
fn not_arrived(path: &Path, gpu: &Gpu, options: &LoadOptions) -> (String, usize, usize) {
    let file = Gguf::open(path).unwrap();
    match Model::load(&file, gpu, options) {
        Err(Error::Upload { tensor, count, total }) => (tensor, count, total),
        other => panic!("{other:?}"),
    }
}

/// A dropped part of the upload is detected, although everything after it is done.
#[test]
fn extended_weights_that_were_dropped_are_named() {
    let (path, gpu) = (fable_file("q4_0"), open(true));
    let file = Gguf::open(&path).unwrap();
    for first in [1, 4, 9] {
        // Threads submit concurrently, so of several dropped submissions at least one belongs to the upload.
        drop_submissions(&gpu, first..first + 3);
        let (tensor, count, total) = not_arrived(&path, &gpu, &LoadOptions::default());
        assert!(file.tensor(&tensor).is_some(), "{tensor}");
        assert!((1..total).contains(&count), "{count} of {total}");
        assert_eq!(gpu.memory().held, 0);
    }
    gpu.before_submissions(|| ());
    load_on(&path, &gpu);
}

/// Data that was not copied is detected as well.
#[test]
fn extended_weights_in_place_are_verified() {
    let (path, gpu) = (fixture("models/f16-tied.gguf"), open(true));
    if gpu.shares_pages() {
        return println!("skipped: weights in place take no submission here");
    }
    drop_submissions(&gpu, 1..2);
    let options = LoadOptions { zero_copy: true, ..LoadOptions::default() };
    let (tensor, count, total) = not_arrived(&path, &gpu, &options);
    assert!(Gguf::open(&path).unwrap().tensor(&tensor).is_some_and(|tensor| tensor.ty.name != "q4_0"), "{tensor}");
    assert!((1..=total).contains(&count), "{count} of {total}");
    gpu.before_submissions(|| ());
    Model::load(&Gguf::open(&path).unwrap(), &gpu, &options).unwrap();
}
