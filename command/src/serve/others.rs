//! Models besides the one that the server was started with. A request can name a model as `wglm models` lists it, and
//! then waits until that model is loaded. Any other name means the server's own model, because many programs send the
//! name of a model that only they know. When the GPU has too little memory for another one, or too many are loaded, the
//! least recently used one is unloaded. Each is also unloaded after a while without requests. The server's own model
//! stays.

use super::failure::Failure;
use super::loader::{Loader, without_path};
use super::lock;
use super::ollama::{Described, describe};
use super::pools::Turn;
use super::recent::Recent;
use super::reload::{Absent, Reloading};
use super::server::LoadedModel;
use crate::output;
use serde::Deserialize;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use wglm_engine::catalog::{LocalModel, Places, find_listed, local_models};
use wglm_engine::{Error, GenerateOptions, Gguf};

/// The maximum length of a name that is looked up, in bytes.
const LONGEST: usize = 1000;

/// How long a list of the models on this machine is used.
const LISTED: Duration = Duration::from_secs(1);

/// How many names that no model has are remembered.
const MISSED: usize = 16;

/// How long to wait before a file that could not be read is tried again.
const RETRY: Duration = Duration::from_secs(30);

/// How often a request checks whether its model is loaded.
const LOOK: Duration = Duration::from_millis(50);

pub struct Others {
    /// How many models are loaded at once, besides the server's own.
    most: usize,
    /// How long a model stays loaded without requests.
    keep: Duration,
    loader: Arc<Loader>,
    /// The name of the server's own model.
    own_name: String,
    /// Its file, without symbolic links.
    own: Option<PathBuf>,
    /// The models that are loaded or being loaded. The last one was requested last.
    entries: Mutex<Vec<Arc<Other>>>,
    /// The descriptions of files on this machine, by path; `None` for those that cannot be loaded. Reading a header
    /// takes a while.
    described: Mutex<HashMap<PathBuf, FileDescription>>,
    /// The models on this machine.
    local: Recent<[LocalModel]>,
    /// Names that no model has, and when each was looked up.
    missed: Mutex<Vec<(String, Instant)>>,
}

/// The length of a model's files, and when the first was changed.
type Version = (u64, Option<SystemTime>);

/// A version of a model's files, and their description.
struct FileDescription {
    version: Version,
    since: Instant,
    described: Option<Arc<Described>>,
}

/// A model that is loaded or being loaded.
pub struct Other {
    name: String,
    path: PathBuf,
    /// The bytes of GPU memory that it needs, if that is known.
    needs: Option<u64>,
    loaded: Reloading<LoadedModel>,
    stay: Mutex<Stay>,
}

/// How long a model stays loaded.
struct Stay {
    /// When it was last used.
    since: Instant,
    /// How long it stays loaded without requests; `None` for ever.
    keep: Option<Duration>,
}

/// A model on this machine that requests can name.
pub struct Listed {
    pub model: LocalModel,
    /// When its file was changed.
    pub modified: Option<SystemTime>,
    pub described: Arc<Described>,
}

/// The model that a body names. An error in the body is reported when all of it is read.
pub fn named(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        model: Option<String>,
    }

    serde_json::from_slice::<Named>(body).ok()?.model
}

impl Others {
    /// `most` is the number of models that may be loaded besides the server's own, which has a name and perhaps a file.
    pub fn new(most: usize, keep: Duration, loader: Arc<Loader>, (own_name, own): (String, Option<&Path>)) -> Self {
        let (entries, described, missed) = Default::default();
        let local = Recent::new(LISTED);
        let own = own.map(|own| own.canonicalize().unwrap_or_else(|_| own.into()));
        Self { most, keep, loader, own_name, own, entries, described, local, missed }
    }

    /// Whether requests can have other models.
    pub fn are_allowed(&self) -> bool {
        self.most > 0
    }

    /// The models on this machine; none if requests can have no other models. The list may be a moment old, unless it
    /// would lack a model with this name.
    pub async fn local(&self, name: Option<&str>) -> Result<Arc<[LocalModel]>, Failure> {
        if !self.are_allowed() {
            return Ok(Arc::default());
        }
        let (now, list) = (Instant::now(), || local_models(&Places::default()).into());
        let models = self.local.get(None, list).await?;
        let name = name.filter(|name| !name.is_empty() && !self.is_own_name(name));
        let Some(name) = name.filter(|name| matches!(called(name, &models), Ok(None)) && !self.was_missed(name)) else {
            return Ok(models);
        };
        let models = self.local.get(Some(now), list).await?;
        if matches!(called(name, &models), Ok(None)) {
            self.miss(name);
        }
        Ok(models)
    }

