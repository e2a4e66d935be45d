//! Compares hidden states with the logits that are computed from them.

use super::{alone, bits, dialogue};
use crate::common::gpu::{cancelling, open};
use crate::common::models::{fable, fable_file, relative_l2};
use wglm::{CacheShape, CacheType, Cancel, Error, Gguf, LoadOptions, Model, PromptOptions, Session};

fn session(model: &Model, prompt: PromptOptions) -> Session {
    let mut session = Session::with_cache(model, CacheShape { context: 384, ty: CacheType::F32 }).unwrap();
    session.set_prompt_options(prompt);
    session
}

/// The rows of the output matrix, which are f16 in the file.
fn output(file: &Gguf) -> Vec<f32> {
    let tensor = file.tensor("output.weight").or_else(|| file.tensor("token_embd.weight")).unwrap();
    let stored = file.read_all(tensor).unwrap();
    let values = stored.as_chunks().0.iter();
    values.map(|bytes| half::f16::from_le_bytes(*bytes).to_f32()).collect()
}

fn product(rows: &[f32], hidden: &[f32]) -> Vec<f32> {
    let dot = |row: &[f32]| row.iter().zip(hidden).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() as f32;
    rows.chunks_exact(hidden.len()).map(dot).collect()
}

/// Tests prompts of one token, a few, many and several chunks, and a token of a reply.
#[test]
fn extended_logits_are_products_of_the_hidden_state() {
    let rows = output(&Gguf::open(fable_file("f16")).unwrap());
    for (length, prompt) in [
        (1, PromptOptions::default()),
        (9, PromptOptions::default()),
        (9, alone()),
        (70, PromptOptions { chunk: Some(64), ..PromptOptions::default() }),
        (100, PromptOptions::default()),
    ] {
        let mut session = session(fable("f16"), prompt);
        session.feed(&dialogue(length)).unwrap();
        for what in ["a prompt", "a token"] {
            let error = relative_l2(&product(&rows, &session.hidden().unwrap()), &session.logits().unwrap());
            assert!(error < 2e-5, "after {what}, {length} tokens: {error:.1e}");
            session.next_token().unwrap();
        }
    }
}

/// The hidden states of all tokens equal those of the last token of each prefix, and the session continues as if it had
/// been fed normally.
#[test]
fn extended_every_token_has_one() {
    let (model, tokens) = (fable("f16"), dialogue(75));
    let mut each = session(model, alone());
    let hidden_after = |token: &u32| {
        each.feed(&[*token]).unwrap();
        each.hidden().unwrap()
    };
    let hidden: Vec<Vec<f32>> = tokens.iter().map(hidden_after).collect();
    // One token at a time, a few, and many, in several chunks and in one.
    for (chunk, length) in [(1, 9), (8, 26), (37, 75), (512, 40)] {
        let prompt = PromptOptions { chunk: Some(chunk), ..PromptOptions::default() };
        let mut all = session(model, prompt);
        let mut places = Vec::new();
        let mut visit = |place: usize, row: &[f32]| {
            let error = relative_l2(row, &hidden[place]);
            assert!(error < 2e-5, "token {place} in chunks of {chunk}: {error:.1e}");
            places.push(place);
            Ok(())
        };
        all.feed_hidden(&tokens[..length], &mut visit).unwrap();
        assert!(places.into_iter().eq(0..length), "chunks of {chunk}");
        let mut fed = session(model, prompt);
        fed.feed(&tokens[..length]).unwrap();
        assert!(bits(&mut all) == bits(&mut fed), "chunks of {chunk}");
    }
    let mut stopped = session(model, PromptOptions { chunk: Some(8), ..PromptOptions::default() });
    let stop = stopped.feed_hidden(&tokens, &mut |place, _| match place {
        20 => Err(Error::app("enough")),
        _ => Ok(()),
    });
    assert!(matches!(stop, Err(Error::App(_))) && stopped.tokens() == &tokens[..24]);
}

