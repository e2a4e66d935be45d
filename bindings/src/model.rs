//! A model on the GPU.

use crate::cancel::{Cancel, inner};
use crate::error::WglmError;
use crate::load::{LoadListener, LoadOptions, load};
use std::sync::Arc;
use std::time::Duration;
use wglm::tune::{TuneOptions, tune};
use wglm::{Gguf, Session};

/// A model on the GPU, which any number of conversations share.
#[derive(Debug, uniffi::Object)]
pub struct Model {
    pub(crate) inner: wglm::Model,
    options: LoadOptions,
}

#[uniffi::export]
impl Model {
    /// Loads a model from a GGUF file, or from the first of several. Blocks until it is loaded.
    ///
    /// # Errors
    /// `NotFound`, `InvalidFile` and `Unsupported` for the file, `OutOfMemory`, `NoDevice`, `Driver`, `Cancelled`.
    #[uniffi::constructor(default(options = None, listener = None, cancel = None))]
    pub fn load(
        path: String,
        options: Option<LoadOptions>,
        listener: Option<Arc<dyn LoadListener>>,
        cancel: Option<Arc<Cancel>>,
    ) -> Result<Arc<Self>, WglmError> {
        Self::from_file(&Gguf::open(path)?, options.unwrap_or_default(), listener, cancel)
    }

    /// Loads the demonstration model, which is part of this library: 6 MB that tell fables and add small numbers, for
    /// an app's tests. Blocks until it is loaded.
    ///
    /// # Errors
    /// `NoDevice`, `OutOfMemory`, `Driver`, `Cancelled`.
    #[uniffi::constructor(default(options = None, listener = None, cancel = None))]
    pub fn demo(
        options: Option<LoadOptions>,
        listener: Option<Arc<dyn LoadListener>>,
        cancel: Option<Arc<Cancel>>,
    ) -> Result<Arc<Self>, WglmError> {
        Self::from_file(&Gguf::from_static(wglm::DEMO_MODEL)?, options.unwrap_or_default(), listener, cancel)
    }

    /// Opens the GPU again after `DeviceLost`, and loads the same file on it. `Chat.move_to` continues a conversation
    /// there. Blocks until it is loaded.
    ///
    /// # Errors
    /// Those of `load`.
    #[uniffi::method(default(listener = None, cancel = None))]
    pub fn reload(
        &self,
        listener: Option<Arc<dyn LoadListener>>,
        cancel: Option<Arc<Cancel>>,
    ) -> Result<Arc<Self>, WglmError> {
        let gpu = self.inner.gpu().reopen()?;
        let inner = load(self.inner.file(), &gpu, &self.options, listener.as_deref(), &inner(cancel))?;
        Ok(Arc::new(Self { inner, options: self.options.clone() }))
    }

    /// The name that the file gives the model.
    pub fn name(&self) -> Option<String> {
        self.inner.file().opt_string("general.name").ok().flatten().map(str::to_owned)
    }

    /// The context of conversations in tokens.
    pub fn context(&self) -> u32 {
        crate::count(self.inner.cache().context)
    }

    /// The name of the GPU.
    pub fn adapter(&self) -> String {
        self.inner.gpu().report().name.clone()
    }

    /// What the load found out about the kernels on this GPU, as JSON. Save it, and pass it to later loads as one of
    /// `LoadOptions.verdicts`.
    pub fn verdict(&self) -> Option<String> {
        self.inner.verdict().and_then(|verdict| serde_json::to_string(verdict).ok())
    }

    /// Measures which settings are fastest on this GPU, which takes one to five minutes or `seconds`, and keeps the GPU
    /// busy. Save the result, and pass it to later loads as `LoadOptions.tuning`. A cancellation ends it with the
    /// choices so far. Blocks.
    ///
    /// # Errors
    /// `OutOfMemory` if not even a small cache fits; any error from the device.
    #[uniffi::method(default(seconds = None, listener = None, cancel = None))]
    pub fn tune(
        &self,
        seconds: Option<f64>,
        listener: Option<Arc<dyn TuneListener>>,
        cancel: Option<Arc<Cancel>>,
    ) -> Result<String, WglmError> {
        let budget = seconds.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default());
        let options = TuneOptions { budget, ..TuneOptions::default() };
        let tuning = tune(&self.inner, &options, &inner(cancel), &mut |progress| {
            if let Some(listener) = &listener {
                listener.on_progress(TuneProgress { share: progress.share(), doing: progress.doing.clone() });
            }
        })?;
        Ok(tuning.to_string())
    }

    /// A vector for each text: the mean of the model's hidden states, which can be compared by the cosine of the angle
    /// between them. The model was not trained for this. Blocks.
    ///
    /// # Errors
    /// `InvalidInput` for a text without tokens; `ContextFull`, `OutOfMemory`, `DeviceLost`, `Cancelled`.
    #[uniffi::method(default(cancel = None))]
    pub fn embed(&self, texts: Vec<String>, cancel: Option<Arc<Cancel>>) -> Result<Vec<Vec<f32>>, WglmError> {
        let (mut session, cancel) = (Session::new(&self.inner)?, inner(cancel));
        texts.iter().map(|text| Ok(session.embed_with(text, &cancel)?)).collect()
    }
}

impl Model {
    fn from_file(
        file: &Gguf,
        options: LoadOptions,
        listener: Option<Arc<dyn LoadListener>>,
        cancel: Option<Arc<Cancel>>,
    ) -> Result<Arc<Self>, WglmError> {
        let inner = load(file, &options.gpu()?, &options, listener.as_deref(), &inner(cancel))?;
        Ok(Arc::new(Self { inner, options }))
    }
}

/// The progress of a tuning.
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct TuneProgress {
    /// The fraction of the time that has passed, from 0 to 1.
    pub share: f32,
    /// What is being tried.
    pub doing: String,
}

/// Receives the progress of a tuning, on the thread that tunes.
#[uniffi::export(with_foreign)]
pub trait TuneListener: Send + Sync {
    /// Called before each trial.
    fn on_progress(&self, progress: TuneProgress);
}
