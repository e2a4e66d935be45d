//! What was measured and chosen for one GPU and one shape of model, and for which devices and models it is valid.
//!
//! [`tune`](crate::tune::tune()) makes a tuning, an app saves it, and [`LoadOptions::tuning`] takes it. Its text is
//! JSON with a line for each trial, so that people can read what was tried, and with which result.

use super::options::LoadOptions;
use super::verdict::{adapter, driver};
use super::{Config, usual_arithmetic};
use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::gpu::Gpu;
use crate::plan::Choices;
use crate::wgsl::VERSION;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::str::FromStr;

/// What suits one GPU with one shape of model better than the built-in choices do, and the measurements that showed it.
/// [`tune`](crate::tune::tune()) makes it.
///
/// Its [`Display`](fmt::Display) form is text for a file, which [`FromStr`] reads again. The format may change in any
/// release; a tuning of another release cannot be used anyway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Tuning {
    /// What it is valid for.
    pub subject: TuningSubject,
    /// The choices that differ from the tables. Empty if nothing faster was found.
    pub choices: Choices,
    /// The last measurement: all choices against none, measured alternately. Empty if nothing was chosen.
    pub comparison: Vec<Comparison>,
    /// Whether everything was tried. False after a cancellation, or if time ran out.
    pub complete: bool,
    /// Everything that was tried, in order.
    pub trials: Vec<Trial>,
}

/// What a tuning is valid for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TuningSubject {
    /// The adapter, with its maker's number.
    pub adapter: String,
    /// The backend and the driver; on a Mac with the build of the system.
    pub driver: String,
    /// The version of wglm.
    pub wglm: String,
    /// The shape of the model: a few words for people, and a number for all shapes and formats of its weights.
    pub model: String,
}

/// A measurement of one kind of work, in seconds: a token, or a prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Figure {
    /// The work, named as in `wglm bench`: `tg`, `tg @ d16384`, `pp512`.
    pub work: String,
    /// The seconds that it took with what was chosen before.
    pub before: f64,
    /// The seconds that it took with the candidate.
    pub after: f64,
}

/// A comparison of one kind of work, measured alternately.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Comparison {
    /// The medians.
    #[serde(flatten)]
    pub figure: Figure,
    /// The part of the time that is gained; negative if it takes longer.
    pub gain: f64,
    /// How far the gain of a single turn typically deviates from that.
    pub spread: f64,
}

/// Something that was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Trial {
    /// What the choice is about: the step, and the rows of the plan.
    pub question: String,
    /// The candidate.
    pub candidate: String,
    /// What was measured.
    pub figures: Vec<Figure>,
    /// The part of the time that is gained, over all of these.
    pub gain: f64,
    /// How far the gain of a single turn typically deviates from that.
    pub spread: f64,
    /// The turns of the comparison. 0 for a candidate that was only measured once, and not compared alternately.
    pub turns: usize,
    /// The outcome.
    pub outcome: Outcome,
}

/// The outcome of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// It is faster by more than the spread, and correct: it was chosen.
    Kept,
    /// It is not faster, or slower at some of the work.
    Slower,
    /// What it gains may be chance.
    WithinSpread,
    /// Another candidate for the same is faster.
    Surpassed,
    /// Time was up before it was compared.
    OutOfTime,
    /// A result is wrong: where, what was found and what was expected.
    Wrong(String),
    /// It cannot be run: why.
    Failed(String),
    /// It was chosen, but dropped after the last comparison, because all choices together were not faster with it.
    Dropped,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept => f.write_str("kept"),
            Self::Slower => f.write_str("slower"),
            Self::WithinSpread => f.write_str("within the spread"),
            Self::Surpassed => f.write_str("surpassed"),
            Self::OutOfTime => f.write_str("out of time"),
            Self::Wrong(place) => write!(f, "wrong: {place}"),
            Self::Failed(reason) => write!(f, "failed: {reason}"),
            Self::Dropped => f.write_str("dropped"),
        }
    }
}

