//! The files of a download, and how it is resumed.

use super::{FILE, hub, list, noisy, options, part, pull, pull_with};
use crate::common::hub::{COMMIT, Files, Reply, Server, contents, folder, hash, noise};
use crate::common::split;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::tempdir;
use wglm::catalog::{Places, Source, find_model, local_models};
use wglm::download::{Hub, HubOptions, PullStage};
use wglm::{Cancel, Error, ErrorKind, Gguf};

fn places(cache: &Path) -> Places {
    Places { hub: Some(cache.into()), lm_studio: Vec::new(), llama_cpp: Vec::new(), ollama: Vec::new() }
}

#[test]
fn a_repository_is_listed() {
    let files = Files::of(&[
        ("README.md", b"hello"),
        ("some-Q8_0.gguf", &noise(300)),
        (FILE, &noise(200)),
        ("BF16/some-BF16-00001-of-00002.gguf", &noise(400)),
        ("BF16/some-BF16-00002-of-00002.gguf", &noise(100)),
        ("mmproj-F16.gguf", &noise(9)),
    ]);
    let server = Server::start(move |request, _| files.answer(request));
    let cache = tempdir().unwrap();
    let repository = list(&hub(&server, cache.path())).unwrap();
    let found: Vec<(&str, u64, usize)> =
        repository.models.iter().map(|model| (model.label.as_str(), model.bytes(), model.files.len())).collect();
    assert_eq!(found, [("Q4_0", 200, 1), ("Q8_0", 300, 1), ("BF16", 500, 2)]);
    assert_eq!(repository.commit, COMMIT);
    assert_eq!(repository.model("bf16").unwrap().label, "BF16");
    assert_eq!(repository.model(FILE).unwrap().label, "Q4_0");
    let error = repository.model("Q5_0").unwrap_err().to_string();
    assert!(error.contains("Q4_0, Q8_0, BF16"), "{error}");
    assert!(std::fs::read_dir(cache.path()).unwrap().next().is_none(), "a list leaves nothing");
}

/// The layout is that of Hugging Face's own programs, and the model is found there by its name.
#[test]
fn extended_a_model_is_stored_where_others_find_it() {
    let files = Files::of(&[(FILE, wglm::DEMO_MODEL)]);
    let server = Server::start(move |request, _| files.answer(request));
    let cache = tempdir().unwrap();
    let pulled = pull(&hub(&server, cache.path())).unwrap();
    assert_eq!((pulled.received, pulled.verified), (wglm::DEMO_MODEL.len() as u64, true));
    let root = folder(cache.path());
    assert_eq!(pulled.path, root.join("snapshots").join(COMMIT).join(FILE));
    assert_eq!(contents(&root.join("blobs").join(hash(wglm::DEMO_MODEL))).unwrap(), wglm::DEMO_MODEL);
    assert_eq!(std::fs::read_to_string(root.join("refs/main")).unwrap(), COMMIT);
    #[cfg(unix)]
    assert_eq!(
        std::fs::read_link(&pulled.path).unwrap(),
        Path::new("../../blobs").join(hash(wglm::DEMO_MODEL)),
        "relative, so that the cache can be moved"
    );
    assert!(Gguf::open(&pulled.path).is_ok());
    for name in ["owner/some-GGUF:Q4_0", "OWNER/some-gguf:q4_0", "owner/some-GGUF", "hf.co/owner/some-GGUF:Q4_0"] {
        assert_eq!(find_model(name, &places(cache.path())).unwrap().path, pulled.path, "{name}");
    }
    let error = find_model("owner/some-GGUF:Q8_0", &places(cache.path())).unwrap_err();
    assert!(matches!(&error, Error::NoModel { found, .. } if found == "owner/some-GGUF:Q4_0"), "{error}");

    let asked = server.contents().len();
    let again = pull(&hub(&server, cache.path())).unwrap();
    assert_eq!((again.path, again.received), (pulled.path, 0));
    assert_eq!(server.contents().len(), asked, "what is there is not fetched again");
}

