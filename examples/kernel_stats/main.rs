//! Prints what a Vulkan driver made of the kernels of a token: registers, workgroup memory, spilled bytes and
//! instructions, if the driver reports them (VK_KHR_pipeline_executable_properties; NVIDIA's, AMD's and Intel's do).
//!
//! `cargo run --release --example kernel_stats -- [FILE] [--rows 4] [--arithmetic int] [--step attention] [--all]`
//!
//! With `--spirv FOLDER` it uses no driver. It writes the SPIR-V of each kernel that a Mac without matrices would run
//! to a file, for a compiler that reads such files (`scripts/agx-stats.sh`).

mod spirv;
mod vulkan;

use clap::Parser;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use vulkan::{Device, Statistic};
use wglm::{Arithmetic, CacheShape, Config, Gguf, Gpu, GpuOptions, LoadOptions};
use wglm_engine::model::{BatchShape, Outputs, plan_batch, plan_token};
use wglm_engine::plan::{Plan, Target, Tilings};
use wglm_engine::shader::Variant;

/// Prints what a Vulkan driver made of the kernels of a token
#[derive(Parser)]
struct Arguments {
    /// The model, whose header is read [default: the demonstration model]
    file: Option<PathBuf>,
    /// Rows of a step; 1 for a generated token
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4096))]
    rows: u16,
    /// Arithmetic of products: float or int
    #[arg(long, default_value = "float", value_parser = arithmetic)]
    arithmetic: Arithmetic,
    /// Only steps whose name contains this
    #[arg(long, default_value = "")]
    step: String,
    /// Everything that the driver reports, with its own names
    #[arg(long)]
    all: bool,
    /// Write the SPIR-V of the kernels of a Mac without matrices to this folder, without using a driver
    #[arg(long, value_name = "FOLDER")]
    spirv: Option<PathBuf>,
}

fn arithmetic(name: &str) -> Result<Arithmetic, String> {
    match name {
        "float" => Ok(Arithmetic::Float),
        "int" => Ok(Arithmetic::Int),
        _ => Err("expected float or int".into()),
    }
}

/// The columns of the table: a title, and the words by which drivers name it.
const COLUMNS: [(&str, &[&str]); 4] = [
    ("registers", &["Register Count", "VGPRs", "Used VGPRs"]),
    ("shared", &["Shared Memory Size", "LDS Size", "Workgroup Memory Size"]),
    ("spilled", &["Local Memory Size", "Spilled VGPRs", "Spill count"]),
    ("code", &["Binary Size", "Code Size", "Code size", "Instruction Count"]),
];

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let file = match &arguments.file {
        Some(path) => Gguf::open(path)?,
        None => Gguf::from_static(wglm::DEMO_MODEL)?,
    };
    if let Some(folder) = &arguments.spirv {
        let target = Target { tilings: Tilings::Apple, arithmetic: arguments.arithmetic, ..Target::default() };
        return write(&plan(&file, &target, &arguments)?, folder, &arguments.step);
    }
    let gpu = Gpu::open(&GpuOptions { checks: false, ..GpuOptions::from_env()? })?;
    let target = Target { arithmetic: arguments.arithmetic, ..Target::of(&gpu) };
    let plan = plan(&file, &target, &arguments)?;
    let device = Device::open(&gpu.report().name)?;
    let mut out = std::io::stdout().lock();
    let titles: Vec<String> = COLUMNS.iter().map(|(title, _)| format!("{title:>9}")).collect();
    writeln!(out, "{} steps on {}\n{:<18} {}  variant", plan.steps.len(), device.name, "step", titles.join(" "))?;
    for (name, variant) in kinds(&plan).into_iter().filter(|(name, _)| name.contains(&arguments.step)) {
        let statistics = device.statistics(&spirv::of(variant)?)?;
        let cell = |(_, names): &(&str, &[&str])| format!("{:>9}", value_of(&statistics, names));
        let cells: Vec<String> = COLUMNS.iter().map(cell).collect();
        writeln!(out, "{name:<18} {}  {}", cells.join(" "), variant.label)?;
        if arguments.all {
            for Statistic { name, value, description } in &statistics {
                writeln!(out, "    {name} = {value}: {description}")?;
            }
        }
    }
    Ok(())
}

/// Writes the SPIR-V of the kinds of steps whose name contains `step` to files: number, step and variant.
fn write(plan: &Plan, folder: &Path, step: &str) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    for (number, (name, variant)) in kinds(plan).into_iter().filter(|(name, _)| name.contains(step)).enumerate() {
        let words = spirv::of(variant)?.words;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        std::fs::write(folder.join(format!("{number:02} {name} {}.spv", variant.label)), bytes)?;
    }
    Ok(())
}

/// The plan of the rows, as a load for this target makes it.
fn plan(file: &Gguf, target: &Target, arguments: &Arguments) -> anyhow::Result<Plan> {
    let config = Config::read(file)?;
    let CacheShape { context, ty } = LoadOptions::default().cache_for(&config);
    let token = plan_token(file, &config, CacheShape { context, ty }, target)?;
    if arguments.rows == 1 {
        return Ok(token.plan);
    }
    let shape = BatchShape::of(usize::from(arguments.rows), Outputs::All, 0, context);
    Ok(plan_batch(&config, &token, target, shape)?.plan)
}

/// The kinds of steps, each with its variant, in the order of the plan.
fn kinds(plan: &Plan) -> Vec<(String, &Variant)> {
    let mut seen = BTreeMap::new();
    let mut kinds = Vec::new();
    for kind in plan.kinds() {
        for step in kind.steps.iter().map(|step| &plan.steps[*step]) {
            if seen.insert((kind.name.to_owned(), step.variant), ()).is_none() {
                kinds.push((kind.name.to_owned(), &plan.variants[step.variant]));
            }
        }
    }
    kinds
}

/// The first statistic with one of these names.
fn value_of(statistics: &[Statistic], names: &[&str]) -> String {
    let found = names.iter().find_map(|name| statistics.iter().find(|it| it.name == *name));
    // NVIDIA's driver counts bytes of local memory in the lower half of a word whose upper half holds something else.
    let lower = |value: &str| value.parse::<u64>().map_or_else(|_| value.to_owned(), |n| (n & 0xffff_ffff).to_string());
    found.map_or_else(|| "-".to_owned(), |it| lower(&it.value))
}
