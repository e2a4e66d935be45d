//! Headers of remote models, and what they tell about the models.

use super::{hub, list};
use crate::common::gguf_writer::{GgufWriter, Meta};
use crate::common::hub::{COMMIT, Files, Reply, Server, hash};
use crate::common::split;
use crate::watched::largest_allocation;
use tempfile::tempdir;
use wglm::{Cancel, Gguf, LoadOptions, Model};

/// A header with a vocabulary of this many tokens, and a value of any length before it.
fn with_vocabulary(tokens: usize, before: &str, odd: &str) -> Vec<u8> {
    let mut words: Vec<String> = (0..tokens).map(|i| format!("token {i} of many")).collect();
    words[tokens - 1] = odd.into();
    let merges: Vec<&str> = words.iter().map(String::as_str).collect();
    let writer = GgufWriter::new().meta("general.architecture", "deepseek2").meta("general.name", before);
    let writer = writer.meta("tokenizer.ggml.tokens", merges.as_slice()).meta("tokenizer.ggml.pre", "glm4");
    let writer = writer.meta("tokenizer.ggml.merges", merges.as_slice()).meta("general.file_type", Meta::U32(2));
    writer.tensor("output.weight", &[4_000_000, 1], 0, &vec![0; 16_000_000]).finish()
}

fn asked(server: &Server) -> usize {
    server.contents().iter().filter_map(|request| request.range()).map(|(first, last)| last + 1 - first).sum()
}

#[test]
fn a_header_shows_what_a_file_needs() {
    let dir = tempdir().unwrap();
    let local = Gguf::from_static(wglm::DEMO_MODEL).unwrap();
    let paths = split::split(&local, 3, dir.path());
    let mut files = Files::of(&[("demo-Q4_0.gguf", wglm::DEMO_MODEL), ("broken-Q8_0.gguf", b"<html>no</html>")]);
    files.0.extend(paths.iter().map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap().replace("model", "model-Q2_K");
        (name, std::fs::read(path).unwrap())
    }));
    let server = Server::start(move |request, _| files.answer(request));
    let cache = tempdir().unwrap();
    let hub = hub(&server, cache.path());
    let repository = list(&hub).unwrap();
    let models: Vec<_> = ["Q4_0", "Q2_K", "Q8_0"].map(|label| repository.model(label).unwrap()).into();
    let headers = hub.headers(&repository, &models, &Cancel::default()).unwrap();
    let estimate = |file: &Gguf| Model::estimate(file, &LoadOptions::default(), None).unwrap();
    for header in &headers[..2] {
        let header = header.as_ref().unwrap();
        assert_eq!(estimate(header), estimate(&local));
        assert_eq!(header.file_bytes() > 6_000_000, local.file_bytes() > 6_000_000);
        let tensor = header.tensor("token_embd.weight").unwrap();
        let error = header.read_all(tensor).unwrap_err().to_string();
        assert!(error.contains("download the whole file first"), "{error}");
    }
    let error = headers[2].as_ref().unwrap_err().to_string();
    assert!(error.contains("owner/some-GGUF/broken-Q8_0.gguf: not a GGUF file: it is a web page"), "{error}");
    assert!(asked(&server) < wglm::DEMO_MODEL.len() / 2, "{} bytes of two models", asked(&server));
    assert!(std::fs::read_dir(cache.path()).unwrap().next().is_none(), "a header leaves nothing");
}

