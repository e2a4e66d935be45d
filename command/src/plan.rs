//! The command `plan`: prints the GPU steps of one token, from the file's header. The GPU that would be used, if there
//! is one, affects only the memory estimate, which equals that of all other commands.

use super::args::PlanArgs;
use super::hardware::Hardware;
use super::largest_step::{self, LargestStep};
use super::prediction::{Prediction, predictions};
use super::{fits, hardware, model, output, prediction};
use serde_json::json;
use wglm_engine::instruments::{Plan, Shaders, Target, Team, plan_token};
use wglm_engine::{Arithmetic, CacheShape, Config, DraftKind, Estimate, Gguf, Model};

pub fn plan(args: PlanArgs) -> anyhow::Result<()> {
    let file = model::open(args.file.model.as_deref())?;
    let config = Config::read(&file)?;
    let options = args.file.options();
    let cache = options.cache_for(&config);
    let team = if args.gpu.no_subgroups { Team::Workgroup } else { Team::Subgroup };
    let arithmetic = options.arithmetic.unwrap_or_default(); // without an adapter there is nothing to derive it from
    let target = &options.overrides.apply(Target { team, arithmetic, ..Target::default() });
    let planned = plan_token(&file, &config, cache, target)?;
    let shaders = Shaders::of(&config, &planned, target, options.prompt, DraftKind::Off, u64::MAX)?;
    let largest = largest_step::of_all(&config, &planned, target, options.prompt)?;
    let devices = args.device.as_deref().into_iter().flat_map(hardware::named);
    let gpu = fits::device(&args.gpu);
    let needs = Model::estimate(&file, &options, gpu.as_ref())?;
    let predicted = predicted(&file, &config, cache, (target, options.arithmetic), devices)?;
    if args.json {
        let mut plan = as_json(&planned.plan, target, args.depth, &needs);
        plan["pipelines"] = pipelines_json(&shaders);
        let rows: Vec<&Prediction> = predicted.iter().flat_map(|(_, predictions)| predictions).collect();
        plan["predictions"] = serde_json::to_value(rows)?;
        plan["largest_step"] = largest.as_ref().map(LargestStep::json).into();
        return output::lines([serde_json::to_string_pretty(&plan)?]);
    }
    config.notices.iter().for_each(|notice| output::note(format_args!("note: {notice}")));
    output::lines([planned.plan.table(args.depth).verbose(args.verbose)])?;
    output::lines([memory_line(&needs), pipelines_line(&shaders)])?;
    output::lines(largest.iter().map(LargestStep::line))?;
    if args.device.is_some() {
        output::lines(prediction::table(&predicted))?;
    }
    Ok(())
}

/// The memory of the model and one conversation, as in other commands, and what it is for.
fn memory_line(needs: &Estimate) -> String {
    let [most, weights, cache, scratch] = [needs.most(), needs.weights, needs.cache, needs.scratch].map(output::bytes);
    let context = needs.shape.context;
    format!("needs {most} of GPU memory: weights {weights}, cache {cache} for {context} tokens, scratch {scratch}")
}

/// The number of pipelines that a conversation needs. Each is counted at its first use.
fn pipelines_line(shaders: &Shaders) -> String {
    let Shaders { token, prompts, sampling, .. } = shaders;
    let (prompts, sampling, total) = (prompts.len(), sampling.len(), shaders.count());
    format!(
        "a conversation uses {total} pipelines: {} for a token, {prompts} more for prompts, {sampling} for logit bias and \
         penalties",
        token.len()
    )
}

fn pipelines_json(shaders: &Shaders) -> serde_json::Value {
    let Shaders { token, prompts, sampling, .. } = shaders;
    json!({
        "token": token.len(),
        "prompts": prompts.len(),
        "sampling": sampling.len(),
        "total": shaders.count(),
    })
}

/// The predictions for GPUs, each with the plan that would be made for that GPU.
fn predicted<'a>(
    file: &Gguf,
    config: &Config,
    cache: CacheShape,
    (asked, arithmetic): (&Target, Option<Arithmetic>),
    devices: impl Iterator<Item = &'a Hardware>,
) -> anyhow::Result<Vec<(&'a Hardware, [Prediction; 3])>> {
    let predict = |device: &'a Hardware| {
        let plan = plan_token(file, config, cache, &device.target(asked, arithmetic))?.plan;
        Ok((device, predictions(&plan, device)))
    };
    devices.map(predict).collect()
}

/// The plan as JSON. The numbers of bytes are those of one token. For the cache they are the bytes that a token at
/// `depth` reads, including its own.
fn as_json(plan: &Plan, target: &Target, depth: u64, needs: &Estimate) -> serde_json::Value {
    let tokens = depth.saturating_add(1);
    let cost = plan.cost();
    let step = |s: &wglm_engine::instruments::Step| {
        json!({
            "label": s.label,
            "kernel": s.kernel,
            "variant": plan.variants[s.variant].label,
            "grid": s.grid,
            "weight_bytes": s.cost.weights,
            "cache_bytes": s.cost.cache.saturating_mul(tokens),
            "activation_bytes": s.cost.activations,
        })
    };
    json!({
        "dispatches": plan.steps.len(),
        "weight_bytes": cost.weights,
        "cache_bytes": cost.cache.saturating_mul(tokens),
        "activation_bytes": cost.activations,
        "depth": depth,
        "context": needs.shape.context,
        "arithmetic": target.arithmetic.name(),
        "memory": {
            "total": needs.most(),
            "weights": needs.weights,
            "cache": needs.cache,
            "scratch": needs.scratch,
        },
        "steps": plan.steps.iter().map(step).collect::<Vec<_>>(),
    })
}
