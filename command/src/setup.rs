//! The circumstances of a measurement, which every row of `bench` and `profile` contains.

use super::args::FileArgs;
use super::output;
use serde::Serialize;
use wglm_engine::Model;

/// Fields have the names of llama-bench where it has them.
#[derive(Serialize)]
pub struct Setup {
    pub wglm: &'static str,
    pub gpu_info: String,
    pub backends: &'static str,
    pub driver: String,
    pub subgroups: bool,
    /// Empty for the demonstration model.
    pub model_filename: String,
    /// The name of the model in the file's metadata.
    pub model_type: String,
    /// The size of all tensors in the file in bytes.
    pub model_size: u64,
    pub model_n_params: u64,
    /// The arithmetic that was requested, or that suits the adapter.
    pub arithmetic: &'static str,
    pub cache_type: &'static str,
}

impl Setup {
    pub fn of(model: &Model, args: &FileArgs) -> Self {
        let (file, report) = (model.file(), model.gpu().report());
        let path = args.model.as_deref();
        let stem = path.and_then(|path| path.file_stem()).map(|stem| stem.to_string_lossy().into_owned());
        let named = file.opt_string("general.name").ok().flatten().filter(|name| !name.is_empty());
        Self {
            wglm: env!("CARGO_PKG_VERSION"),
            gpu_info: report.name.clone(),
            backends: report.backend.name(),
            driver: report.driver.clone(),
            subgroups: model.gpu().capabilities().subgroups,
            model_filename: path.map(|path| path.display().to_string()).unwrap_or_default(),
            model_type: named.map(str::to_owned).or(stem).unwrap_or_else(|| "the demonstration model".into()),
            model_size: file.tensors().map(|tensor| tensor.bytes as u64).sum(),
            model_n_params: file.tensors().map(|tensor| tensor.dims.iter().product::<usize>() as u64).sum(),
            arithmetic: model.target().arithmetic.name(),
            cache_type: model.cache().ty.name(),
        }
    }

    pub fn sentence(&self) -> String {
        let Self { gpu_info, backends, driver, arithmetic, cache_type, model_size, wglm, .. } = self;
        let (size, subgroups) = (output::bytes(*model_size), if self.subgroups { "" } else { ", no subgroups" });
        format!(
            "wglm {wglm} on {gpu_info} ({backends}, {driver}){subgroups}: {size} of weights, arithmetic {arithmetic}, \
             cache {cache_type}"
        )
    }
}
