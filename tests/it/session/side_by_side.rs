//! Tests sessions of a pool: each gets what it would get alone, whichever sessions take steps with it.

use super::{alone as prompt_alone, dialogue, model, nothing_came};
use crate::common::gpu::{dropping, open, options};
use crate::common::models::{fable_file, load_on, relative_l2};
use crate::hostile_models::small::{Small, key};
use std::sync::OnceLock;
use wglm::{
    CacheShape, CacheType, Cancel, DraftKind, Error, Event, GenerateOptions, Generation, Gpu, GpuOptions, LoadOptions,
    Model, Pool, PromptOptions, SamplerParams, Session, Speculation, Stop,
};
use wglm_engine::gpu::BufferUse;

/// The tokens of a page of the cache.
const PAGE: usize = 256;
/// The bound on the distance of logits from those of the session alone: rows of a batch are summed in another order.
const BOUND: f64 = 1e-5;

fn cache(context: usize) -> CacheShape {
    CacheShape { context, ..model().cache() }
}

/// The tokens of a dialogue from an index on, repeated.
fn tokens(first: usize, length: usize) -> Vec<u32> {
    dialogue(104).into_iter().cycle().skip(first).take(length).collect()
}

/// A snapshot of the first page of the dialogue, computed once by a session alone.
fn first_page() -> &'static [u8] {
    static SNAPSHOT: OnceLock<Vec<u8>> = OnceLock::new();
    SNAPSHOT.get_or_init(|| {
        let mut session = Session::with_cache(model(), cache(PAGE)).unwrap();
        session.feed(&tokens(0, PAGE)).unwrap();
        session.snapshot().unwrap()
    })
}

/// What a session computes alone: each token, and the logits after it.
fn alone(prompt: &[u32], count: usize) -> Vec<(u32, Vec<f32>)> {
    let mut session = Session::with_cache(model(), cache(640)).unwrap();
    session.restore(first_page()).unwrap();
    session.sync(prompt).unwrap();
    (0..count).map(|_| (session.next_token().unwrap(), session.logits().unwrap())).collect()
}