/// A repository with the same format twice: a model is found by its name in the repository, whichever of them are on
/// this machine, and by the name of its file.
#[test]
fn a_model_is_found_by_the_names_it_was_pulled_by() {
    let files =
        Files::of(&[("a-Q4_0.gguf", &noise(200)), ("sub/b-Q4_0.gguf", &noise(300)), ("c-UD-Q2_K.gguf", &noise(9))]);
    let server = Server::start(move |request, _| files.answer(request));
    let cache = tempdir().unwrap();
    let hub = hub(&server, cache.path());
    let repository = list(&hub).unwrap();
    for (name, label) in [
        ("a-Q4_0", "a-Q4_0"),
        ("a-q4_0.gguf", "a-Q4_0"),
        ("sub/b-Q4_0", "sub/b-Q4_0"),
        ("sub/b-Q4_0.gguf", "sub/b-Q4_0"),
        ("b-Q4_0", "sub/b-Q4_0"),
        ("Q2_K", "UD-Q2_K"),
        ("c-UD-Q2_K.gguf", "UD-Q2_K"),
    ] {
        let model = repository.model(name).unwrap();
        assert_eq!(model.label, label, "{name}");
        let pulled = hub.pull(&repository, model, &Cancel::default(), &mut |_| {}).unwrap();
        for name in [name, label] {
            let found = find_model(&format!("owner/some-GGUF:{name}"), &places(cache.path())).unwrap();
            assert_eq!(found.path, pulled.path, "{name}");
        }
    }
    let error = find_model("owner/some-GGUF", &places(cache.path())).unwrap_err();
    assert!(matches!(error, Error::SeveralModels { count: 3, .. }), "{error}");
    assert!(error.to_string().contains("owner/some-GGUF:sub/b-Q4_0"), "{error}");
}

