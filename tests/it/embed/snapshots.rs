//! Tests snapshots of sessions.

use super::owner::Owner;
use super::{load_on, model};
use crate::common::gpu::{cancelling, dropping, gpu, open};
use crate::common::models::{fable_file, fixture, load, read_u32};
use crate::hostile_models::small::Small;
use wglm::{
    CacheShape, CacheType, Cancel, Check, DraftKind, Error, Gguf, Gpu, LoadOptions, Model, SamplerParams, Session,
    Speculation,
};

/// The number of bytes before the tokens, and after everything.
const HEADER: usize = 48;
const CHECKSUM: usize = 4;

fn session(context: usize, ty: CacheType) -> Session {
    Session::with_cache(model(), CacheShape { context, ty }).unwrap()
}

/// A session with some tokens.
fn small() -> Session {
    let mut session = session(64, CacheType::F32);
    session.feed(&[1, 300, 17]).unwrap(); // too few for a chunk
    session.feed(&[42, 256]).unwrap();
    session
}

fn bits(session: &mut Session) -> Vec<u32> {
    session.logits().unwrap().into_iter().map(f32::to_bits).collect()
}

/// The bits of the logits, and those after each of some sampled tokens.
fn continuation(session: &mut Session) -> Vec<Vec<u32>> {
    let drawn = SamplerParams { seed: Some(7), ..SamplerParams::default() };
    session.set_sampling(&drawn).unwrap();
    let mut all = vec![bits(session)];
    for _ in 0..8 {
        let token = session.next_token().unwrap();
        all.push([&[token][..], &bits(session)].concat());
    }
    all
}

fn dialogue() -> Vec<u32> {
    read_u32(fixture("fable/dialog0.tokens.i32"))
}

#[test]
fn long_two_thousand_tokens_continue_bit_by_bit() {
    let model = Model::load(&Small::like_fable().open().unwrap(), gpu(), &LoadOptions::default()).unwrap();
    let session = |context, ty| Session::with_cache(&model, CacheShape { context, ty }).unwrap();
    let tokens: Vec<u32> = dialogue().into_iter().cycle().take(2000).collect();
    for (ty, length) in [(CacheType::F32, 2000), (CacheType::F16, 300), (CacheType::Q8_0, 300)] {
        let mut first = session(2048, ty);
        first.feed(&tokens[..length]).unwrap();
        let snapshot = first.snapshot().unwrap();
        let expected = continuation(&mut first);
        for context in [2048, 3000] {
            let mut second = session(context, ty);
            second.feed(&[5, 6, 7]).unwrap();
            second.restore(&snapshot).unwrap();
            assert_eq!(second.tokens(), &tokens[..length]);
            assert!(continuation(&mut second) == expected, "{ty:?} in a session of {context}");
        }
        first.restore(&snapshot).unwrap();
        assert!(continuation(&mut first) == expected, "{ty:?} in the session it was taken of");
    }
}

/// A snapshot contains no unused cache.
#[test]
fn a_snapshot_holds_what_the_tokens_take() {
    let (config, mut session) = (model().config().clone(), small());
    let line = 4 * (config.latent_rank + config.rotary).next_multiple_of(8);
    let layers = config.layers + 1; // those of the model, and the multi-token-prediction block
    let expected = HEADER + 5 * (4 + layers * line) + 4 * config.vocab + CHECKSUM;
    assert_eq!(session.snapshot().unwrap().len(), expected);
    session.rewind(2);
    assert_eq!(session.snapshot().unwrap().len(), expected - 3 * (4 + layers * line) - 4 * config.vocab);
}

/// A snapshot without logits of the last token, as after a rewind, and one without tokens.
#[test]
fn a_rewound_session_is_restored_as_rewound() {
    let mut first = small();
    first.rewind(3);
    let mut second = session(64, CacheType::F32);
    second.feed(&[9, 9, 9, 9]).unwrap();
    second.restore(&first.snapshot().unwrap()).unwrap();
    assert_eq!(second.tokens(), first.tokens());
    assert!(matches!(second.logits(), Err(Error::Argument { .. })));
    second.feed(&[42, 256]).unwrap();
    assert!(bits(&mut second) == bits(&mut small()));

    first.rewind(0);
    second.restore(&first.snapshot().unwrap()).unwrap();
    assert!(second.tokens().is_empty());
}

