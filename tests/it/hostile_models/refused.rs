//! One way to break the model, and the error that it must give.

use super::small::Small;
use crate::common::gpu::gpu;
use crate::watched::largest_allocation;
use std::panic::{AssertUnwindSafe, catch_unwind};
use wglm::text::{ChatTemplate, Tokenizer, Vocab};
use wglm::{Config, Error, Gguf, LoadOptions, Model, Result};
use wglm_engine::model::{BatchPlan, plan_token};
use wglm_engine::plan::Target;

/// An allocation that is larger than any in a plan of the small model.
const LITTLE: usize = 1 << 20;

/// A broken model.
#[derive(Clone)]
pub struct Broken {
    pub what: String,
    pub small: Small,
    /// The variant of the error.
    variant: &'static str,
    /// What its message must contain.
    says: Vec<String>,
}

impl Broken {
    pub fn new(what: impl Into<String>, edit: impl FnOnce(&mut Small), variant: &'static str, says: &[&str]) -> Self {
        let mut small = Small::default();
        edit(&mut small);
        Self { what: what.into(), small, variant, says: says.iter().map(|s| (*s).to_owned()).collect() }
    }

    /// Describes what is wrong with the error that `check` returns.
    fn fault<T>(&self, check: &dyn Fn(&Gguf) -> Result<T>) -> Option<String> {
        let attempt = || self.small.open().and_then(|file| largest(&file, check)).err();
        let Ok(error) = catch_unwind(AssertUnwindSafe(attempt)) else { return Some("panicked".into()) };
        let Some(error) = error else { return Some("accepted".into()) };
        let message = error.to_string();
        if variant(&error) != self.variant {
            return Some(format!("expected {}, got {}: {message}", self.variant, variant(&error)));
        }
        let missing = self.says.iter().find(|part| !message.contains(part.as_str()));
        missing.map(|part| format!("`{part}` is not in: {message}"))
    }
}

/// Runs `check`, and fails if it allocates more memory at once than any valid file needs.
fn largest<T>(file: &Gguf, check: &dyn Fn(&Gguf) -> Result<T>) -> Result<T> {
    let (result, largest) = largest_allocation(|| check(file));
    assert!(largest <= LITTLE, "allocated {largest} bytes at once");
    result
}

/// `check` must return the expected error for every case.
pub fn all_refused<T>(cases: &[Broken], check: impl Fn(&Gguf) -> Result<T>) {
    let faults: Vec<String> =
        cases.iter().filter_map(|c| c.fault(&check).map(|fault| format!("{}: {fault}", c.what))).collect();
    println!("{} cases", cases.len());
    assert!(faults.is_empty(), "{} of {} cases:\n{}", faults.len(), cases.len(), faults.join("\n"));
}

/// Reads the configuration and plans a token, which is everything in a load that needs no GPU, apart from texts.
pub fn plan_file(file: &Gguf) -> Result<BatchPlan> {
    let config = Config::read(file)?;
    plan_token(file, &config, LoadOptions::default().cache_for(&config), &Target::default())
}

pub fn plan(small: &Small) -> Result<BatchPlan> {
    plan_file(&small.open()?)
}

/// Reads the vocabulary and the chat template, as loading does.
pub fn read_texts(file: &Gguf) -> Result<()> {
    Vocab::read(file)?.map(Tokenizer::new).transpose()?;
    file.opt_string("tokenizer.chat_template")?.map(ChatTemplate::new).transpose().map(drop)
}

pub fn load(small: &Small, options: &LoadOptions) -> Result<Model> {
    Model::load(&small.open()?, gpu(), options)
}

fn variant(error: &Error) -> &'static str {
    match error {
        Error::Gguf { .. } => "Gguf",
        Error::Metadata { .. } => "Metadata",
        Error::Tensor { .. } => "Tensor",
        Error::Unsupported { .. } => "Unsupported",
        Error::Shape { .. } => "Shape",
        Error::Tokenizer { .. } => "Tokenizer",
        Error::Template { .. } => "Template",
        Error::TokenOutOfRange { .. } => "TokenOutOfRange",
        _ => "another",
    }
}
