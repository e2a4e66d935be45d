//! Whom the server answers. A page in somebody's browser can call any server on the same machine. So a request that
//! comes from a page of another origin is refused unless that origin is allowed, and so is one that calls a server of
//! this machine by a name from outside, for an attacker can make his own name lead here (DNS rebinding).

use super::failure::Failure;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
use subtle::{Choice, ConstantTimeEq};

/// Paths that need no key: whether the server is there and ready, and the page, which asks for the key.
const OPEN: [&str; 6] = ["/", "/health", "/v1/health", "/ready", "/favicon.ico", "/robots.txt"];

/// Who may call.
#[derive(Debug, Default)]
pub struct Access {
    /// The keys; if there are none, none is needed.
    pub keys: Vec<String>,
    /// The origins whose pages may call; `*` for all.
    pub origins: Vec<String>,
    /// The names by which the server may be called, beside its addresses; `None` for any.
    pub names: Option<Vec<String>>,
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// The name in a `Host` header, without the port.
fn name(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or(rest);
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

impl Access {
    /// Lets a request pass, or says why not.
    pub fn check(&self, method: &Method, path: &str, headers: &HeaderMap) -> Result<(), Failure> {
        self.check_name(headers)?;
        self.check_origin(headers)?;
        if method == Method::OPTIONS || OPEN.contains(&path) { Ok(()) } else { self.check_key(headers) }
    }

    fn check_name(&self, headers: &HeaderMap) -> Result<(), Failure> {
        let Some(names) = &self.names else { return Ok(()) };
        // Browsers send one always.
        let Some(host) = headers.get(header::HOST) else { return Ok(()) };
        let found = host.to_str().map(name).unwrap_or_default();
        // An address is no name that somebody could have lead here.
        let local = found.to_ascii_lowercase().ends_with(".localhost") || found.parse::<IpAddr>().is_ok();
        if local || names.iter().any(|name| name.eq_ignore_ascii_case(found)) {
            return Ok(());
        }
        let message = "the header Host names another machine than this one; --allow-host allows a name";
        Err(Failure::new(StatusCode::FORBIDDEN, message))
    }

    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Failure> {
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
        let origin = origin.to_str().unwrap_or_default();
        let own = origin.split_once("://").map(|(_, host)| host);
        if own.is_some() && own == text(headers, header::HOST) || self.allows(origin) {
            return Ok(());
        }
        Err(Failure::new(StatusCode::FORBIDDEN, "pages of other origins may not call this server; --cors allows one"))
    }

    fn allows(&self, origin: &str) -> bool {
        self.origins.iter().any(|allowed| allowed == "*" || allowed.trim_end_matches('/').eq_ignore_ascii_case(origin))
    }

    /// The comparison takes the same time for every key of a length, and for every place where it differs.
    fn check_key(&self, headers: &HeaderMap) -> Result<(), Failure> {
        if self.keys.is_empty() {
            return Ok(());
        }
        let bearer = text(headers, header::AUTHORIZATION).and_then(|value| {
            let (scheme, key) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
        });
        let given = bearer.or_else(|| text(headers, HeaderName::from_static("x-api-key"))).unwrap_or_default();
        let equal = |key: &String| key.as_bytes().ct_eq(given.as_bytes());
        let any = self.keys.iter().fold(Choice::from(0), |any, key| any | equal(key));
        if bool::from(any) {
            return Ok(());
        }
        let message = "the API key is missing or wrong; send it as `Authorization: Bearer KEY` or `x-api-key: KEY`";
        Err(Failure::new(StatusCode::UNAUTHORIZED, message).with_code("invalid_api_key"))
    }

    /// What pages of an origin that is allowed need to see of an answer.
    pub fn share(&self, origin: Option<&HeaderValue>, response: &mut Response) {
        let Some(origin) = origin.filter(|origin| origin.to_str().is_ok_and(|origin| self.allows(origin))) else {
            return;
        };
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("retry-after"));
    }

    /// The answer to a browser that asks what it may send.
    pub fn preflight(asked: &HeaderMap) -> Response {
        let any = HeaderValue::from_static("authorization, content-type, x-api-key");
        let names = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned().unwrap_or(any);
        let mut response = StatusCode::NO_CONTENT.into_response();
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, OPTIONS"));
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names);
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
        response
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::Access;
    use axum::http::{HeaderMap, HeaderName, Method};

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let header = |(name, value): &(&'static str, &str)| (HeaderName::from_static(name), value.parse().unwrap());
        pairs.iter().map(header).collect()
    }

    fn status(access: &Access, path: &str, pairs: &[(&'static str, &str)]) -> u16 {
        access.check(&Method::POST, path, &headers(pairs)).map_or_else(|failure| failure.status.as_u16(), |()| 200)
    }

    #[test]
    fn names_of_other_machines_are_refused() {
        let names = Some(vec!["localhost".to_owned(), "owl.example".into()]);
        let access = Access { names, ..Access::default() };
        for (host, wanted) in [
            ("localhost:8080", 200),
            ("LOCALHOST", 200),
            ("127.0.0.1:1", 200),
            ("[::1]:8080", 200),
            ("192.168.1.5:8080", 200),
            ("Owl.example", 200),
            ("127.0.0.1.evil.example", 403),
            ("wglm.localhost:8080", 200),
            ("evil.example", 403),
            ("localhost.evil.example:8080", 403),
            ("", 403),
        ] {
            assert_eq!(status(&access, "/v1/models", &[("host", host)]), wanted, "{host}");
        }
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
    fn a_key_is_needed_where_there_are_some() {
        let access = Access { keys: vec!["one".into(), "other".into()], ..Access::default() };
        assert_eq!(status(&access, "/v1/models", &[]), 401);
        assert_eq!(status(&access, "/health", &[]), 200);
        assert_eq!(status(&access, "/v1/models", &[("authorization", "Bearer other")]), 200);
        assert_eq!(status(&access, "/v1/models", &[("authorization", "bearer one")]), 200);
        assert_eq!(status(&access, "/v1/models", &[("x-api-key", "one")]), 200);
        for wrong in ["Bearer on", "Bearer ones", "Basic one", "one", "Bearer "] {
            assert_eq!(status(&access, "/v1/models", &[("authorization", wrong)]), 401, "{wrong}");
        }
    }
}
