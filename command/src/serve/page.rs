//! The page: a conversation in a browser. It is one file, and can load nothing from elsewhere.

use super::server::id;
use axum::http::header;
use axum::response::{IntoResponse, Response};

const PAGE: &str = include_str!("page.html");

/// The placeholder for the nonce, which allows the script and the style of the page and no others.
const NONCE: &str = "NONCE";

pub async fn page() -> Response {
    let nonce = id("n");
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::REFERRER_POLICY, "no-referrer".to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    (headers, PAGE.replace(NONCE, &nonce)).into_response()
}

#[cfg(test)]
mod tests {
    use super::{NONCE, PAGE};

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        for outside in ["http://", "https://", "//cdn", "@import", " src=", "url("] {
            assert!(!PAGE.contains(outside), "{outside}");
        }
        assert_eq!(PAGE.matches(NONCE).count(), 2, "for the script and for the style");
    }

    #[test]
    fn no_text_becomes_markup() {
        for way in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"] {
            assert!(!PAGE.contains(way), "{way}");
        }
    }
}
