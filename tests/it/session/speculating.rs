//! Tests speculation: drafts are verified, and no text depends on them.

use super::{dialogue, model};
use crate::common::goldens::goldens;
use crate::common::models::{fable, relative_l2};
use wglm::{
    DraftKind, DraftStats, Error, Event, GenerateOptions, Generation, Model, SamplerParams, Session, Speculation, Stop,
};

/// The bound on the distance of logits from those of a single row: rows of a batch are summed in another order.
const BOUND: f64 = 1e-5;

const PREDICTED: Speculation = Speculation { kind: DraftKind::Mtp, most: Some(3) };
const LOOKUP: Speculation = Speculation { kind: DraftKind::Lookup, most: Some(7) };

fn fed(model: &Model, prompt: &[u32]) -> Session {
    let mut session = Session::new(model).unwrap();
    session.feed(prompt).unwrap();
    session
}

fn one_by_one(session: &mut Session, count: usize) -> Vec<u32> {
    (0..count).map(|_| session.next_token().unwrap()).collect()
}

/// Drafts that are right up to an index, and wrong from there on.
#[test]
fn extended_correct_drafts_are_accepted() {
    let prompt = dialogue(13);
    let [mut alone, mut session] = [(); 2].map(|()| fed(model(), &prompt));
    let (wanted, outputs): (Vec<u32>, Vec<_>) =
        (0..16).map(|_| (alone.next_token().unwrap(), (alone.logits().unwrap(), alone.hidden().unwrap()))).unzip();
    // The most is first, because only the first round writes where the cache has no rows of the same text yet.
    for right in [7, 5, 2, 1, 0] {
        session.sync(&prompt).unwrap();
        let before = session.draft_stats();
        let mut drafts = wanted[1..8].to_vec();
        drafts.iter_mut().skip(right).for_each(|draft| *draft = (*draft + 1) % 2048);
        assert_eq!(session.verify(&drafts).unwrap(), wanted[..1 + right], "{right} of {} drafts", drafts.len());
        assert_eq!(session.tokens(), [prompt.as_slice(), &wanted[..1 + right]].concat());
        let (logits, hidden) = &outputs[right];
        let [error, hidden] =
            [relative_l2(&session.logits().unwrap(), logits), relative_l2(&session.hidden().unwrap(), hidden)];
        assert!(error < BOUND && hidden < BOUND, "{right} right drafts: {error:.1e}, {hidden:.1e}");
        assert_eq!(session.sampled_token().unwrap(), wanted[1 + right]);
        // A single token, drafts again, and a single token.
        assert_eq!(session.next_token().unwrap(), wanted[1 + right]);
        let again = session.verify(&wanted[right + 3..right + 6]).unwrap();
        assert_eq!(again, wanted[right + 2..right + 6]);
        assert_eq!(one_by_one(&mut session, 3), wanted[right + 6..right + 9]);
        let stats = session.draft_stats();
        let counts = (stats.drafted - before.drafted, stats.accepted - before.accepted, stats.steps - before.steps);
        assert_eq!(counts, (10, right + 3, 2));
    }
}

/// Tokens that are sampled with a seed, penalties, a bias and all filters are the same after accepted drafts.
#[test]
fn extended_drafts_do_not_change_what_is_sampled() {
    let prompt = dialogue(13);
    let drawn = SamplerParams { temperature: 1.2, top_k: 40, top_p: 0.9, min_p: 0.01, ..SamplerParams::default() };
    let penalised = SamplerParams { repeat_penalty: 1.3, repeat_last_n: 9, frequency_penalty: 0.2, ..drawn.clone() };
    let biased = SamplerParams { logit_bias: vec![(13, -2.0), (256, 1.0)], ..SamplerParams::greedy() };
    let [mut alone, mut session] = [(); 2].map(|()| fed(model(), &prompt));
    for (name, seed, params) in
        [("drawn", 0, drawn.clone()), ("penalised", 0, penalised), ("drawn", 1, drawn), ("biased", 0, biased)]
    {
        let params = SamplerParams { seed: Some(seed), ..params };
        for session in [&mut alone, &mut session] {
            session.sync(&prompt).unwrap();
            session.set_sampling(&params).unwrap();
        }
        let wanted = one_by_one(&mut alone, 26);
        let mut made = Vec::new();
        while made.len() < 20 {
            // Drafts that are right up to a varying index.
            let right = made.len() % 5;
            let mut drafts = wanted[made.len() + 1..made.len() + 6].to_vec();
            drafts.iter_mut().skip(right).for_each(|draft| *draft = (*draft + 7) % 2048);
            made.extend(session.verify(&drafts).unwrap());
        }
        assert_eq!(made, wanted[..made.len()], "{name}, seed {seed}");
    }
}

