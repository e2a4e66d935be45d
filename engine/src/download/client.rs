//! Requests to the hub and to the servers it redirects to.
//!
//! Redirections are followed here and not by ureq, because only the hub may get the token, and because the hub's own
//! answer has the hash of the file.

use super::{HubOptions, tls};
use crate::catalog::RepoName;
use crate::error::{Error, ErrorKind, Result};
use crate::threads::StopCheck;
use std::io::{self, Read};
use std::ops::Range;
use std::time::{Duration, Instant};
use ureq::http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, IF_RANGE, LOCATION, RANGE,
    RETRY_AFTER,
};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body, http};

/// The maximum number of redirects that are followed.
const REDIRECTS: usize = 10;
/// The longest wait between two attempts, unless a server asks for a longer one.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The longest wait that a server may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// What helps after a failure of the network.
pub(super) const LATER: &str = "check the network, and try again later";

/// The limit on looking up a server's address, and on connecting to it, neither of which can be interrupted.
const LONGEST_GREETING: Duration = Duration::from_secs(10);

/// Why a request failed.
pub(super) enum RequestFailure {
    /// It may succeed later, after the time that the server asks for.
    Transient(String, Option<Duration>),
    /// It would fail again.
    Permanent(Error),
    /// The server does not have the requested range of the file. It has this many bytes, if the server says so.
    RangeNotSatisfiable(Option<u64>),
    /// A redirection that worked before no longer does.
    Expired,
}

/// The answer of a server.
pub(super) struct Answer {
    /// Whether it is the requested range rather than the whole file.
    pub is_range: bool,
    /// The address after all redirections.
    pub url: String,
    headers: HeaderMap,
    /// The hub's own headers about the file, before it redirected.
    linked: HeaderMap,
    body: Body,
}

/// Makes requests to one hub.
pub(super) struct Client {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
    offline: bool,
    retries: u32,
    pause: Duration,
}

/// Checks the address of a hub.
pub(super) fn check(endpoint: &str) -> Result<()> {
    let uri = endpoint.parse::<http::Uri>().ok().filter(|uri| uri.authority().is_some() && uri.query().is_none());
    match uri.as_ref().and_then(http::Uri::scheme_str) {
        Some("http") => Ok(()),
        Some("https") => tls::provider().map(drop),
        _ => Err(Error::argument(
            "address of the hub (HF_ENDPOINT)",
            "an address such as https://huggingface.co",
            format!("`{endpoint}`"),
        )),
    }
}

