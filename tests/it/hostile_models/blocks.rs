//! Multi-token-prediction blocks that are odd, damaged or not there: the model is loaded without, and says why, unless the
//! block is asked for.

use super::refused::load;
use super::small::{F32, Numbers, Small, key};
use wglm::{DraftKind, Error, LoadOptions, Session, Speculation};

fn options(speculation: DraftKind) -> LoadOptions {
    LoadOptions { speculation, ..LoadOptions::default() }
}

/// Whose heads' vectors make up whole groups, as a few rows in one step need it.
fn whole() -> Small {
    Small::with_block(&Numbers { heads: 4, ..Numbers::default() })
}

/// Tokens that are generated with guesses of a kind.
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
fn a_block_guesses() {
    let (plain, drafted) = generated(&whole(), DraftKind::Off);
    assert_eq!(drafted, 0);
    let (guessed, drafted) = generated(&whole(), DraftKind::Mtp);
    assert!(guessed == plain && drafted > 0, "{guessed:?} and {plain:?}, {drafted} drafts");
}

/// Its own embeddings and output matrix.
#[test]
fn a_block_may_have_more_of_its_own() {
    let mut small = whole();
    for stem in ["embed_tokens", "shared_head_head"] {
        small.add(&format!("blk.2.nextn.{stem}.weight"), &[32, 40], F32);
    }
    small.tensors.retain(|tensor| !tensor.name.ends_with("shared_head_norm.weight"));
    let (guessed, drafted) = generated(&small, DraftKind::Mtp);
    assert!(guessed == generated(&small, DraftKind::Off).0 && drafted > 0);
}

#[test]
fn a_damaged_block_is_left_out() {
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
