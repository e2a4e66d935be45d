//! The slots of the server's model: their state, and actions on their KV caches.

use crate::serve::body::{JsonBody, refuse};
use crate::serve::client::Caller;
use crate::serve::failure::{Failure, shown};
use crate::serve::parse::read;
use crate::serve::router::{PathEnd, json};
use crate::serve::server::{Server, blocking};
use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use wglm_engine::{Error, Scheduler, SlotState};

/// The maximum length of a file name, in bytes.
const NAME: usize = 200;

/// What each slot is doing, without its text.
pub async fn list(State(server): State<Arc<Server>>) -> Result<Response, Failure> {
    let loaded = server.loaded()?;
    let state = loaded.scheduler.state();
    let slot = |(id, slot): (usize, &SlotState)| {
        json!({
            "id": id,
            "n_ctx": slot.context,
            "is_processing": slot.busy,
            "n_tokens": slot.tokens,
            "n_prompt_tokens": slot.prompt_total,
            "n_prompt_tokens_processed": slot.prompt_done,
            "n_decoded": slot.generated,
        })
    };
    Ok(json(&state.slots.iter().enumerate().map(slot).collect()))
}

/// Drops the cache of a slot, writes it to a file, or replaces it with one from a file. Unless all clients share one
/// cache, a client can drop and write only what it has left in the slot itself, and has files of its own.
pub async fn act(
    State(server): State<Arc<Server>>,
    PathEnd(id): PathEnd,
    request: Request,
) -> Result<Response, Failure> {
    let action = Action::of(&server, request).await?;
    let scheduler = server.loaded()?.scheduler.for_tenant(Caller::current().client.tenant());
    let slots = scheduler.state().slots.len();
    let Some(id) = id.parse().ok().filter(|id| *id < slots) else {
        let expected = format!("expected a number below {slots}, the number of slots");
        return Err(Failure::of_field("id", format_args!("{}: {expected}", shown(&id))));
    };
    // An action occupies a thread until the slot is written or read, and no reply continues meanwhile.
    let another = || Failure::unavailable("another slot is being saved, restored or erased", 1);
    let turn = server.slot_actions.clone().try_acquire_owned().map_err(|_| another())?;
    let act = move || {
        let _turn = turn; // kept even if the client leaves
        match action {
            Action::Erase => erase(&scheduler, id),
            Action::Save(file) => file.save(&scheduler, id),
            Action::Restore(file) => file.restore(&scheduler, id),
        }
    };
    blocking(act).await?.map(|done| json(&done))
}

enum Action {
    Erase,
    Save(File),
    Restore(File),
}

impl Action {
    /// The action that a request asks for.
    async fn of(server: &Arc<Server>, request: Request) -> Result<Self, Failure> {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let action = query.split('&').find_map(|field| field.strip_prefix("action="));
        let of_file: fn(File) -> Self = match action {
            Some("save") => Self::Save,
            Some("restore") => Self::Restore,
            other => {
                refuse(request).await; // the body is not needed
                return match other {
                    Some("erase") => Ok(Self::Erase),
                    _ => Err(Failure::of_field("action", "expected erase, save or restore")),
                };
            }
        };
        File::of(server, JsonBody::from_request(request, server).await?).map(of_file)
    }
}

fn erase(scheduler: &Scheduler, id: usize) -> Result<Value, Failure> {
    let erased = scheduler.forget(id).ok_or_else(busy)?;
    Ok(json!({"id_slot": id, "n_erased": erased}))
}

/// The failure of a request for a slot in which a reply is generated, or whose conversation is being stored.
fn busy() -> Failure {
    Failure::unavailable("the slot is in use, or what it holds is being stored", 1)
}

/// A file with the cache of a slot.
struct File {
    /// Its name, as the client sends it.
    name: String,
    path: PathBuf,
}

#[derive(Deserialize)]
struct FileBody {
    filename: Option<String>,
}

