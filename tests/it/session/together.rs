//! Tests texts of several sessions that are computed in one batch: each gets what it would get alone, to the bit.

use super::{CONTEXT, dialogue, load};
use crate::common::gpu::{gpu, gpu_with_matrices, open};
use crate::common::models::fable_file;
use crate::hostile_models::small::{F32, Numbers, Q4_0, Small, key};
use std::sync::OnceLock;
use wglm::{
    Arithmetic, CacheShape, CacheType, DraftKind, Error, Gguf, Gpu, LoadOptions, Model, Pool, Session, Speculation,
};

/// The demonstration model, with prompts in large chunks.
fn model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    let options = LoadOptions { context: Some(CONTEXT), ..LoadOptions::default() };
    MODEL.get_or_init(|| load(&options).unwrap())
}

/// Tokens of a vocabulary of this size.
fn noise(seed: usize, length: usize, vocab: usize) -> Vec<u32> {
    (0..length).map(|index| ((index * index + 7 * index * seed + 13 * seed) % vocab) as u32).collect()
}

/// A session after some tokens.
fn after(mut session: Session, tokens: &[u32], speculation: Speculation) -> Session {
    session.set_speculation(&speculation).unwrap();
    session.feed(tokens).unwrap();
    session
}

/// The tokens that follow in a session.
fn following(session: &mut Session) -> Vec<u32> {
    let mut tokens = Vec::new();
    while tokens.len() < 6 {
        tokens.extend(session.next_tokens(6 - tokens.len()).unwrap());
    }
    tokens
}

/// Feeds texts to sessions, together and each alone, and compares the logits after each text and the tokens that
/// follow. `texts` has for each session the number of tokens that it holds before, and the length of its text. Only the
/// logits of the last session stay on the device, so each session is the last one once.
fn is_the_same(model: &Model, cache: CacheShape, texts: &[(usize, usize)], speculation: Speculation) {
    let vocab = model.config().vocab;
    let shape = |(seed, (held, length)): (usize, &(usize, usize))| {
        (noise(seed + 1, *held, vocab), noise(seed + 20, *length, vocab))
    };
    let texts: Vec<(Vec<u32>, Vec<u32>)> = texts.iter().enumerate().map(shape).collect();
    let alone = |(before, text): &(Vec<u32>, Vec<u32>)| {
        let mut session = after(Session::with_cache(model, cache).unwrap(), before, speculation);
        session.feed(text).unwrap();
        let logits = session.logits().unwrap();
        (logits, following(&mut session))
    };
    let wanted: Vec<(Vec<f32>, Vec<u32>)> = texts.iter().map(alone).collect();
    for first in 0..texts.len() {
        let pool = Pool::new(model, texts.len(), cache, texts.len() * cache.context.next_multiple_of(256)).unwrap();
        let order: Vec<usize> = (first..texts.len()).chain(0..first).collect();
        let begin = |index: &usize| after(pool.session().unwrap(), &texts[*index].0, speculation);
        let mut sessions: Vec<Session> = order.iter().map(begin).collect();
        let ends: Vec<&[u32]> = order.iter().map(|index| texts[*index].1.as_slice()).collect();
        pool.feed_each(&mut sessions.iter_mut().collect::<Vec<_>>(), &ends).unwrap();
        let last = order[order.len() - 1];
        assert_eq!(sessions[order.len() - 1].logits().unwrap(), wanted[last].0, "the logits of session {last}");
        for (session, index) in sessions.iter_mut().zip(&order) {
            assert_eq!(session.tokens(), [texts[*index].0.as_slice(), &texts[*index].1].concat());
            assert_eq!(following(session), wanted[*index].1, "the text of session {index}");
        }
    }
}

/// Texts of different lengths, after nothing and after another.
#[test]
fn texts_of_several_sessions() {
    let cache = CacheShape { context: CONTEXT, ty: CacheType::F32 };
    is_the_same(model(), cache, &[(0, 40), (0, 33), (5, 70)], Speculation::OFF);
}