#[test]
fn extended_a_text_has_the_mean() {
    let model = fable("f16");
    let mut session = session(model, PromptOptions::default());
    let text = "One morning the owl said nothing.";
    let tokens = model.tokenizer().unwrap().encode(text, false).unwrap();
    let mut sums = vec![0f32; model.config().width];
    for &token in &tokens {
        session.feed(&[token]).unwrap();
        sums.iter_mut().zip(session.hidden().unwrap()).for_each(|(sum, value)| *sum += value);
    }
    sums.iter_mut().for_each(|sum| *sum /= tokens.len() as f32);
    let embedded = session.embed(text).unwrap();
    assert!(relative_l2(&embedded, &sums) < 2e-5);
    assert_eq!(session.tokens(), tokens);
    let nothing = session.embed("").unwrap_err();
    assert!(matches!(nothing, Error::Argument { argument: "text", .. }), "{nothing}");
    assert_eq!(session.tokens(), tokens, "what was refused changed nothing");
    let cosine = |a: &[f32], b: &[f32]| {
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
        dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
    };
    let [like, unlike] = ["One morning the owl said a word.", "What is seven plus five?"]
        .map(|other| cosine(&embedded, &session.embed(other).unwrap()));
    assert!(like > unlike, "{like} and {unlike}");
}

/// Before anything was fed there is no hidden state.
#[test]
fn nothing_has_none() {
    let mut session = super::session();
    assert!(matches!(session.hidden(), Err(Error::Argument { argument: "session", .. })));
}

/// A snapshot contains none, and the earlier one belongs to another token.
#[test]
fn a_snapshot_has_none() {
    let mut session = super::session();
    session.feed(&dialogue(9)).unwrap();
    let snapshot = session.snapshot().unwrap();
    let hidden = session.hidden().unwrap();
    session.feed(&dialogue(3)).unwrap();
    session.restore(&snapshot).unwrap();
    assert!(matches!(session.hidden(), Err(Error::Argument { argument: "session", .. })));
    session.rewind(8);
    session.feed(&dialogue(9)[8..]).unwrap();
    assert!(session.hidden().unwrap() == hidden);
}

/// Calls that return something for every token can be cancelled, before they begin and at any submission, and keep what
/// they have computed: a session that continues from there has the same logits.
#[test]
fn extended_calls_that_return_something_for_every_token_can_be_cancelled() {
    let gpu = open(true);
    let model = Model::load(&Gguf::open(fable_file("q4_0")).unwrap(), &gpu, &LoadOptions::default()).unwrap();
    let prompt = PromptOptions { chunk: Some(8), ..PromptOptions::default() };
    let (tokens, text) = (dialogue(32), "Once upon a time an owl lived in a tall tree by the river.".repeat(3));
    let mut plain = session(&model, prompt);
    plain.feed(&tokens).unwrap();
    let expected = plain.logits().unwrap();
    let embedded = plain.embed(&text).unwrap();
    for after in [0, 1, 3] {
        let mut stopped = session(&model, prompt);
        let mut none = |_: usize, _: &[f32]| Ok(());
        for all in [true, false] {
            stopped.rewind(0);
            let fed = cancelling(&gpu, after, |cancel| match all {
                true => stopped.feed_all_with(&tokens, cancel, &mut none),
                false => stopped.feed_hidden_with(&tokens, cancel, &mut none),
            });
            assert!(matches!(fed, Err(Error::Cancelled)), "{after}: {fed:?}");
            let held = stopped.tokens().len();
            // A chunk takes at least one submission.
            assert!(held <= 8 * after as usize && tokens.starts_with(stopped.tokens()), "{held} tokens after {after}");
            stopped.feed(&tokens[held..]).unwrap();
            assert!(relative_l2(&stopped.logits().unwrap(), &expected) < 2e-5, "after {after}");
        }
        let stop = cancelling(&gpu, after, |cancel| stopped.embed_with(&text, cancel)).unwrap_err();
        assert!(matches!(stop, Error::Cancelled), "{after}: {stop}");
        assert_eq!(stopped.embed_with(&text, &Cancel::default()).unwrap(), embedded);
    }
}