/// A bias also applies after the last of several drafts, though the host does not know the token before them.
#[test]
fn extended_a_bias_holds_after_the_last_draft() {
    let prompt = dialogue(13);
    let plain = one_by_one(&mut fed(model(), &prompt), 4);
    let banned = SamplerParams { logit_bias: vec![(plain[3], f32::NEG_INFINITY)], ..SamplerParams::greedy() };
    let biased = || {
        let mut session = fed(model(), &prompt);
        session.set_sampling(&banned).unwrap();
        session
    };
    let wanted = one_by_one(&mut biased(), 4);
    assert!(wanted[..3] == plain[..3] && wanted[3] != plain[3], "{wanted:?}, without a bias {plain:?}");
    let mut session = biased();
    assert_eq!(session.verify(&wanted[1..3]).unwrap(), wanted[..3]);
    assert_eq!(session.sampled_token().unwrap(), wanted[3]);
}

/// The reply to a prompt of tokens, and its statistics. The session keeps those tokens of the prompt that it has.
fn reply(session: &mut Session, prompt: &[u32], options: &GenerateOptions) -> (String, Vec<u32>, wglm::Stats) {
    let (mut text, mut stats) = (String::new(), None);
    for event in Generation::new(session, prompt.to_vec(), None, options.clone()).unwrap() {
        match event.unwrap() {
            Event::Text(piece) => text += &piece,
            Event::Done(done) => stats = Some(done),
            _ => {}
        }
    }
    (text, session.tokens().to_vec(), stats.unwrap())
}

/// Every golden prompt has the same continuation with guesses of each kind as without. Each kind meets every prompt and
/// every way of sampling.
#[test]
fn extended_guesses_change_no_text() {
    let drawn = SamplerParams { seed: Some(3), ..SamplerParams::default() };
    let penalised = SamplerParams { repeat_penalty: 1.3, presence_penalty: 0.2, ..drawn.clone() };
    let ways = [SamplerParams::greedy(), drawn, penalised];
    let [one, many] = [1, 8].map(|most| Speculation { most: Some(most), ..PREDICTED });
    let kinds = [LOOKUP, one, PREDICTED, many, Speculation::default()];
    for (place, (precision, golden)) in ["f16", "q4_0", "q4_0"].into_iter().zip(goldens()).enumerate() {
        let prompt = &golden.tokens[..golden.prompt];
        let [mut alone, mut guessing] = [(); 2].map(|()| Session::new(fable(precision)).unwrap());
        let plain = ways.each_ref().map(|sampling| {
            let options = GenerateOptions {
                sampling: sampling.clone(),
                max_tokens: Some(36),
                speculation: Speculation::OFF,
                ..GenerateOptions::default()
            };
            let told = reply(&mut alone, prompt, &options);
            assert_eq!(told.2.drafts, DraftStats::default());
            (options, told)
        });
        for (kind, speculation) in kinds.into_iter().enumerate() {
            // Another way of sampling than before, so that the cache has no rows of the same text.
            let (options, (text, tokens, stats)) = &plain[(place + 2 * kind) % 3];
            let (same, fed, guessed) =
                reply(&mut guessing, prompt, &GenerateOptions { speculation, ..options.clone() });
            assert_eq!((&same, &fed), (text, tokens), "{precision} {} {speculation:?}", golden.name);
            assert_eq!((guessed.generated, guessed.stop), (stats.generated, stats.stop));
            println!("{precision} {} {speculation:?}: {:?}", golden.name, guessed.drafts);
        }
    }
}

/// A text that repeats itself is continued in fewer steps than it has tokens.
#[test]
fn extended_look_up_finds_repeated_text() {
    let story = dialogue(104);
    let prompt = [story.as_slice(), &story[..13]].concat();
    let options = GenerateOptions {
        sampling: SamplerParams::greedy(),
        max_tokens: Some(60),
        speculation: LOOKUP,
        ..GenerateOptions::default()
    };
    let (_, _, stats) = reply(&mut Session::new(model()).unwrap(), &prompt, &options);
    let DraftStats { drafted, accepted, steps, .. } = stats.drafts;
    println!("{accepted} of {drafted} drafts accepted in {steps} steps, {} tokens", stats.generated);
    assert!(3 * accepted > stats.generated, "{accepted} of {drafted} drafts in {steps} steps");
}

