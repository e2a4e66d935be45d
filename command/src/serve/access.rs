//! Who may call the server. A page in a browser can call any server on the same machine. So a request from a page of
//! another origin is refused unless that origin is allowed, and so is a request to a loopback address by another host
//! name, because an attacker can make a name resolve to this machine (DNS rebinding). What a page can send
//! without a preflight request, such as forms and links, is recognised by the headers that browsers add.

use super::client::{Client, ClientId, Network};
use super::failure::Failure;
use super::host::Host;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use subtle::{ConditionallySelectable, ConstantTimeEq};

/// Paths that need no key: those for the health of the server, and the page, which asks for the key.
const OPEN: [&str; 6] = ["/", "/health", "/v1/health", "/ready", "/favicon.ico", "/robots.txt"];

/// The error for a page whose origin is not allowed.
const OTHER_ORIGIN: &str = "pages of other origins may not call this server; --cors allows an origin";

#[derive(Debug, Default)]
pub struct Access {
    /// The keys. If there are none, clients need no key.
    pub keys: Vec<String>,
    /// The origins whose pages may call; `*` for all.
    pub origins: Vec<String>,
    /// The host names of the server, in addition to its addresses; `None` for any.
    pub names: Option<Vec<String>>,
    /// Whether clients with different keys use each other's KV cache.
    pub share_cache: bool,
}

/// The content types that any page can send to any server without a preflight request. Clients of these interfaces do
/// not use them; curl does, but it is not a browser.
const FORMS: [&str; 3] = ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"];

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// The header in which a browser says where a request comes from: a page of this server, another page, or the user.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

impl Access {
    /// Checks a request from a network. Returns its client, or why it is refused.
    pub fn check<T>(&self, request: &Request<T>, network: Network) -> Result<Client, Failure> {
        let (headers, path) = (request.headers(), request.uri().path());
        self.check_host(request)?;
        self.check_origin(headers)?;
        self.check_page(request.method(), headers)?;
        let nobody = Client { id: ClientId::Network(network), cache: 0 };
        if self.keys.is_empty() || request.method() == Method::OPTIONS || OPEN.contains(&path) {
            return Ok(nobody);
        }
        let key = self.check_key(headers)?;
        Ok(Client { id: ClientId::Key(key), cache: if self.share_cache { 0 } else { cache_of(&self.keys[key]) } })
    }

    /// A request has exactly one host, or none before HTTP/1.1. If its first line names a host as well, both are
    /// checked.
    fn check_host<T>(&self, request: &Request<T>) -> Result<(), Failure> {
        let mut given = request.headers().get_all(header::HOST).iter();
        let (first, second) = (given.next(), given.next());
        let wrong = |message: &str| Failure::invalid(format!("header Host: {message}"));
        if second.is_some() {
            return Err(wrong("expected one, found several"));
        }
        if first.is_none() && request.version() >= Version::HTTP_11 {
            return Err(wrong("missing; HTTP/1.1 needs one in every request"));
        }
        let text = first.map(|host| host.to_str().unwrap_or("\u{fffd}"));
        let line = request.uri().authority().map(|authority| authority.as_str());
        for host in [text, line].into_iter().flatten() {
            let host = Host::read(host).ok_or_else(|| wrong("expected a name or an address with an optional port"))?;
            self.check_name(&host)?;
        }
        Ok(())
    }

    fn check_name(&self, host: &Host) -> Result<(), Failure> {
        let Some(names) = &self.names else { return Ok(()) };
        // An attacker cannot choose what an address means.
        if host.is_local() || names.iter().any(|name| host.is_named(name)) {
            return Ok(());
        }
        let message = "the header Host names another machine; --allow-host allows a name";
        Err(Failure::new(StatusCode::FORBIDDEN, message))
    }