/// Ollama's names of models from Hugging Face begin with the address, and listed names are found.
#[test]
fn models_are_found_by_the_names_they_are_listed_by() {
    let home = tempdir().unwrap();
    let write = |path: &str, bytes: &[u8]| {
        let path = home.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    let digest = hash(b"weights");
    write(&format!("ollama/blobs/sha256-{digest}"), b"weights");
    let layer = serde_json::json!({
        "mediaType": "application/vnd.ollama.image.model", "digest": format!("sha256:{digest}"),
    });
    let manifest = serde_json::json!({ "layers": [layer] }).to_string();
    for name in ["hf.co/owner/some-GGUF/Q4_0", "registry.ollama.ai/library/glm/latest", "localhost:5000/me/x/1"] {
        write(&format!("ollama/manifests/{name}"), manifest.as_bytes());
    }
    for name in ["lm/owner/some-GGUF/a-Q4_0.gguf", "lm/owner/some-GGUF/b-Q4_0.gguf", "lm/owner/other/b-Q8_0.gguf"] {
        write(name, b"x");
    }
    write("llama/owner_some-GGUF_a-Q4_0.gguf", b"x");
    let below = |name: &str| vec![home.path().join(name)];
    let places = Places { hub: None, lm_studio: below("lm"), llama_cpp: below("llama"), ollama: below("ollama") };
    let listed = local_models(&places);
    assert_eq!(listed.len(), 7, "{listed:?}");
    for model in &listed {
        assert_eq!(find_model(&model.name, &places).unwrap(), *model);
    }
    for name in ["hf.co/owner/some-GGUF", "localhost:5000/me/x", "glm", "owner/other"] {
        assert!(find_model(name, &places).unwrap().name.starts_with(name));
    }
}

#[test]
fn parts_of_a_model_are_downloaded_together() {
    let dir = tempdir().unwrap();
    let paths = split::split(&Gguf::from_static(wglm::DEMO_MODEL).unwrap(), 3, dir.path());
    let name = |path: &Path| format!("sub/{}", path.file_name().unwrap().to_str().unwrap());
    let files = Files(paths.iter().map(|path| (name(path), contents(path).unwrap())).collect());
    let total: u64 = files.0.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    let server = Server::start(move |request, _| files.answer(request));
    let cache = tempdir().unwrap();
    let mut most = 0;
    let pulled = pull_with(&hub(&server, cache.path()), &mut |progress| {
        assert!(progress.done >= most && progress.total == total, "{progress:?} after {most}");
        most = progress.done;
        ControlFlow::Continue(())
    });
    let pulled = pulled.unwrap();
    assert_eq!((pulled.received, most), (total, total));
    let opened = Gguf::open(&pulled.path).unwrap();
    assert_eq!(opened.tensors().len(), Gguf::from_static(wglm::DEMO_MODEL).unwrap().tensors().len());
    assert_eq!(find_model("owner/some-GGUF:model", &places(cache.path())).unwrap().bytes, total);

    // A model that lacks a part is incomplete, and the part is fetched again.
    let second = pulled.path.with_file_name(split::name(1, 3));
    std::fs::remove_file(std::fs::canonicalize(&second).unwrap()).unwrap();
    let error = find_model("owner/some-GGUF", &places(cache.path())).unwrap_err().to_string();
    assert!(error.contains("only a part of it"), "{error}");
    // A complete model of another commit than that of `main` is preferred.
    let other = folder(cache.path()).join("snapshots/older/sub");
    std::fs::create_dir_all(&other).unwrap();
    for path in &paths {
        std::fs::copy(path, other.join(path.file_name().unwrap())).unwrap();
    }
    let found = find_model("owner/some-GGUF", &places(cache.path())).unwrap();
    assert!(found.whole && found.path.starts_with(&other), "{found:?}");
    std::fs::remove_dir_all(other.parent().unwrap()).unwrap();
    let again = pull(&hub(&server, cache.path())).unwrap();
    assert!(again.received > 0 && again.received < total && !again.verified, "{again:?}");
    assert!(Gguf::open(&again.path).is_ok());
}

#[test]
fn several_connections_fetch_a_large_file() {
    let files = noisy(2_000_000);
    let wanted = files.bytes(FILE).to_vec();
    let server = Server::start(move |request, _| {
        let mut reply = files.answer(request);
        if request.is_content() {
            reply.slow = Some((Duration::from_millis(2), 10_000));
        }
        reply
    });
    let cache = tempdir().unwrap();
    let pulled = pull(&hub(&server, cache.path())).unwrap();
    assert_eq!(contents(&pulled.path).unwrap(), wanted);
    // Each of the four may have closed a connection that the server still counts.
    assert!((3..=8).contains(&server.most_at_once()), "{} connections", server.most_at_once());
    // Each byte is requested once, and the hub only until it has redirected to the file.
    let asked: usize = server.contents().iter().map(|request| request.range().map_or(0, |(a, b)| b + 1 - a)).sum();
    assert_eq!(asked, 2_000_000);
    assert!(server.requests().len() - server.contents().len() <= 6, "{:?}", server.requests());
}

/// However a download ends, the part is the beginning of the file, and the next download requests only the rest.
#[test]
fn an_interrupted_download_is_resumed() {
    let files = noisy(1_000_000);
    let wanted = files.bytes(FILE).to_vec();
    let (served, told) = (files.clone(), Arc::new(AtomicBool::new(false)));
    let tell = told.clone();
    // The second half is delayed, so that exactly the first half is written.
    let server = Server::start(move |request, _| {
        let mut reply = served.answer(request);
        let late = request.is_content() && request.range().is_some_and(|(first, _)| first >= 500_000);
        reply.held = late.then(|| (told.clone(), 0));
        reply
    });
    let cache = tempdir().unwrap();
    let hub = hub(&server, cache.path());
    let stopped = pull_with(&hub, &mut |progress| match progress.done >= 500_000 {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    });
    assert!(matches!(stopped, Err(Error::Cancelled)), "{stopped:?}");
    tell.store(true, Ordering::Relaxed);
    let begun = contents(&part(&files, cache.path())).unwrap();
    assert!(begun == wanted[..500_000], "{} bytes", begun.len());
    let listed = local_models(&places(cache.path()));
    assert!(!listed[0].whole && listed[0].source == Source::HuggingFace, "{listed:?}");
    assert_eq!((listed[0].name.as_str(), listed[0].bytes), ("owner/some-GGUF", begun.len() as u64));
    let repository = list(&hub).unwrap();
    assert_eq!(hub.bytes_here(&repository, &repository.models[0]), begun.len() as u64);

    let before = server.contents().len();
    let mut checked = 0;
    let pulled = pull_with(&hub, &mut |progress| {
        if progress.stage == PullStage::Checking {
            checked = checked.max(progress.done);
        }
        ControlFlow::Continue(())
    });
    let pulled = pulled.unwrap();
    assert_eq!((checked, pulled.received), (begun.len() as u64, (wanted.len() - begun.len()) as u64));
    let first = server.contents()[before..].iter().filter_map(|request| request.range()).map(|(from, _)| from).min();
    assert_eq!(first, Some(begun.len()));
    assert_eq!(contents(&pulled.path).unwrap(), wanted);
    assert!(!part(&files, cache.path()).exists());
}

/// The part of an unfinished download can be deleted, but not while another program downloads it; a complete model
/// stays.
#[test]
fn a_discarded_download_leaves_nothing() {
    let files = noisy(1_000_000);
    let served = files.clone();
    let server = Server::start(move |request, _| served.answer(request));
    let cache = tempdir().unwrap();
    let hub = hub(&server, cache.path());
    let repository = list(&hub).unwrap();
    let model = &repository.models[0];
    let mut refused = None;
    let cancel = Cancel::default();
    let stopped = hub.pull(&repository, model, &cancel, &mut |progress| {
        if progress.done >= 700_000 {
            refused = Some(hub.discard(&repository, model));
            cancel.cancel();
        }
    });
    assert!(matches!(stopped, Err(Error::Cancelled)), "{stopped:?}");
    let refused = refused.unwrap().unwrap_err().to_string();
    assert!(refused.contains("another program is downloading it"), "{refused}");
    assert!(hub.bytes_here(&repository, model) > 0 && part(&files, cache.path()).exists());
    hub.discard(&repository, model).unwrap();
    assert!(hub.bytes_here(&repository, model) == 0 && !part(&files, cache.path()).exists());
    let pulled = pull(&hub).unwrap();
    hub.discard(&repository, model).unwrap();
    assert_eq!(hub.bytes_here(&repository, model), 1_000_000);
    assert_eq!(contents(&pulled.path).unwrap(), files.bytes(FILE));
}

/// A cancellation ends a wait for a silent server.
#[test]
fn a_cancellation_takes_effect_at_once() {
    let files = noisy(100_000);
    let server = Server::start(move |request, _| {
        let mut reply = files.answer(request);
        if request.is_content() {
            reply.held = Some((Arc::default(), 0));
        }
        reply
    });
    let cache = tempdir().unwrap();
    let mut patient = options(&server, cache.path());
    patient.patience = Duration::from_secs(60);
    let mut since = None;
    let stopped = pull_with(&Hub::new(patient).unwrap(), &mut |_| match server.contents().is_empty() {
        true => ControlFlow::Continue(()),
        false => {
            since.get_or_insert_with(std::time::Instant::now);
            ControlFlow::Break(())
        }
    });
    assert!(matches!(stopped, Err(Error::Cancelled)), "{stopped:?}");
    // Long before the time limit for a silent server.
    assert!(since.unwrap().elapsed() < Duration::from_secs(30), "{:?}", since.unwrap().elapsed());
}

/// The token goes to the hub, and not to the storage on another server.
#[test]
fn only_the_hub_gets_the_token() {
    let files = noisy(100_000);
    let wanted = files.bytes(FILE).to_vec();
    let stored = files.clone();
    let storage = Server::start(move |request, _| stored.answer(request));
    let elsewhere = storage.address.clone();
    let server = Server::start(move |request, _| {
        if request.header("authorization") != Some("Bearer hf_secret") {
            return Reply::new(401).with("x-error-code", "GatedRepo").with("x-error-message", "Access is restricted");
        }
        let reply = files.answer(request);
        match reply.headers.iter().find(|(name, _)| name == "location").map(|(_, place)| place.clone()) {
            Some(place) => reply.with("location", &format!("{elsewhere}{place}")),
            None => reply,
        }
    });
    let cache = tempdir().unwrap();
    let error = pull(&hub(&server, cache.path())).unwrap_err().to_string();
    assert!(error.contains("401: Access is restricted; request access or accept the licence at http"), "{error}");
    let mut known = options(&server, cache.path());
    known.token = Some("hf_secret".into());
    assert!(!format!("{known:?}").contains("secret"));
    let pulled = pull(&Hub::new(known).unwrap()).unwrap();
    assert_eq!(contents(&pulled.path).unwrap(), wanted);
    assert!(!storage.requests().is_empty());
    assert!(storage.requests().iter().all(|request| request.header("authorization").is_none()));
}

/// A download that is cancelled before its first byte leaves nothing.
#[test]
fn a_download_cancelled_early_leaves_nothing() {
    let files = noisy(1000);
    let served = files.clone();
    let server = Server::start(move |request, _| served.answer(request));
    let cache = tempdir().unwrap();
    let stopped = pull_with(&hub(&server, cache.path()), &mut |_| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(Error::Cancelled)), "{stopped:?}");
    assert!(!part(&files, cache.path()).exists() && server.contents().is_empty());
}