    /// Whether a new list lacked a model with this name a moment ago.
    fn was_missed(&self, name: &str) -> bool {
        lock(&self.missed).iter().any(|(missed, since)| missed == name && since.elapsed() < LISTED)
    }

    fn miss(&self, name: &str) {
        let mut missed = lock(&self.missed);
        missed.retain(|(missed, since)| missed != name && since.elapsed() < LISTED);
        let surplus = (missed.len() + 1).saturating_sub(MISSED);
        missed.drain(..surplus);
        missed.push((name.to_owned(), Instant::now()));
    }

    /// A model, if a request for it came before.
    pub fn requested(&self, model: &LocalModel) -> Option<Arc<Other>> {
        requested(&mut lock(&self.entries), &model.path)
    }

    /// Whether it is certain, without looking at the other models, that a name means the server's own.
    pub fn is_own_name(&self, name: &str) -> bool {
        !self.are_allowed() || name.len() > LONGEST || name.eq_ignore_ascii_case(&self.own_name)
    }

    /// The model with this name in a list, unless that is the server's `own`. It begins to load if it is not loaded.
    /// The turn ends when no more files of models are read.
    pub fn asked(
        &self,
        name: &str,
        among: &[LocalModel],
        own: Result<Arc<LoadedModel>, Failure>,
        turn: Turn,
    ) -> Result<Option<Arc<Other>>, Failure> {
        self.find(name, among)?.map(|model| self.get(model, own, turn)).transpose()
    }

