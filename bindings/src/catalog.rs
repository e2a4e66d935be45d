//! Adapters, the models on this machine, and downloads.

use crate::cancel::{Cancel, inner};
use crate::error::WglmError;
use crate::load::LoadOptions;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use wglm::catalog::{self, ModelName, Places};
use wglm::download::{Hub, HubOptions};
use wglm::offers::offers;
use wglm::{Gpu, GpuOptions};

/// A GPU, or a driver that computes on the CPU.
#[derive(Debug, Clone, PartialEq, Eq, uniffi::Record)]
pub struct Adapter {
    /// The name.
    pub name: String,
    /// The backend: Metal, Vulkan or DirectX 12.
    pub backend: String,
    /// The driver and its version.
    pub driver: String,
    /// The memory in bytes, if it is known.
    pub memory: Option<u64>,
    /// Whether it is a driver that computes on the CPU.
    pub is_software: bool,
}

/// The adapters of this machine.
#[uniffi::export]
pub fn adapters() -> Vec<Adapter> {
    let report = |adapter: wglm::AdapterReport| Adapter {
        backend: adapter.backend.to_string(),
        driver: adapter.driver.clone(),
        memory: adapter.memory,
        is_software: adapter.is_software(),
        name: adapter.name,
    };
    wglm::adapters(&GpuOptions::default()).into_iter().map(report).collect()
}

/// A model on this machine.
#[derive(Debug, Clone, PartialEq, Eq, uniffi::Record)]
pub struct LocalModel {
    /// The name: `OWNER/REPO:QUANT`, or the name that its program uses.
    pub name: String,
    /// The program in whose folder it is.
    pub source: String,
    /// The file, or the first of several, for `Model.load`.
    pub path: String,
    /// The size of all its files in bytes.
    pub bytes: u64,
    /// Whether it is complete.
    pub whole: bool,
}

impl From<catalog::LocalModel> for LocalModel {
    fn from(model: catalog::LocalModel) -> Self {
        Self {
            source: model.source.name().to_owned(),
            path: model.path.to_string_lossy().into_owned(),
            bytes: model.bytes,
            whole: model.whole,
            name: model.name,
        }
    }
}

/// The models that programs have downloaded to this machine: Hugging Face's, LM Studio, llama.cpp and Ollama.
#[uniffi::export]
pub fn local_models() -> Vec<LocalModel> {
    catalog::local_models(&Places::default()).into_iter().map(LocalModel::from).collect()
}

/// Finds a model on this machine by its name, ignoring case.
///
/// # Errors
/// `NotFound` if there is none, or it is incomplete; `InvalidInput` if there is more than one.
#[uniffi::export]
pub fn find_model(name: String) -> Result<LocalModel, WglmError> {
    Ok(catalog::find_model(&name, &Places::default())?.into())
}

/// The progress of a download.
#[derive(Debug, Clone, PartialEq, Eq, uniffi::Record)]
pub struct PullProgress {
    /// The bytes of all files so far.
    pub done: u64,
    /// The bytes of all files.
    pub total: u64,
    /// What it waits for, if a server or the network has trouble.
    pub trouble: Option<String>,
}

/// Receives the progress of a download, on the thread that downloads.
#[uniffi::export(with_foreign)]
pub trait PullListener: Send + Sync {
    /// Called at every step, and at least every tenth of a second.
    fn on_progress(&self, progress: PullProgress);
}

/// What to download, and where to store it. What is not given is as for Hugging Face's own programs.
#[derive(Clone, Default, PartialEq, Eq, uniffi::Record)]
pub struct PullOptions {
    /// The folder to store files in, which gets the layout of Hugging Face's cache; otherwise that cache.
    #[uniffi(default)]
    pub folder: Option<String>,
    /// The token for private and gated repositories; otherwise `HF_TOKEN`, or the one that `hf auth login` has stored.
    #[uniffi(default)]
    pub token: Option<String>,
    /// The branch, tag or commit; otherwise `main`.
    #[uniffi(default)]
    pub revision: Option<String>,
}

/// Prints everything except the token, so that logs show only whether there is one.
impl fmt::Debug for PullOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { folder, token, revision } = self;
        let token = token.as_ref().map(|_| "…");
        f.debug_struct("PullOptions")
            .field("folder", folder)
            .field("token", &token)
            .field("revision", revision)
            .finish()
    }
}

impl PullOptions {
    fn hub(&self) -> HubOptions {
        let usual = HubOptions::default();
        let cache = self.folder.as_ref().map(PathBuf::from).or(usual.cache);
        HubOptions { cache, token: self.token.clone().or(usual.token), ..usual }
    }
}

/// Downloads a model from Hugging Face, and returns the path for `Model.load`. `name` is `OWNER/REPO:QUANT`, or
/// `OWNER/REPO` for the model of the repository that suits this machine best when loaded with `options`. An interrupted
/// download continues where it ended. Blocks.
///
/// # Errors
/// `NotFound`, `AccessDenied`, `Network`, `Io`, `Cancelled`; `OutOfMemory` if no model of the repository fits.
#[uniffi::export(default(options = None, source = None, listener = None, cancel = None))]
pub fn pull(
    name: String,
    options: Option<LoadOptions>,
    source: Option<PullOptions>,
    listener: Option<Arc<dyn PullListener>>,
    cancel: Option<Arc<Cancel>>,
) -> Result<String, WglmError> {
    let (name, options, cancel) = (name.parse::<ModelName>()?, options.unwrap_or_default(), inner(cancel));
    let source = source.unwrap_or_default();
    let hub = Hub::new(source.hub())?;
    let repository = hub.list(&name.repo, source.revision.as_deref().unwrap_or("main"), &cancel)?;
    let model = match &name.label {
        Some(label) => repository.model(label)?.clone(),
        None => {
            let gpu: Option<Gpu> = options.gpu().ok();
            let offers = offers(&hub, &repository, &options.library()?, gpu.as_ref(), &cancel)?;
            match offers.chosen() {
                Some(offer) => offer.model.clone(),
                None => {
                    if let Some(error) = offers.failed {
                        return Err(error.into());
                    }
                    let reason = format!("no model of {} fits this machine", name.repo);
                    return Err(WglmError::OutOfMemory { reason });
                }
            }
        }
    };
    let pulled = hub.pull(&repository, &model, &cancel, &mut |progress| {
        if let Some(listener) = &listener {
            let wglm::download::PullProgress { done, total, trouble, .. } = progress;
            listener.on_progress(PullProgress { done, total, trouble });
        }
    })?;
    Ok(pulled.path.to_string_lossy().into_owned())
}
