//! How the server loads a model: the one that it was started with, the first time and again, and others.

use super::server::{LoadedModel, call_id};
use crate::args::{ModelArgs, SamplingArgs, ServeArgs};
use crate::{fits, model, output, tunings};
use std::path::{MAIN_SEPARATOR, Path};
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
        let call_ids: Option<fn() -> String> = Some(call_id);
        let usual = SchedulerOptions::default();
        let scheduler = SchedulerOptions { sessions, queue, tokens, drafted_rows, disk, call_ids, ..usual };
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
            self.load(&file, &name).map_err(|error| {
                output::note(format_args!("cannot load {name}: {error:#}"));
                without_path(&error, file.path())
            })
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

/// An error about a model as clients read it: without the path of the model's file, and without the folder of its other
/// parts. Clients need not know how the disk of the server is organised.
pub fn without_path(error: &anyhow::Error, path: Option<&Path>) -> String {
    let message = format!("{error:#}");
    let Some(path) = path else { return message };
    let message =
        message.replace(&format!("{}: ", path.display()), "").replace(&path.display().to_string(), "the file");
    match path.parent().filter(|folder| folder.file_name().is_some()) {
        Some(folder) => message.replace(&format!("{}{MAIN_SEPARATOR}", folder.display()), ""),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::without_path;
    use std::path::Path;

    #[test]
    fn clients_read_no_paths() {
        let folder = Path::new("models").join("publisher");
        let (path, part) = (folder.join("a-00001-of-00002.gguf"), folder.join("a-00002-of-00002.gguf"));
        let (path_text, part) = (path.display(), part.display());
        for (message, wanted) in [
            (format!("{path_text}: not a GGUF file: HTML"), "not a GGUF file: HTML"),
            (format!("{path_text} has no tokenizer; use another file"), "the file has no tokenizer; use another file"),
            (format!("cannot open {part}: not found"), "cannot open a-00002-of-00002.gguf: not found"),
            ("out of GPU memory".to_owned(), "out of GPU memory"),
        ] {
            let error = anyhow::Error::msg(message);
            assert_eq!(without_path(&error, Some(&path)), wanted);
            assert_eq!(without_path(&error, None), error.to_string());
        }
    }
}
