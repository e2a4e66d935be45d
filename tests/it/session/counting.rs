//! Counts the GPU work of each kind of step: submissions, passes, dispatches, writes from the host, and results that
//! the host waits for. They determine what a token costs the host, so none of them may grow unnoticed.

use super::{alone, dialogue, exclusive};
use crate::common::gpu::open;
use crate::common::models::fable_file;
use std::sync::{LazyLock, Mutex, MutexGuard};
use wglm::{
    Arithmetic, CacheShape, CacheType, ChatState, DraftKind, GenerateOptions, Gguf, Gpu, LoadOptions, Message, Model,
    Pool, SamplerParams, Scheduler, SchedulerOptions, Session, Speculation,
};
use wglm_engine::model::LoadOverrides;
use wglm_engine::plan::{Choices, Tilings};

/// The counts, a line for each act.
struct Counted {
    gpu: Gpu,
    lines: Vec<String>,
}

impl Counted {
    /// Counts the work of an act, after running it twice to make all plans.
    fn act<T>(&mut self, name: &str, mut act: impl FnMut() -> T) {
        let mut counts = [0; 5];
        for _ in 0..3 {
            let before = self.gpu.work();
            act();
            let after = self.gpu.work();
            counts = [
                after.submissions - before.submissions,
                after.passes - before.passes,
                after.dispatches - before.dispatches,
                after.writes - before.writes,
                after.reads - before.reads,
            ];
        }
        self.lines.push(format!("{name}: {counts:?}"));
    }

    #[track_caller]
    fn are(&self, expected: &[&str]) {
        assert_eq!(self.lines, expected, "submissions, passes, dispatches, writes, reads");
    }
}

/// The demonstration model on a device that only one test at a time uses, with the tilings for NVIDIA's GPUs.
/// Prompts are computed token by token, because how many submissions a part of a prompt takes depends on how fast the
/// GPU is.
fn model() -> (MutexGuard<'static, Model>, Counted) {
    static MODEL: LazyLock<Mutex<Model>> = LazyLock::new(|| {
        let choices = Choices { table: Some(Tilings::Nvidia), ..Choices::default() };
        let overrides = LoadOverrides { choices, ..LoadOverrides::default() };
        let arithmetic = Some(Arithmetic::Float);
        let options = LoadOptions { prompt: alone(), arithmetic, overrides, ..LoadOptions::default() };
        Mutex::new(Model::load(&Gguf::open(fable_file("q4_0")).unwrap(), &open(true), &options).unwrap())
    });
    let model = exclusive(&MODEL);
    let gpu = model.gpu().clone();
    (model, Counted { gpu, lines: Vec::new() })
}

fn penalised() -> SamplerParams {
    SamplerParams { repeat_penalty: 1.3, logit_bias: vec![(3, 1.0)], ..SamplerParams::greedy() }
}

fn everything(model: &Model) -> Vec<u32> {
    vec![u32::MAX; model.config().vocab.div_ceil(32)]
}

#[test]
fn extended_tokens_of_one_session() {
    let (model, mut counted) = model();
    let mut session = Session::new(&model).unwrap();
    session.feed(&dialogue(5)).unwrap();
    counted.act("a token fed", || session.feed(&[7]).unwrap());
    counted.act("a token sampled", || session.next_token().unwrap());
    counted.act("its name", || session.sampled_token().unwrap());
    counted.act("logits", || session.logits().unwrap());
    counted.act("fed and read", || {
        session.feed(&[7]).unwrap();
        session.sampled_token().unwrap();
    });
    counted.act("five tokens fed", || session.feed(&dialogue(5)).unwrap());
    counted.act("a rewind", || {
        session.rewind(session.tokens().len() - 1);
        session.feed(&[7]).unwrap();
    });
    counted.act("another way to sample", || session.set_sampling(&penalised()).unwrap());
    counted.act("a token with penalties", || session.next_token().unwrap());
    session.set_sampling(&SamplerParams::greedy()).unwrap();
    session.set_masked(true);
    counted.act("a token under a mask", || {
        let token = session.sample_masked(&everything(&model)).unwrap();
        session.feed(&[token]).unwrap();
    });
    counted.act("a token without the mask that it waits for", || session.next_token().unwrap());
    counted.are(&[
        "a token fed: [1, 1, 40, 1, 0]",
        "a token sampled: [1, 1, 40, 1, 1]",
        "its name: [0, 0, 0, 0, 1]",
        "logits: [1, 1, 0, 1, 2]",
        "fed and read: [1, 1, 40, 1, 1]",
        "five tokens fed: [5, 5, 188, 5, 0]",
        "a rewind: [1, 1, 40, 1, 0]",
        "another way to sample: [1, 1, 4, 3, 0]",
        "a token with penalties: [1, 1, 42, 2, 1]",
        "a token under a mask: [2, 2, 41, 3, 1]",
        "a token without the mask that it waits for: [2, 2, 40, 2, 1]",
    ]);
}