    /// The model with this name in a list, unless that is the server's own.
    fn find<'a>(&self, name: &str, among: &'a [LocalModel]) -> Result<Option<&'a LocalModel>, Failure> {
        if self.is_own_name(name) {
            return Ok(None);
        }
        Ok(called(name, among)?.filter(|model| !self.is_own(&model.path)))
    }

    /// The models in a list that requests can name. This reads files.
    pub fn listed(&self, among: &[LocalModel]) -> Vec<Listed> {
        lock(&self.described).retain(|path, _| among.iter().any(|model| model.path == *path));
        let others = among.iter().filter(|model| model.whole && !self.is_own(&model.path));
        others.filter_map(|model| self.describe(model)).collect()
    }

    /// Whether a file is that of the server's own model.
    fn is_own(&self, path: &Path) -> bool {
        self.own.as_ref().is_some_and(|own| own == path || path.canonicalize().is_ok_and(|path| *own == path))
    }

    fn describe(&self, model: &LocalModel) -> Option<Listed> {
        let path = &model.path;
        let modified = path.metadata().ok()?.modified().ok();
        let version = (model.bytes, modified);
        let is_known =
            |it: &&FileDescription| it.version == version && (it.described.is_some() || it.since.elapsed() < RETRY);
        let known = lock(&self.described).get(path).filter(is_known).map(|it| it.described.clone());
        let described = known.unwrap_or_else(|| {
            let described = self.loader.open(path).ok().map(|(file, _)| Arc::new(describe(&file)));
            let kept = FileDescription { version, since: Instant::now(), described: described.clone() };
            lock(&self.described).insert(path.clone(), kept);
            described
        })?;
        Some(Listed { model: model.clone(), modified, described })
    }

    /// The models that are loaded.
    pub fn loaded(&self) -> Vec<Arc<LoadedModel>> {
        lock(&self.entries).iter().filter_map(|other| other.loaded.peek().ok()).collect()
    }

    /// The models that are loaded, and when they will be unloaded if no more requests come; `None` for never.
    pub fn staying(&self) -> Vec<(Arc<LoadedModel>, Option<SystemTime>)> {
        let entries = lock(&self.entries);
        let staying = entries.iter().filter_map(|other| {
            let (loaded, stay) = (other.loaded.peek().ok()?, lock(&other.stay));
            let left = |keep: Duration| keep.saturating_sub(stay.since.elapsed());
            Some((loaded, stay.keep.and_then(|keep| SystemTime::now().checked_add(left(keep)))))
        });
        staying.collect()
    }

    /// The file of the model with this name in a list and the options of a request for it, unless it is the server's
    /// own.
    pub fn file(&self, name: &str, among: &[LocalModel]) -> Result<Option<(Gguf, GenerateOptions)>, Failure> {
        let Some(model) = self.find(name, among)? else { return Ok(None) };
        self.loader.open(&model.path).map(Some).map_err(|error| unfit(name, &model.path, &error))
    }

    /// Sets how long a model stays loaded without requests; `None` for ever. This has no effect on the server's own
    /// model.
    pub fn keep(&self, loaded: &LoadedModel, keep: Option<Duration>) {
        let entries = lock(&self.entries);
        let is_it = |other: &&Arc<Other>| other.loaded.peek().is_ok_and(|there| std::ptr::eq(&*there, loaded));
        if let Some(other) = entries.iter().find(is_it) {
            lock(&other.stay).keep = keep;
        }
    }

    /// Reports that a model has lost its GPU, so that it is loaded again. Returns whether the model is one of these.
    pub fn lost(&self, loaded: &Arc<LoadedModel>) -> bool {
        lock(&self.entries).iter().any(|other| other.loaded.lost(loaded))
    }

    /// Unloads the models that have had no requests for too long. This is called every second or so.
    pub fn expire(&self) {
        let leaving: Vec<Arc<Other>> = lock(&self.entries).extract_if(.., |other| other.is_over()).collect();
        leaving.iter().for_each(|other| other.unload());
    }

    /// Returns a model, and begins to load it if it is not loaded. The server's `own` has to be loaded first.
    fn get(
        &self,
        model: &LocalModel,
        own: Result<Arc<LoadedModel>, Failure>,
        turn: Turn,
    ) -> Result<Arc<Other>, Failure> {
        let LocalModel { name, path, .. } = model.clone();
        if let Some(other) = requested(&mut lock(&self.entries), &path) {
            return Ok(other);
        }
        let (own, loader) = (own?, Arc::new(self.loader.of(&path)));
        let (file, _) = loader.open(&path).map_err(|error| unfit(&name, &path, &error))?;
        let needs = loader.needs(&file, own.model.gpu());
        let mut entries = lock(&self.entries);
        if let Some(other) = requested(&mut entries, &path) {
            return Ok(other); // another request was faster
        }
        let leaving = self.make_room(&mut entries, &name, needs, &own)?;
        let stay = Mutex::new(Stay { since: Instant::now(), keep: Some(self.keep) });
        let (load, loading) = (loader.of_file(file, name.clone()), name.clone());
        let note = move |_: &LoadedModel| output::note(format_args!("{loading} is loaded"));
        let loaded = Reloading::new(move |lost| load(lost).inspect(&note));
        let other = Arc::new(Other { name, path, needs, loaded, stay });
        entries.push(other.clone());
        drop((entries, turn)); // storing conversations takes a while, and requests for other models go on
        // Their memory is free before the load begins. A panic must not prevent the load: requests would wait for it.
        let _ = catch_unwind(AssertUnwindSafe(|| leaving.into_iter().for_each(|other| other.unload())));
        other.loaded.begin_first();
        Ok(other)
    }

    /// Removes idle models from `entries` until another one, which needs `needs` bytes, can be loaded: as few as
    /// possible, the least recently used first. If removing all idle models would not be enough, none is removed.
    fn make_room(
        &self,
        entries: &mut Vec<Arc<Other>>,
        name: &str,
        needs: Option<u64>,
        own: &LoadedModel,
    ) -> Result<Vec<Arc<Other>>, Failure> {
        let memory = own.model.gpu().report().memory;
        let mut held = entries.iter().map(|other| other.held()).sum::<u64>() + own.model.gpu().memory().held;
        let mut idle = entries.iter().filter(|other| other.is_idle());
        let mut leaving: Vec<Arc<Other>> = Vec::new();
        loop {
            let free = memory.map(|memory| memory.saturating_sub(held));
            let short = needs.zip(free).filter(|(needs, free)| needs > free);
            if entries.len() - leaving.len() < self.most && short.is_none() {
                break;
            }
            let Some(other) = idle.next() else { return Err(no_room(name, short, entries.len() == leaving.len())) };
            held = held.saturating_sub(other.held());
            leaving.push(other.clone());
        }
        entries.retain(|other| !leaving.iter().any(|gone| Arc::ptr_eq(gone, other)));
        Ok(leaving)
    }
}

/// The model with this file, if it is loaded or being loaded. It moves to the end, as the one that was requested last.
fn requested(entries: &mut Vec<Arc<Other>>, path: &Path) -> Option<Arc<Other>> {
    let index = entries.iter().position(|other| other.path == path)?;
    let other = entries.remove(index);
    lock(&other.stay).since = Instant::now();
    entries.push(other.clone());
    Some(other)
}