impl Client {
    pub fn new(options: &HubOptions) -> Result<Self> {
        let mut tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier);
        if let Ok(provider) = tls::provider() {
            tls = tls.unversioned_rustls_crypto_provider(provider);
        }
        let config = Agent::config_builder()
            .tls_config(tls.build())
            .user_agent(concat!("wglm/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_idle_connections_per_host(options.connections)
            .timeout_resolve(Some(options.patience.min(LONGEST_GREETING)))
            .timeout_connect(Some(options.patience.min(LONGEST_GREETING)))
            .timeout_per_read(Some(options.patience))
            .timeout_per_write(Some(options.patience));
        let HubOptions { endpoint, token, offline, retries, pause, .. } = options.clone();
        Ok(Self { agent: config.build().new_agent(), endpoint, token, offline, retries, pause })
    }

    /// The same for interactive requests, which are worth few attempts.
    pub fn brief(mut self) -> Self {
        self.retries = self.retries.min(3);
        self
    }

    /// Ends all running requests, and prevents new ones.
    pub fn interrupt(&self) {
        self.agent.clone().shutdown();
    }

    /// The address of the hub's information about a repository.
    pub fn about(&self, repo: &RepoName, revision: &str) -> String {
        format!("{}/api/models/{repo}/revision/{}?blobs=true", self.endpoint, escaped(revision, ""))
    }

    /// The address of a file.
    pub fn file(&self, repo: &RepoName, commit: &str, path: &str) -> String {
        format!("{}/{repo}/resolve/{}/{}", self.endpoint, escaped(commit, ""), escaped(path, "/"))
    }

    /// Makes one request, and follows redirections. A range is only sent if the file still has the tag `unless`.
    pub fn get(&self, url: &str, range: Option<Range<u64>>, unless: Option<&str>) -> Result<Answer, RequestFailure> {
        self.may_ask(url)?;
        let mut url = url.to_owned();
        let mut linked = HeaderMap::new();
        let is_elsewhere = |url: &str| origin(url) != origin(&self.endpoint);
        let began_elsewhere = is_elsewhere(&url);
        for _ in 0..=REDIRECTS {
            // A redirection may lead to https even if the hub itself uses http.
            if is_https(&url) {
                tls::provider().map_err(RequestFailure::Permanent)?;
            }
            let mut request = self.agent.get(&url).header(ACCEPT_ENCODING, "identity");
            if let Some(range) = &range {
                let last = range.end.saturating_sub(1);
                request = request.header(RANGE, format!("bytes={}-{last}", range.start));
                // `If-Range` allows only strong tags.
                if let Some(tag) = unless.filter(|tag| tag.starts_with('"')) {
                    request = request.header(IF_RANGE, tag);
                }
            }
            let token = self.token.as_ref().filter(|_| !is_elsewhere(&url));
            if let Some(token) = token {
                request = request.header(AUTHORIZATION, format!("Bearer {token}"));
            }
            let (parts, body) =
                request.call().map_err(|error| failed(&url, self.proxy(&url).as_deref(), error))?.into_parts();
            let status = parts.status.as_u16();
            let headers = parts.headers;
            if linked.is_empty() && headers.contains_key("x-linked-etag") {
                linked.clone_from(&headers);
            }
            match status {
                200 | 206 => return Ok(Answer { is_range: status == 206, url, headers, linked, body }),
                301 | 302 | 303 | 307 | 308 => {
                    let place = text(&headers, LOCATION.as_str()).and_then(|place| joined(&url, place));
                    let place = place
                        .ok_or_else(|| self.refused(&url, status, &headers, "a redirection without a valid address"))?;
                    url = followed(&url, place).map_err(RequestFailure::Permanent)?;
                }
                416 => {
                    return Err(RequestFailure::RangeNotSatisfiable(
                        Extent::of(&headers).and_then(|extent| extent.total),
                    ));
                }
                408 | 429 | 500..=599 => {
                    let wait = text(&headers, RETRY_AFTER.as_str()).and_then(|wait| wait.trim().parse().ok());
                    let reason = format!("{} answers {status} ({})", host(&url), meaning(status));
                    return Err(RequestFailure::Transient(reason, wait.map(Duration::from_secs)));
                }
                // The addresses that the hub redirects to are valid for about an hour.
                400 | 401 | 403 | 404 | 410 if is_elsewhere(&url) && (began_elsewhere || !linked.is_empty()) => {
                    return Err(RequestFailure::Expired);
                }
                _ => return Err(self.refused(&url, status, &headers, meaning(status))),
            }
        }
        Err(RequestFailure::Permanent(Error::Download {
            what: place(&url).into(),
            reason: format!("more than {REDIRECTS} redirections"),
            remedy: "check the address of the hub (HF_ENDPOINT)".into(),
            kind: ErrorKind::Network,
        }))
    }

    /// The proxy through which an address is requested, without the user's name and password.
    fn proxy(&self, url: &str) -> Option<String> {
        let proxy = self.agent.config().proxy()?;
        let is_exempt = url.parse().is_ok_and(|uri| proxy.is_no_proxy(&uri));
        (!is_exempt).then(|| format!("{}:{}", proxy.host(), proxy.port()))
    }

    /// Fails while the network is turned off.
    fn may_ask(&self, url: &str) -> Result<(), RequestFailure> {
        if !self.offline {
            return Ok(());
        }
        let reason = format!("{} is not contacted, because downloads are set to be offline", host(url));
        let remedy = "turn that off where this program sets it, or unset HF_HUB_OFFLINE, to use the network".into();
        let kind = ErrorKind::Network;
        Err(RequestFailure::Permanent(Error::Download { what: place(url).into(), reason, remedy, kind }))
    }

    /// The failure for a response that would be the same on another attempt.
    fn refused(&self, url: &str, status: u16, headers: &HeaderMap, meaning: &str) -> RequestFailure {
        let said =
            text(headers, "x-error-message").map(|said| said.chars().filter(|c| !c.is_control()).take(200).collect());
        let reason: String = said.unwrap_or_else(|| meaning.to_owned());
        let code = text(headers, "x-error-code");
        let kind = match (code, status) {
            (Some("RepoNotFound" | "RevisionNotFound" | "EntryNotFound"), _) | (_, 404 | 410) => ErrorKind::NotFound,
            (_, 401 | 403) => ErrorKind::AccessDenied,
            _ => ErrorKind::Network,
        };
        let remedy = match (code, status) {
            (_, 401 | 403) if origin(url) != origin(&self.endpoint) => {
                "the token is not sent there; for a private or gated repository, set HF_ENDPOINT to that server".into()
            }
            (Some("GatedRepo"), _) => self.way_in(url),
            (_, 401) => {
                format!("check the name; if it is right, the repository is private or gated: {}", self.way_in(url))
            }
            (_, 403) => self.way_in(url),
            (_, 404) => "check the name".into(),
            _ => "check the address of the hub (HF_ENDPOINT)".into(),
        };
        let reason = format!("{} answers {status}: {reason}", host(url));
        RequestFailure::Permanent(Error::Download { what: place(url).into(), reason, remedy, kind })
    }

    /// How to get access to a repository.
    fn way_in(&self, url: &str) -> String {
        let account = match self.token {
            Some(_) => "with the account that HF_TOKEN belongs to",
            None => "with an account there, and set HF_TOKEN to one of its tokens",
        };
        let page = self.page(url).unwrap_or_else(|| self.endpoint.clone());
        format!("request access or accept the licence at {page} {account}")
    }

    /// The page of the repository in an address of the hub.
    fn page(&self, url: &str) -> Option<String> {
        let path = url.strip_prefix(&self.endpoint)?.strip_prefix('/')?;
        let mut parts = path.strip_prefix("api/models/").unwrap_or(path).split(['/', '?']);
        let (owner, repo) = (parts.next()?, parts.next()?);
        Some(format!("{}/{owner}/{repo}", self.endpoint))
    }

    /// Retries something after transient failures, as often as the options allow. The final error has `what` and
    /// `remedy`, and `tell` receives the reason for each wait.
    pub fn persist<T>(
        &self,
        what: &str,
        remedy: &str,
        check_stop: &mut StopCheck<'_>,
        tell: &dyn Fn(Option<String>),
        mut attempt: impl FnMut(&mut StopCheck<'_>) -> Attempt<T>,
    ) -> Result<T> {
        let mut failures = 0;
        loop {
            check_stop()?;
            let Attempt { result, progress } = attempt(check_stop);
            failures = if progress { 0 } else { failures };
            let (reason, wait) = match result {
                Ok(done) => return Ok(done),
                Err(RequestFailure::Permanent(error)) => return Err(error),
                Err(RequestFailure::Transient(reason, wait)) => (reason, wait),
                Err(RequestFailure::Expired) => ("the address of the file is no longer valid".into(), None),
                Err(RequestFailure::RangeNotSatisfiable(_)) => {
                    ("the server does not have this part of the file".into(), None)
                }
            };
            check_stop()?; // an interrupted request is not a failure
            failures += 1;
            if failures > self.retries || wait.is_some_and(|wait| wait > LONGEST_WAIT) {
                let (what, remedy) = (what.into(), remedy.into());
                return Err(Error::Download { what, reason, remedy, kind: ErrorKind::Network });
            }
            let pause = self.pause.saturating_mul(1 << (failures - 1).min(16)).min(LONGEST_PAUSE);
            tell(Some(reason));
            sleep(pause.max(wait.unwrap_or_default()), check_stop)?;
            tell(None);
        }
    }
}

/// The result of an attempt, and whether it made progress even if it failed.
pub(super) struct Attempt<T> {
    pub result: Result<T, RequestFailure>,
    pub progress: bool,
}

impl<T> From<Result<T, RequestFailure>> for Attempt<T> {
    fn from(result: Result<T, RequestFailure>) -> Self {
        Self { result, progress: false }
    }
}

/// The range of bytes in an answer, and the size of the file.
pub(super) struct Extent {
    pub start: Option<u64>,
    pub total: Option<u64>,
}

impl Extent {
    /// Reads `bytes 5-9/100`, `bytes 5-9/*` or `bytes */100`.
    fn of(headers: &HeaderMap) -> Option<Self> {
        let (range, total) =
            text(headers, CONTENT_RANGE.as_str())?.trim().strip_prefix("bytes")?.trim().split_once('/')?;
        let start = range.split_once('-').and_then(|(start, _)| start.parse().ok());
        Some(Self { start, total: total.parse().ok() })
    }
}

impl Answer {
    /// The bytes that are sent, if the server says which.
    pub fn extent(&self) -> Option<Extent> {
        Extent::of(&self.headers)
    }

    /// How many bytes the answer has, if the server says so.
    pub fn length(&self) -> Option<u64> {
        self.body.content_length()
    }

    /// Whether it is a web page, such as a proxy sends instead of the file.
    pub fn is_page(&self) -> bool {
        text(&self.headers, CONTENT_TYPE.as_str()).is_some_and(|kind| kind.trim_start().starts_with("text/html"))
    }

    /// The tag that identifies these contents of the file.
    pub fn tag(&self) -> Option<&str> {
        text(&self.headers, ETAG.as_str())
    }

    /// The SHA-256 of a file in the hub's storage for large files, if this answer has it. The storage's own tag for the
    /// file may look like one, but is a different number.
    pub fn hash(&self) -> Option<String> {
        let tag = text(&self.linked, "x-linked-etag")?;
        let hash = tag.trim_start_matches("W/").trim_matches('"').to_ascii_lowercase();
        is_hash(&hash).then_some(hash)
    }

    /// The size of the file, if this answer of the hub has it.
    pub fn size(&self) -> Option<u64> {
        let linked = text(&self.linked, "x-linked-size").and_then(|size| size.trim().parse().ok());
        let whole = || if self.is_range { self.extent()?.total } else { self.length() };
        linked.or_else(whole)
    }

    /// The body of the answer, to be read with [`receive`].
    pub fn into_reader(self) -> impl Read {
        self.body.into_with_config().limit(u64::MAX).reader()
    }
}

/// Whether a text is a SHA-256 in hexadecimal digits.
pub(super) fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Reads from the body of an answer; 0 at its end.
pub(super) fn receive(from: &mut impl Read, into: &mut [u8]) -> Result<usize, RequestFailure> {
    loop {
        match from.read(into) {
            Ok(count) => return Ok(count),
            Err(reason) if reason.kind() == io::ErrorKind::Interrupted => {}
            Err(reason) => return Err(RequestFailure::Transient(format!("the connection was lost ({reason})"), None)),
        }
    }
}

/// Waits, unless `check_stop` refuses.
fn sleep(time: Duration, check_stop: &mut StopCheck<'_>) -> Result<()> {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        check_stop()?;
        std::thread::sleep(left.min(Duration::from_millis(20)));
    }
    Ok(())
}

/// What a failed request to an address means, which was made through `proxy` if there is one.
fn failed(url: &str, proxy: Option<&str>, error: ureq::Error) -> RequestFailure {
    let host = match proxy {
        Some(proxy) => format!("{} through the proxy {proxy} (HTTPS_PROXY, ALL_PROXY, HTTP_PROXY)", host(url)),
        None => host(url).to_owned(),
    };
    let permanent = |reason: String, remedy: &str| {
        let (remedy, kind) = (remedy.into(), ErrorKind::Network);
        RequestFailure::Permanent(Error::Download { what: place(url).into(), reason, remedy, kind })
    };
    let certificates = "check the clock, and the certificates of this system (SSL_CERT_FILE)";
    match error {
        ureq::Error::Rustls(reason) if is_permanent(&reason) => {
            permanent(format!("no secure connection to {host}: {reason}"), certificates)
        }
        ureq::Error::Tls(reason) => permanent(format!("no secure connection to {host}: {reason}"), certificates),
        ureq::Error::Io(reason) if of_tls(&reason).is_some_and(is_permanent) => {
            permanent(format!("no secure connection to {host}: {reason}"), certificates)
        }
        ureq::Error::Http(_) | ureq::Error::BadUri(_) => {
            permanent(error.to_string(), "check HF_ENDPOINT and HF_TOKEN for invalid characters")
        }
        ureq::Error::InvalidProxyUrl => {
            permanent("the address of the proxy is invalid".into(), "check HTTPS_PROXY, HTTP_PROXY and ALL_PROXY")
        }
        ureq::Error::HostNotFound => RequestFailure::Transient(format!("cannot find the address of {host}"), None),
        ureq::Error::Timeout(_) => RequestFailure::Transient(format!("{host} does not respond"), None),
        other => RequestFailure::Transient(format!("no connection to {host} ({other})"), None),
    }
}

/// The error of TLS that an error of the connection wraps.
fn of_tls(reason: &io::Error) -> Option<&rustls::Error> {
    reason.get_ref()?.downcast_ref()
}

/// Whether an error of TLS is about certificates or unsupported features. Others, such as truncated messages, are
/// errors of the network.
fn is_permanent(reason: &rustls::Error) -> bool {
    use rustls::Error as Tls;
    matches!(
        reason,
        Tls::InvalidCertificate(_)
            | Tls::InvalidCertRevocationList(_)
            | Tls::NoCertificatesPresented
            | Tls::UnsupportedNameType
            | Tls::PeerIncompatible(_)
            | Tls::InconsistentKeys(_)
    )
}

fn meaning(status: u16) -> &'static str {
    match status {
        401 => "a token is required",
        403 => "not allowed",
        404 => "not found",
        408 => "too slow",
        429 => "too many requests",
        500..=599 => "server error",
        _ => "unexpected answer",
    }
}

