//! Models from a hub: Hugging Face, or a server with the same interface.
//!
//! The module gives these guarantees:
//!
//! * **A file is complete or absent.** Bytes are appended in order to `HASH.part`, hashed as they are written, and the
//!   file gets its name only if size and hash are those that the hub lists: the SHA-256, or for small files outside its
//!   storage for large ones git's id of the contents. A wrong file is deleted.
//! * **Only regular files are written to.** Anything else in their place, such as a symbolic link or a pipe, is an
//!   error.
//! * **Downloaded bytes stay.** A download resumes where the last one ended, however that ended. The name of the part
//!   is the hash of the contents, so it never continues with another file's.
//! * **Transient failures are retried**: lost connections, stalls, 429 and 5xx, and answers about another file, which
//!   the hash will detect. Everything else is an error at once.
//! * **Only the hub gets the token**, not the servers that it redirects to. A redirection from https to http is not
//!   followed.
//!
//! Calls block, and their threads end with them. A caller's `Break` ends waiting for a server at once; while an address
//! is looked up or connected to, it takes effect within twenty seconds. TLS is rustls with a provider that needs no C
//! compiler.

mod client;
mod hash;
mod header;
mod listing;
mod part;
mod remove;
mod store;
mod tls;
mod transfer;
mod verify;

use crate::cancel::Cancel;
use crate::catalog::{Places, RepoFolder, RepoName, hugging_face, is_on, variable};
use crate::error::{Error, ErrorKind, Result};
use crate::files::read_text;
use crate::gguf::Gguf;
use crate::threads::{StopCheck, lock, work};
use client::Client;
use part::PartFile;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;
use transfer::Transfer;

pub use listing::{RemoteFile, RemoteModel, Repository};
pub use remove::Removal;
pub use verify::{FileState, VerifiedFile, verify_local};

/// The maximum number of bytes of a file with a token.
const LONGEST_TOKEN: usize = 4 << 10;
/// The bounds of [`HubOptions::patience`]: clocks cannot represent every duration.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(1);
const LONGEST_PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// The source of models, their destination, and how patiently to download.
#[derive(Clone)]
pub struct HubOptions {
    /// The address of the hub. The default is `HF_ENDPOINT`, otherwise `https://huggingface.co`.
    pub endpoint: String,
    /// The access token, for repositories that are private or gated. The default is `HF_TOKEN`, otherwise the token
    /// that `hf auth login` has stored.
    pub token: Option<String>,
    /// Whether every call that needs a server is an error. The default is whether `HF_HUB_OFFLINE` is set to `1`, `on`,
    /// `yes` or `true`.
    pub offline: bool,
    /// The cache to store files in, which has the layout of Hugging Face's. The default is that of [`Places`]: `None`
    /// if there is no home folder.
    pub cache: Option<PathBuf>,
    /// How many connections fetch a large file, at least one.
    pub connections: usize,
    /// How many bytes one request asks for: enough that its round trip does not matter, and few enough that losing them
    /// costs little.
    pub piece: u64,
    /// How often a request is made again, without a byte received in between, before the download fails.
    pub retries: u32,
    /// How long to wait before the first retry; each further wait is twice as long, up to half a minute, unless the
    /// server asks for more.
    pub pause: Duration,
    /// How long a connection may be silent before it counts as lost, from a millisecond to a day. Looking up an address
    /// and connecting to it may take at most ten seconds each.
    pub patience: Duration,
}

/// Prints everything except the token, so that logs show only whether there is one.
impl fmt::Debug for HubOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoint, token, offline, cache, connections, piece, retries, pause, patience } = self;
        f.debug_struct("HubOptions")
            .field("endpoint", endpoint)
            .field("token", &token.as_ref().map(|_| "…"))
            .field("offline", offline)
            .field("cache", cache)
            .field("connections", connections)
            .field("piece", piece)
            .field("retries", retries)
            .field("pause", pause)
            .field("patience", patience)
            .finish()
    }
}

