//! Tests downloads from a hub of our own, which behaves and misbehaves as asked.

mod changes;
mod faults;
mod headers;
#[cfg(unix)]
mod places;
mod pulls;
#[cfg(unix)]
mod removing;
mod verifying;

use crate::common::hub::{Files, Server};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;
use wglm::Cancel;
use wglm::catalog::{ModelName, RepoName};
use wglm::download::{Hub, HubOptions, PullProgress, Pulled, Repository};

const FILE: &str = "some-Q4_0.gguf";

/// A hub with short waits and small pieces.
fn options(server: &Server, cache: &Path) -> HubOptions {
    HubOptions {
        endpoint: server.address.clone(),
        cache: Some(cache.into()),
        token: None,
        offline: false, // regardless of the environment
        piece: 50_000,
        retries: 3,
        pause: Duration::from_millis(5),
        patience: Duration::from_secs(5),
        ..HubOptions::default()
    }
}

fn hub(server: &Server, cache: &Path) -> Hub {
    Hub::new(options(server, cache)).unwrap()
}

fn repo() -> RepoName {
    crate::common::hub::REPO.parse::<ModelName>().unwrap().repo
}

fn list(hub: &Hub) -> wglm::Result<Repository> {
    hub.list(&repo(), "main", &Cancel::default())
}

fn pull(hub: &Hub) -> wglm::Result<Pulled> {
    let repository = list(hub)?;
    hub.pull(&repository, &repository.models[0], &Cancel::default(), &mut |_| {})
}

/// Downloads until `tell` breaks.
fn pull_with(hub: &Hub, tell: &mut dyn FnMut(PullProgress) -> ControlFlow<()>) -> wglm::Result<Pulled> {
    let repository = list(hub)?;
    let cancel = Cancel::default();
    hub.pull(&repository, &repository.models[0], &cancel, &mut |progress| {
        if tell(progress).is_break() {
            cancel.cancel();
        }
    })
}

/// A repository with one file of noise.
fn noisy(bytes: usize) -> Files {
    Files::of(&[(FILE, &crate::common::hub::noise(bytes))])
}

/// The name of a file during its download.
fn part(files: &Files, cache: &Path) -> std::path::PathBuf {
    let hash = crate::common::hub::hash(files.bytes(FILE));
    crate::common::hub::folder(cache).join("blobs").join(format!("{hash}.part"))
}

/// The git id of contents.
fn git_id(bytes: &[u8]) -> String {
    use sha1::{Digest, Sha1};
    let mut hash = Sha1::new_with_prefix(format!("blob {}\0", bytes.len()));
    hash.update(bytes);
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