#[track_caller]
fn refused(session: &mut Session, snapshot: &[u8]) -> Error {
    let (tokens, logits) = (session.tokens().to_vec(), session.logits().map(|l| l[0]));
    let error = session.restore(snapshot).expect_err("a snapshot that should be refused");
    assert_eq!(session.tokens(), tokens, "{error}");
    assert_eq!(session.logits().map(|l| l[0]).ok(), logits.ok(), "{error}");
    error
}

#[test]
fn extended_truncated_and_changed_snapshots_are_refused() {
    let mut session = small();
    let snapshot = session.snapshot().unwrap();
    let expected = bits(&mut session);
    for length in 0..snapshot.len() {
        let error = session.restore(&snapshot[..length]).unwrap_err();
        assert!(matches!(error, Error::Snapshot { what: "its length", .. }), "{length} bytes: {error}");
    }
    for at in 0..snapshot.len() {
        let mut changed = snapshot.clone();
        changed[at] ^= 1 << (at % 8);
        let error = session.restore(&changed).unwrap_err();
        assert!(matches!(error, Error::Snapshot { .. }), "byte {at}: {error}");
    }
    refused(&mut session, &[&snapshot[..], &[0]].concat());
    assert!(bits(&mut session) == expected, "the session was touched");
    session.restore(&snapshot).unwrap();
}

/// A changed snapshot with a correct checksum.
fn forged(snapshot: &[u8], at: usize, word: u32) -> Vec<u8> {
    let mut forged = snapshot[..snapshot.len() - CHECKSUM].to_vec();
    forged[at..at + 4].copy_from_slice(&word.to_le_bytes());
    let sum = crc32fast::hash(&forged);
    forged.extend(sum.to_le_bytes());
    forged
}

/// A snapshot with a correct checksum can contain anything.
#[test]
fn a_forged_header_is_refused() {
    let mut session = small();
    let snapshot = session.snapshot().unwrap();
    session.restore(&forged(&snapshot, HEADER, 1)).unwrap(); // unchanged
    session.restore(&snapshot).unwrap();
    for (at, expected) in [(8, "its version"), (12, "its type of cache"), (16, "its model"), (20, "its model")] {
        let error = refused(&mut session, &forged(&snapshot, at, 0xffff_fff0));
        assert!(matches!(error, Error::Snapshot { what, .. } if what == expected), "{at}: {error}");
    }
    for at in [32, 36, 40, 44] {
        for word in [0, u32::MAX] {
            let error = refused(&mut session, &forged(&snapshot, at, word));
            assert!(matches!(error, Error::Snapshot { what: "its length", .. }), "{at}: {error}");
        }
    }
    let error = refused(&mut session, &forged(&snapshot, HEADER + 8, u32::MAX));
    assert!(matches!(error, Error::TokenOutOfRange { token: u32::MAX, .. }), "{error}");
}

/// A file with the same header, in which a few weights in the middle of one tensor differ.
fn with_other_weights(tensor: &str) -> Gguf {
    let mut bytes = std::fs::read(fable_file("q4_0")).unwrap();
    let file = Gguf::from_vec(bytes.clone()).unwrap();
    let tensor = file.tensor(tensor).unwrap();
    let middle = tensor.offset + tensor.bytes / 2 / 18 * 18; // 32 weights, their scale first
    bytes[middle + 2..middle + 18].fill(0x5a);
    Gguf::from_vec(bytes).unwrap()
}

fn session_of(file: &Gguf, speculation: DraftKind) -> Session {
    let options = LoadOptions { check: Check::Never, speculation, ..LoadOptions::default() };
    let model = Model::load(file, model().gpu(), &options).unwrap();
    let mut session = Session::with_cache(&model, CacheShape { context: 64, ty: CacheType::F32 }).unwrap();
    session.set_speculation(&Speculation { kind: speculation, most: Some(3) }).unwrap();
    session
}

