//! The command `logits`: writes the model's logits, for comparison with other programs.

use super::args::LogitsArgs;
use super::{input, model};
use anyhow::{Context, anyhow, ensure};
use std::collections::HashMap;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::Path;
use wglm_engine::instruments::{Readers, Replacement};
use wglm_engine::{CacheShape, DraftKind, Session};

pub fn logits(args: LogitsArgs) -> anyhow::Result<()> {
    let onto_terminal = args.out == Path::new(STREAM) && io::stdout().is_terminal();
    ensure!(!onto_terminal, "--out -: stdout is a terminal; redirect it to a file or a pipe");
    let tokens = read_tokens(&args.tokens)?;
    let positions = args.positions.clone().unwrap_or_else(|| (0..tokens.len()).collect());
    if let Some(position) = positions.iter().find(|p| **p >= tokens.len()) {
        anyhow::bail!("--positions: expected positions below {}, the number of tokens; found {position}", tokens.len());
    }
    let mut session = session(&args, tokens.len())?;
    let vocab = session.model().config().vocab;
    if let Some(&token) = tokens.iter().find(|t| **t as usize >= vocab) {
        return Err(wglm_engine::Error::TokenOutOfRange { token, vocab }.into());
    }
    let mut out = Destination::open(&args.out, &args.tokens)?;
    if positions.is_sorted_by(|a, b| a < b) {
        each_row(&mut session, &tokens, &positions, &mut |_, row| out.write(bytemuck::cast_slice(row)))?;
        return out.finish();
    }
    let (mut wanted, mut rows) = (positions.clone(), HashMap::new());
    wanted.sort_unstable();
    wanted.dedup();
    each_row(&mut session, &tokens, &wanted, &mut |position, row| {
        rows.insert(position, row.to_vec());
        Ok(())
    })?;
    for position in positions {
        out.write(bytemuck::cast_slice(&rows[&position]))?;
    }
    out.finish()
}

/// Calls `visit` with the logits at each of the ascending positions. Adjacent positions are computed together.
fn each_row(
    session: &mut Session,
    tokens: &[u32],
    positions: &[usize],
    visit: &mut dyn FnMut(usize, &[f32]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for run in positions.chunk_by(|a, b| a + 1 == *b) {
        let (first, last) = (run[0], run[run.len() - 1]);
        session.feed(&tokens[session.tokens().len()..first])?;
        let mut failed = Ok(());
        let fed = session.feed_all(&tokens[first..=last], &mut |place, row| {
            failed = visit(first + place, row);
            if failed.is_ok() { Ok(()) } else { Err(wglm_engine::Error::Cancelled) }
        });
        failed?;
        fed?;
    }
    Ok(())
}

/// The file name that means stdin or stdout.
const STREAM: &str = "-";

/// The output. A regular file gets its name only once it is complete; a pipe or stdout gets rows as they are computed.
struct Destination<'a> {
    to: &'a Path,
    out: Out,
}

enum Out {
    Stdout(BufWriter<io::Stdout>),
    File(BufWriter<Replacement>),
}

impl<'a> Destination<'a> {
    fn open(to: &'a Path, tokens: &Path) -> anyhow::Result<Self> {
        if to == Path::new(STREAM) {
            return Ok(Self { to, out: Out::Stdout(BufWriter::new(io::stdout())) });
        }
        let same = to.is_file() && to.canonicalize().ok() == tokens.canonicalize().ok();
        ensure!(!same, "--out is the same file as --tokens; choose another");
        let file = Replacement::begin(to, Readers::Usual).with_context(|| format!("cannot write {}", to.display()))?;
        Ok(Self { to, out: Out::File(BufWriter::new(file)) })
    }

    fn write(&mut self, row: &[u8]) -> anyhow::Result<()> {
        let written = match &mut self.out {
            Out::Stdout(out) => out.write_all(row),
            Out::File(out) => out.write_all(row),
        };
        written.with_context(|| format!("cannot write {}", self.to.display()))
    }

    fn finish(mut self) -> anyhow::Result<()> {
        let finished = match &mut self.out {
            Out::Stdout(out) => out.flush(),
            Out::File(out) => out.flush().and_then(|()| out.get_mut().commit()),
        };
        finished.with_context(|| format!("cannot write {}", self.to.display()))
    }
}

/// A session whose context holds all tokens, or has the size given with -c.
fn session(args: &LogitsArgs, tokens: usize) -> anyhow::Result<Session> {
    let model = model::load(&model::open(args.model.file.model.as_deref())?, &args.model, DraftKind::Off)?;
    let usual = model.cache();
    let context = if args.model.file.context.is_some() { usual.context } else { usual.context.max(tokens) };
    Ok(Session::with_cache(&model, CacheShape { context, ..usual })?)
}

fn read_tokens(path: &Path) -> anyhow::Result<Vec<u32>> {
    let bytes = if path == Path::new(STREAM) {
        let mut bytes = Vec::new();
        io::stdin().read_to_end(&mut bytes).context("cannot read stdin")?;
        bytes
    } else {
        std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?
    };
    ensure!(
        !bytes.is_empty() && bytes.len().is_multiple_of(4),
        "{}: expected little-endian i32, at least one; found {} bytes",
        input::name(path),
        bytes.len()
    );
    let token = |four: &[u8; 4]| {
        let id = i32::from_le_bytes(*four);
        u32::try_from(id).map_err(|_| anyhow!("{}: expected token ids, found {id}", input::name(path)))
    };
    bytes.as_chunks().0.iter().map(token).collect()
}