impl File {
    /// The file that a body names.
    fn of(server: &Server, body: JsonBody) -> Result<Self, Failure> {
        let Some(folder) = &server.slot_files else {
            return Err(Failure::unsupported(
                "action: slots cannot be saved or restored, because the server was started without --slot-save-path; with \
                 --cache-dir it stores and finds conversations by itself",
            ));
        };
        body.check_text()?;
        let name = read::<FileBody>(&body.bytes)?.filename.unwrap_or_default();
        if !is_file_name(&name) {
            let expected = format!("expected a name of at most {NAME} letters, digits, spaces and any of ._-+=@");
            return Err(Failure::of_field("filename", format_args!("{}: {expected}", shown(&name))));
        }
        // Clients with the number 0 share one cache, so their files are in the folder itself.
        let path = match Caller::current().client.cache {
            0 => folder.join(&name),
            client => folder.join(format!("{client:016x}")).join(&name),
        };
        Ok(Self { name, path })
    }

    fn save(&self, scheduler: &Scheduler, id: usize) -> Result<Value, Failure> {
        let since = Instant::now();
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| self.failed("create", &error))?;
        }
        let saved = scheduler.save_slot(id, &self.path).map_err(|error| self.failure(&error))?.ok_or_else(busy)?;
        let written = if saved == 0 { 0 } else { self.bytes() };
        let timings = json!({"save_ms": since.elapsed().as_secs_f64() * 1e3});
        Ok(json!({
            "id_slot": id, "filename": self.name, "n_saved": saved, "n_written": written, "timings": timings,
        }))
    }

    fn restore(&self, scheduler: &Scheduler, id: usize) -> Result<Value, Failure> {
        let since = Instant::now();
        let restored = scheduler.load_slot(id, &self.path).map_err(|error| self.failure(&error))?.ok_or_else(busy)?;
        let timings = json!({"restore_ms": since.elapsed().as_secs_f64() * 1e3});
        Ok(json!({
            "id_slot": id, "filename": self.name, "n_restored": restored, "n_read": self.bytes(), "timings": timings,
        }))
    }

    fn bytes(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |about| about.len())
    }

    /// The engine's error without the path, which clients need not know.
    fn failure(&self, error: &Error) -> Failure {
        match error {
            Error::Io { action, reason, .. } => self.failed(action, reason),
            Error::Snapshot { .. } => Failure::of_field("filename", format_args!("{}: {}", self.name, error.cause())),
            error => Failure::from(error),
        }
    }

    fn failed(&self, action: &str, reason: &io::Error) -> Failure {
        let message = format!("cannot {action} {}: {reason}", self.name);
        match reason.kind() {
            io::ErrorKind::NotFound => Failure::of_field("filename", message),
            _ => Failure::new(StatusCode::INTERNAL_SERVER_ERROR, message),
        }
    }
}

/// The names of devices on Windows, whatever their extension.
const DEVICES: [&str; 6] = ["con", "prn", "aux", "nul", "com", "lpt"];

/// Whether this is the name of a file on every system, inside the folder and not hidden.
fn is_file_name(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    if DEVICES.contains(&stem.trim_end_matches(|c: char| c.is_ascii_digit())) {
        return false;
    }
    let allowed = |c: char| c.is_alphanumeric() || " ._-+=@".contains(c);
    let ends = [name.chars().next(), name.chars().last()];
    (1..=NAME).contains(&name.len())
        && name.chars().all(allowed)
        && ends.iter().flatten().all(|end| !matches!(end, '.' | ' '))
}

#[cfg(test)]
mod tests {
    use super::{NAME, is_file_name};

    #[test]
    fn names_stay_in_the_folder() {
        for name in ["a", "chat 1.bin", "größe-2@host=x+y", &"n".repeat(NAME)] {
            assert!(is_file_name(name), "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "a\\b",
            ".hidden",
            "c:",
            "a.",
            "Con",
            "com1.bin",
            " a",
            "a\n",
            "\0",
            &"n".repeat(NAME + 1),
        ] {
            assert!(!is_file_name(name), "{name:?}");
        }
    }
}
