//! The page: conversations in a browser. It is one answer, which can load nothing from elsewhere: it consists of
//! `page.html` with the other files of `page/` in it, and its nonce allows these and no other script or style.

use super::server::id;
use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use std::convert::Infallible;
use std::sync::LazyLock;

/// The files that make up the page, with their names in `page.html`.
const FILES: [(&str, &str); 9] = [
    ("FILE:LICENSE-markdown-it", include_str!("../../LICENSE-markdown-it")),
    ("FILE:page.css", include_str!("page/page.css")),
    ("FILE:markdown-it.min.js", include_str!("page/markdown-it.min.js")),
    ("FILE:colours.js", include_str!("page/colours.js")),
    ("FILE:markdown.js", include_str!("page/markdown.js")),
    ("FILE:store.js", include_str!("page/store.js")),
    ("FILE:server.js", include_str!("page/server.js")),
    ("FILE:messages.js", include_str!("page/messages.js")),
    ("FILE:page.js", include_str!("page/page.js")),
];

/// The placeholder for the nonce.
const NONCE: &str = "NONCE";

/// The text before, between and after the nonces. All answers share it, so each one takes little memory.
static PARTS: LazyLock<Vec<Bytes>> = LazyLock::new(|| {
    let with_files = |part: &str| FILES.iter().fold(part.to_owned(), |part, (name, file)| part.replace(name, file));
    include_str!("page/page.html").split(NONCE).map(|part| with_files(part).into()).collect()
});

pub async fn page() -> Response {
    let nonce = id("n");
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    );
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::REFERRER_POLICY, "no-referrer".to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    let nonce = Bytes::from(nonce);
    let parts = PARTS.iter().enumerate().flat_map(move |(at, part)| {
        let before = (at > 0).then(|| nonce.clone());
        before.into_iter().chain([part.clone()]).map(Ok::<_, Infallible>)
    });
    (headers, Body::from_stream(stream::iter(parts))).into_response()
}
