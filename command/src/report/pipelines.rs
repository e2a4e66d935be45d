//! The stage that compiles every pipeline separately, to name those that a compiler refuses or that take long.

use super::shape;
use super::stages::{Here, say, sum_up};
use crate::model::demonstration;
use crate::output;
use std::collections::HashSet;
use std::path::Path;
use std::time::Instant;
use wglm_engine::instruments::{
    Pipelines, Readers, Shaders, Target, Variant, metal_text, plan_token, replace, usual_arithmetic,
};
use wglm_engine::{CacheType, Config, DraftKind, Gguf, Gpu, LoadOptions};

/// The maximum number of refused pipelines that the summary names.
const NAMED: usize = 8;

#[derive(Default)]
struct Totals {
    compiled: usize,
    seconds: f64,
    slowest: (f64, String),
    refused: usize,
}

pub fn run(here: &Here<'_>) -> anyhow::Result<()> {
    let gpu = here.gpu()?;
    let variants = variants(&gpu)?;
    let mut totals = Totals::default();
    for (index, variant) in variants.iter().enumerate().skip(here.args.from) {
        if here.left() == 0.0 {
            say(format_args!("skipped for lack of time: {} pipelines", variants.len() - index))?;
            break;
        }
        output::say(&format!("[{index}] {}: ", variant.label))?;
        if let Some(folder) = &here.args.shaders {
            write(folder, variant)?;
        }
        totals.compile(&gpu, variant)?;
    }
    totals.tell(variants.len(), here.args.from)
}

/// The variants of a conversation with the demonstration model, then the additional ones for GLM-4.7-Flash's shape.
fn variants(gpu: &Gpu) -> anyhow::Result<Vec<Variant>> {
    let shape = LoadOptions { cache: Some(CacheType::F16), ..LoadOptions::default() };
    let all = [of(gpu, &demonstration()?, &LoadOptions::default())?, of(gpu, &shape::header()?, &shape)?].concat();
    let mut seen = HashSet::new();
    Ok(all.into_iter().filter(|variant| seen.insert(variant.clone())).collect())
}

fn of(gpu: &Gpu, file: &Gguf, options: &LoadOptions) -> anyhow::Result<Vec<Variant>> {
    let config = Config::read(file)?;
    let target = Target { arithmetic: usual_arithmetic(gpu.report()), ..Target::of(gpu) };
    let token = plan_token(file, &config, options.cache_for(&config), &target)?;
    Ok(Shaders::of(&config, &token, &target, options.prompt, DraftKind::Off, u64::MAX)?.all())
}

impl Totals {
    fn compile(&mut self, gpu: &Gpu, variant: &Variant) -> anyhow::Result<()> {
        let start = Instant::now();
        let made = Pipelines::new(gpu).prepare(std::slice::from_ref(variant)); // with nothing compiled before
        let seconds = start.elapsed().as_secs_f64();
        self.seconds += seconds;
        match made {
            Ok(_) => {
                self.compiled += 1;
                if seconds > self.slowest.0 {
                    self.slowest = (seconds, variant.label.clone());
                }
                say(format_args!("{:.0} ms", seconds * 1e3))
            }
            Err(error @ wglm_engine::Error::DeviceLost { .. }) => Err(error.into()),
            Err(error) => {
                self.refused += 1;
                if self.refused <= NAMED {
                    say(format_args!(""))?;
                    sum_up(format_args!("REFUSED: {}", variant.label))?;
                }
                say(format_args!("REFUSED after {:.0} ms: {error}\n\n{}\n", seconds * 1e3, text(variant).1))
            }
        }
    }

    fn tell(&self, all: usize, from: usize) -> anyhow::Result<()> {
        let Self { compiled, seconds, slowest, refused } = self;
        let part = if from > 0 { format!(" from number {from} on") } else { String::new() };
        sum_up(format_args!(
            "{compiled} of {all}{part} compiled, {refused} refused, in {seconds:.1} s, one by one; slowest {} in {:.0} ms",
            slowest.1,
            slowest.0 * 1e3
        ))
    }
}

/// The text of a variant, and the extension of its file: what Metal would compile, or else WGSL.
fn text(variant: &Variant) -> (&'static str, String) {
    metal_text(variant).map_or_else(|_| ("wgsl", variant.compose()), |text| ("metal", text))
}

fn write(folder: &Path, variant: &Variant) -> anyhow::Result<()> {
    let (extension, text) = text(variant);
    Ok(replace(&folder.join(format!("{}.{extension}", variant.label)), text.as_bytes(), Readers::Usual)?)
}