/// Two programs that download the same file do not write over each other.
#[test]
fn a_file_is_downloaded_by_one_program_at_a_time() {
    let files = noisy(1000);
    let served = files.clone();
    let server = Server::start(move |request, _| served.answer(request));
    let cache = tempdir().unwrap();
    let path = part(&files, cache.path());
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let held = std::fs::File::create(&path).unwrap();
    held.lock().unwrap();
    let error = pull(&hub(&server, cache.path())).unwrap_err();
    assert!(error.to_string().contains("another program is downloading it"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Busy);
    drop(held);
    assert!(pull(&hub(&server, cache.path())).is_ok());
}

/// Any number is replaced by the nearest possible one.
#[test]
fn numbers_of_any_size_are_accepted() {
    let files = noisy(200_000);
    let server = Server::start(move |request, _| files.answer(request));
    for (number, time) in [(1, Duration::from_secs(20)), (u64::MAX, Duration::MAX)] {
        let cache = tempdir().unwrap();
        let options = HubOptions {
            connections: number as usize,
            piece: number.max(10_000),
            retries: number as u32,
            pause: time,
            patience: time,
            ..options(&server, cache.path())
        };
        pull(&Hub::new(options).unwrap()).unwrap();
    }
    let cache = tempdir().unwrap();
    let none = HubOptions { connections: 0, retries: 0, pause: Duration::ZERO, ..options(&server, cache.path()) };
    pull(&Hub::new(none.clone()).unwrap()).unwrap();
    // A server may or may not answer within the shortest time limit.
    let hub = Hub::new(HubOptions { patience: Duration::ZERO, ..none }).unwrap();
    assert!(matches!(list(&hub), Ok(_) | Err(Error::Download { .. })));
}

/// A user who has a token is not asked to get one, and errors about files of a gated repository name its page, like
/// errors about its list.
#[test]
fn a_gated_file_leads_to_the_page() {
    let files = noisy(1000);
    let server = Server::start(move |request, _| match request.path.contains("/resolve/") {
        true => Reply::new(403).with("x-error-code", "GatedRepo"),
        false => files.answer(request),
    });
    let cache = tempdir().unwrap();
    let mut known = options(&server, cache.path());
    known.token = Some("hf_secret".into());
    let error = pull(&Hub::new(known).unwrap()).unwrap_err().to_string();
    let page =
        format!("accept the licence at {}/owner/some-GGUF with the account that HF_TOKEN belongs to", server.address);
    assert!(error.ends_with(&page), "{error}");
}

/// Offline, nothing is requested, and the error says why.
#[test]
fn offline_no_server_is_contacted() {
    let server = Server::start(|_, _| Reply::new(404));
    let cache = tempdir().unwrap();
    let offline = HubOptions { offline: true, ..options(&server, cache.path()) };
    let error = list(&Hub::new(offline).unwrap()).unwrap_err();
    assert!(error.kind() == ErrorKind::Network && error.to_string().contains("HF_HUB_OFFLINE"), "{error}");
    assert!(server.requests().is_empty());
}
