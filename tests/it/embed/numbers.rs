//! Every number that an app can pass: the smallest, the largest and NaN are refused with an error that names them, or
//! replaced by the nearest possible number. Nothing panics, and nothing leaks.

use super::{PROMPT, file, load_on, model};
use crate::common::gpu::{gpu, open, options};
use crate::hostile_models::small::Small;
use std::time::Duration;
use wglm::tune::{TuneOptions, tune};
use wglm::{
    CacheShape, CacheType, Cancel, Chat, Check, Error, Event, GenerateOptions, Generation, Gpu, GpuOptions,
    LoadOptions, Message, Model, Overflow, Pool, PromptOptions, Result, Sampler, SamplerParams, Scheduler,
    SchedulerOptions, Session, Speculation, Stop, serde_json,
};
use wglm_engine::gpu::BufferUse;

const COUNTS: [usize; 6] = [0, 1, 2, u32::MAX as usize, usize::MAX - 1, usize::MAX];
const FLOATS: [f32; 10] =
    [0.0, -0.0, 1.0, -1.0, f32::MIN_POSITIVE, f32::MAX, f32::MIN, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
const TIMES: [Duration; 5] =
    [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(1), Duration::from_secs(1 << 40), Duration::MAX];

/// Expects an error that says what is too large or out of range.
#[track_caller]
fn says_so(what: &str, error: &Error) {
    let fine = matches!(
        error.cause(),
        Error::Argument { .. }
            | Error::ContextTooLarge { .. }
            | Error::ContextFull { .. }
            | Error::TooLarge { .. }
            | Error::OutOfMemory { .. }
            | Error::PoolFull { .. }
            | Error::TokenOutOfRange { .. }
    );
    assert!(fine, "{what}: {error:?}");
}

#[track_caller]
fn holds_or_says_so<T>(what: &str, made: Result<T>) -> Option<T> {
    made.inspect_err(|error| says_so(what, error)).ok()
}

fn small() -> Session {
    Session::with_cache(model(), CacheShape { context: 64, ty: CacheType::F32 }).unwrap()
}

/// A reply of a few tokens.
fn reply(session: &mut Session, options: GenerateOptions) -> Result<Stop> {
    let options = GenerateOptions { max_tokens: options.max_tokens.map(|most| most.min(3)).or(Some(3)), ..options };
    let mut stop = None;
    for event in Generation::new(session, PROMPT.to_vec(), None, options)? {
        if let Event::Done(stats) = event? {
            stop = Some(stats.stop);
        }
    }
    Ok(stop.unwrap())
}

#[test]
fn extended_of_prompts() {
    let mut session = small();
    for (limit, chunk) in TIMES.into_iter().zip([None, Some(0), Some(usize::MAX), Some(2), None]) {
        session.set_prompt_options(PromptOptions { chunk, limit });
        session.rewind(0);
        session.feed(&[9; 40]).unwrap();
    }
    let prompt = PromptOptions { limit: Duration::MAX, chunk: Some(usize::MAX) };
    let options = LoadOptions { prompt, context: Some(64), check: Check::Never, ..LoadOptions::default() };
    assert!(Model::estimate(&file(), &options, Some(model().gpu())).unwrap().most() > 0);
    let model = Model::load(&file(), model().gpu(), &options).unwrap();
    Session::new(&model).unwrap().feed(&[9; 60]).unwrap();
}

#[test]
fn extended_of_caches_and_pools() {
    // A cache that a large GPU holds would take long to fill with zeros.
    let gpu = Gpu::open(&GpuOptions { memory_limit: Some(1 << 30), ..options() }).unwrap();
    let options = LoadOptions { context: Some(512), compile_all: Some(false), ..LoadOptions::default() };
    let model = &Model::load(&file(), &gpu, &options).unwrap();
    for ty in CacheType::ALL {
        for context in COUNTS {
            let cache = CacheShape { context, ty };
            holds_or_says_so(&format!("{cache:?}"), Session::with_cache(model, cache));
            for sessions in COUNTS {
                let what = format!("{sessions} sessions of {context}");
                if let Some(pool) = holds_or_says_so(&what, Pool::new(model, sessions, cache, 256)) {
                    pool.session().unwrap();
                }
            }
        }
    }
    let cache = CacheShape { context: 64, ty: CacheType::F32 };
    for tokens in COUNTS {
        holds_or_says_so(&format!("{tokens} tokens"), Pool::new(model, 2, cache, tokens));
    }
    assert!(matches!(Pool::new(model, usize::MAX, cache, 64), Err(Error::Argument { argument: "sessions", .. })));
    for context in COUNTS.map(Some) {
        let options = LoadOptions { context, check: Check::Never, ..options.clone() };
        let prompt = PromptOptions { chunk: Some(PromptOptions::MAX_CHUNK), ..PromptOptions::default() };
        let in_chunks = LoadOptions { prompt, ..options.clone() };
        holds_or_says_so("an estimate", Model::estimate(&file(), &in_chunks, None)).map(|it| it.most());
        holds_or_says_so("an estimate", Model::estimate(&file(), &options, Some(model.gpu()))).map(|it| it.most());
        holds_or_says_so("an estimate", Model::estimate(&file(), &options, None)).map(|it| it.most());
        let loaded = Model::load(&file(), model.gpu(), &options);
        holds_or_says_so("a load", loaded.and_then(|model| Session::new(&model).map(drop)));
    }
}

#[test]
fn extended_of_schedulers() {
    let usual = SchedulerOptions { sessions: 2, context: Some(64), ..SchedulerOptions::default() };
    for number in COUNTS {
        let all = [
            ("sessions", SchedulerOptions { sessions: number, ..usual.clone() }),
            ("context", SchedulerOptions { context: Some(number), ..usual.clone() }),
            ("tokens", SchedulerOptions { tokens: Some(number), ..usual.clone() }),
            ("queue", SchedulerOptions { queue: number, ..usual.clone() }),
        ];
        for (what, options) in all {
            let Some(scheduler) = holds_or_says_so(what, Scheduler::new(model(), &options)) else { continue };
            let options = GenerateOptions { max_tokens: Some(1), ..GenerateOptions::default() };
            if let Some(reply) = holds_or_says_so(what, scheduler.generate(vec![7], options)) {
                reply.for_each(|event| drop(event.unwrap()));
            }
        }
    }
}

#[test]
fn extended_of_sampling() {
    let (logits, mut session) = ([0.5, 2.0, -1.0], small());
    type Change = fn(&mut SamplerParams, f32);
    let changes: [(&str, Change); 7] = [
        ("temperature", |params, value| params.temperature = value),
        ("top_p", |params, value| params.top_p = value),
        ("min_p", |params, value| params.min_p = value),
        ("repeat_penalty", |params, value| params.repeat_penalty = value),
        ("presence_penalty", |params, value| params.presence_penalty = value),
        ("frequency_penalty", |params, value| params.frequency_penalty = value),
        ("logit_bias", |params, value| params.logit_bias = vec![(1, value), (1, value), (2, -value)]),
    ];
    for (name, change) in changes {
        for value in FLOATS {
            let mut sampling = SamplerParams { seed: Some(u64::MAX), ..SamplerParams::default() };
            change(&mut sampling, value);
            let alone = Sampler::new(sampling.clone()).and_then(|mut sampler| {
                sampler.accept(1);
                sampler.sample(&logits)
            });
            holds_or_says_so(name, alone);
            let made = reply(&mut session, GenerateOptions { sampling: sampling.clone(), ..Default::default() });
            match made {
                Ok(_) => assert!(value.is_finite() || name == "logit_bias", "{name} of {value}"),
                Err(Error::NotANumber) => assert!(value.abs() == f32::MAX, "{name} of {value}"),
                Err(error) => says_so(name, &error),
            }
        }
    }
    for count in COUNTS {
        let penalised = SamplerParams { repeat_last_n: count, repeat_penalty: 1.1, ..SamplerParams::default() };
        let filtered = SamplerParams { top_k: count, seed: Some(count as u64), ..SamplerParams::default() };
        for sampling in [penalised, filtered] {
            Sampler::new(sampling.clone()).unwrap().sample(&logits).unwrap();
            reply(&mut session, GenerateOptions { sampling, ..Default::default() }).unwrap();
        }
        wglm::sample::logprobs(&logits, count as u32, count);
        wglm::sample::logprobs(&[], count as u32, count);
    }
}

#[test]
fn long_of_replies() {
    let mut session = small();
    for number in COUNTS {
        let options = GenerateOptions { logprobs: Some(number), ..GenerateOptions::default() };
        reply(&mut session, options).unwrap();
        let speculation = Speculation { most: Some(number), ..Speculation::default() };
        let made = reply(&mut session, GenerateOptions { speculation, ..GenerateOptions::default() });
        assert_eq!(made.is_ok(), number > 0);
        let options = GenerateOptions { max_tokens: Some(number), ..GenerateOptions::default() };
        let ended = Generation::new(&mut session, vec![7; 60], None, options).unwrap().last().unwrap().unwrap();
        assert!(matches!(ended, Event::Done(stats) if stats.generated <= number.min(5)), "{ended:?}");
        session.rewind(number);
        holds_or_says_so("kept", session.check(number, &[number as u32]));
        session.rewind(0);
        session.feed(&[1, 2]).unwrap();
        assert!(!session.next_tokens(number).unwrap().is_empty());
        holds_or_says_so("a plan", session.batch_plan(number));
        holds_or_says_so("a token", session.feed(&[number as u32]));
    }
}

#[test]
fn extended_of_chats() {
    for number in COUNTS {
        let mut chat = Chat::with_session(small()).unwrap();
        for overflow in [Overflow::DropOldest { reserve: Some(number) }, Overflow::Refuse] {
            chat.overflow = overflow;
            chat.options.max_tokens = Some(number.min(2));
            if let Some(reply) = holds_or_says_so("a reply", chat.send("hi")) {
                reply.for_each(|event| drop(event.unwrap()));
            }
        }
        holds_or_says_so("a reserve", chat.fit(number));
        chat.push(Message::user("one"));
        chat.remove(number..number.saturating_add(1));
        chat.remove(number..0);
        chat.truncate(number);
    }
}

/// Options that are NaN can be saved and read, and are refused when they are used.
#[test]
fn extended_of_saved_chats() {
    for value in FLOATS {
        let mut chat = Chat::with_session(small()).unwrap();
        let SamplerParams { temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty, .. } =
            &mut chat.options.sampling;
        for number in [temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty] {
            *number = value;
        }
        chat.options.sampling.logit_bias = vec![(1, value), (2, f32::NEG_INFINITY)];
        let kept = serde_json::to_string(&chat.save()).unwrap();
        let read: wglm::ChatState = serde_json::from_str(&kept).unwrap();
        let again = &read.options.sampling;
        for number in [again.temperature, again.top_p, again.frequency_penalty, again.logit_bias[0].1] {
            assert!(number.to_bits() == value.to_bits() || number.is_nan() && value.is_nan(), "{value}: {kept}");
        }
        assert_eq!(again.logit_bias[1], (2, f32::NEG_INFINITY));
        let fine = read.options.sampling.clone();
        let mut chat = Chat::with_session(small()).unwrap();
        chat.restore(read);
        if !fine.temperature.is_finite() {
            let error = chat.send("hi").map(drop).unwrap_err();
            assert!(matches!(error, Error::Argument { argument: "temperature", .. }), "{error}");
            assert_eq!(chat.messages(), []);
        }
    }
    // Options as older versions wrote them.
    let read: SamplerParams = serde_json::from_str(r#"{"temperature": null, "logit_bias": [[3, null]]}"#).unwrap();
    assert!(read.temperature.is_nan() && read.logit_bias == [(3, f32::NEG_INFINITY)], "{read:?}");
}

#[test]
fn of_budgets() {
    for (bytes, suffices) in [(0, false), (1, false), (u64::MAX, true)] {
        let limit = GpuOptions { memory_limit: Some(bytes), checks: false, ..GpuOptions::default() };
        let gpu = Gpu::open(&limit).unwrap();
        let made = holds_or_says_so("a limit", gpu.buffer("some", 1 << 20, BufferUse::Storage));
        assert_eq!((made.is_some(), gpu.memory().limit), (suffices, Some(bytes)));
    }
    for (budget, strict) in [(Duration::ZERO, true), (Duration::from_nanos(1), false), (Duration::MAX, true)] {
        let cancel = Cancel::default();
        if budget == Duration::MAX {
            cancel.cancel();
        }
        let (mut share, options) = (0.0, TuneOptions { budget: Some(budget), strict });
        let tuning = tune(model(), &options, &cancel, &mut |progress| share = progress.share()).unwrap();
        assert!((0.0..=1.0).contains(&share) && !tuning.complete, "{budget:?}");
    }
}

/// A budget that exceeds a clock's range is a long one, of which little has passed at the beginning.
#[test]
fn extended_an_endless_budget_is_a_long_one() {
    let (cancel, options) = (Cancel::default(), TuneOptions { budget: Some(Duration::MAX), ..TuneOptions::default() });
    let mut shares = Vec::new();
    let model = Model::load(&Small::with_short_context().open().unwrap(), gpu(), &LoadOptions::default()).unwrap();
    let tuning = tune(&model, &options, &cancel, &mut |progress| {
        shares.push(progress.share());
        cancel.cancel();
    });
    assert!(!tuning.unwrap().complete && shares.iter().all(|share| *share < 1e-6), "{shares:?}");
}

/// A cancellation takes effect while a tuning prepares, before anything else is submitted.
#[test]
fn extended_a_tuning_is_cancelled_at_once() {
    let gpu = open(true);
    let model = load_on(&gpu).unwrap();
    let (cancel, before) = (Cancel::default(), gpu.work().submissions);
    cancel.cancel();
    let stopped = tune(&model, &TuneOptions::default(), &cancel, &mut |_| {}).unwrap();
    assert!(!stopped.complete && stopped.trials.is_empty());
    assert_eq!(gpu.work().submissions, before);
    // At any moment of the setup and the first measurements.
    for moment in [1, 3, 10, 30, 60] {
        let (cancel, count, device) = (Cancel::default(), std::sync::atomic::AtomicU64::new(0), gpu.clone());
        let (asked, begin) = (cancel.clone(), gpu.work().submissions);
        gpu.before_submissions(move || {
            if count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == moment {
                assert_eq!(device.work().submissions - begin, moment);
                asked.cancel();
            }
        });
        let stopped = tune(&model, &TuneOptions::default(), &cancel, &mut |_| {}).unwrap();
        gpu.before_submissions(|| ());
        let after = gpu.work().submissions - begin - moment;
        assert!(!stopped.complete && after <= 4, "{after} submissions after a cancellation at {moment}");
    }
}