impl TuningSubject {
    /// The subject of a tuning for a device and the model in a file, of which it reads the header only.
    ///
    /// # Errors
    /// [`Error::Metadata`] and [`Error::Unsupported`] for a file of another architecture.
    pub fn of(gpu: &Gpu, file: &Gguf) -> Result<Self> {
        Ok(Self {
            adapter: adapter(gpu),
            driver: format!("{} {}", gpu.report().backend, driver(gpu)),
            wglm: VERSION.to_owned(),
            model: shape(file)?,
        })
    }

    /// A name for the file of a tuning, the same for all drivers and versions: a newer tuning replaces an older one.
    pub fn file_name(&self) -> String {
        let plain = |text: &str| {
            let letters = text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { ' ' });
            letters.collect::<String>().split_whitespace().collect::<Vec<_>>().join("-")
        };
        format!("{}.{}.json", plain(&self.adapter), plain(self.model.rsplit(' ').next().unwrap_or_default()))
    }

    /// Why a tuning for this subject cannot be used for another one, if it cannot.
    fn differs(&self, here: &Self) -> Option<String> {
        let fields = [
            ("the GPU", &self.adapter, &here.adapter),
            ("the driver", &self.driver, &here.driver),
            ("wglm", &self.wglm, &here.wglm),
            ("the model", &self.model, &here.model),
        ];
        let (what, was, is) = fields.into_iter().find(|(_, was, is)| was != is)?;
        Some(format!("it was made for {what} `{was}`, and this is `{is}`"))
    }
}

impl Tuning {
    /// A tuning without measurements: the app's own choices.
    pub fn new(subject: TuningSubject, choices: Choices) -> Self {
        Self { subject, choices, comparison: Vec::new(), complete: true, trials: Vec::new() }
    }

    /// Whether it can be used for a device, a file and options.
    ///
    /// # Errors
    /// [`Error::Argument`] that says why not; the errors of [`TuningSubject::of`].
    pub(super) fn suits(&self, gpu: &Gpu, file: &Gguf, options: &LoadOptions) -> Result<()> {
        let refuse = |found: String| {
            Err(Error::Argument { argument: "tuning", expected: "one for this GPU and model".to_owned(), found })
        };
        if let Some(difference) = self.subject.differs(&TuningSubject::of(gpu, file)?) {
            return refuse(difference);
        }
        let made_with = self.choices.arithmetic.unwrap_or_else(|| usual_arithmetic(gpu.report()));
        let asked = options.arithmetic_or(made_with);
        if asked != made_with {
            let (was, is) = (made_with.name(), asked.name());
            return refuse(format!("it was made for {was} arithmetic, and {is} is requested"));
        }
        Ok(())
    }

    /// Why this tuning is not used, as a sentence for [`Config::notices`].
    pub(super) fn unused(reason: &Error) -> String {
        let reason = match reason {
            Error::Argument { argument: "tuning", found, .. } => found.clone(),
            other => other.to_string(),
        };
        format!("the tuning is not used: {reason}; tune again")
    }
}

/// The shape of the model in a file.
fn shape(file: &Gguf) -> Result<String> {
    let config = Config::read(file)?;
    let (mut hasher, mut formats) = (DefaultHasher::new(), HashMap::<&str, usize>::new());
    for tensor in file.tensors() {
        (&tensor.name, tensor.ty.name, &tensor.dims).hash(&mut hasher);
        *formats.entry(tensor.ty.name).or_default() += tensor.bytes;
    }
    let format = formats.into_iter().max_by_key(|(name, bytes)| (*bytes, *name)).map_or("", |(name, _)| name);
    let experts = config.experts.map_or(String::new(), |experts| format!(", {} experts", experts.count));
    let (layers, width) = (config.layers, config.width);
    Ok(format!("{layers} layers of {width}{experts}, mostly {format}, {:016x}", hasher.finish()))
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            _ => return Err(fmt::Error),
        };
        let fields: Vec<String> = fields.iter().map(|(name, value)| format!("  \"{name}\": {}", text(value))).collect();
        writeln!(f, "{{\n{}\n}}", fields.join(",\n"))
    }
}

