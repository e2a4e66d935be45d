//! How the server loads a model: the one that it was started with, the first time and again, and others.

use super::server::LoadedModel;
use crate::args::{ModelArgs, SamplingArgs, ServeArgs};
use crate::{fits, model, tunings};
use std::path::Path;
use std::sync::Arc;
use wglm_engine::{DiskCache, GenerateOptions, Gguf, Gpu, Scheduler, SchedulerOptions};

#[derive(Debug, Clone)]
pub struct Loader {
    model: ModelArgs,
    sampling: SamplingArgs,
    scheduler: SchedulerOptions,
}

impl Loader {
    pub fn new(args: &ServeArgs, disk: Option<DiskCache>) -> Self {
        let (sessions, tokens) = (args.parallel, args.kv_tokens);
        let queue = args.parallel.saturating_add(args.queue); // the server has a queue of its own
        let drafted_rows = args.draft_rows;
        let scheduler = SchedulerOptions { sessions, queue, tokens, drafted_rows, disk, ..SchedulerOptions::default() };
        Self { model: args.model.clone(), sampling: args.sampling.clone(), scheduler }
    }

    /// The loader of another model. It has the same options, except those that name files of the first model.
    pub fn of(&self, path: &Path) -> Self {
        let mut other = self.clone();
        let file = &mut other.model.file;
        (file.model, file.model_draft, other.model.tuning) = (Some(path.into()), None, None);
        other
    }

    /// The cache on disk, where conversations are stored.
    pub fn disk(&self) -> Option<DiskCache> {
        self.scheduler.disk.clone()
    }

    /// The options of a request that gives none.
    pub fn defaults(&self, file: &Gguf) -> anyhow::Result<GenerateOptions> {
        crate::run::options(file, &self.sampling, true)
    }

    /// Opens a file that can be loaded. Also returns the options of a request that gives none.
    pub fn open(&self, path: &Path) -> anyhow::Result<(Gguf, GenerateOptions)> {
        let file = Gguf::open(path)?;
        let defaults = self.defaults(&file)?;
        Ok((file, defaults))
    }

    /// The bytes of GPU memory that a model and one conversation need, if that is known.
    pub fn needs(&self, file: &Gguf, gpu: &Gpu) -> Option<u64> {
        fits::judged(file, &self.model.file, self.sampling.speculate, gpu).needs
    }

    /// A function that loads the model of a file, the first time or after the model was lost, under a name for clients.
    pub fn of_file(
        self: Arc<Self>,
        file: Gguf,
        name: String,
    ) -> impl Fn(Option<Arc<LoadedModel>>) -> Result<LoadedModel, String> + Send + Sync + 'static {
        move |lost| {
            // Replies that have not ended hold the lost model, and closing its GPU frees the memory.
            lost.into_iter().for_each(|lost| lost.model.gpu().close());
            self.load(&file, &name).map_err(|error| format!("{error:#}"))
        }
    }

    /// Loads the model of a file, under a name for clients.
    pub fn load(&self, file: &Gguf, name: &str) -> anyhow::Result<LoadedModel> {
        let (name, defaults) = (name.to_owned(), self.defaults(file)?);
        let model = model::load(file, &self.model, self.sampling.speculate)?;
        tunings::hint(&model, &self.model);
        let scheduler = Scheduler::new(&model, &self.scheduler)?;
        Ok(LoadedModel { name, model, scheduler, defaults })
    }
}
