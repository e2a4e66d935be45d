//! Headers of models that are elsewhere, and what is known of them.

use super::{hub, list, on};
use crate::common::gguf_writer::{GgufWriter, Meta};
use crate::common::hub::{Files, Server};
use crate::common::split;
use tempfile::tempdir;
use wglm::{Gguf, LoadOptions, Model};

/// A header with a vocabulary of so many tokens, and something before it that is of any length.
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
fn a_header_tells_what_a_file_needs() {
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
    let headers = hub.headers(&repository, &models, &mut on).unwrap();
    let estimate = |file: &Gguf| Model::estimate(file, &LoadOptions::default(), None).unwrap();
    for header in &headers[..2] {
        let header = header.as_ref().unwrap();
        assert_eq!(estimate(header), estimate(&local));
        assert_eq!(header.file_bytes() > 6_000_000, local.file_bytes() > 6_000_000);
        let tensor = header.tensor("token_embd.weight").unwrap();
        let error = header.read_all(tensor).unwrap_err().to_string();
        assert!(error.contains("download it first"), "{error}");
    }
    let error = headers[2].as_ref().unwrap_err().to_string();
    assert!(error.contains("owner/some-GGUF/broken-Q8_0.gguf: not a GGUF file: it is a web page"), "{error}");
    assert!(asked(&server) < wglm::DEMO_MODEL.len() / 2, "{} bytes of two models", asked(&server));
    assert!(std::fs::read_dir(cache.path()).unwrap().next().is_none(), "a header leaves nothing");
}

/// The vocabulary of a second file is that of the first where it is, and what is not is read.
#[test]
fn a_vocabulary_is_read_once() {
    let file = |before, odd| with_vocabulary(60_000, before, odd);
    let first = file("first", "last");
    let header = first.len() - 16_000_000;
    let files = Files::of(&[
        ("a-Q2_K.gguf", &first),
        ("b-Q4_0.gguf", &file("the second", "last")),
        // As long, but not the same far behind: of no matter to what is known. Longer: nothing is where it was.
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
        let headers = hub.headers(&repository, &models, &mut on).unwrap();
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