/// A session, and what it should get.
type Held<'a, 'b> = (&'a mut Session, &'a mut std::slice::Iter<'b, (u32, Vec<f32>)>);

/// Takes steps with all sessions, and compares the results with those of each alone.
fn steps(pool: &Pool, sessions: &mut [Held<'_, '_>], count: usize) {
    for step in 0..count {
        let mut together: Vec<&mut Session> = sessions.iter_mut().map(|(session, _)| &mut **session).collect();
        let tokens = pool.next_token_of_each(&mut together).unwrap();
        for (index, (token, (session, wanted))) in tokens.into_iter().zip(sessions.iter_mut()).enumerate() {
            let (want, logits) = wanted.next().unwrap();
            assert_eq!(token.unwrap(), *want, "session {index}, step {step}");
            let error = relative_l2(&session.logits().unwrap(), logits);
            assert!(error < BOUND, "session {index}, step {step}: relative L2 {error:.1e}");
        }
    }
}

/// Three sessions take steps together, then a fourth joins, and one leaves.
#[test]
fn extended_sessions_get_the_same_together_as_alone() {
    let pool = Pool::new(model(), 4, cache(640), 8 * PAGE).unwrap();
    let prompts = [tokens(14, 20), tokens(7, 3), tokens(0, 270), tokens(21, 40)];
    let wanted: Vec<_> = prompts.iter().map(|prompt| alone(prompt, 9)).collect();
    let mut wanted: Vec<_> = wanted.iter().map(|of| of.iter()).collect();
    let [to_first, to_second, to_third, to_fourth] = wanted.as_mut_slice() else { panic!("four prompts") };
    let started = |prompt: &[u32]| {
        let mut session = pool.session().unwrap();
        session.feed(prompt).unwrap();
        session
    };
    let [mut first, mut second] = [0, 1].map(|index| started(&prompts[index]));
    let mut third = pool.session().unwrap();
    third.restore(first_page()).unwrap();
    third.feed(&prompts[2][PAGE..]).unwrap();
    steps(&pool, &mut [(&mut first, &mut *to_first), (&mut second, &mut *to_second), (&mut third, &mut *to_third)], 3);
    let (logits, hidden) = (first.logits().unwrap(), first.hidden().unwrap());
    let mut fourth = pool.session().unwrap();
    fourth.set_prompt_options(PromptOptions::default());
    fourth.feed(&prompts[3]).unwrap(); // many rows at a time, between the others' tokens
    for (now, before) in [(first.hidden().unwrap(), hidden), (first.logits().unwrap(), logits)] {
        let error = relative_l2(&now, &before);
        assert!(error < BOUND, "after another session's prompt: relative L2 {error:.1e}");
    }
    let mut all = [
        (&mut fourth, &mut *to_fourth),
        (&mut first, &mut *to_first),
        (&mut third, &mut *to_third),
        (&mut second, &mut *to_second),
    ];
    steps(&pool, &mut all, 3);
    drop(first);
    assert_eq!(to_first.len(), 3);
    steps(
        &pool,
        &mut [(&mut second, &mut *to_second), (&mut fourth, &mut *to_fourth), (&mut third, &mut *to_third)],
        3,
    );
    assert!([to_second, to_third].iter().all(|of| of.len() == 0) && to_fourth.len() == 3);
}

/// Each has its own sampling parameters, and the same seed gives the same text as alone.
#[test]
fn extended_each_samples_in_its_own_way() {
    let plain = SamplerParams { temperature: 1.0, seed: Some(5), ..SamplerParams::default() };
    let ways = [
        SamplerParams::greedy(),
        SamplerParams { top_k: 5, top_p: 0.9, ..plain.clone() },
        SamplerParams { repeat_penalty: 1.5, presence_penalty: 0.4, logit_bias: vec![(7, 2.0)], ..plain.clone() },
        plain,
    ];
    let prompt = tokens(0, 8);
    let started = |mut session: Session, way: &SamplerParams| {
        session.set_sampling(way).unwrap();
        session.feed(&prompt).unwrap();
        session
    };
    let pool = Pool::new(model(), 4, cache(128), 8 * PAGE).unwrap();
    let mut together: Vec<Session> = ways.iter().map(|way| started(pool.session().unwrap(), way)).collect();
    let mut texts = vec![Vec::new(); ways.len()];
    for _ in 0..16 {
        let tokens = pool.next_token_of_each(&mut together.iter_mut().collect::<Vec<_>>()).unwrap();
        texts.iter_mut().zip(tokens).for_each(|(text, token)| text.push(token.unwrap()));
    }
    for (way, text) in ways.iter().zip(texts) {
        let mut session = started(Session::with_cache(model(), cache(128)).unwrap(), way);
        let wanted: Vec<u32> = (0..16).map(|_| session.next_token().unwrap()).collect();
        assert_eq!(text, wanted, "{way:?}");
    }
}

/// Full pages of a prefix that another session has computed exist once, and no session that shares them changes them.
#[test]
fn extended_a_prefix_is_stored_once() {
    is_held_once(cache(4 * PAGE), 2, BOUND);
}

/// The same with one page and a cache in blocks, where the smallest difference may round a value to the next byte.
#[test]
fn extended_a_prefix_in_blocks_is_stored_once() {
    is_held_once(CacheShape { context: 4 * PAGE, ty: CacheType::Q8_0 }, 1, 1e-2);
}

fn is_held_once(cache: CacheShape, full: usize, bound: f64) {
    let pool = Pool::new(model(), 3, cache, 6 * PAGE).unwrap();
    let long = tokens(0, full * PAGE + 8);
    let mut first = pool.session().unwrap();
    first.feed(&long).unwrap();
    let wanted = first.logits().unwrap();
    assert_eq!(pool.free(), (5 - full) * PAGE);
    let mut second = pool.session().unwrap();
    let sync = |session: &mut Session, tokens: &[u32]| session.sync(tokens).unwrap();
    let reuse = sync(&mut second, &long);
    assert_eq!((reuse.cached, reuse.new, pool.free()), (full * PAGE, 8, (4 - full) * PAGE));
    let error = relative_l2(&second.logits().unwrap(), &wanted);
    assert!(error < bound, "{error:.1e}");

    // The second session continues differently from within the last shared page: it gets its own copy.
    let kept = (full - 1) * PAGE + 100;
    let other = [&long[..kept], &long[..6]].concat();
    let reuse = sync(&mut second, &other);
    assert_eq!((reuse.cached, pool.free()), (kept, (4 - full) * PAGE));
    let mut fresh = Session::with_cache(model(), cache).unwrap();
    if cache.ty == model().cache().ty {
        fresh.restore(first_page()).unwrap();
    }
    sync(&mut fresh, &other);
    let error = relative_l2(&second.logits().unwrap(), &fresh.logits().unwrap());
    assert!(error < bound, "{error:.1e}");
    first.rewind(long.len() - 1);
    first.feed(&long[long.len() - 1..]).unwrap();
    let error = relative_l2(&first.logits().unwrap(), &wanted);
    assert!(error < bound, "{error:.1e}");

    // Pages are found as long as a session holds them.
    let found = || {
        let (mut third, cancel) = (pool.session().unwrap(), Cancel::default());
        cancel.cancel();
        assert!(matches!(third.sync_with(&long, &cancel, &mut |_| ()), Err(Error::Cancelled)));
        third.tokens().len()
    };
    let held = found();
    assert!(held >= PAGE, "{held} tokens were found");
    drop((first, second));
    assert_eq!(pool.free(), 6 * PAGE);
    let left = found();
    assert!(left < PAGE, "{left} tokens were found");
}

/// A prompt reserves pages for all of its tokens. If it is cancelled, they are free again after a rewind.
#[test]
fn extended_a_rewind_frees_reserved_pages() {
    let pool = Pool::new(model(), 2, cache(3 * PAGE), 3 * PAGE).unwrap();
    let (mut session, cancel) = (pool.session().unwrap(), Cancel::default());
    let long = tokens(0, 2 * PAGE + 20);
    let stopped = session.feed_with(&long, &cancel, &mut |_| cancel.cancel());
    assert!(matches!(stopped, Err(Error::Cancelled)), "{stopped:?}");
    let held = session.tokens().len();
    assert!(held < long.len() && pool.free() == 0, "{held} tokens, {} free", pool.free());
    session.rewind(held);
    assert_eq!(pool.free(), (3 - held.div_ceil(PAGE)) * PAGE);
    session.feed(&long[held..]).unwrap();
    assert_eq!(session.tokens(), long);
}

/// A session that got no page for its tokens continues with fewer tokens, and pages that others read stay unchanged.
#[test]
fn extended_a_refusal_leaves_shared_pages() {
    let pool = Pool::new(model(), 2, cache(3 * PAGE), 3 * PAGE).unwrap();
    let (mut first, mut second) = (pool.session().unwrap(), pool.session().unwrap());
    let long = tokens(0, PAGE + 20);
    first.restore(first_page()).unwrap();
    first.sampled_token().unwrap(); // pages can be found once a result has confirmed them
    let reuse = second.sync(&long).unwrap();
    assert_eq!((reuse.cached, pool.free()), (PAGE, PAGE));
    first.rewind(100);
    // A copy of the shared page, and one more page.
    assert!(matches!(first.feed(&tokens(30, 200)), Err(Error::PoolFull { needed: 2, free: 1 })));
    first.feed(&tokens(30, 20)).unwrap();
    for (session, held) in [(&mut second, long), (&mut first, [tokens(0, 100), tokens(30, 20)].concat())] {
        for (token, logits) in alone(&held, 3) {
            assert_eq!(session.next_token().unwrap(), token);
            let error = relative_l2(&session.logits().unwrap(), &logits);
            assert!(error < BOUND, "{error:.1e}");
        }
    }
}

/// If there is no memory to copy a shared page, the session and the pool are as before.
#[test]
fn extended_a_page_that_cannot_be_copied_changes_nothing() {
    let limit = 64 << 20;
    let gpu = Gpu::open(&GpuOptions { memory_limit: Some(limit), ..options() }).unwrap();
    let load = LoadOptions { context: Some(2 * PAGE), prompt: prompt_alone(), ..LoadOptions::default() };
    let mut small = Small::default();
    small.set(&key("context_length"), 2 * PAGE as u32);
    let model = Model::load(&small.open().unwrap(), &gpu, &load).unwrap();
    let pool = Pool::new(&model, 2, model.cache(), 4 * PAGE).unwrap();
    let (mut first, mut second) = (pool.session().unwrap(), pool.session().unwrap());
    let text: Vec<u32> = (0..PAGE as u32 + 8).map(|index| index * index % 40).collect();
    first.feed(&text).unwrap();
    first.sampled_token().unwrap(); // pages can be found once a result has confirmed them
    assert_eq!(second.sync(&text).unwrap().cached, PAGE);
    first.rewind(100);
    let free = pool.free();
    let all = gpu.buffer("all that is left", (limit - gpu.memory().held) / 4 * 4, BufferUse::Storage).unwrap();
    let refused = first.feed(&text[100..101]);
    assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{refused:?}");
    assert_eq!((first.tokens(), second.tokens(), pool.free()), (&text[..100], &text[..], free));
    drop(all);
    first.feed(&text[100..]).unwrap();
    assert_eq!((first.tokens(), pool.free()), (&text[..], free - 2 * PAGE));
    let error = relative_l2(&first.logits().unwrap(), &second.logits().unwrap());
    assert!(error < BOUND, "{error:.1e}");
}

/// If the copy of a page is lost, the tokens on that page are too.
#[test]
fn extended_a_lost_copy_of_a_page_is_noticed() {
    let model = load_on(&fable_file("q4_0"), &open(true));
    let pool = Pool::new(&model, 2, CacheShape { context: 2 * PAGE, ..model.cache() }, 4 * PAGE).unwrap();
    let (mut first, mut second) = (pool.session().unwrap(), pool.session().unwrap());
    let text = tokens(0, PAGE + 8);
    first.feed(&text).unwrap();
    first.sampled_token().unwrap();
    assert_eq!(second.sync(&text).unwrap().cached, PAGE);
    second.sampled_token().unwrap();
    first.rewind(100);
    nothing_came(dropping(model.gpu(), 1..2, || {
        first.feed(&text[100..101])?;
        first.sampled_token()
    }));
    assert_eq!((first.tokens().len(), second.tokens()), (0, text.as_slice()));
    first.feed(&text).unwrap();
    let error = relative_l2(&first.logits().unwrap(), &second.logits().unwrap());
    assert!(error < BOUND, "{error:.1e}");
}

/// A token whose logits another session has overwritten is computed again. If that fails, the session keeps the token.
#[test]
fn a_token_that_cannot_be_computed_again_stays() {
    let pool = Pool::new(model(), 2, cache(PAGE), 2 * PAGE).unwrap();
    let (mut first, mut second) = (pool.session().unwrap(), pool.session().unwrap());
    first.feed(&tokens(0, 5)).unwrap();
    let wanted = first.logits().unwrap();
    second.feed(&tokens(7, 3)).unwrap();
    second.logits().unwrap();
    let pause = model().gpu().pause();
    assert!(matches!(first.logits(), Err(Error::Unsupported { .. })));
    drop(pause);
    assert_eq!(first.tokens(), tokens(0, 5));
    assert!(relative_l2(&first.logits().unwrap(), &wanted) < BOUND);
    assert_eq!(first.tokens(), tokens(0, 5));
}

/// Drafts of a session that fills its context are not written to the pages of another one. The last step of each text
/// verifies three drafts, and in some of them all are right.
#[test]
fn extended_drafts_stay_within_their_sequence() {
    let drafts = |session: &mut Session| session.draft_logits(99, 2).unwrap();
    let speculation = Speculation { kind: DraftKind::Mtp, most: Some(3) };
    let options = GenerateOptions { sampling: SamplerParams::greedy(), speculation, ..GenerateOptions::default() };
    let mut right = 0;
    for start in (0..80).step_by(10) {
        let pool = Pool::new(model(), 2, cache(PAGE), 2 * PAGE).unwrap();
        let (mut other, mut filled) = (pool.session().unwrap(), pool.session().unwrap());
        other.set_speculation(&speculation).unwrap();
        other.feed(&tokens(7, 20)).unwrap();
        let before = drafts(&mut other);
        let prompt = tokens(start, PAGE - 4);
        let replied: Vec<_> = Generation::new(&mut filled, prompt, None, options.clone()).unwrap().collect();
        let fills = matches!(replied.last(), Some(Ok(Event::Done(stats))) if stats.stop == Stop::Context);
        right += usize::from(fills && filled.draft_stats().accepted == 3);
        assert!(drafts(&mut other) == before, "the text from {start} on");
    }
    assert!(right > 0);
}

/// A snapshot that does not fit beside the other sessions leaves the session as it was. What the session itself would
/// give back counts as free.
#[test]
fn extended_a_snapshot_that_does_not_fit_changes_nothing() {
    let mut longer = Session::with_cache(model(), cache(2 * PAGE)).unwrap();
    longer.restore(first_page()).unwrap();
    longer.feed(&tokens(0, 8)).unwrap();
    let two_pages = longer.snapshot().unwrap();

    let pool = Pool::new(model(), 2, cache(2 * PAGE), 3 * PAGE).unwrap();
    let (mut first, mut second) = (pool.session().unwrap(), pool.session().unwrap());
    second.restore(&two_pages).unwrap();
    first.feed(&tokens(7, 3)).unwrap();
    let logits = first.logits().unwrap();
    let full = first.restore(&two_pages);
    assert!(matches!(full, Err(Error::PoolFull { needed: 1, free: 0 })), "{full:?}");
    assert_eq!((first.logits().unwrap(), first.tokens()), (logits, &tokens(7, 3)[..]));
    second.rewind(100);
    first.restore(&two_pages).unwrap();
    assert_eq!((first.tokens(), pool.free()), (longer.tokens(), 0));
}

/// Steps that verify several tokens or none of one session, between steps of others.
#[test]
fn extended_drafts_beside_other_sessions() {
    let pool = Pool::new(model(), 2, cache(640), 8 * PAGE).unwrap();
    let prompts = [tokens(0, 12), tokens(7, 9)];
    let wanted =
        prompts.each_ref().map(|prompt| -> Vec<u32> { alone(prompt, 10).into_iter().map(|(t, _)| t).collect() });
    let mut sessions = [pool.session().unwrap(), pool.session().unwrap()];
    for (session, prompt) in sessions.iter_mut().zip(&prompts) {
        session.feed(prompt).unwrap();
    }
    let [first, second] = &mut sessions;
    let [to_first, to_second] = &wanted;
    assert_eq!(first.verify(&to_first[1..3]).unwrap(), to_first[..3]);
    assert_eq!(second.verify(&[]).unwrap(), to_second[..1]);
    assert_eq!(first.verify(&[]).unwrap(), to_first[3..4]);
    assert_eq!(second.verify(&[to_second[2], u32::from(to_second[3] == 0)]).unwrap(), to_second[1..3]);
    let together = pool.next_token_of_each(&mut [first, second]).unwrap();
    assert_eq!(together.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [to_first[4], to_second[3]]);
    assert_eq!(second.next_token().unwrap(), to_second[4]);
    assert_eq!(first.verify(&to_first[6..9]).unwrap(), to_first[5..9]);
    assert_eq!(second.verify(&to_second[6..8]).unwrap(), to_second[5..8]);
    assert_eq!((first.sampled_token().unwrap(), second.sampled_token().unwrap()), (to_first[9], to_second[8]));
}

/// Drafts of several sessions stop where one of them reaches the end of its context.
#[test]
fn extended_drafts_together_fit_the_context() {
    let pool = Pool::new(model(), 2, cache(PAGE), 2 * PAGE).unwrap();
    let prompts = [tokens(0, PAGE - 9), tokens(7, 12)];
    let wanted = [(&prompts[0], 10), (&prompts[1], 37)]
        .map(|(prompt, count)| -> Vec<u32> { alone(prompt, count).into_iter().map(|(t, _)| t).collect() });
    let mut sessions = [pool.session().unwrap(), pool.session().unwrap()];
    sessions[0].restore(first_page()).unwrap();
    // Rows of other tokens, so that the cache has none of the text that drafts are to write.
    sessions[0].rewind(PAGE - 10);
    sessions[0].feed(&[7; 10]).unwrap();
    for (session, prompt) in sessions.iter_mut().zip(&prompts) {
        session.sync(prompt).unwrap();
        session.set_speculation(&Speculation { kind: DraftKind::Mtp, most: Some(3) }).unwrap();
    }
    let mut made = [Vec::new(), Vec::new()];
    while sessions[0].tokens().len() < PAGE {
        let left = [0, 1].map(|index| PAGE - sessions[index].tokens().len());
        let fed = pool.next_tokens_of_each(&mut sessions.iter_mut().collect::<Vec<_>>(), &left).unwrap();
        made.iter_mut().zip(fed).for_each(|(made, fed)| made.extend(fed.unwrap()));
    }
    for ((session, made), wanted) in sessions.iter().zip(&made).zip(&wanted) {
        assert_eq!(made[..], wanted[..made.len()]);
        assert!(session.draft_stats().drafted > 0);
    }
    // What lies beside the lists of pages is whole.
    assert_eq!(sessions[1].next_token().unwrap(), wanted[1][made[1].len()]);
    assert_eq!(sessions[0].tokens()[PAGE - 9..], wanted[0][..9]);
}

#[test]
fn extended_sessions_that_do_not_fit_are_refused() {
    let pool = Pool::new(model(), 2, cache(2 * PAGE), 2 * PAGE).unwrap();
    let (mut first, mut second) = (pool.session().unwrap(), pool.session().unwrap());
    assert!(matches!(pool.session(), Err(Error::Argument { argument: "sessions", .. })));
    first.restore(first_page()).unwrap();
    assert!(matches!(second.feed(&tokens(5, PAGE + 5)), Err(Error::PoolFull { needed: 2, free: 1 })));
    second.restore(first_page()).unwrap();
    let full = pool.next_token_of_each(&mut [&mut first, &mut second]);
    assert!(matches!(full, Err(Error::PoolFull { needed: 1, free: 0 })), "{full:?}");
    second.rewind(0);
    let nothing = pool.next_token_of_each(&mut [&mut first, &mut second]);
    assert!(matches!(nothing, Err(Error::Argument { argument: "session", .. })), "{nothing:?}");
    assert_eq!(pool.next_token_of_each(&mut [&mut first]).unwrap().len(), 1);

    let mut stranger = Session::with_cache(model(), cache(PAGE)).unwrap();
    stranger.feed(&[1]).unwrap();
    let other = pool.next_token_of_each(&mut [&mut stranger]);
    assert!(matches!(other, Err(Error::Argument { argument: "sessions", .. })), "{other:?}");
    for (sessions, tokens) in [(0, 1), (1, 0)] {
        assert!(matches!(Pool::new(model(), sessions, cache(16), tokens), Err(Error::Argument { .. })));
    }
}
