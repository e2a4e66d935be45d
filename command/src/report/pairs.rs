//! The stage that compares two ways to compute the same thing, alternating, on GLM-4.7-Flash's shape: choices that wglm
//! made for Macs without measuring them.

use super::models::load;
use super::shape;
use super::stages::{Here, say, sum_up};
use wglm_engine::instruments::{Compared, StepChoice, Tiling, compare};
use wglm_engine::tune::Choices;
use wglm_engine::{CacheShape, Check, Matrices, Model, Session};

/// Two ways to compute the same thing.
struct Pair {
    name: &'static str,
    /// The names of the two ways, and their choices.
    ways: [(&'static str, Choices); 2],
    works: &'static [Compared],
    /// Why it is skipped, if it is.
    without: Option<&'static str>,
}

const TOKEN: Compared = Compared::Token(0);
const DEEP: Compared = Compared::Token(4096);
const PROMPT: Compared = Compared::Rows(512);

fn pairs(model: &Model) -> wglm_engine::Result<Vec<Pair>> {
    let steps = steps(model)?;
    let products = |tiling| products(&steps, tiling);
    let matrices = model.target().matrices != Matrices::None;
    let software = model.gpu().report().is_software();
    let none = Choices::default;
    let no_matrices = (!matrices).then_some("this GPU has no matrices");
    let slow = software.then_some("prompts take too long with a software driver");
    let direct = products("32x4x64d");
    let staged = direct.is_err().then_some("this wglm stages the inputs of all products");
    Ok(vec![
        Pair {
            name: "inputs of products",
            ways: [("staged", products("32x4x64")?), ("direct", direct.unwrap_or_default())],
            works: &[TOKEN],
            without: staged,
        },
        Pair {
            name: "workgroups of products",
            ways: [("64 invocations", products("32x4x64")?), ("128", products("32x4x128")?)],
            works: &[TOKEN],
            without: None,
        },
        Pair {
            name: "rows of a team",
            ways: [("4", products("32x4x64")?), ("2", products("32x2x64")?)],
            works: &[TOKEN],
            without: None,
        },
        Pair {
            name: "attention of a token",
            ways: [("matrices", none()), ("none", Choices { few_without_matrices: true, ..none() })],
            works: &[TOKEN, DEEP],
            without: no_matrices,
        },
        Pair {
            name: "a prompt",
            ways: [("matrices", none()), ("none", Choices { prompts_without_matrices: true, ..none() })],
            works: &[PROMPT],
            without: no_matrices.or(slow),
        },
    ])
}

/// A tiling for all products of a single row. Other steps have no tiling.
fn products(steps: &[String], tiling: &str) -> wglm_engine::Result<Choices> {
    let tilings = steps.iter().map(|step| format!("{step}@1={tiling}").parse::<StepChoice<Tiling>>());
    Ok(Choices { tilings: tilings.collect::<wglm_engine::Result<_>>()?, ..Choices::default() })
}

fn steps(model: &Model) -> wglm_engine::Result<Vec<String>> {
    let session = Session::with_cache(model, CacheShape { context: 512, ..model.cache() })?;
    Ok(session.plan().kinds().iter().map(|kind| kind.name.to_owned()).collect())
}

pub fn run(here: &Here<'_>) -> anyhow::Result<()> {
    let gpu = here.gpu()?;
    let model = load(&gpu, &shape::model(&gpu)?, Check::Never)?;
    let pairs = pairs(&model)?;
    let count: usize = pairs.iter().map(|pair| pair.works.len()).sum();
    for (done, (pair, work)) in
        pairs.iter().flat_map(|pair| pair.works.iter().map(move |work| (pair, *work))).enumerate()
    {
        if done < here.args.from {
            continue;
        }
        if let Some(why) = pair.without {
            say(format_args!("[{done}] {}: skipped: {why}", pair.name))?;
            continue;
        }
        if here.left() == 0.0 {
            sum_up(format_args!("{}: skipped for lack of time", pair.name))?;
            continue;
        }
        say(format_args!("[{done}] {}", pair.name))?;
        compared(&model, pair, work, here.left() / (count - done) as f64)?;
    }
    Ok(())
}

fn compared(model: &Model, pair: &Pair, work: Compared, seconds: f64) -> anyhow::Result<()> {
    let [(first, before), (second, after)] = &pair.ways;
    match compare(model, [before, after], work, seconds) {
        Ok(found) => sum_up(format_args!(
            "{}, {}: {first} {:.2} ms, {second} {:.2} ms ({:+.1} %, turns differ by {:.1} %)",
            pair.name,
            found.figure.work,
            found.figure.before * 1e3,
            found.figure.after * 1e3,
            -100.0 * found.gain,
            100.0 * found.spread,
        )),
        Err(error @ wglm_engine::Error::DeviceLost { .. }) => Err(error.into()),
        Err(error) => sum_up(format_args!("{}, {first} and {second}: FAILED: {error}", pair.name)),
    }
}