#[test]
fn extended_a_file_with_other_weights_is_another() {
    let snapshot = small().snapshot().unwrap();
    let file = with_other_weights("blk.2.ffn_down_exps.weight");
    let error = refused(&mut session_of(&file, DraftKind::Mtp), &snapshot);
    assert!(matches!(error, Error::Snapshot { what: "its model", .. }), "{error}");
}

/// A text does not depend on the multi-token-prediction block. A snapshot's data for another block is ignored, so that
/// the session is as if the snapshot had been taken without a block.
#[test]
fn extended_data_of_another_block_is_ignored() {
    let layers = model().config().layers;
    let other = with_other_weights(&format!("blk.{layers}.ffn_down_exps.weight"));
    let taken = |kind| {
        let mut session = session_of(&super::file(), kind);
        session.feed(&[1, 300, 17, 42, 256]).unwrap();
        session.snapshot().unwrap()
    };
    let (with, without) = (taken(DraftKind::Mtp), taken(DraftKind::Off));
    let mut own = session_of(&super::file(), DraftKind::Mtp);
    own.restore(&with).unwrap();
    let [mut restored, mut expected] = [DraftKind::Mtp; 2].map(|kind| session_of(&other, kind));
    restored.restore(&with).unwrap();
    expected.restore(&without).unwrap();
    assert!(bits(&mut restored) == bits(&mut own) && restored.tokens() == own.tokens());
    let drafts = |session: &mut Session| {
        let _ = session.next_tokens(4).unwrap();
        session.draft_logits(99, 2).unwrap()
    };
    assert!(drafts(&mut restored) == drafts(&mut expected), "rows of the other block are in use");
    assert!(drafts(&mut own) != drafts(&mut expected), "the blocks do not differ");
    session_of(&other, DraftKind::Off).restore(&with).unwrap();
}

/// A cancellation takes effect during each of a snapshot's submissions, and before the first. The session can be used
/// afterwards, and an existing file is unchanged.
#[test]
fn extended_snapshots_can_be_cancelled() {
    let gpu = open(true);
    let model = load_on(&gpu).unwrap();
    let mut session = Session::with_cache(&model, CacheShape { context: 64, ty: CacheType::F32 }).unwrap();
    session.feed(&[1, 300, 17, 42, 256]).unwrap();
    let (snapshot, expected) = (session.snapshot().unwrap(), bits(&mut session));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session");
    std::fs::write(&path, "before").unwrap();
    let layers = model.config().layers as u64 + 1;
    for after in 0..=layers {
        let cancelled = |act: &mut dyn FnMut(&Cancel) -> wglm::Result<()>| {
            let error = cancelling(&gpu, after, act).unwrap_err();
            assert!(matches!(error, Error::Cancelled), "after {after} submissions: {error}");
        };
        cancelled(&mut |cancel| session.snapshot_with(cancel).map(drop));
        cancelled(&mut |cancel| session.save_snapshot_with(&path, cancel));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "before");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(bits(&mut session) == expected, "after {after} submissions");
        cancelled(&mut |cancel| session.restore_with(&snapshot, cancel));
        assert_eq!(session.tokens().is_empty(), after > 0, "after {after} submissions");
        session.restore(&snapshot).unwrap();
        assert!(bits(&mut session) == expected, "after {after} submissions");
    }
    session.save_snapshot(&path).unwrap();
    let error = cancelling(&gpu, 1, |cancel| session.load_snapshot_with(&path, cancel)).unwrap_err();
    assert!(matches!(error, Error::Cancelled) && session.tokens().is_empty(), "{error}");
    session.load_snapshot_with(&path, &Cancel::default()).unwrap();
    assert!(bits(&mut session) == expected);
}

