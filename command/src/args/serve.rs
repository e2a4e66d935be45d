//! Arguments of `serve`.

use super::choice::{Choice, choice};
use super::numbers::{positive, size, whole};
use super::{ModelArgs, SamplingArgs, Switch};
use crate::serve::host::Host;
use clap::Args;
use std::path::PathBuf;
use wglm_engine::Overflow;

/// The heading in the help for access to the server.
const ACCESS: &str = "Access";

/// The heading in the help for limits on clients.
const LIMITS: &str = "Limits";

#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Address to listen on; other machines can reach the server unless it is a loopback address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", help_heading = ACCESS)]
    pub host: String,
    /// Port to listen on; 0 for any free one
    #[arg(long, value_name = "N", default_value_t = 8080, help_heading = ACCESS)]
    pub port: u16,
    /// Key that clients must send; can be repeated
    #[arg(long, env = "WGLM_API_KEY", hide_env_values = true, value_name = "KEY", help_heading = ACCESS)]
    pub api_key: Vec<String>,
    /// File of such keys, one per line
    #[arg(long, value_name = "FILE", help_heading = ACCESS)]
    pub api_key_file: Option<PathBuf>,
    /// Let requests with different keys share KV caches; clients can then find out what others sent
    #[arg(long, help_heading = ACCESS)]
    pub share_cache: bool,
    /// Let web pages of this origin call the server, such as https://example.org; * for all; can be repeated
    #[arg(long, value_name = "ORIGIN", value_parser = origin, help_heading = ACCESS)]
    pub cors: Vec<String>,
    /// Another host name of the server; with this, requests for unknown names are refused at every address; can be
    /// repeated
    #[arg(long, value_name = "NAME", value_parser = host_name, help_heading = ACCESS)]
    pub allow_host: Vec<String>,
    /// Do not serve the web page
    #[arg(long, alias = "no-webui", help_heading = ACCESS)]
    pub no_page: bool,
    /// Name of the model in replies [default: the name of its file]
    #[arg(short, long, value_name = "NAME", help_heading = "Model")]
    pub alias: Option<String>,
    /// Maximum models that are loaded at once. Requests can name other models on this machine, as `wglm models` lists
    /// them; 1: all requests get the model of -m, whatever they name
    #[arg(long, value_name = "N", default_value_t = 4, allow_negative_numbers = true, value_parser = count, help_heading = "Model")]
    pub models_max: usize,
    /// Seconds after which a model without requests is unloaded; that of -m stays
    #[arg(long, value_name = "S", default_value_t = 300, allow_negative_numbers = true, value_parser = seconds, help_heading = "Model")]
    pub keep_alive: u64,
    /// Maximum conversations that are answered at the same time (also -np)
    #[arg(long, value_name = "N", default_value_t = 4, allow_negative_numbers = true, value_parser = count, help_heading = LIMITS)]
    pub parallel: usize,
    /// Maximum requests that may wait for their turn; more are refused with status 429
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = number, help_heading = LIMITS)]
    pub queue: usize,
    /// Maximum rows in a batched step that verifies guesses: one per conversation plus one per guess, up to 32; 0 to
    /// guess only while a single conversation is running [default: 8]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = rows, help_heading = LIMITS)]
    pub draft_rows: Option<usize>,
    /// Total tokens of all conversations in the KV cache [default: as many as the conversations can have, if memory
    /// allows]
    #[arg(long, value_name = "N", value_parser = count, help_heading = LIMITS)]
    pub kv_tokens: Option<usize>,
    /// Folder in which the KV caches of conversations are stored, so that they survive a restart and the loss of their
    /// slot; only its owner may open it
    #[arg(long, value_name = "DIR", help_heading = LIMITS)]
    pub cache_dir: Option<PathBuf>,
    /// Maximum total size of the files in that folder, such as 500M or 20G; the least recently used are removed first
    #[arg(long, value_name = "SIZE", default_value = "20G", requires = "cache_dir", value_parser = size, help_heading = LIMITS)]
    pub cache_disk: u64,
    /// Folder in which clients can save the KV caches of slots under names of their choice, and from which they
    /// restore them (/slots/N?action=save and restore)
    #[arg(long, value_name = "DIR", help_heading = LIMITS)]
    pub slot_save_path: Option<PathBuf>,
    /// What to do with a conversation that outgrows the context
    #[arg(long, value_name = "POLICY", default_value = "refuse", value_parser = choice(POLICIES), help_heading = LIMITS)]
    pub overflow: Overflow,
    /// Time limit for a request in seconds; a reply that is still running then is cut off
    #[arg(long, value_name = "S", default_value_t = 600, allow_negative_numbers = true, value_parser = seconds, help_heading = LIMITS)]
    pub timeout: u64,
    /// Maximum seconds a client may take to send a request or read a response
    #[arg(long, value_name = "S", default_value_t = 30, allow_negative_numbers = true, value_parser = seconds, help_heading = LIMITS)]
    pub io_timeout: u64,
    /// Maximum milliseconds for which a stream sends nothing, for tests
    #[arg(long, value_name = "MS", default_value_t = 10_000, hide = true)]
    pub silence: u64,
    /// Maximum seconds that running replies may take after Ctrl-C or SIGTERM
    #[arg(long, value_name = "S", default_value_t = 20, value_parser = whole::<u32>, help_heading = LIMITS)]
    pub grace: u32,
    /// Maximum size of a request body in KiB
    #[arg(long, value_name = "KIB", default_value_t = 8192, allow_negative_numbers = true, value_parser = count, help_heading = LIMITS)]
    pub max_body: usize,
    /// Maximum memory in MiB for requests, on top of the idle server; more is refused with status 413 or 503
    #[arg(long, value_name = "MIB", default_value_t = 512, allow_negative_numbers = true, value_parser = count, help_heading = LIMITS)]
    pub max_memory: usize,
    /// Memory in MiB for responses of /v1/responses, which later requests can continue; 0 to keep none
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = number, help_heading = LIMITS)]
    pub keep_responses: usize,
    /// Maximum messages in a conversation
    #[arg(long, value_name = "N", default_value_t = 4096, allow_negative_numbers = true, value_parser = count, help_heading = LIMITS)]
    pub max_messages: usize,
    /// Maximum replies to one request (its field n)
    #[arg(long, value_name = "N", default_value_t = 8, allow_negative_numbers = true, value_parser = count, help_heading = LIMITS)]
    pub max_choices: usize,
    /// Maximum connections at once
    #[arg(long, value_name = "N", default_value_t = 512, allow_negative_numbers = true, value_parser = count, help_heading = LIMITS)]
    pub max_connections: usize,
    /// Maximum connections from one address, and maximum simultaneous requests with one key; 0 for no limit, such as
    /// behind a proxy. Unless it is 0, a client also has at most half of the places for schemas and for requests
    /// without a reply [default: half of --max-connections]
    #[arg(long, value_name = "N", value_parser = number, help_heading = LIMITS)]
    pub max_per_client: Option<usize>,
    /// Let the model think before it answers, unless a request says otherwise
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    pub reasoning: Switch,
    /// Treat the objects of all JSON schemas as closed, even without strict: allow only the properties that they name,
    /// except where they have additionalProperties
    #[arg(long)]
    pub json_closed: bool,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
}

