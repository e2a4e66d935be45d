//! `perplexity`: how well the model foretells a text, counted as llama.cpp counts it without a stride, for vocabularies
//! that add no BOS.
//!
//! The text is cut into windows of as many tokens as the context holds, each computed by itself. Of a window the second
//! half is judged, whose tokens all have the first half before them; with a stride, its last tokens.

use super::args::{ModelArgs, OutputFormat};
use super::output::{self, Aside};
use super::setup::Setup;
use super::table::{csv, record};
use super::{model, run};
use anyhow::ensure;
use clap::Args;
use serde::Serialize;
use std::ops::ControlFlow;
use std::path::PathBuf;
use wglm::model::CacheShape;
use wglm::{Model, Session};

/// Tokens of a window, unless -c says otherwise.
const USUAL_WINDOW: usize = 512;

#[derive(Debug, Args)]
pub struct PerplexityArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// The text; - reads it from stdin
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Windows to judge at most
    #[arg(long, value_name = "N")]
    pub chunks: Option<usize>,
    /// Start a window every N tokens and judge the last N of each; 0 for one window after another and the second
    /// half of each
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub ppl_stride: usize,
    /// How the results are written
    #[arg(short, long, value_name = "FORMAT", default_value = "md")]
    pub output: OutputFormat,
}

#[derive(Serialize)]
struct Result {
    #[serde(flatten)]
    setup: Setup,
    /// Tokens of the text, of a window, from one window's start to the next's.
    n_tokens: usize,
    n_ctx: usize,
    stride: usize,
    windows: usize,
    /// Tokens judged.
    count: usize,
    /// The mean of what a token's probability surprises, in nats.
    nll: f64,
    ppl: f64,
    /// The standard error of `ppl`.
    error: f64,
    seconds: f64,
}

pub fn perplexity(args: PerplexityArgs) -> anyhow::Result<()> {
    let text = run::read_text(&args.file)?;
    let windows = Windows::of(&args)?;
    let model = model::load(&model::open(args.model.file.model.as_deref())?, &args.model)?;
    let tokens = model.tokenizer()?.encode(&text, false)?;
    let starts = windows.starts(tokens.len(), args.chunks.unwrap_or(usize::MAX))?;
    let start = std::time::Instant::now();
    let surprise = judge(&model, &tokens, &windows, &starts)?;
    let result = Result {
        setup: Setup::of(&model, &args.model.file),
        n_tokens: tokens.len(),
        n_ctx: windows.length,
        stride: windows.stride,
        windows: starts.len(),
        count: surprise.count,
        nll: surprise.mean(),
        ppl: surprise.perplexity(),
        error: surprise.error(),
        seconds: start.elapsed().as_secs_f64(),
    };
    report(&result, args.output)
}

fn report(result: &Result, format: OutputFormat) -> anyhow::Result<()> {
    match format {
        OutputFormat::Md => output::lines([
            format!("Final estimate: PPL = {:.4} +/- {:.5}", result.ppl, result.error),
            format!(
                "{} tokens judged in {} windows of {}, {:.1} s",
                result.count, result.windows, result.n_ctx, result.seconds
            ),
            result.setup.sentence(),
        ]),
        OutputFormat::Csv => csv(&[record(result)?], true),
        OutputFormat::Json => output::lines([serde_json::to_string_pretty(&record(result)?)?]),
    }
}

/// How a text is cut.
struct Windows {
    /// Tokens of a window.
    length: usize,
    /// Tokens from one window's start to the next's.
    stride: usize,
    /// Tokens at the end of a window that are judged.
    judged: usize,
}

impl Windows {
    fn of(args: &PerplexityArgs) -> anyhow::Result<Self> {
        let length = args.model.file.context.unwrap_or(USUAL_WINDOW);
        ensure!(length >= 3, "-c: expected windows of 3 tokens or more, found {length}");
        ensure!(args.chunks != Some(0), "--chunks: expected one window or more, found 0");
        match args.ppl_stride {
            0 => Ok(Self { length, stride: length, judged: length - length / 2 - 1 }),
            stride if stride < length => Ok(Self { length, stride, judged: stride }),
            stride => anyhow::bail!("--ppl-stride: expected less than the window's {length} tokens, found {stride}"),
        }
    }

    /// The first tokens of at most `most` windows.
    fn starts(&self, tokens: usize, most: usize) -> anyhow::Result<Vec<usize>> {
        ensure!(
            tokens >= self.length,
            "the text has {tokens} tokens, which fill no window of {}; give more of it, or less with -c",
            self.length
        );
        Ok((0..=tokens - self.length).step_by(self.stride).take(most).collect())
    }
}

/// Sums over the tokens judged.
#[derive(Default)]
struct Surprise {
    count: usize,
    sum: f64,
    squares: f64,
}

impl Surprise {
    fn add(&mut self, nats: f64) {
        self.count += 1;
        self.sum += nats;
        self.squares += nats * nats;
    }

    fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }

    fn perplexity(&self) -> f64 {
        self.mean().exp()
    }

    /// The standard error of the perplexity; 0 of a single token.
    fn error(&self) -> f64 {
        let variance = self.squares / self.count as f64 - self.mean().powi(2);
        let degrees = self.count.saturating_sub(1).max(1) as f64;
        (variance.max(0.0) / degrees).sqrt() * self.perplexity()
    }
}

fn judge(model: &Model, tokens: &[u32], windows: &Windows, starts: &[usize]) -> anyhow::Result<Surprise> {
    let mut session = Session::with_cache(model, CacheShape { context: windows.length, ..model.cache() })?;
    let (mut surprise, aside) = (Surprise::default(), Aside::new());
    for (start, index) in starts.iter().zip(1..) {
        let window = &tokens[*start..start + windows.length];
        if let Some(token) = window.iter().find(|token| **token as usize >= model.config().vocab) {
            anyhow::bail!(
                "the tokenizer made token {token} of the text, which the model of {} has not",
                model.config().vocab
            );
        }
        session.rewind(0);
        // The last token foretells none of the window's, and of those before the judged ones no logits are wanted.
        let (before, telling) = window[..windows.length - 1].split_at(windows.length - 1 - windows.judged);
        session.feed(before)?;
        session.feed_all(telling, &mut |place, logits| {
            surprise.add(nats(logits, window[before.len() + place + 1]));
            ControlFlow::Continue(())
        })?;
        aside.passing(format_args!("[{index}/{}] {:.4}", starts.len(), surprise.perplexity()));
    }
    aside.passing(format_args!(""));
    Ok(surprise)
}

/// −ln of the probability that logits give a token.
fn nats(logits: &[f32], token: u32) -> f64 {
    let top = logits.iter().copied().fold(f32::MIN, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from((logit - top).exp())).sum();
    sum.ln() - f64::from(logits[token as usize] - top)
}