#[test]
fn drafts_of_one_session() {
    let (model, mut counted) = model();
    let mut session = Session::new(&model).unwrap();
    session.feed(&dialogue(5)).unwrap();
    counted.act("wrong drafts", || assert_eq!(session.verify(&[2, 2, 2]).unwrap().len(), 1));
    counted.act("wrong drafts and a token", || {
        session.verify(&[2, 2]).unwrap();
        session.next_token().unwrap();
    });
    session.set_speculation(&Speculation { kind: DraftKind::Mtp, most: Some(3) }).unwrap();
    counted.act("drafts by the block", || session.next_tokens(9).unwrap());
    counted.act("assumed drafts", || assert_eq!(session.predict_assumed(3, 2).unwrap().len(), 3));
    counted.act("a token between", || session.next_token().unwrap());
    session.set_sampling(&penalised()).unwrap();
    counted.act("drafts with penalties", || session.next_tokens(9).unwrap());
    counted.act("a prompt", || session.feed(&dialogue(5)).unwrap());
    counted.are(&[
        "wrong drafts: [1, 1, 41, 1, 1]",
        "wrong drafts and a token: [2, 2, 81, 2, 3]",
        "drafts by the block: [3, 3, 95, 3, 1]",
        "assumed drafts: [3, 3, 95, 3, 1]",
        "a token between: [1, 1, 40, 1, 1]",
        "drafts with penalties: [3, 3, 61, 4, 1]",
        "a prompt: [5, 5, 190, 6, 0]",
    ]);
}

#[test]
fn extended_tokens_of_several_sessions() {
    let (model, mut counted) = model();
    let cache = CacheShape { context: 512, ty: CacheType::F32 };
    let pool = Pool::new(&model, 3, cache, 3 * 512).unwrap();
    let mut sessions = [pool.session().unwrap(), pool.session().unwrap(), pool.session().unwrap()];
    sessions.iter_mut().for_each(|session| session.feed(&dialogue(5)).unwrap());
    counted.act("three together", || pool.next_token_of_each(&mut sessions.iter_mut().collect::<Vec<_>>()).unwrap());
    counted.act("one by one", || {
        sessions.iter_mut().for_each(|session| {
            session.next_token().unwrap();
        })
    });
    counted.act("one of them", || pool.next_token_of_each(&mut [&mut sessions[1]]).unwrap());
    counted.act("logits of each", || sessions.iter_mut().for_each(|session| drop(session.logits().unwrap())));
    sessions[0].set_sampling(&penalised()).unwrap();
    counted.act("three together, one with penalties", || {
        pool.next_token_of_each(&mut sessions.iter_mut().collect::<Vec<_>>()).unwrap();
    });
    sessions[1].set_masked(true);
    counted.act("two together, one under a mask", || {
        sessions[1].sample_masked(&everything(&model)).unwrap();
        pool.next_token_of_each(&mut sessions.iter_mut().skip(1).collect::<Vec<_>>()).unwrap();
    });
    sessions[1].set_masked(false);
    counted.act("drafts of one", || sessions[2].verify(&[2, 2, 2]).unwrap());
    counted.are(&[
        "three together: [1, 1, 40, 1, 1]",
        "one by one: [3, 3, 120, 6, 3]",
        "one of them: [1, 1, 40, 1, 1]",
        "logits of each: [6, 6, 120, 9, 6]",
        "three together, one with penalties: [1, 1, 42, 2, 1]",
        "two together, one under a mask: [3, 2, 43, 4, 2]",
        "drafts of one: [1, 1, 41, 1, 2]",
    ]);
}

/// A step of three sessions verifies three drafts of each, and the block makes as many of all of them in one
/// submission.
#[test]
fn extended_drafts_of_several_sessions() {
    let (model, mut counted) = model();
    let pool = Pool::new(&model, 3, CacheShape { context: 512, ty: CacheType::F32 }, 3 * 512).unwrap();
    let mut sessions = [pool.session().unwrap(), pool.session().unwrap(), pool.session().unwrap()];
    sessions.iter_mut().for_each(|session| session.feed(&dialogue(5)).unwrap());
    let mut assumed = |name: &str, from_text| {
        counted.act(name, || {
            pool.predict_assumed(&mut sessions.iter_mut().collect::<Vec<_>>(), (3, 1), from_text).unwrap();
        });
    };
    assumed("by the block", false);
    assumed("from the text", true);
    counted.are(&["by the block: [3, 3, 95, 3, 2]", "from the text: [1, 1, 41, 1, 2]"]);
}

/// Replies of 12 tokens, each with the prompt that it begins with.
#[test]
fn extended_replies_side_by_side() {
    let (model, mut counted) = model();
    let sampling = SamplerParams::greedy();
    let options =
        GenerateOptions { sampling, max_tokens: Some(12), speculation: Speculation::OFF, ..GenerateOptions::default() };
    let asked = |text: &str| ChatState {
        messages: vec![Message::user(text)],
        options: options.clone(),
        reasoning: Some(false),
        ..ChatState::default()
    };
    let options = SchedulerOptions { sessions: 3, context: Some(512), ..SchedulerOptions::default() };
    let scheduler = Scheduler::new(&model, &options).unwrap();
    for count in [1, 2, 3] {
        counted.act(&format!("{count} at a time"), || {
            let texts = ["An owl.", "A fox.", "My name is Anna."];
            let mut replies: Vec<_> = texts[..count].iter().map(|text| scheduler.chat(asked(text)).unwrap()).collect();
            replies.iter_mut().for_each(|reply| reply.for_each(|event| drop(event.unwrap())));
        });
    }
    counted.are(&[
        "1 at a time: [13, 13, 520, 14, 12]",
        "2 at a time: [15, 15, 600, 19, 13]",
        "3 at a time: [17, 17, 680, 23, 14]",
    ]);
}
