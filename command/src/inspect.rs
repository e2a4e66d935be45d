//! The command `inspect`: shows what a file contains and how much memory it needs. The GPU, if there is one, determines
//! the memory for activations.

use super::args::{InspectArgs, NeedsArgs};
use super::{failure, fits, model, output};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use wglm_engine::offers::Judged;
use wglm_engine::{CacheShape, CacheType, Config, DraftKind, Estimate, Gguf, LoadOptions, MetadataValue, Model};

pub fn inspect(args: InspectArgs) -> anyhow::Result<()> {
    let file = model::open(args.file.or(args.model).as_deref())?;
    // A file that is not a model for wglm is still shown, as far as possible.
    let needs = MemoryNeeds::of(&file, &args.needs);
    if args.json {
        output::lines([serde_json::to_string_pretty(&as_json(&file, needs.as_ref()))?])?;
        return needs.map(|_| ());
    }
    let mut report =
        vec![format!("GGUF version {}, {}", file.version(), output::bytes(file.file_bytes())), String::new()];
    report.push("metadata".into());
    report.extend(file.metadata().map(|(key, value)| format!("  {key} = {}", shortened(&value))));
    report.push(String::new());
    report.push(format!("tensors: {}", file.tensors().len()));
    let line = |(ty, TypeTotal { count, bytes }): (&&str, &TypeTotal)| {
        format!("  {ty:<8} {count:>5} {:>12}", output::bytes(*bytes))
    };
    report.extend(tensors_by_type(&file).iter().map(line));
    output::lines(&report)?;
    output::lines(needs?.lines())
}

/// The file as JSON, with the reason if wglm cannot run it. Sizes are in bytes. Arrays are described by their type and
/// length.
fn as_json(file: &Gguf, needs: Result<&MemoryNeeds, &anyhow::Error>) -> serde_json::Value {
    let metadata: serde_json::Map<_, _> =
        file.metadata().map(|(key, value)| (key.to_owned(), scalar(&value))).collect();
    json!({
        "version": file.version(),
        "file_bytes": file.file_bytes(),
        "metadata": metadata,
        "tensors": file.tensors().len(),
        "tensor_types": tensors_by_type(file),
        "needs": needs.ok(),
        "error": needs.err().map(failure::sentence),
        "hint": needs.err().and_then(failure::hint),
    })
}

pub fn scalar(value: &MetadataValue<'_>) -> serde_json::Value {
    match *value {
        MetadataValue::F32(v) => v.to_string().parse::<f64>().unwrap_or(f64::NAN).into(), // 0.1, and not 0.10000000149
        MetadataValue::F64(v) => v.into(),
        MetadataValue::Bool(v) => v.into(),
        MetadataValue::String(v) => String::from_utf8_lossy(v).into(),
        MetadataValue::Array(v) => json!({ "array_of": v.element_type().name(), "length": v.len() }),
        _ => json!(value.integer()),
    }
}