/// What happens to a conversation that is longer than the context.
const POLICIES: &[Choice<Overflow>] = &[
    ("refuse", "The request is refused", Overflow::Refuse),
    ("drop-oldest", "The oldest turns are left out", Overflow::DROP_OLDEST),
];

/// Parses a count of at least 1.
fn count(text: &str) -> Result<usize, String> {
    positive::<u32>(text).map(|number| number as usize)
}

/// Parses a count that may be 0.
fn number(text: &str) -> Result<usize, String> {
    whole::<u32>(text).map(|number| number as usize)
}

/// The maximum number of rows in a batched step that verifies guesses.
const MAX_ROWS: usize = 32;

/// Parses a number of rows, which may be 0.
fn rows(text: &str) -> Result<usize, String> {
    number(text).ok().filter(|rows| *rows <= MAX_ROWS).ok_or_else(|| format!("expected a number from 0 to {MAX_ROWS}"))
}

/// Checks the origin of pages, as browsers send it: without a path.
fn origin(text: &str) -> Result<String, String> {
    let of_scheme = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let is_origin = text.trim_end_matches('/').split_once("://").is_some_and(|(scheme, host)| {
        let is_host = Host::read(host).is_some_and(|host| host != Host::Name(""));
        !scheme.is_empty() && scheme.bytes().all(of_scheme) && is_host
    });
    if is_origin || matches!(text, "*" | "null") {
        return Ok(without_default_port(text.trim_end_matches('/')).to_owned());
    }
    Err("expected *, null or an origin such as https://example.org".to_owned())
}

/// An origin without the port of its scheme, which browsers leave out.
fn without_default_port(origin: &str) -> &str {
    let port = match origin.split_once("://") {
        Some(("https", _)) => ":443",
        Some(("http", _)) => ":80",
        _ => return origin,
    };
    origin.strip_suffix(port).unwrap_or(origin.trim_end_matches(':'))
}

/// Checks the name of a host, and removes the dot at its end.
fn host_name(text: &str) -> Result<String, String> {
    let is_name = !text.contains(':') && Host::read(text).is_some_and(|host| host != Host::Name(""));
    if is_name {
        Ok(text.trim_end_matches('.').to_owned())
    } else {
        Err("expected a host name without a port".to_owned())
    }
}

/// Parses a time of at least a second that clocks can represent.
fn seconds(text: &str) -> Result<u64, String> {
    positive::<u32>(text).map(u64::from)
}

#[cfg(test)]
mod tests {
    use super::{host_name, origin, rows};

    #[test]
    fn origins_have_a_scheme_and_a_host() {
        for good in
            ["*", "null", "https://example.org", "http://127.0.0.1:3000/", "http://[::1]:80", "app://obsidian.md"]
        {
            assert!(origin(good).is_ok(), "{good}");
        }
        for bad in ["", "foo", "example.org", "https://", "https://a/b", "https://a b", "://a", "https://*.example.org"]
        {
            assert!(origin(bad).is_err(), "{bad}");
        }
        for (given, sent) in
            [("https://a:443/", "https://a"), ("http://a:80", "http://a"), ("http://a:443", "http://a:443")]
        {
            assert_eq!(origin(given).as_deref(), Ok(sent), "browsers leave out the port of the scheme");
        }
    }

    #[test]
    fn hosts_are_names() {
        for good in ["owl", "owl.example.org", "my_owl.local", "192.168.1.2"] {
            assert!(host_name(good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "owl:80", "https://owl", "*.example.org"] {
            assert!(host_name(bad).is_err(), "{bad}");
        }
        assert_eq!(host_name("owl.example.org.").as_deref(), Ok("owl.example.org"));
    }

    #[test]
    fn rows_are_those_of_a_step() {
        assert_eq!((rows("0"), rows("32")), (Ok(0), Ok(32)));
        assert!(rows("33").is_err() && rows("-1").is_err() && rows("few").is_err());
    }
}