    /// Refuses what a page can send without a preflight request. Browsers leave `Origin` out of some such requests.
    fn check_page(&self, method: &Method, headers: &HeaderMap) -> Result<(), Failure> {
        let (site, origin) = (text(headers, FETCH_SITE), headers.get(header::ORIGIN));
        if matches!(site, Some("cross-site" | "same-site")) && origin.is_none() && !self.allows("*") {
            // The answer to a followed link is shown to the user and not to the page with the link.
            let follows = text(headers, HeaderName::from_static("sec-fetch-mode")) == Some("navigate");
            if !(follows && method == Method::GET) {
                return Err(Failure::new(StatusCode::FORBIDDEN, OTHER_ORIGIN));
            }
        }
        let kind = text(headers, header::CONTENT_TYPE).and_then(|kind| kind.split(';').next()).map(str::trim);
        let form = kind.is_some_and(|kind| FORMS.iter().any(|form| form.eq_ignore_ascii_case(kind)));
        if form && (site.is_some() || origin.is_some()) {
            let message = "pages must send requests to this server as application/json";
            return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        Ok(())
    }

    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Failure> {
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
        let origin = origin.to_str().unwrap_or_default();
        let own = origin.split_once("://").map(|(_, host)| host);
        if own.is_some() && own == text(headers, header::HOST) || self.allows(origin) {
            return Ok(());
        }
        Err(Failure::new(StatusCode::FORBIDDEN, OTHER_ORIGIN))
    }

    fn allows(&self, origin: &str) -> bool {
        self.origins.iter().any(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(origin))
    }

    /// The index of the key that a request has. The comparison takes the same time wherever the keys differ.
    fn check_key(&self, headers: &HeaderMap) -> Result<usize, Failure> {
        let bearer = text(headers, header::AUTHORIZATION).and_then(|value| {
            let (scheme, key) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
        });
        // A client may send a key of another service in one of the two headers.
        let given = [bearer, text(headers, HeaderName::from_static("x-api-key"))].map(Option::unwrap_or_default);
        let mut found = 0_u64; // none
        for (number, key) in (1..).zip(&self.keys) {
            for given in given {
                found.conditional_assign(&number, key.as_bytes().ct_eq(given.as_bytes()));
            }
        }
        if let Some(index) = found.checked_sub(1) {
            return Ok(index as usize);
        }
        let message = "the API key is missing or wrong; send it as `Authorization: Bearer KEY` or `x-api-key: KEY`";
        Err(Failure::new(StatusCode::UNAUTHORIZED, message).with_code("invalid_api_key"))
    }

    /// Lets pages of an allowed origin read an answer.
    pub fn share(&self, origin: Option<&HeaderValue>, response: &mut Response) {
        let Some(origin) = origin.filter(|origin| origin.to_str().is_ok_and(|origin| self.allows(origin))) else {
            return;
        };
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("retry-after"));
    }