/// A value, cut to fit on one line.
fn shortened(value: &MetadataValue<'_>) -> String {
    const MAX_VALUE_COLUMNS: usize = 72;
    let text = match value {
        MetadataValue::String(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
        other => other.to_string(),
    };
    match text.chars().count() {
        count if count > MAX_VALUE_COLUMNS => {
            format!("{} ({count} characters)", output::shortened(&text, MAX_VALUE_COLUMNS))
        }
        _ => text,
    }
}

/// The number and total size of the tensors of one type.
#[derive(Default, Serialize)]
pub struct TypeTotal {
    count: usize,
    pub bytes: u64,
}

pub fn tensors_by_type(file: &Gguf) -> BTreeMap<&str, TypeTotal> {
    let mut types: BTreeMap<&str, TypeTotal> = BTreeMap::new();
    for tensor in file.tensors() {
        let total = types.entry(tensor.ty.name).or_default();
        *total = TypeTotal { count: total.count + 1, bytes: total.bytes + tensor.bytes as u64 };
    }
    types
}

/// The bytes that the model and a session need on the GPU.
#[derive(Serialize)]
struct MemoryNeeds {
    /// The peak: the number that all commands give for a model.
    total: u64,
    /// The GPU that it was estimated for, if there is one, and the reason if the model does not fit it.
    gpu: Option<String>,
    fits: Option<bool>,
    why_not: Option<String>,
    weights: u64,
    /// The KV cache for `context` tokens, with values of type `cache_type`.
    cache: u64,
    cache_type: &'static str,
    /// Whether that type is the default.
    #[serde(skip)]
    is_default: bool,
    /// The sizes of other types of cache, as fractions of this one.
    #[serde(skip)]
    other_types: Vec<(&'static str, f64)>,
    context: usize,
    /// The activations of tokens and of prompts.
    scratch: u64,
    /// The part of all that for a multi-token-prediction block.
    draft_block: u64,
    notices: Vec<String>,
}

impl MemoryNeeds {
    fn of(file: &Gguf, args: &NeedsArgs) -> anyhow::Result<Self> {
        let (options, config) = (args.options(), Config::read(file)?);
        Model::estimate(file, &options, None)?; // so that no GPU is opened for a file that is not a model
        let gpu = fits::device(&args.gpu);
        let judged = Judged::of(&Ok(file.clone()), &options, gpu.as_ref());
        let estimate = Model::estimate(file, &options, gpu.as_ref())?;
        let without = LoadOptions { speculation: DraftKind::Lookup, ..options };
        let without = Model::estimate(file, &without, gpu.as_ref())?;
        let total = |estimate: &Estimate| estimate.weights + estimate.cache + estimate.scratch;
        let CacheShape { context, ty } = estimate.shape;
        Ok(Self {
            total: estimate.most(),
            gpu: gpu.map(|gpu| gpu.report().name.clone()),
            fits: judged.fits,
            why_not: judged.why_not,
            weights: estimate.weights,
            cache: estimate.cache,
            cache_type: ty.name(),
            is_default: args.cache_type.is_none(),
            other_types: Self::others(&config, ty),
            context,
            scratch: estimate.scratch,
            draft_block: total(&estimate) - total(&without),
            notices: config.notices,
        })
    }

    fn others(config: &Config, ty: CacheType) -> Vec<(&'static str, f64)> {
        let bytes = |ty: CacheType| ty.row_bytes(config.latent_rank, config.rotary) as f64;
        let others = CacheType::ALL.into_iter().filter(|other| *other != ty && other.holds(config.latent_rank));
        others.map(|other| (other.name(), bytes(other) / bytes(ty))).collect()
    }

    fn lines(&self) -> Vec<String> {
        let Self { cache_type, context, .. } = self;
        let token = self.cache / *context as u64;
        let [weights, cache, scratch, block] =
            [self.weights, self.cache, self.scratch, self.draft_block].map(output::bytes);
        let thousand = |part: f64| output::bytes((1000.0 * token as f64 * part) as u64);
        let others: String =
            self.other_types.iter().map(|(other, part)| format!(", {} as {other}", thousand(*part))).collect();
        let default = if self.is_default { " (the default)" } else { "" };
        let on = self.gpu.as_deref().map_or("a typical GPU".into(), |name| format!("`{name}`"));
        let mut lines = vec![String::new(), format!("GPU memory, on {on}")];
        lines.push(format!(
            "  needs               {:>12} at most, for the model and one conversation",
            output::bytes(self.total)
        ));
        lines.extend(self.why_not.iter().map(|why| match self.fits {
            Some(true) => format!("  fits                {why}"),
            _ => format!("  does not fit        {why}"),
        }));
        lines.push(format!("  weights             {weights:>12}"));
        lines.push(format!("  KV cache            {cache:>12} for {context} tokens"));
        lines.push(format!("  per 1000 tokens     {:>12} as {cache_type}{default}{others}", thousand(1.0)));
        lines.push(format!("  scratch             {scratch:>12}"));
        if self.draft_block > 0 {
            lines.push(format!(
                "  of all that         {block:>12} for the multi-token-prediction block (none with --speculate off)"
            ));
        }
        lines.extend(self.notices.iter().map(|notice| format!("note: {notice}")));
        lines
    }
}