impl Default for HubOptions {
    /// The options with the values of the environment variables.
    fn default() -> Self {
        let kept = || {
            let path = variable("HF_TOKEN_PATH").map(PathBuf::from).or_else(|| Some(hugging_face()?.join("token")))?;
            Some(read_text(&path, LONGEST_TOKEN).ok()?.trim().to_owned()).filter(|token| !token.is_empty())
        };
        Self {
            endpoint: variable("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".into()),
            token: variable("HF_TOKEN").or_else(kept),
            offline: is_on("HF_HUB_OFFLINE"),
            cache: Places::default().hub,
            connections: 4,
            piece: 16 << 20,
            retries: 8,
            pause: Duration::from_millis(500),
            patience: Duration::from_secs(30),
        }
    }
}

/// A hub to download models from. Proxies are those of `ALL_PROXY`, `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`.
///
/// ```no_run
/// use wglm::catalog::ModelName;
/// use wglm::download::{Hub, HubOptions};
/// use wglm::{Cancel, Gguf, Model};
///
/// # fn main() -> wglm::Result<()> {
/// let cancel = Cancel::default(); // a clone of it in another thread stops the call
/// let hub = Hub::new(HubOptions::default())?;
/// let name: ModelName = "unsloth/GLM-4.7-Flash-GGUF".parse()?;
/// let repository = hub.list(&name.repo, "main", &cancel)?;
/// for model in &repository.models {
///     println!("{}: {} bytes", model.label, model.bytes());
/// }
/// let model = repository.model("Q4_0")?;
/// let header = hub.header(&repository, model, &cancel)?; // a few megabytes
/// println!("{:?}", Model::estimate(&header, &Default::default(), None)?);
/// let pulled = hub.pull(&repository, model, &cancel, &mut |progress| {
///     println!("{} of {}", progress.done, progress.total);
/// })?;
/// let file = Gguf::open(&pulled.path)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Hub {
    options: HubOptions,
}

/// The present activity of a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PullStage {
    /// Hashes the bytes of an earlier download.
    Checking,
    /// Receives bytes.
    Downloading,
}

/// The progress of a download.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PullProgress {
    /// The present activity.
    pub stage: PullStage,
    /// The bytes of all files so far: checked or received.
    pub done: u64,
    /// The bytes of all files.
    pub total: u64,
    /// What it waits for, if a server or the network has trouble.
    pub trouble: Option<String>,
}

/// A downloaded model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Pulled {
    /// Its file, or the first of several, for [`Gguf::open`].
    pub path: PathBuf,
    /// The bytes that this call received; 0 if all files were there.
    pub received: u64,
    /// Whether this call compared the hash of every file. It does so for files that it receives, but not for files that
    /// were there already, which it recognizes by their size; [`Hub::verify`] reads those.
    pub verified: bool,
}

impl Hub {
    /// Prepares requests to a hub. Nothing is sent yet.
    ///
    /// # Errors
    /// [`Error::Argument`] if the endpoint is not the address of a server; [`Error::Unsupported`] if its address begins
    /// with `https` and the processor lacks instructions that TLS needs here.
    pub fn new(mut options: HubOptions) -> Result<Self> {
        options.endpoint.truncate(options.endpoint.trim_end_matches('/').len());
        options.connections = options.connections.clamp(1, 16);
        options.piece = options.piece.clamp(1, 1 << 30);
        options.patience = options.patience.clamp(SHORTEST_PATIENCE, LONGEST_PATIENCE);
        client::check(&options.endpoint)?;
        Ok(Self { options })
    }