    pub fn preflight(headers: &HeaderMap) -> Response {
        let any = HeaderValue::from_static("authorization, content-type, x-api-key");
        let names = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned().unwrap_or(any);
        let headers = [
            (header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE, OPTIONS")),
            (header::ACCESS_CONTROL_ALLOW_HEADERS, names),
            (header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600")),
        ];
        (StatusCode::NO_CONTENT, headers).into_response()
    }
}

/// The number of a key's cache. It is the same after a restart, with other keys and in other versions, because it is
/// part of the cache on disk, and never that of clients without a key.
fn cache_of(key: &str) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&Sha256::digest(key)[..8]);
    u64::from_le_bytes(first).max(1)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Access, ClientId, Network};
    use axum::http::{Request, Version};

    const NETWORK: Network = Network::V4(1);

    fn request(method: &str, path: &str, pairs: &[(&'static str, &str)]) -> Request<()> {
        let builder = Request::builder().method(method).uri(path).version(Version::HTTP_10);
        pairs.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value)).body(()).unwrap()
    }

    fn status_of(access: &Access, request: &Request<()>) -> u16 {
        access.check(request, NETWORK).map_or_else(|failure| failure.status.as_u16(), |_| 200)
    }

    fn status(access: &Access, path: &str, pairs: &[(&'static str, &str)]) -> u16 {
        status_of(access, &request("POST", path, pairs))
    }

    #[test]
    fn names_of_other_machines_are_refused() {
        let names = Some(vec!["localhost".to_owned(), "owl.example".into()]);
        let access = Access { names, ..Access::default() };
        for (host, wanted) in [
            ("localhost:8080", 200),
            ("LOCALHOST", 200),
            ("localhost.", 200),
            ("127.0.0.1:1", 200),
            ("[::1]:8080", 200),
            ("192.168.1.5:8080", 200),
            ("Owl.example", 200),
            ("127.0.0.1.evil.example", 403),
            ("wglm.localhost:8080", 200),
            ("evil.example", 403),
            ("localhost.evil.example:8080", 403),
            ("", 403),
            ("[::1].evil.example", 400),
            ("127.0.0.1@evil.example", 400),
            ("evil.example@127.0.0.1", 400),
            ("localhost, evil.example", 400),
            ("localhost:80:80", 400),
            ("localhost/", 400),
        ] {
            assert_eq!(status(&access, "/v1/models", &[("host", host)]), wanted, "{host}");
        }
        let line = request("GET", "http://evil.example/v1/models", &[("host", "localhost")]);
        assert_eq!(status_of(&access, &line), 403, "the first line names another host");
    }

    #[test]
    fn http_1_1_has_one_host() {
        let mut asked = request("GET", "/v1/models", &[]);
        assert_eq!(status_of(&Access::default(), &asked), 200, "HTTP/1.0 needs none");
        *asked.version_mut() = Version::HTTP_11;
        assert_eq!(status_of(&Access::default(), &asked), 400);
        let two = request("GET", "/v1/models", &[("host", "localhost"), ("host", "localhost")]);
        assert_eq!(status_of(&Access::default(), &two), 400);
    }

    /// Links, images, scripts and forms.
    #[test]
    fn requests_without_preflight_are_refused() {
        let access = Access::default();
        let get = |pairs: &[(&'static str, &str)]| status_of(&access, &request("GET", "/v1/models", pairs));
        let (site, mode) = ("sec-fetch-site", "sec-fetch-mode");
        assert_eq!((get(&[(site, "cross-site"), (mode, "no-cors")]), get(&[(site, "same-site")])), (403, 403));
        assert_eq!((get(&[(site, "same-origin")]), get(&[(site, "none")])), (200, 200));
        assert_eq!(get(&[(site, "cross-site"), (mode, "navigate")]), 200, "a link");
        assert_eq!(status(&access, "/tokenize", &[(site, "cross-site"), (mode, "navigate")]), 403, "a form");
        let (own, host) = (("origin", "http://localhost"), ("host", "localhost"));
        let form = ("content-type", "application/x-www-form-urlencoded");
        for kind in
            [form, ("content-type", "Text/Plain;charset=utf-8"), ("content-type", "multipart/form-data; boundary=x")]
        {
            assert_eq!(status(&access, "/tokenize", &[host, own, kind]), 415, "{kind:?}");
            assert_eq!(status(&access, "/tokenize", &[host, kind]), 200, "{kind:?} of a program");
        }
        assert_eq!(status(&access, "/tokenize", &[host, own, ("content-type", "application/json")]), 200);
    }

    #[test]
    fn pages_of_other_origins_are_refused_unless_allowed() {
        let host = ("host", "localhost:8080");
        let access = Access { origins: vec!["https://a.example".into()], ..Access::default() };
        for (origin, wanted) in [
            ("http://localhost:8080", 200),
            ("https://a.example", 200),
            ("http://localhost:8081", 403),
            ("https://b.example", 403),
            ("null", 403),
        ] {
            assert_eq!(status(&access, "/v1/models", &[host, ("origin", origin)]), wanted, "{origin}");
        }
        let all = Access { origins: vec!["*".into()], ..Access::default() };
        assert_eq!(status(&all, "/v1/models", &[host, ("origin", "null")]), 200);
    }

    #[test]
    fn a_key_is_needed_if_the_server_has_keys() {
        let access = Access { keys: vec!["one".into(), "other".into()], ..Access::default() };
        assert_eq!(status(&access, "/v1/models", &[]), 401);
        assert_eq!(status(&access, "/health", &[]), 200);
        assert_eq!(status(&access, "/v1/models", &[("authorization", "Bearer other")]), 200);
        assert_eq!(status(&access, "/v1/models", &[("authorization", "bearer one")]), 200);
        assert_eq!(status(&access, "/v1/models", &[("x-api-key", "one")]), 200);
        let who = |key: &str| access.check(&request("GET", "/v1/models", &[("x-api-key", key)]), NETWORK).unwrap();
        assert_eq!((who("one").id, who("other").id), (ClientId::Key(0), ClientId::Key(1)));
        assert_ne!(who("one").cache, who("other").cache);
        for wrong in ["Bearer on", "Bearer ones", "Basic one", "one", "Bearer "] {
            assert_eq!(status(&access, "/v1/models", &[("authorization", wrong)]), 401, "{wrong}");
        }
    }
}