/// If any part of the cache is lost on its way to the device, that is detected, and the session is empty.
#[test]
fn extended_a_lost_part_is_detected() {
    let gpu = open(true);
    let model = load_on(&gpu).unwrap();
    let mut session = Session::with_cache(&model, CacheShape { context: 64, ty: CacheType::F32 }).unwrap();
    session.feed(&[1, 300, 17, 42, 256]).unwrap();
    let snapshot = session.snapshot().unwrap();
    for lost in 1..=model.config().layers as u64 + 1 {
        let error = dropping(&gpu, lost..lost + 1, || session.restore(&snapshot)).unwrap_err();
        assert!(matches!(error, Error::NoResult), "part {lost}: {error}");
        assert!(session.tokens().is_empty(), "part {lost}");
    }
    session.restore(&snapshot).unwrap();
    a_file_that_changes_meanwhile(&gpu, &mut session);
}

/// A snapshot that changes between the two readings of its file, as another program may change it, is refused.
fn a_file_that_changes_meanwhile(gpu: &Gpu, session: &mut Session) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session");
    session.save_snapshot(&path).unwrap();
    // By the first submission the file was read once, and little of it a second time.
    let (changed, written) = (path.clone(), std::sync::Once::new());
    gpu.before_submissions(move || {
        written.call_once(|| {
            let mut bytes = std::fs::read(&changed).unwrap();
            let last = bytes.len() - CHECKSUM - 1;
            bytes[last] ^= 1;
            std::fs::write(&changed, bytes).unwrap();
        });
    });
    let error = session.load_snapshot(&path).unwrap_err();
    assert!(matches!(error, Error::Snapshot { .. }) && error.to_string().contains("changed"), "{error}");
    gpu.before_submissions(|| ());
    assert!(session.tokens().is_empty());
}

#[test]
fn extended_snapshots_that_do_not_fit_are_refused() {
    let snapshot = small().snapshot().unwrap();
    let error = refused(&mut session(4, CacheType::F32), &snapshot);
    assert!(matches!(error, Error::ContextFull { needed: 5, context: 4 }), "{error}");
    for (ty, name) in [(CacheType::F16, "f16"), (CacheType::Q8_0, "q8_0")] {
        let error = refused(&mut session(64, ty), &snapshot);
        assert!(matches!(error, Error::Snapshot { what: "its type of cache", .. }), "{error}");
        assert!(error.to_string().contains(&format!("expected {name}, found f32")), "{error}");
    }
    let other = load(&fable_file("f16"));
    let mut other = Session::with_cache(&other, CacheShape { context: 64, ty: CacheType::F32 }).unwrap();
    let error = refused(&mut other, &snapshot);
    assert!(matches!(error, Error::Snapshot { what: "its model", .. }), "{error}");
}

#[test]
fn extended_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session");
    let names = || std::fs::read_dir(folder.path()).unwrap().count();
    let mut first = small();
    first.save_snapshot(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), first.snapshot().unwrap());
    first.feed(&[3]).unwrap();
    first.save_snapshot(&path).unwrap(); // replaces the first
    assert_eq!(names(), 1);
    let mut second = session(64, CacheType::F32);
    second.load_snapshot(&path).unwrap();
    assert!(continuation(&mut second) == continuation(&mut first));

    let error = first.save_snapshot(folder.path().join("nowhere/session")).unwrap_err();
    assert!(matches!(error, Error::Io { action: "create", .. }), "{error}");
    let error = second.load_snapshot(folder.path().join("nothing")).unwrap_err();
    assert!(matches!(error, Error::Io { action: "open", .. }), "{error}");
    let error = first.save_snapshot(folder.path()).unwrap_err(); // a folder cannot be replaced
    assert!(matches!(error, Error::Io { action: "create", .. }), "{error}");
    assert_eq!(names(), 1, "something is left");
}

/// If a new file cannot be written, the old one stays.
#[test]
fn extended_a_lost_device_leaves_the_file_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session");
    let owner = Owner::new();
    let mut session = Session::new(&load_on(&owner.lend().unwrap()).unwrap()).unwrap();
    session.feed(&[1, 2]).unwrap();
    session.save_snapshot(&path).unwrap();
    let before = std::fs::read(&path).unwrap();
    owner.device.destroy();
    for _ in 0..2 {
        assert!(matches!(session.save_snapshot(&path), Err(Error::DeviceLost { .. })));
        assert!(matches!(session.load_snapshot(&path), Err(Error::DeviceLost { .. })));
    }
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}