/// A header's value, if it is text.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The scheme and the server of an address.
fn origin(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    &url[..url[start..].find(['/', '?', '#']).map_or(url.len(), |at| start + at)]
}

/// The server of an address.
fn host(url: &str) -> &str {
    let origin = origin(url);
    origin.rsplit(['/', '@']).next().unwrap_or(origin)
}

/// An address without its query, which may contain a secret.
fn place(url: &str) -> &str {
    url.split('?').next().unwrap_or(url)
}

/// The address that a redirection from `base` leads to.
fn joined(base: &str, place: &str) -> Option<String> {
    if place.starts_with("http://") || place.starts_with("https://") {
        return Some(place.to_owned());
    }
    if let Some(rest) = place.strip_prefix("//") {
        return Some(format!("{}://{rest}", base.split("://").next()?));
    }
    place.starts_with('/').then(|| format!("{}{place}", origin(base)))
}

/// The address that a redirection leads to, unless it goes from https to http.
fn followed(from: &str, to: String) -> Result<String> {
    if is_https(&to) || !is_https(from) {
        return Ok(to);
    }
    Err(Error::Download {
        what: place(from).into(),
        reason: format!("{} redirects from https to http, to {}", host(from), host(&to)),
        remedy: "check the address of the hub (HF_ENDPOINT), and the network".into(),
        kind: ErrorKind::Network,
    })
}

