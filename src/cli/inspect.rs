//! `inspect`: what a file holds and what it needs, without a GPU.

use super::args::InspectArgs;
use super::{model, output};
use std::collections::BTreeMap;
use wglm::gguf::{Gguf, Value};
use wglm::kernels::CacheType;
use wglm::model::{BatchShape, CacheShape, Config, LoadOptions, Outputs, PromptOptions, plan_batch, plan_token};
use wglm::plan::{Purpose, Target};

pub fn inspect(args: InspectArgs) -> anyhow::Result<()> {
    let file = model::open(args.file.or(args.model).as_deref())?;
    let mut report =
        vec![format!("GGUF version {}, {}", file.version(), output::bytes(file.file_bytes() as u64)), String::new()];
    report.push("metadata".into());
    report.extend(file.metadata().map(|(key, value)| format!("  {key} = {}", shortened(&value))));
    report.push(String::new());
    report.extend(tensors_by_type(&file));
    output::lines(&report)?;
    output::lines(needs(&file)?)?;
    Ok(())
}

/// A value on one line.
fn shortened(value: &Value<'_>) -> String {
    const MOST: usize = 72;
    let text = match value {
        Value::String(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
        other => other.to_string(),
    };
    match text.char_indices().nth(MOST) {
        Some((cut, _)) => format!("{}… ({} characters)", &text[..cut], text.chars().count()),
        None => text,
    }
}

fn tensors_by_type(file: &Gguf) -> Vec<String> {
    let mut types: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for tensor in file.tensors() {
        let entry = types.entry(tensor.ty.name).or_default();
        *entry = (entry.0 + 1, entry.1 + tensor.bytes as u64);
    }
    let mut report = vec![format!("tensors: {}", file.tensors().len())];
    report
        .extend(types.iter().map(|(ty, (count, bytes))| format!("  {ty:<8} {count:>5} {:>12}", output::bytes(*bytes))));
    report
}

/// What the model needs on the GPU.
fn needs(file: &Gguf) -> anyhow::Result<Vec<String>> {
    let config = Config::read(file)?;
    let CacheShape { context, ty } = LoadOptions::default().cache_for(&config);
    let planned = plan_token(file, &config, CacheShape { context, ty }, Target::default())?;
    let plan = &planned.plan;
    let line = plan.local_memory(Purpose::Cache) / context as u64;
    let other = if ty == CacheType::F16 { ("f32", line * 2) } else { ("f16", line / 2) };
    let mut report = vec![String::new(), "needed on the GPU".into()];
    report.push(format!("  weights             {:>12}", output::bytes(plan.weight_memory())));
    report.push(format!(
        "  cache per 1k tokens {:>12} ({}; {} as {})",
        output::bytes(1000 * line),
        format!("{ty:?}").to_lowercase(),
        output::bytes(1000 * other.1),
        other.0
    ));
    report.push(format!(
        "  cache               {:>12} for {context} tokens",
        output::bytes(plan.local_memory(Purpose::Cache))
    ));
    report.push(format!("  scratch             {:>12}", output::bytes(plan.local_memory(Purpose::Scratch))));
    let tokens = PromptOptions::default().together();
    let shape = BatchShape::of(tokens, Outputs::Last, context, context);
    let chunk = plan_batch(file, &config, &planned, Target::default(), shape)?.plan.local_memory(Purpose::Scratch);
    report.push(format!("  while reading       {:>12} for {tokens} tokens of a prompt together", output::bytes(chunk)));
    if config.draft_blocks > 0 {
        report.push(format!("{} multi-token-prediction block(s), not loaded", config.draft_blocks));
    }
    report.extend(config.notices.iter().map(|notice| format!("note: {notice}")));
    Ok(report)
}
