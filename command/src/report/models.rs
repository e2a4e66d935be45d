//! The stages that load models.

use super::shape;
use super::stages::{Here, say, sum_up};
use crate::model::{demonstration, open, title};
use std::time::{Duration, Instant};
use wglm_engine::{CacheType, Cancel, Chat, Check, DraftKind, Event, Gguf, Gpu, LoadOptions, LoadProgress, Model};

/// How often a load writes its progress. A longer silence means that it hangs.
const SIGN: Duration = Duration::from_secs(5);

/// The question for the demonstration model, and a word of the answer.
const QUESTION: &str = "What is seven plus five?";
const ANSWER: &str = "twelve";
const MAX_TOKENS: usize = 100;

/// Loads a model without saved tunings and verdicts, and writes its progress from time to time.
pub fn load(gpu: &Gpu, file: &Gguf, check: Check) -> anyhow::Result<Model> {
    // The full GLM-4.7-Flash has a cache of f16; two layers of it would get one of f32.
    let cache = shape::is(file).then_some(CacheType::F16);
    let options = LoadOptions { check, cache, speculation: DraftKind::Off, ..LoadOptions::default() };
    let mut signed = Instant::now();
    let mut tell = |LoadProgress { stage, done, total, .. }: LoadProgress| {
        if signed.elapsed() > SIGN {
            signed = Instant::now();
            let _ = say(format_args!("loading, {stage:?}: {done} of {total}"));
        }
    };
    let model = Model::load_with(file, gpu, &options, &Cancel::default(), &mut tell)?;
    for notice in &model.config().notices {
        say(format_args!("note: {notice}"))?;
    }
    Ok(model)
}

pub fn answer(here: &Here<'_>) -> anyhow::Result<()> {
    let gpu = here.gpu()?;
    let model = load(&gpu, &demonstration()?, Check::Auto)?;
    let mut chat = Chat::new(&model)?;
    chat.reasoning = Some(true);
    chat.options.sampling.temperature = 0.0;
    chat.options.max_tokens = Some(MAX_TOKENS);
    let (mut thinking, mut text) = (String::new(), String::new());
    for event in chat.send(QUESTION)? {
        match event? {
            Event::Thinking(part) => thinking += &part,
            Event::Text(part) => text += &part,
            _ => {}
        }
    }
    say(format_args!("{QUESTION}\n{thinking}\n{text}"))?;
    let right = if text.contains(ANSWER) { "right" } else { "WRONG" };
    sum_up(format_args!("{right}: {:?}", text.trim()))
}

/// Loads the demonstration model, GLM-4.7-Flash's shape and the model given with -m, each with the kernel check.
pub fn verdict(here: &Here<'_>) -> anyhow::Result<()> {
    let gpu = here.gpu()?;
    // A software driver takes minutes to compile the kernels for a prompt of the large shape.
    let check = if gpu.report().is_software() { Check::Auto } else { Check::Always };
    loaded(&gpu, "the demonstration model", &demonstration()?, check)?;
    if here.left() == 0.0 {
        return sum_up(format_args!("other models: skipped for lack of time"));
    }
    loaded(&gpu, shape::NAME, &shape::model(&gpu)?, check)?;
    match &here.args.model {
        None => Ok(()),
        Some(_) if here.left() == 0.0 => sum_up(format_args!("the model given with -m: skipped for lack of time")),
        Some(path) => {
            let file = open(Some(path))?;
            loaded(&gpu, &title(&file), &file, check)
        }
    }
}

/// Loads a model and writes its verdict, or a line about the failure.
fn loaded(gpu: &Gpu, name: &str, file: &Gguf, check: Check) -> anyhow::Result<()> {
    let start = Instant::now();
    match load(gpu, file, check) {
        Ok(model) => {
            let seconds = start.elapsed().as_secs_f64();
            let verdict = model.verdict().map_or_else(|| "nothing was checked".to_owned(), ToString::to_string);
            sum_up(format_args!("{name}: loaded in {seconds:.1} s; {verdict}"))
        }
        Err(error) => sum_up(format_args!("{name}: NOT LOADED: {error:#}")),
    }
}
