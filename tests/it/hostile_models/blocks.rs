//! Multi-token-prediction blocks that are unusual, damaged or missing: the model is loaded without the block and says
//! why, unless options require the block.

use super::refused::load;
use super::small::{F32, Numbers, Small, key};
use wglm::{DraftKind, Error, Estimate, LoadOptions, Model, Session, Speculation};

fn options(speculation: DraftKind) -> LoadOptions {
    LoadOptions { speculation, ..LoadOptions::default() }
}

const NUMBERS: fn() -> Numbers = || Numbers { heads: 4, ..Numbers::default() };

/// A shape whose concatenated heads are whole groups, which steps of a few rows require.
fn whole() -> Small {
    Small::with_block(&NUMBERS())
}

/// The tokens that are generated with guesses of a kind.
fn generated(small: &Small, kind: DraftKind) -> (Vec<u32>, usize) {
    let model = load(small, &options(DraftKind::Auto)).unwrap();
    let mut session = Session::new(&model).unwrap();
    session.set_speculation(&Speculation { kind, most: Some(3) }).unwrap();
    session.feed(&[1, 2, 3, 4, 5]).unwrap();
    let mut tokens = Vec::new();
    while tokens.len() < 12 {
        tokens.extend(session.next_tokens(12 - tokens.len()).unwrap());
    }
    (tokens, session.draft_stats().drafted)
}

#[test]
fn extended_a_block_guesses() {
    let (plain, drafted) = generated(&whole(), DraftKind::Off);
    assert_eq!(drafted, 0);
    let (guessed, drafted) = generated(&whole(), DraftKind::Mtp);
    assert!(guessed == plain && drafted > 0, "{guessed:?} and {plain:?}, {drafted} drafts");
}

/// Its own embeddings and output matrix.
#[test]
fn extended_a_block_may_have_its_own_embeddings_and_output() {
    let mut small = whole();
    for stem in ["embed_tokens", "shared_head_head"] {
        small.add(&format!("blk.2.nextn.{stem}.weight"), &[32, 40], F32);
    }
    small.tensors.retain(|tensor| !tensor.name.ends_with("shared_head_norm.weight"));
    let (guessed, drafted) = generated(&small, DraftKind::Mtp);
    assert!(guessed == generated(&small, DraftKind::Off).0 && drafted > 0);
}

#[test]
fn extended_a_damaged_block_is_left_out() {
    let mut missing = whole();
    missing.tensors.retain(|tensor| !tensor.name.ends_with("eh_proj.weight"));
    let mut misshapen = whole();
    for tensor in misshapen.tensors.iter_mut().filter(|tensor| tensor.name.ends_with("hnorm.weight")) {
        tensor.dims = vec![31];
    }
    let mut no_layer = whole();
    no_layer.tensors.retain(|tensor| tensor.name != "blk.2.attn_output.weight");
    let named = [(missing, "eh_proj"), (misshapen, "hnorm"), (no_layer, "attn_output")];
    for (small, name) in &named {
        let model = load(small, &options(DraftKind::Auto)).unwrap();
        let notices = &model.config().notices;
        assert!(notices.iter().any(|notice| notice.contains(name)), "{name}: {notices:?}");
        let error = load(small, &options(DraftKind::Mtp)).map(drop).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
        load(small, &options(DraftKind::Off)).unwrap();
        assert_eq!(generated(small, DraftKind::Mtp).1, 0, "{name}");
    }
}

/// A file with only the block, in which it has this number, and copies of the tensors that it shares with the model.
fn alone(number: usize) -> Small {
    let mut small = whole();
    small.tensors.retain(|tensor| tensor.name.starts_with("blk.2.") || !tensor.name.starts_with("blk."));
    for tensor in &mut small.tensors {
        tensor.name = tensor.name.replace("blk.2.", &format!("blk.{number}."));
    }
    small.set(&key("block_count"), number as u32 + 1);
    small.set(&key("context_length"), 99u32);
    small.set(&key("expert_count"), NUMBERS().experts); // in a wider integer than any program writes
    small
}

fn beside(draft: &Small, speculation: DraftKind) -> LoadOptions {
    LoadOptions { draft_model: Some(draft.open().unwrap()), ..options(speculation) }
}