/// The vocabulary of the first file is reused for a second file that has the same one; the rest is read.
#[test]
fn extended_a_vocabulary_is_read_once() {
    let file = |before, odd| with_vocabulary(60_000, before, odd);
    let first = file("first", "last");
    let header = first.len() - 16_000_000;
    let files = Files::of(&[
        ("a-Q2_K.gguf", &first),
        ("b-Q4_0.gguf", &file("the second", "last")),
        // One vocabulary has the same length but differs far from its start, which does not matter; a longer one moves
        // everything after it.
        ("c-Q6_K.gguf", &file("3", "lost")),
        ("d-Q8_0.gguf", &file("4", "a longer one")),
    ]);
    let server = Server::start(move |request, _| files.answer(request));
    let cache = tempdir().unwrap();
    let hub = hub(&server, cache.path());
    let repository = list(&hub).unwrap();
    let read = |labels: &[&str]| {
        let models: Vec<_> = labels.iter().map(|label| repository.model(label).unwrap()).collect();
        let before = asked(&server);
        let headers = hub.headers(&repository, &models, &Cancel::default()).unwrap();
        let names = headers.iter().map(|header| header.as_ref().unwrap().string("general.name").unwrap().to_owned());
        (names.collect::<Vec<_>>(), asked(&server) - before)
    };
    let (names, alone) = read(&["Q2_K"]);
    assert_eq!(names, ["first"]);
    assert!(alone >= header && alone < header + (3 << 20), "{alone} bytes of a header of {header}");
    let (names, both) = read(&["Q2_K", "Q4_0"]);
    assert_eq!(names, ["first", "the second"]);
    assert!(both - alone < 1_200_000, "{} bytes for the second", both - alone);
    let (names, _) = read(&["Q2_K", "Q6_K", "Q8_0"]);
    assert_eq!(names, ["first", "3", "4"]);
}

/// A hub with a file that begins with these bytes and continues with zeros.
fn endless(head: Vec<u8>) -> Server {
    Server::start(move |request, _| {
        let mut reply = Reply::new(200);
        if request.path.starts_with("/api/") {
            let lfs = serde_json::json!({ "sha256": hash(b""), "size": 40_u64 << 30 });
            let file = serde_json::json!({ "rfilename": "x-Q4_0.gguf", "lfs": lfs });
            reply.body = serde_json::json!({ "sha": COMMIT, "siblings": [file] }).to_string().into_bytes();
            return reply;
        }
        if !request.is_content() {
            return Reply::new(302).with("location", "/storage/x-Q4_0.gguf");
        }
        let (first, last) = request.range().unwrap();
        reply = Reply::new(206).with("content-range", &format!("bytes {first}-{last}/{}", 40_u64 << 30));
        reply.body = head.iter().copied().skip(first).collect();
        reply.body.resize(last + 1 - first, 0);
        reply
    })
}

/// Impossible claims of a header are detected before their data is fetched, and no header is fetched without end.
#[test]
fn extended_a_hostile_header_is_not_fetched() {
    let claims = |count: u64| Meta::Raw(9, [&8_u32.to_le_bytes()[..], &count.to_le_bytes()].concat());
    let with = |value: Meta| GgufWriter::new().meta("tokenizer.ggml.tokens", value).header();
    // Keys without end, each with an array of the largest allowed number of empty strings.
    let mut endless_keys = GgufWriter::new().meta("a", claims(1 << 21)).header();
    endless_keys[16..24].copy_from_slice(&4_000_u64.to_le_bytes());
    let entry = endless_keys[24..24 + 9 + 4 + 12].to_vec();
    endless_keys.truncate(24 + entry.len());
    for letter in b'b'..b'g' {
        endless_keys.resize(endless_keys.len() + (16 << 20), 0);
        let key = endless_keys.len() + 8;
        endless_keys.extend_from_slice(&entry);
        endless_keys[key] = letter;
    }
    for (what, head, words, requests, bytes) in [
        (
            "2^31 strings",
            with(claims(1 << 31)),
            "at most 2097152, which is wglm's limit, found 2147483648 string",
            1,
            1 << 20,
        ),
        (
            "a string without end",
            with(Meta::Raw(8, (1_u64 << 34).to_le_bytes().into())),
            "a header of at most 50331648 bytes",
            1,
            1 << 20,
        ),
        ("keys without end", endless_keys, "a header of at most 50331648 bytes", 10, 52 << 20),
    ] {
        let server = endless(head);
        let cache = tempdir().unwrap();
        let hub = hub(&server, cache.path());
        let repository = list(&hub).unwrap();
        let (header, largest) =
            largest_allocation(|| hub.header(&repository, &repository.models[0], &Cancel::default()));
        let error = header.unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("owner/some-GGUF/x-Q4_0.gguf"), "{what}: {error}");
        let (count, fetched) = (server.contents().len(), asked(&server));
        assert!(count <= requests && fetched <= bytes, "{what}: {count} requests, {fetched} bytes");
        assert!(largest <= 52 << 20, "{what}: {largest}");
    }
}
