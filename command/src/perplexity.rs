//! The command `perplexity`: measures how well the model predicts a text, computed like llama.cpp's without a stride,
//! for vocabularies that add no beginning-of-text token.
//!
//! The text is cut into windows of as many tokens as the context holds, and each window is computed separately. The
//! second half of a window is scored, so that all scored tokens follow the first half. With a stride, the last tokens
//! of a window are scored.

use super::args::{OutputFormat, PerplexityArgs};
use super::divergence::{Divergence, DivergenceSum};
use super::output;
use super::progress::ProgressLine;
use super::setup::Setup;
use super::table::{csv, record};
use super::{input, model};
use anyhow::ensure;
use serde::Serialize;
use wglm_engine::{CacheShape, CacheType, Config, DraftKind, Gguf, Model, Session};

const USUAL_WINDOW: usize = 512;

/// The result, with the field names of JSON and CSV.
#[derive(Serialize)]
struct Perplexity {
    #[serde(flatten)]
    setup: Setup,
    /// The number of tokens of the text, of a window, and between the beginnings of two windows.
    n_tokens: usize,
    n_ctx: usize,
    stride: usize,
    windows: usize,
    /// The number of scored tokens.
    count: usize,
    /// The mean negative log-likelihood of a token, in nats.
    nll: f64,
    ppl: f64,
    /// The standard error of `ppl`.
    error: f64,
    /// The difference from the predictions with another type of cache.
    #[serde(flatten)]
    divergence: Option<Divergence>,
    seconds: f64,
}

pub fn perplexity(args: PerplexityArgs) -> anyhow::Result<()> {
    let text = input::verbatim(&args.file)?;
    let file = model::open(args.model.file.model.as_deref())?;
    let windows = TextWindows::of(&args, &file)?;
    let model = model::load(&file, &args.model, DraftKind::Off)?;
    let tokens = model.tokenizer()?.encode(&text, false)?;
    let starts = windows.starts(tokens.len(), args.chunks.0.unwrap_or(usize::MAX))?;
    let start = std::time::Instant::now();
    let base = args.kl_divergence.map(|ty| BaseScore::new(&model, &windows, ty)).transpose()?;
    let (loss, divergence) = score(&model, &tokens, &windows, &starts, base)?;
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
        divergence,
        seconds: start.elapsed().as_secs_f64(),
    };
    report(&result, args.output.format())
}

fn report(result: &Perplexity, format: OutputFormat) -> anyhow::Result<()> {
    match format {
        OutputFormat::Md => {
            let mut lines = vec![format!("Final estimate: PPL = {:.4} +/- {:.5}", result.ppl, result.error)];
            lines.extend(result.divergence.as_ref().map(Divergence::sentence));
            lines.push(format!(
                "{} tokens scored in {} windows of {}, {:.1} s",
                result.count, result.windows, result.n_ctx, result.seconds
            ));
            lines.push(result.setup.sentence());
            output::lines(lines)
        }
        OutputFormat::Csv => csv(&[record(result)?], true),
        _ => output::lines([serde_json::to_string_pretty(&record(result)?)?]),
    }
}

/// How a text is cut into windows.
struct TextWindows {
    /// The number of tokens of a window.
    length: usize,
    /// The number of tokens between the beginnings of two windows.
    stride: usize,
    /// The number of tokens at the end of a window that are scored.
    scored: usize,
}

impl TextWindows {
    fn of(args: &PerplexityArgs, file: &Gguf) -> anyhow::Result<Self> {
        let context = args.model.file.context.unwrap_or(USUAL_WINDOW);
        let length = if context == 0 { Config::read(file)?.context } else { context };
        ensure!(length >= 3, "-c: expected at least 3 tokens, found {length}");
        match args.ppl_stride {
            0 => Ok(Self { length, stride: length, scored: length - length / 2 - 1 }),
            stride if stride < length => Ok(Self { length, stride, scored: stride }),
            stride => {
                anyhow::bail!("--ppl-stride: expected less than the {length} tokens of a window (-c), found {stride}")
            }
        }
    }

