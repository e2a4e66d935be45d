//! `perplexity`: how well the model predicts a text, counted as llama.cpp counts it without a stride, for vocabularies
//! that add no BOS.
//!
//! The text is cut into windows of as many tokens as the context holds, each computed by itself. Of a window the second
//! half is judged, whose tokens all have the first half before them; with a stride, its last tokens.

use super::args::{OutputFormat, PerplexityArgs};
use super::output;
use super::progress::ProgressLine;
use super::setup::Setup;
use super::table::{csv, record};
use super::{input, model};
use anyhow::ensure;
use serde::Serialize;
use std::ops::ControlFlow;
use wglm::model::CacheShape;
use wglm::{Config, Gguf, Model, Session};

/// Tokens of a window, unless -c says otherwise.
const USUAL_WINDOW: usize = 512;

#[derive(Serialize)]
struct Perplexity {
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
    let text = input::verbatim(&args.file)?;
    let file = model::open(args.model.file.model.as_deref())?;
    let windows = TextWindows::of(&args, &file)?;
    let model = model::load(&file, &args.model)?;
    let tokens = model.tokenizer()?.encode(&text, false)?;
    let starts = windows.starts(tokens.len(), args.chunks.0.unwrap_or(usize::MAX))?;
    let start = std::time::Instant::now();
    let loss = judge(&model, &tokens, &windows, &starts)?;
    let result = Perplexity {
        setup: Setup::of(&model, &args.model.file),
        n_tokens: tokens.len(),
        n_ctx: windows.length,
        stride: windows.stride,
        windows: starts.len(),
        count: loss.count,
        nll: loss.mean(),
        ppl: loss.perplexity(),
        error: loss.error(),
        seconds: start.elapsed().as_secs_f64(),
    };
    report(&result, args.output.format())
}

fn report(result: &Perplexity, format: OutputFormat) -> anyhow::Result<()> {
    match format {
        OutputFormat::Md => output::lines([
            format!("Final estimate: PPL = {:.4} +/- {:.5}", result.ppl, result.error),
            format!(
                "{} tokens scored in {} windows of {}, {:.1} s",
                result.count, result.windows, result.n_ctx, result.seconds
            ),
            result.setup.sentence(),
        ]),
        OutputFormat::Csv => csv(&[record(result)?], true),
        OutputFormat::Json => output::lines([serde_json::to_string_pretty(&record(result)?)?]),
    }
}

/// How a text is cut.
struct TextWindows {
    /// Tokens of a window.
    length: usize,
    /// Tokens from one window's start to the next's.
    stride: usize,
    /// Tokens at the end of a window that are judged.
    judged: usize,
}

impl TextWindows {
    fn of(args: &PerplexityArgs, file: &Gguf) -> anyhow::Result<Self> {
        let context = args.model.file.context.unwrap_or(USUAL_WINDOW);
        let length = if context == 0 { Config::read(file)?.context } else { context };
        ensure!(length >= 3, "-c: expected at least 3 tokens, found {length}");
        match args.ppl_stride {
            0 => Ok(Self { length, stride: length, judged: length - length / 2 - 1 }),
            stride if stride < length => Ok(Self { length, stride, judged: stride }),
            stride => {
                anyhow::bail!("--ppl-stride: expected less than the {length} tokens of a window (-c), found {stride}")
            }
        }
    }

    /// The first tokens of at most `most` windows.
    fn starts(&self, tokens: usize, most: usize) -> anyhow::Result<Vec<usize>> {
        ensure!(tokens >= self.length, "text too short: {tokens} tokens, need {}; lower -c", self.length);
        Ok((0..=tokens - self.length).step_by(self.stride).take(most).collect())
    }
}

/// Sums over the tokens judged.
#[derive(Default)]
struct LossSum {
    count: usize,
    sum: f64,
    squares: f64,
}

impl LossSum {
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

fn judge(model: &Model, tokens: &[u32], windows: &TextWindows, starts: &[usize]) -> anyhow::Result<LossSum> {
    let mut session = Session::with_cache(model, CacheShape { context: windows.length, ..model.cache() })?;
    let (mut loss, progress) = (LossSum::default(), ProgressLine::new(starts.len()));
    progress.doing("windows");
    for start in starts {
        let window = &tokens[*start..start + windows.length];
        if let Some(token) = window.iter().find(|token| **token as usize >= model.config().vocab) {
            anyhow::bail!(
                "the text holds token {token}, which is outside the model's vocabulary of {} tokens",
                model.config().vocab
            );
        }
        session.rewind(0);
        // The last token foretells none of the window's, and of those before the judged ones no logits are wanted.
        let (before, telling) = window[..windows.length - 1].split_at(windows.length - 1 - windows.judged);
        session.feed(before)?;
        session.feed_all(telling, &mut |place, logits| {
            loss.add(nats(logits, window[before.len() + place + 1]));
            ControlFlow::Continue(())
        })?;
        progress.doing(format!("windows, PPL {:.4} so far", loss.perplexity()));
        progress.advance();
    }
    Ok(loss)
}

/// −ln of the probability that logits give a token.
fn nats(logits: &[f32], token: u32) -> f64 {
    let top = logits.iter().copied().fold(f32::MIN, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from((logit - top).exp())).sum();
    sum.ln() - f64::from(logits[token as usize] - top)
}