/// A field of the file, with each record of a list on a line of its own.
fn text(value: &Value) -> String {
    match value {
        Value::Array(items) if items.iter().any(Value::is_object) => {
            let lines: Vec<String> = items.iter().map(|item| format!("    {item}")).collect();
            format!("[\n{}\n  ]", lines.join(",\n"))
        }
        other => format!("{other:#}").replace('\n', "\n  "),
    }
}

impl FromStr for Tuning {
    type Err = Error;

    /// Reads what [`Display`](fmt::Display) writes.
    ///
    /// # Errors
    /// [`Error::Argument`] for anything else, including text of another release.
    fn from_str(text: &str) -> Result<Self> {
        let unlike = |error: serde_json::Error| {
            let expected = format!("a tuning as wglm {VERSION} writes it");
            Error::Argument { argument: "tuning", expected, found: format!("other text: {error}") }
        };
        serde_json::from_str(text).map_err(unlike)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn subject() -> TuningSubject {
        let [adapter, driver, wglm] = ["Some GPU (10de)", "vulkan 5", "1.0"].map(str::to_owned);
        TuningSubject { adapter, driver, wglm, model: "2 layers of 64, mostly q4_0, 00ff".to_owned() }
    }

    fn tuning() -> Tuning {
        let figure = Figure { work: "tg".to_owned(), before: 2.8e-3, after: 2.7e-3 };
        let trial = |outcome| Trial {
            question: "moe.down, 1 row".to_owned(),
            candidate: "moe.down@1=32x1x512".to_owned(),
            figures: vec![figure.clone()],
            gain: 0.0357,
            spread: 0.002,
            turns: 7,
            outcome,
        };
        let choices = Choices { tilings: vec!["moe.down@1=32x1x512".parse().unwrap()], ..Choices::default() };
        let comparison = vec![Comparison { figure: figure.clone(), gain: 0.0357, spread: 0.002 }];
        let trials = vec![trial(Outcome::Kept), trial(Outcome::Wrong("at `x`[3]".to_owned()))];
        Tuning { subject: subject(), choices, comparison, complete: true, trials }
    }

    #[test]
    fn a_tuning_is_read_as_it_is_written() {
        let text = tuning().to_string();
        assert_eq!(text.parse::<Tuning>().unwrap(), tuning());
        let trials: Vec<&str> = text.lines().filter(|line| line.contains("question")).collect();
        assert!(trials.len() == 2 && trials[1].contains(r#""outcome":{"wrong":"at `x`[3]"}"#), "{text}");
        let empty = Tuning { choices: Choices::default(), comparison: vec![], trials: vec![], ..tuning() };
        assert_eq!(empty.to_string().parse::<Tuning>().unwrap(), empty);
    }

    #[test]
    fn what_is_broken_is_refused() {
        let text = tuning().to_string();
        for broken in [&text[..text.len() / 2], "", "{}", "[1]", &text.replace("32x1x512", "32x1")] {
            let error = broken.parse::<Tuning>().unwrap_err().to_string();
            assert!(error.contains("expected a tuning as wglm"), "{error}");
        }
    }

    #[test]
    fn a_subject_is_all_of_it() {
        let here = subject();
        assert_eq!(here.differs(&here), None);
        let with = |change: fn(&mut TuningSubject)| {
            let mut other = subject();
            change(&mut other);
            here.differs(&other).unwrap()
        };
        assert_eq!(with(|it| it.wglm = "2.0".into()), "it was made for wglm `1.0`, and this is `2.0`");
        assert!(
            with(|it| it.adapter.clear()).contains("the GPU") && with(|it| it.driver.clear()).contains("the driver")
        );
        assert!(with(|it| it.model.clear()).contains("the model"));
        assert_eq!(here.file_name(), "some-gpu-10de.00ff.json");
    }
}