/// The model with this name in a list.
pub fn called<'a>(name: &str, among: &'a [LocalModel]) -> Result<Option<&'a LocalModel>, Failure> {
    match find_listed(name, among) {
        Ok(model) => Ok(Some(model)),
        Err(error @ Error::SeveralModels { .. }) => Err(Failure::of_field("model", error)),
        Err(_) => Ok(None),
    }
}

/// The failure of a request whose model cannot be loaded.
fn unfit(name: &str, path: &Path, error: &anyhow::Error) -> Failure {
    Failure::of_field("model", format_args!("{name}: {}", without_path(error, Some(path))))
}

/// The failure of a request whose model cannot be loaded now: `short` has the bytes of memory that it needs and those
/// that are free, if memory is the reason. The failure is final if no model is in use, since another attempt would fail
/// as well.
fn no_room(name: &str, short: Option<(u64, u64)>, is_final: bool) -> Failure {
    let why = match short {
        Some((needs, free)) => {
            let [needs, free] = [needs, free].map(output::bytes);
            format!("{name} needs {needs} of GPU memory, but the models in use leave only {free} free")
        }
        None => format!("{name} is not loaded, and all models that are loaded are in use (--models-max)"),
    };
    if is_final { Failure::of_field("model", why) } else { Failure::unavailable(why, 5) }
}

impl Other {
    /// The model, once it is loaded.
    pub async fn wait(&self, most: Duration) -> Result<Arc<LoadedModel>, Failure> {
        let since = Instant::now();
        loop {
            match self.loaded.get() {
                Ok(loaded) => return Ok(loaded),
                Err(Absent::Failed(reason)) => {
                    return Err(Failure::unavailable(format!("cannot load {}: {reason}", self.name), 10));
                }
                Err(Absent::Loading) if since.elapsed() >= most => {
                    return Err(Failure::unavailable(format!("{} is still being loaded", self.name), 10));
                }
                Err(Absent::Loading) => tokio::time::sleep(LOOK).await,
            }
        }
    }

    /// The bytes of GPU memory that it holds, or will hold once it is loaded.
    fn held(&self) -> u64 {
        match self.loaded.peek() {
            Ok(loaded) => loaded.model.gpu().memory().held,
            Err(Absent::Loading) => self.needs.unwrap_or(0),
            Err(Absent::Failed(_)) => 0,
        }
    }

    /// Whether nobody uses it, or waits for it.
    fn is_idle(self: &Arc<Self>) -> bool {
        let is_unused = match self.loaded.peek() {
            Ok(loaded) => Arc::strong_count(&loaded) == 2, // here, and in `self`
            Err(Absent::Loading) => false,
            Err(Absent::Failed(_)) => true,
        };
        is_unused && Arc::strong_count(self) == 1 // in the list
    }

    /// Whether it has stayed long enough without requests.
    fn is_over(self: &Arc<Self>) -> bool {
        let mut stay = lock(&self.stay);
        let is_idle = self.is_idle();
        if !is_idle {
            stay.since = Instant::now();
        }
        is_idle && stay.keep.is_some_and(|keep| stay.since.elapsed() >= keep) // `keep` may be 0
    }

    /// Stores what conversations leave in the KV cache, before the model is dropped.
    fn unload(&self) {
        if let Ok(loaded) = self.loaded.peek() {
            loaded.scheduler.store();
            output::note(format_args!("{} is unloaded", self.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Absent, Other, Reloading, Stay};
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, Instant};

    /// A model that stays loaded for `keep`, which is being loaded.
    fn loading(keep: Duration) -> Arc<Other> {
        let stay = Mutex::new(Stay { since: Instant::now(), keep: Some(keep) });
        let loaded = Reloading::new(|_| Err("no GPU".into()));
        Arc::new(Other { name: "m".into(), path: "m".into(), needs: None, loaded, stay })
    }

    #[test]
    fn a_model_in_use_stays_even_if_it_is_to_be_kept_for_no_time() {
        let other = loading(Duration::ZERO);
        assert!(!other.is_over(), "it is being loaded");
        other.loaded.begin_first();
        while matches!(other.loaded.peek(), Err(Absent::Loading)) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let user = other.clone();
        assert!(!other.is_over(), "a request has it");
        drop(user);
        assert!(other.is_over());
    }
}