    /// Lists the models that a repository has at a revision, which is a branch (usually `main`), a tag or a commit.
    ///
    /// # Errors
    /// [`Error::Download`] if the hub cannot be reached ([`ErrorKind::Network`]), has no such repository or revision
    /// ([`ErrorKind::NotFound`]), or denies access ([`ErrorKind::AccessDenied`]); [`Error::Cancelled`].
    pub fn list(&self, repo: &RepoName, revision: &str, cancel: &Cancel) -> Result<Repository> {
        let client = Client::new(&self.options)?.brief();
        one("listing a repository", &client, cancel, |check_stop| listing::list(&client, repo, revision, check_stop))
    }

    /// Reads the header of a model, or those of all its files: enough for
    /// [`Model::estimate`](crate::model::Model::estimate).
    ///
    /// # Errors
    /// [`Error::Download`], [`Error::Cancelled`], and the errors of [`Gguf::of_headers`].
    pub fn header(&self, repository: &Repository, model: &RemoteModel, cancel: &Cancel) -> Result<Gguf> {
        self.headers(repository, &[model], cancel)?.pop().unwrap_or(Err(Error::Cancelled))
    }

    /// Reads the headers of several models of a repository, each of which can fail by itself. Those after the first
    /// cost little, since all have the same vocabulary.
    ///
    /// # Errors
    /// [`Error::Cancelled`].
    pub fn headers(
        &self,
        repository: &Repository,
        models: &[&RemoteModel],
        cancel: &Cancel,
    ) -> Result<Vec<Result<Gguf>>> {
        self.each_header(repository, models, &|header| header, cancel)
    }

    /// The same, where `each` extracts what is needed from a header as soon as it arrives.
    pub(crate) fn each_header<T: Send>(
        &self,
        repository: &Repository,
        models: &[&RemoteModel],
        each: &(dyn Fn(Result<Gguf>) -> T + Sync),
        cancel: &Cancel,
    ) -> Result<Vec<T>> {
        let client = Client::new(&self.options)?.brief();
        let mut check_stop = || cancel.check();
        header::read(&client, repository, models, self.options.connections, each, &mut asking(&client, &mut check_stop))
    }

    /// Downloads a model into the cache, unless it is there, and resumes an unfinished download. `tell` receives the
    /// progress at least every 50 ms. A cancellation ends the download at once, and the bytes received so far stay.
    ///
    /// # Errors
    /// [`Error::Download`] if the hub or the network fails, or the hub sends other contents than it lists;
    /// [`Error::Io`] if a file cannot be written, or there is too little space; [`Error::Cancelled`].
    pub fn pull(
        &self,
        repository: &Repository,
        model: &RemoteModel,
        cancel: &Cancel,
        tell: &mut dyn FnMut(PullProgress),
    ) -> Result<Pulled> {
        let folder = self.folder(repository)?;
        let total = model.bytes();
        let (mut before, mut received, mut verified) = (0, 0, true);
        store::make_room(&folder, &repository.commit, model)?;
        for file in &model.files {
            let mut tell_all = |stage, done, trouble| {
                tell(PullProgress { stage, done: before + done, total, trouble });
                cancel.check()
            };
            if !store::is_there(&folder, &repository.commit, file) {
                received += self.fetch(repository, &folder, file, &mut tell_all)?;
            } else {
                verified = false;
            }
            store::link(&folder, &repository.commit, file)?;
            before += file.bytes;
            let stage = PullStage::Downloading;
            tell(PullProgress { stage, done: before, total, trouble: None });
            cancel.check()?;
        }
        store::refer(&folder, &repository.revision, &repository.commit)?;
        let first = model.files.first().map(|file| folder.file(&repository.commit, &file.path)).unwrap_or_default();
        Ok(Pulled { path: first, received, verified })
    }

    /// Reads the files of a model that are in the cache, and compares them with the hashes that the hub lists. `tell`
    /// receives the progress.
    ///
    /// # Errors
    /// [`Error::Io`] if a file cannot be read; [`Error::Cancelled`]. A file that is wrong or missing is not an error.
    pub fn verify(
        &self,
        repository: &Repository,
        model: &RemoteModel,
        cancel: &Cancel,
        tell: &mut dyn FnMut(PullProgress),
    ) -> Result<Vec<VerifiedFile>> {
        verify::remote(&self.folder(repository)?, &repository.commit, model, (cancel, tell))
    }

