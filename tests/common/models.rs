//! The demonstration model in both precisions, synthetic models, and comparisons of logits.

use super::gpu::gpu;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::OnceLock;
use wglm::{Arithmetic, CacheShape, CacheType, Gguf, Gpu, LoadOptions, Model, Session};
use wglm_engine::model::LoadOverrides;
use wglm_engine::plan::{Choices, Fusions, Tilings};

/// A file below tests/fixtures.
pub fn fixture(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(path)
}

/// The demonstration model's file: `f16` or `q4_0`.
pub fn fable_file(precision: &str) -> PathBuf {
    match precision {
        "q4_0" => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models/fable-10m-q4_0.gguf"),
        other => fixture(&format!("fable/fable-10m-{other}.gguf")),
    }
}

/// The demonstration model with f32 arithmetic, loaded once. Each session has its own cache.
pub fn fable(precision: &str) -> &'static Model {
    static F16: OnceLock<Model> = OnceLock::new();
    static Q4_0: OnceLock<Model> = OnceLock::new();
    let model = if precision == "f16" { &F16 } else { &Q4_0 };
    model.get_or_init(|| load(&fable_file(precision)))
}

/// A synthetic model of tests/fixtures/models, and tokens for which the reference program has computed logits.
pub struct Synthetic {
    pub name: String,
    pub file: PathBuf,
    pub tokens: Vec<u32>,
    /// The positions whose logits are known.
    pub positions: Vec<usize>,
    /// The logits at these positions, row after row.
    pub want: Vec<f32>,
    /// At each of these positions, the smallest gap in any layer between the scores of an expert chosen and one left
    /// out. Empty for a model without experts.
    pub margins: Vec<f64>,
}

impl Synthetic {
    fn of(model: &Value) -> Self {
        let name = model["name"].as_str().unwrap().to_owned();
        let positions = model["positions"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
        let [file, tokens, logits] =
            ["gguf", "tokens.i32", "logits.f32"].map(|end| fixture(&format!("models/{name}.{end}")));
        let margins = model["figures"]["routing_margins"].as_array();
        let margins = margins.into_iter().flatten().map(|margin| margin.as_f64().unwrap()).collect();
        Self { name, file, positions, tokens: read_u32(tokens), want: read_f32(logits), margins }
    }

    /// All synthetic models.
    pub fn all() -> Vec<Self> {
        let index: Value = serde_json::from_slice(&std::fs::read(fixture("models/index.json")).unwrap()).unwrap();
        index["models"].as_array().unwrap().iter().map(Self::of).collect()
    }

    /// The model of this name.
    pub fn named(name: &str) -> Self {
        Self::all().into_iter().find(|model| model.name == name).unwrap()
    }

    /// The model with three thousand tokens.
    pub fn long() -> Self {
        Self::named("long")
    }
}

/// Loads a file with f32 arithmetic.
pub fn load(path: &std::path::Path) -> Model {
    load_on(path, gpu())
}

/// Loads a file onto a device with f32 arithmetic.
pub fn load_on(path: &std::path::Path, gpu: &Gpu) -> Model {
    load_with(path, gpu, Arithmetic::Float, Fusions::all())
}

/// Loads a file onto a device with the given arithmetic.
pub fn load_with(path: &std::path::Path, gpu: &Gpu, arithmetic: Arithmetic, fusions: Fusions) -> Model {
    let file = Gguf::open(path).unwrap_or_else(|e| panic!("{e}"));
    let overrides = LoadOverrides { fusions, ..LoadOverrides::default() };
    let options = LoadOptions { arithmetic: Some(arithmetic), overrides, ..LoadOptions::default() };
    Model::load(&file, gpu, &options).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Loads a file with the tilings for NVIDIA's GPUs: a software driver has those for Apple's.
pub fn load_as_on_nvidia(path: &std::path::Path, arithmetic: Arithmetic) -> Model {
    let choices = Choices { table: Some(Tilings::Nvidia), ..Choices::default() };
    let overrides = LoadOverrides { choices, ..LoadOverrides::default() };
    let options = LoadOptions { arithmetic: Some(arithmetic), overrides, ..LoadOptions::default() };
    Model::load(&Gguf::open(path).unwrap(), gpu(), &options).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Reads a file of little-endian u32.
pub fn read_u32(path: PathBuf) -> Vec<u32> {
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect()
}

/// Reads a file of little-endian f32.
pub fn read_f32(path: PathBuf) -> Vec<f32> {
    read_u32(path).into_iter().map(f32::from_bits).collect()
}

/// ‖a − b‖ / ‖b‖.
pub fn relative_l2(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    let square = |v: f64| v * v;
    let off: f64 = got.iter().zip(want).map(|(&a, &b)| square(a as f64 - b as f64)).sum();
    let size: f64 = want.iter().map(|&b| square(b as f64)).sum();
    (off / size).sqrt()
}

/// The largest relative L2 error of the logits over the listed positions.
pub fn worst_error(model: &Model, tokens: &[u32], positions: &[usize], want: &[f32]) -> f64 {
    worst_error_with(model, model.cache().ty, tokens, positions, want)
}

/// Like [`worst_error`], with a cache of the given type.
pub fn worst_error_with(model: &Model, ty: CacheType, tokens: &[u32], positions: &[usize], want: &[f32]) -> f64 {
    errors(model, ty, tokens, positions, want).into_iter().fold(0.0, f64::max)
}

/// The relative L2 error of the logits at each position.
pub fn errors(model: &Model, ty: CacheType, tokens: &[u32], positions: &[usize], want: &[f32]) -> Vec<f64> {
    let mut session = Session::with_cache(model, CacheShape { context: tokens.len(), ty }).unwrap();
    let vocab = model.config().vocab;
    let mut errors = Vec::with_capacity(positions.len());
    for (row, &position) in want.chunks_exact(vocab).zip(positions) {
        session.feed(&tokens[session.tokens().len()..=position]).unwrap();
        let error = relative_l2(&session.logits().unwrap(), row);
        assert!(error.is_finite(), "position {position}: {error}");
        errors.push(error);
    }
    errors
}