/// The logits of drafts by a model with these options.
fn drafted(small: &Small, options: &LoadOptions) -> Vec<Vec<f32>> {
    let mut session = Session::new(&load(small, options).unwrap()).unwrap();
    session.set_speculation(&Speculation { kind: DraftKind::Mtp, most: None }).unwrap();
    session.feed(&[1, 2, 3, 4, 5]).unwrap();
    session.draft_logits(6, 2).unwrap()
}

/// In a separate file the block drafts as it does in the model's file, whatever its number, and takes as much memory.
#[test]
fn extended_a_block_may_have_a_separate_file() {
    let wanted = drafted(&whole(), &options(DraftKind::Auto));
    let trunk = Small::of(&NUMBERS());
    let memory = |small: &Small, options: &LoadOptions| -> Estimate {
        Model::estimate(&small.open().unwrap(), options, None).unwrap()
    };
    for number in [0, 2, 7] {
        let options = beside(&alone(number), DraftKind::Auto);
        assert_eq!(drafted(&trunk, &options), wanted, "block {number}");
        assert_eq!(memory(&trunk, &options), memory(&whole(), &LoadOptions::default()));
    }
    // It replaces the block in the model's file, and is not loaded if nothing or only the text guesses.
    let mut damaged = whole();
    damaged.remove("blk.2.nextn.eh_proj.weight");
    assert_eq!(drafted(&damaged, &beside(&alone(2), DraftKind::Mtp)), wanted);
    for kind in [DraftKind::Off, DraftKind::Lookup] {
        assert_eq!(memory(&trunk, &beside(&alone(2), kind)), memory(&trunk, &options(kind)));
    }
}

#[test]
fn the_file_of_a_block_of_another_model() {
    let trunk = Small::of(&NUMBERS());
    let mut other_base = alone(2);
    other_base.set(&key("expert_used_count"), 1u32);
    let mut misshapen = alone(2);
    misshapen.tensor("blk.2.attn_output.weight").dims[1] += 32;
    let mut two = alone(2);
    two.add("blk.3.nextn.eh_proj.weight", &[64, 32], F32);
    let wrong = [
        (other_base, "expert_used_count"),
        (misshapen, "attn_output"),
        (two, "number of multi-token-prediction blocks"),
        (trunk.clone(), "number of multi-token-prediction blocks"),
    ];
    for (draft, named) in &wrong {
        for kind in [DraftKind::Auto, DraftKind::Mtp] {
            let error = load(&trunk, &beside(draft, kind)).map(drop).unwrap_err();
            assert!(error.to_string().contains(named), "{named}: {error}");
        }
        load(&trunk, &beside(draft, DraftKind::Off)).unwrap();
    }
}

/// Snapshots of a session with the block can be restored without it, and vice versa.
#[test]
fn extended_snapshots_do_not_need_a_block() {
    let wanted = generated(&whole(), DraftKind::Off).0;
    let sessions = || {
        [DraftKind::Mtp, DraftKind::Off].map(|kind| {
            let mut session = Session::new(&load(&whole(), &options(kind)).unwrap()).unwrap();
            session.set_speculation(&Speculation { kind, most: Some(3) }).unwrap();
            session
        })
    };
    for (from, to) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let (mut from, mut to) = (sessions().into_iter().nth(from).unwrap(), sessions().into_iter().nth(to).unwrap());
        from.feed(&[1, 2, 3, 4, 5]).unwrap();
        let mut tokens = from.next_tokens(3).unwrap();
        to.restore(&from.snapshot().unwrap()).unwrap();
        while tokens.len() < wanted.len() {
            tokens.extend(to.next_tokens(wanted.len() - tokens.len()).unwrap());
        }
        assert_eq!(tokens, wanted);
    }
}

#[test]
fn two_blocks_and_none() {
    let mut two = whole();
    two.set(&key("block_count"), 4u32);
    two.set(&key("nextn_predict_layers"), 2u32);
    assert!(load(&two, &options(DraftKind::Auto)).unwrap().config().notices.iter().any(|it| it.contains("blocks")));
    for small in [two, Small::default()] {
        let error = load(&small, &options(DraftKind::Mtp)).map(drop).unwrap_err();
        assert!(matches!(error.cause(), Error::Unsupported { .. }), "{error}");
    }
}