/// However a reply ends, the session holds what it would hold without guesses.
#[test]
fn extended_a_reply_ends_where_it_would_end() {
    let story = dialogue(43);
    let prompt = [story.as_slice(), &story[..13]].concat();
    let base = GenerateOptions { sampling: SamplerParams::greedy(), ..GenerateOptions::default() };
    let limited = |most| GenerateOptions { max_tokens: Some(most), ..base.clone() };
    let stopped = |text: &str| GenerateOptions { stop: vec![text.to_owned()], max_tokens: Some(40), ..base.clone() };
    let [mut plain, mut matched, mut predicted] = [(); 3].map(|()| Session::new(model()).unwrap());
    let whole = reply(&mut plain, &prompt, &GenerateOptions { speculation: Speculation::OFF, ..limited(30) }).0;
    let word = whole.split_whitespace().nth(7).unwrap();
    // The longest one is first, because only the first one writes where the cache has no rows of the same text yet.
    for options in [limited(30), limited(0), limited(1), limited(2), limited(12), stopped(word), stopped(". ")] {
        let with = |session: &mut Session, speculation| {
            reply(session, &prompt, &GenerateOptions { speculation, ..options.clone() })
        };
        let (text, tokens, stats) = with(&mut plain, Speculation::OFF);
        for (same, fed, guessed) in [with(&mut matched, LOOKUP), with(&mut predicted, PREDICTED)] {
            assert_eq!((&same, &fed), (&text, &tokens));
            assert_eq!((guessed.generated, guessed.stop), (stats.generated, stats.stop));
        }
    }
}

#[test]
fn extended_a_dropped_reply_leaves_what_was_reported() {
    let story = dialogue(52);
    let prompt = [story.as_slice(), &story[..13]].concat();
    let mut session = Session::new(model()).unwrap();
    let options =
        GenerateOptions { sampling: SamplerParams::greedy(), speculation: LOOKUP, ..GenerateOptions::default() };
    let mut said = String::new();
    for event in Generation::new(&mut session, prompt.clone(), None, options).unwrap() {
        if let Event::Text(piece) = event.unwrap() {
            said += &piece;
        }
        if said.len() > 40 {
            break;
        }
    }
    let reported = model().tokenizer().unwrap().decode(&session.tokens()[prompt.len()..], false).unwrap();
    assert_eq!(reported, said);
}

/// Drafts stop at the end of the context.
#[test]
fn extended_drafts_fit_the_context() {
    let story = dialogue(24);
    let prompt = [story.as_slice(), &story[..13]].concat();
    let filled = |room: usize, speculation| {
        let cache = wglm::CacheShape { context: prompt.len() + room, ..model().cache() };
        let options = GenerateOptions { sampling: SamplerParams::greedy(), speculation, ..GenerateOptions::default() };
        let (_, tokens, stats) = reply(&mut Session::with_cache(model(), cache).unwrap(), &prompt, &options);
        assert_eq!(stats.stop, Stop::Context, "room for {room}");
        (tokens, stats.generated)
    };
    let (whole, generated) = filled(9, Speculation::OFF);
    assert_eq!((whole.len(), generated), (prompt.len() + 9, 10));
    for room in [1, 2, 3, 9] {
        // The last token is reported, although the cache has no room for it.
        let plain = (whole[..prompt.len() + room].to_vec(), room + 1);
        let [guessed, predicted] = [LOOKUP, PREDICTED].map(|speculation| filled(room, speculation));
        assert_eq!((&plain, &plain), (&guessed, &predicted), "room for {room}");
    }
    let mut session = fed(model(), &prompt[..3]);
    assert!(matches!(session.verify(&[0; 16]), Err(Error::Argument { argument: "drafts", .. })));
    assert!(matches!(session.set_speculation(&Speculation { most: Some(0), ..LOOKUP }), Err(Error::Argument { .. })));
}

/// Verified tokens are part of snapshots and of synced tokens, and can be rewound.
#[test]
fn verified_tokens_are_like_others() {
    let prompt = dialogue(13);
    let wanted = one_by_one(&mut fed(model(), &prompt), 10);
    let mut session = fed(model(), &prompt);
    assert_eq!(session.verify(&wanted[1..6]).unwrap(), wanted[..6]);
    let snapshot = session.snapshot().unwrap();
    let mut restored = Session::new(model()).unwrap();
    restored.restore(&snapshot).unwrap();
    assert_eq!(restored.tokens(), session.tokens());
    assert_eq!(one_by_one(&mut restored, 4), wanted[6..10]);
    session.rewind(prompt.len() + 3);
    let rest = [prompt.as_slice(), &wanted[..8]].concat();
    let reuse = session.sync(&rest).unwrap();
    assert_eq!((reuse.cached, reuse.new), (prompt.len() + 3, 5));
    assert_eq!(session.verify(&[wanted[9], 0]).unwrap(), wanted[8..10]);
}