    /// How many bytes of a model are in the cache already: all, or those of an unfinished download.
    pub fn bytes_here(&self, repository: &Repository, model: &RemoteModel) -> u64 {
        self.folder(repository).map_or(0, |folder| store::bytes_there(&folder, &repository.commit, model))
    }

    /// Deletes the files of an unfinished download from the cache. A complete model stays.
    ///
    /// # Errors
    /// [`Error::Download`] if another program is downloading it; [`Error::Io`] if a file cannot be deleted.
    pub fn discard(&self, repository: &Repository, model: &RemoteModel) -> Result<()> {
        store::discard(&self.folder(repository)?, &repository.commit, model)
    }

    /// The folder of a repository in the cache.
    fn folder(&self, repository: &Repository) -> Result<RepoFolder> {
        let none = || Error::argument("cache", "a home folder, HF_HOME or `HubOptions::cache`", "none of them");
        let cache = self.options.cache.as_ref().ok_or_else(none)?;
        Ok(RepoFolder::new(cache, &repository.name))
    }

    /// Downloads a file to its blob, and returns how many bytes were received.
    fn fetch(
        &self,
        repository: &Repository,
        folder: &RepoFolder,
        file: &RemoteFile,
        tell: &mut dyn FnMut(PullStage, u64, Option<String>) -> Result<()>,
    ) -> Result<u64> {
        let mut checked = |done| tell(PullStage::Checking, done, None);
        let part = PartFile::open(folder.part(file.id()), file, &mut checked)?;
        let had = part.written();
        let client = Client::new(&self.options)?;
        let url = client.file(&repository.name, &repository.commit, &file.path);
        let transfer = Transfer::new(&client, file, url, part);
        let mut report = || {
            let (done, trouble) = transfer.progress();
            tell(PullStage::Downloading, done, trouble)
        };
        let fetched = transfer.run(self.options.connections, self.options.piece, &mut asking(&client, &mut report));
        let (part, sha256) = transfer.into_part();
        if matches!(fetched, Err(transfer::Failure::Changed)) {
            part.discard();
            return Err(changed(&file.path));
        }
        if let Err(transfer::Failure::Error(error)) = fetched {
            part.keep()?;
            return Err(error);
        }
        let received = part.written().saturating_sub(had);
        part.finish(file, sha256.as_deref(), &folder.blob(file.id()))?;
        Ok(received)
    }
}

/// The error for a file that differs from the listed one.
fn changed(path: &str) -> Error {
    Error::Download {
        what: path.into(),
        reason: "the file has changed on the server".into(),
        remedy: "download it again from the start".into(),
        kind: ErrorKind::Network,
    }
}

/// Asks the caller whether to continue. If not, running requests end at once.
fn asking<'a>(client: &'a Client, check_stop: &'a mut StopCheck<'_>) -> impl FnMut() -> Result<()> + 'a {
    move || check_stop().inspect_err(|_| client.interrupt())
}

/// Runs something on its own thread, so that a cancellation takes effect meanwhile.
fn one<T: Send>(
    doing: &'static str,
    client: &Client,
    cancel: &Cancel,
    job: impl FnOnce(&mut StopCheck<'_>) -> Result<T> + Send,
) -> Result<T> {
    let done = Mutex::new(None);
    let job = |check_stop: &mut StopCheck<'_>| {
        let result = job(check_stop)?;
        *lock(&done) = Some(result);
        Ok(())
    };
    work(doing, vec![Box::new(job)], |_| Ok(()), &mut asking(client, &mut || cancel.check()))?;
    let done = lock(&done).take();
    done.ok_or(Error::Cancelled)
}
