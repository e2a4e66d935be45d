//! Tests the page as browsers receive it. tests/clients has a browser use it.

use super::client::{Answer, ask};
use super::{Serving, shared};
use sha2::{Digest, Sha256};
use std::path::Path;

/// The names of the files of which the page is made, and their texts.
fn files() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("command/src/serve/page");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let found: Vec<_> = paths.map(|path| (name(&path), std::fs::read_to_string(&path).unwrap())).collect();
    assert!(found.len() > 5, "{found:?}");
    found
}

fn nonce(page: &Answer) -> &str {
    let policy = page.header("content-security-policy").unwrap();
    policy.split("'nonce-").nth(1).unwrap().split('\'').next().unwrap()
}

#[test]
fn the_page_may_load_nothing() {
    let page = shared().get("/");
    let policy = page.header("content-security-policy").unwrap();
    let nonce = nonce(&page);
    let wanted = [
        "default-src 'none'",
        &format!("script-src 'nonce-{nonce}'"),
        &format!("style-src 'nonce-{nonce}'"),
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ];
    assert_eq!(policy.split("; ").collect::<Vec<_>>(), wanted);
    assert!(nonce.len() > 20 && nonce.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{nonce}");
    assert_ne!(shared().get("/").header("content-security-policy"), Some(policy), "another one each time");
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(page.header(name), Some(value), "{name}");
    }
}

/// Every script and style is in the page itself and has the nonce, so that the policy above allows it.
#[test]
fn the_page_has_no_parts_elsewhere() {
    let page = shared().get("/");
    let (text, nonce) = (page.text(), nonce(&page));
    let tags: Vec<_> = ["<script", "<style"].into_iter().flat_map(|tag| text.match_indices(tag)).collect();
    assert!(tags.len() > 2, "{tags:?}");
    for (at, tag) in tags {
        assert!(text[at..].starts_with(&format!("{tag} nonce=\"{nonce}\">")), "{}", &text[at..at + 80]);
    }
    for (name, file) in files().iter().filter(|(name, _)| name != "page.html") {
        assert_eq!(text.matches(file).count(), 1, "{name} is in the page, unchanged");
        assert!(["</script", "</style"].iter().all(|end| !file.contains(end)), "{name} would end its own element");
        let comment = file.split_once("<!--");
        assert!(comment.is_none_or(|(_, rest)| !rest.contains("<script")), "{name} would not end with its element");
    }
    assert!(!text.contains("FILE:") && !text.contains("NONCE"), "a placeholder is left");
    assert_eq!(text.matches("<link").count(), 1, "the empty icon, so that browsers request none");
    assert!(text.contains("<link rel=\"icon\" href=\"data:,\">") && text.ends_with("</html>\n"));
}

#[test]
fn the_pages_own_files_load_nothing_and_make_no_markup_of_texts() {
    let outside = ["http://", "https://", "//cdn", "@import", " src=", "url(", "sourceMapping"];
    let markup = ["innerHTML", "outerHTML", "AdjacentHTML", "setHTML", "document.write", "eval(", "new Function"];
    for (name, file) in files().iter().filter(|(name, _)| name != "markdown-it.min.js") {
        for words in outside.iter().chain(&markup) {
            assert!(!file.contains(words), "{name}: {words}");
        }
    }
}

#[test]
fn the_page_has_the_licence_of_its_library() {
    let text = shared().get("/").text();
    let library = files().into_iter().find(|(name, _)| name == "markdown-it.min.js").unwrap().1;
    let hash: String = Sha256::digest(library).iter().map(|byte| format!("{byte:02x}")).collect();
    let described =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/dependencies.md")).unwrap();
    assert!(described.contains(&hash), "docs/dependencies.md names another SHA-256 than {hash}");
    for words in ["Copyright (c) 2014 Vitaly Puzrin", "Permission is hereby granted, free of charge", "Felix B\u{f6}hm"]
    {
        assert!(text.contains(words), "{words}");
    }
}

#[test]
fn extended_the_page_is_the_only_path_of_its_kind() {
    for path in ["/page.js", "/page.css", "/page/page.js", "/index.html", "/markdown-it.min.js"] {
        assert_eq!(shared().get(path).status, 404, "{path}");
    }
    assert_eq!(ask(&shared().address, "POST", "/", &[], b"").status, 405);
    let without = Serving::start(&["--no-page", "--api-key", "owl"]);
    assert_eq!((without.get("/").status, without.get("/").text().as_str()), (200, "wglm is running"));
    let keyed = Serving::start(&["--api-key", "owl"]);
    assert_eq!((keyed.get("/").status, keyed.get("/v1/models").status), (200, 401), "the page asks for the key");
}