    /// The positions at which windows begin, at most `most` of them.
    fn starts(&self, tokens: usize, most: usize) -> anyhow::Result<Vec<usize>> {
        ensure!(tokens >= self.length, "text too short: {tokens} tokens, need {}; lower -c", self.length);
        Ok((0..=tokens - self.length).step_by(self.stride).take(most).collect())
    }
}

/// Sums of the negative log-likelihood over the scored tokens.
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

    /// The standard error of the perplexity; 0 for a single token.
    fn error(&self) -> f64 {
        let variance = self.squares / self.count as f64 - self.mean().powi(2);
        let degrees = self.count.saturating_sub(1).max(1) as f64;
        (variance.max(0.0) / degrees).sqrt() * self.perplexity()
    }
}

/// Tokens whose logits are compared at a time: those of GLM-4.7-Flash take 317 MB.
const COMPARED: usize = 512;

/// The same with another type of cache, to compare with.
struct BaseScore {
    session: Session,
    ty: CacheType,
    loss: LossSum,
    divergence: DivergenceSum,
    /// The logits of the piece of a window that is compared.
    logits: Vec<Vec<f32>>,
}

impl BaseScore {
    fn new(model: &Model, windows: &TextWindows, ty: CacheType) -> anyhow::Result<Self> {
        let session = Session::with_cache(model, CacheShape { context: windows.length, ty })?;
        Ok(Self { session, ty, loss: LossSum::default(), divergence: DivergenceSum::default(), logits: Vec::new() })
    }

    /// Begins a window with tokens that are not scored.
    fn begin(&mut self, before: &[u32]) -> anyhow::Result<()> {
        self.session.rewind(0);
        Ok(self.session.feed(before)?)
    }

    /// Computes a piece of its scored tokens: `inputs` predicts the tokens `targets`.
    fn piece(&mut self, inputs: &[u32], targets: &[u32]) -> anyhow::Result<()> {
        self.logits.clear();
        self.session.feed_all(inputs, &mut |place, logits| {
            self.loss.add(nats(logits, targets[place]));
            self.logits.push(logits.to_vec());
            Ok(())
        })?;
        Ok(())
    }
}

fn score(
    model: &Model,
    tokens: &[u32],
    windows: &TextWindows,
    starts: &[usize],
    mut base: Option<BaseScore>,
) -> anyhow::Result<(LossSum, Option<Divergence>)> {
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
        // The last token of a window predicts none of its tokens, so it is left out. The logits before the scored part
        // are not needed.
        let (before, inputs) = window[..windows.length - 1].split_at(windows.length - 1 - windows.scored);
        let targets = &window[before.len() + 1..];
        if let Some(base) = &mut base {
            base.begin(before)?;
        }
        session.feed(before)?;
        let piece = if base.is_some() { COMPARED } else { inputs.len().max(1) };
        for (inputs, targets) in inputs.chunks(piece).zip(targets.chunks(piece)) {
            if let Some(base) = &mut base {
                base.piece(inputs, targets)?;
            }
            session.feed_all(inputs, &mut |place, logits| {
                loss.add(nats(logits, targets[place]));
                if let Some(base) = &mut base {
                    base.divergence.add(&base.logits[place], logits);
                }
                Ok(())
            })?;
        }
        progress.doing(format!("windows, PPL {:.4} so far", loss.perplexity()));
        progress.advance();
    }
    let divergence = base.map(|base| base.divergence.result(base.ty.name(), base.loss.perplexity()));
    Ok((loss, divergence))
}

/// The negative log-likelihood of a token under the logits, in nats.
fn nats(logits: &[f32], token: u32) -> f64 {
    let top = logits.iter().copied().fold(f32::MIN, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from((logit - top).exp())).sum();
    sum.ln() - f64::from(logits[token as usize] - top)
}