fn is_https(url: &str) -> bool {
    url.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"))
}

/// A text in an address, with all characters escaped except plain ones and those of `kept`.
fn escaped(text: &str, kept: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        let letter = char::from(byte);
        if byte.is_ascii_alphanumeric() || "-_.~".contains(letter) || kept.contains(letter) {
            escaped.push(letter);
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        assert_eq!(origin("https://a.b:1/c?d"), "https://a.b:1");
        assert_eq!(origin("http://a"), "http://a");
        assert_eq!(host("http://user@a.b:1/c"), "a.b:1");
        assert_eq!(joined("http://a/b/c", "/d?e").as_deref(), Some("http://a/d?e"));
        assert_eq!(joined("http://a/b/c", "//d/e").as_deref(), Some("http://d/e"));
        assert_eq!(joined("http://a/b/c", "https://d").as_deref(), Some("https://d"));
        assert_eq!(joined("http://a/b/c", "ftp:d"), None);
        assert_eq!(escaped("a b/ü%", "/"), "a%20b/%C3%BC%25");
    }

    #[test]
    fn https_is_not_left() {
        let follow = |from: &str, to: &str| followed(from, to.to_owned()).is_ok();
        for (from, to) in [("https://a/b", "https://c/d"), ("http://a/b", "http://c/d"), ("http://a", "https://a")] {
            assert!(follow(from, to), "{from} to {to}");
        }
        for (from, to) in [("https://a/b", "http://a/b"), ("HTTPS://a", "http://c"), ("https://a", "HTTP://a")] {
            assert!(!follow(from, to), "{from} to {to}");
        }
        let error = followed("https://hub/x?secret=1", "http://evil:80/y?z".into()).map_err(|error| error.to_string());
        assert!(error.is_err_and(
            |error| error.contains("hub redirects from https to http, to evil:80") && !error.contains("secret")
        ));
    }

    #[test]
    fn errors_of_certificates_are_permanent() {
        let trouble = |error: rustls::Error| failed("https://a/b", None, ureq::Error::Io(io::Error::other(error)));
        let expired = rustls::Error::InvalidCertificate(rustls::CertificateError::Expired);
        assert!(matches!(trouble(expired), RequestFailure::Permanent(Error::Download { .. })));
        assert!(matches!(trouble(rustls::Error::DecryptError), RequestFailure::Transient(..)));
    }

    #[test]
    fn errors_name_the_proxy() {
        let names = |proxy, words: &str| {
            let lost = ureq::Error::Io(io::ErrorKind::ConnectionRefused.into());
            let failure = failed("https://a/b", proxy, lost);
            assert!(matches!(failure, RequestFailure::Transient(reason, None) if reason.starts_with(words)), "{words}");
        };
        names(None, "no connection to a (");
        names(Some("p:1"), "no connection to a through the proxy p:1 (");
    }

    #[test]
    fn addresses_of_hubs_are_checked() {
        for good in ["http://localhost:8080", "https://huggingface.co", "http://mirror.example/hub"] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in ["", "huggingface.co", "ftp://a", "https://", "http://a?b"] {
            assert!(matches!(check(bad), Err(Error::Argument { .. })), "{bad}");
        }
    }
}