/// The block computes its rows of all texts in one batch, and its drafts are verified afterwards.
#[test]
fn extended_texts_of_several_sessions_with_a_block() {
    let cache = CacheShape { context: CONTEXT, ty: CacheType::F16 };
    let predicted = Speculation { kind: DraftKind::Mtp, most: Some(3) };
    is_the_same(model(), cache, &[(0, 40), (270, 100), (0, 130), (3, 34)], predicted);
}

/// Models of several shapes and types of cache: with tiles of f32, and of matrices where the GPU has them.
#[test]
fn extended_texts_of_several_shapes() {
    let of = |heads, latent_rank, rotary, ty| Numbers {
        heads,
        latent_rank,
        rotary,
        nope: 64,
        value_width: 64,
        width: 64,
        ty,
        ..Numbers::default()
    };
    let plain = [of(4, 128, 64, Q4_0), of(5, 96, 8, F32)];
    let of_matrices = [of(20, 512, 64, Q4_0), of(5, 256, 64, F32), of(16, 128, 64, Q4_0)];
    let on = |gpu, arithmetic, shapes| Some((gpu, arithmetic, shapes));
    let gpus: [Option<(&Gpu, Arithmetic, &[Numbers])>; 2] = [
        on(gpu(), Arithmetic::Float, &plain[..]),
        gpu_with_matrices().and_then(|gpu| on(gpu, Arithmetic::Int, &of_matrices[..])),
    ];
    for (gpu, arithmetic, shapes) in gpus.into_iter().flatten() {
        for numbers in shapes {
            let mut small = Small::of(numbers);
            small.set(&key("context_length"), 1024u32);
            let options = LoadOptions { arithmetic: Some(arithmetic), ..LoadOptions::default() };
            let model = Model::load(&small.open().unwrap(), gpu, &options).unwrap();
            for ty in [CacheType::F16, CacheType::Q8_0] {
                println!("{numbers:?}, {ty:?}");
                let cache = CacheShape { context: 640, ty };
                is_the_same(&model, cache, &[(0, 40), (260, 70), (7, 33)], Speculation::OFF);
            }
        }
    }
}

/// Several texts together take fewer dispatches than one after another: the steps of the layers once.
#[test]
fn a_batch_takes_the_steps_of_one_text() {
    let gpu = open(true);
    let model = Model::load(&Gguf::open(fable_file("q4_0")).unwrap(), &gpu, &LoadOptions::default()).unwrap();
    let cache = CacheShape { context: CONTEXT, ty: CacheType::F32 };
    // So few rows that the batch is not abandoned, however slow the GPU is.
    let texts: Vec<Vec<u32>> = (0..2).map(|first| dialogue(60)[first * 5..][..40].to_vec()).collect();
    let dispatches = |texts: &[Vec<u32>], together: bool| {
        let pool = Pool::new(&model, texts.len(), cache, 2 * 512).unwrap();
        let mut sessions: Vec<Session> = texts.iter().map(|_| pool.session().unwrap()).collect();
        let before = gpu.work().dispatches;
        if together {
            let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
            pool.feed_each(&mut sessions.iter_mut().collect::<Vec<_>>(), &texts).unwrap();
        } else {
            sessions.iter_mut().zip(texts).for_each(|(session, text)| session.feed(text).unwrap());
        }
        gpu.work().dispatches - before
    };
    let (one, apart, together) = (dispatches(&texts[..1], false), dispatches(&texts, false), dispatches(&texts, true));
    println!("one: {one} dispatches, two after one another: {apart}, two together: {together}");
    assert!(apart == 2 * one && 2 * together < 3 * one);
}

#[test]
fn a_text_is_missing() {
    let pool = Pool::new(model(), 2, model().cache(), 512).unwrap();
    let mut sessions = [pool.session().unwrap(), pool.session().unwrap()];
    let [first, second] = &mut sessions;
    let refused = pool.feed_each(&mut [first, second], &[&[1, 2]]);
    assert!(matches!(refused, Err(Error::Argument { argument: "tokens", .. })), "{refused:?}");
    pool.feed_each(&mut [first, second], &[&[1, 2], &[]]).unwrap();
    assert_eq!((first.tokens(), second.tokens()), (&[1, 2][..], &[][..]));
}
