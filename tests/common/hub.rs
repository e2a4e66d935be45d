//! A hub of our own: a server that answers as Hugging Face does, and can be made to answer otherwise.

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const REPO: &str = "owner/some-GGUF";
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A request of a client.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    /// The path, with the query.
    pub path: String,
    /// The headers, with names in lower case.
    pub headers: BTreeMap<String, String>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The first and the last byte that it requests.
    pub fn range(&self) -> Option<(usize, usize)> {
        let (first, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().unwrap(), last.parse().unwrap()))
    }

    /// Whether it requests the contents of a file from the server that the hub redirects to.
    pub fn is_content(&self) -> bool {
        self.path.starts_with("/storage/")
    }
}

/// An answer of the server.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The length that it claims; the true one if `None`.
    pub claims: Option<usize>,
    /// How many bytes are sent before the connection is closed; all if `None`.
    pub stops: Option<usize>,
    /// How long it waits before each block of this many bytes.
    pub slow: Option<(Duration, usize)>,
    /// How many bytes are sent before it waits until this is set or the server ends.
    pub held: Option<(Arc<AtomicBool>, usize)>,
}

impl Reply {
    pub fn new(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new(), claims: None, stops: None, slow: None, held: None }
    }

    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        self.headers.push((name.into(), value.into()));
        self
    }
}

/// The files of a repository.
#[derive(Clone, Default)]
pub struct Files(pub Vec<(String, Vec<u8>)>);

impl Files {
    pub fn of(files: &[(&str, &[u8])]) -> Self {
        Self(files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec())).collect())
    }

    pub fn bytes(&self, name: &str) -> &[u8] {
        &self.0.iter().find(|(own, _)| own == name).unwrap().1
    }

    /// The list of files, in the hub's form.
    pub fn list(&self) -> serde_json::Value {
        let siblings: Vec<serde_json::Value> = self
            .0
            .iter()
            .map(|(name, bytes)| {
                serde_json::json!({
                    "rfilename": name, "size": bytes.len(), "blobId": "f".repeat(40),
                    "lfs": { "sha256": hash(bytes), "size": bytes.len(), "pointerSize": 135 },
                })
            })
            .collect();
        serde_json::json!({ "id": REPO, "sha": COMMIT, "siblings": siblings })
    }

    /// Answers as the hub does: the list, a redirection for each file, and its contents in ranges.
    pub fn answer(&self, request: &Request) -> Reply {
        self.answer_as(REPO, request)
    }

    /// The hub's answer if it has this repository.
    pub fn answer_as(&self, repo: &str, request: &Request) -> Reply {
        if request.path == format!("/api/models/{repo}/revision/main?blobs=true") {
            let mut reply = Reply::new(200).with("content-type", "application/json");
            reply.body = self.list().to_string().into_bytes();
            return reply;
        }
        let resolved = format!("/{repo}/resolve/{COMMIT}/");
        if let Some(name) = request.path.strip_prefix(&resolved) {
            let Some((_, bytes)) = self.0.iter().find(|(own, _)| own == name) else { return Reply::new(404) };
            return Reply::new(302)
                .with("location", &format!("/storage/{name}?signature=secret"))
                .with("x-linked-etag", &format!("\"{}\"", hash(bytes)))
                .with("x-linked-size", &bytes.len().to_string());
        }
        let content = request.path.strip_prefix("/storage/").and_then(|path| path.split('?').next());
        match content.and_then(|name| self.0.iter().find(|(own, _)| own == name)) {
            Some((_, bytes)) => content_of(bytes, request),
            None => Reply::new(404),
        }
    }
}

/// The requested range of a file.
pub fn content_of(bytes: &[u8], request: &Request) -> Reply {
    // The storage has its own tags, which look like the hub's.
    let tag = format!("\"{}\"", hash(hash(bytes).as_bytes()));
    let whole = request.header("if-range").is_some_and(|wanted| wanted != tag);
    let Some((first, last)) = request.range().filter(|_| !whole) else {
        let mut reply = Reply::new(200).with("etag", &tag);
        reply.body = bytes.to_vec();
        return reply;
    };
    if first >= bytes.len() {
        return Reply::new(416).with("content-range", &format!("bytes */{}", bytes.len()));
    }
    let last = last.min(bytes.len() - 1);
    let extent = format!("bytes {first}-{last}/{}", bytes.len());
    let mut reply = Reply::new(206).with("etag", &tag).with("content-range", &extent);
    reply.body = bytes[first..=last].to_vec();
    reply
}

pub fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A server that runs until it is dropped.
pub struct Server {
    pub address: String,
    requests: Arc<Mutex<Vec<Request>>>,
    most_at_once: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Server {
    /// Starts a server. `answer` gets each request and its number, counted from 0 over all connections.
    pub fn start(answer: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let server = Self { address, requests: Arc::default(), most_at_once: Arc::default(), stop: Arc::default() };
        let (requests, most, stop) = (server.requests.clone(), server.most_at_once.clone(), server.stop.clone());
        let (answer, at_once) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let (answer, requests, at_once, most, stop) =
                    (answer.clone(), requests.clone(), at_once.clone(), most.clone(), stop.clone());
                std::thread::spawn(move || {
                    let now = at_once.fetch_add(1, Ordering::Relaxed) + 1;
                    most.fetch_max(now, Ordering::Relaxed);
                    let _ = serve(stream.unwrap(), &requests, &stop, &*answer); // clients may disconnect at any time
                    at_once.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        server
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// The requests for contents.
    pub fn contents(&self) -> Vec<Request> {
        self.requests().into_iter().filter(Request::is_content).collect()
    }

    /// The largest number of simultaneous connections.
    pub fn most_at_once(&self) -> usize {
        self.most_at_once.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address.trim_start_matches("http://")); // wakes the thread, which then sees `stop`
    }
}

fn serve(
    stream: TcpStream,
    requests: &Mutex<Vec<Request>>,
    stop: &AtomicBool,
    answer: &(dyn Fn(&Request, usize) -> Reply + Send + Sync),
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    while let Some(mut request) = read(&mut reader)? {
        if request.method == "CONNECT" {
            // A proxy that answers itself, whichever server is requested.
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
            requests.lock().unwrap().push(request);
            continue;
        }
        if let Some(rest) = request.path.strip_prefix("http://") {
            request.path = format!("/{}", rest.split_once('/').map_or("", |(_, path)| path));
        }
        let number = {
            let mut requests = requests.lock().unwrap();
            requests.push(request.clone());
            requests.len() - 1
        };
        let reply = answer(&request, number);
        let length = reply.claims.unwrap_or(reply.body.len());
        let mut head = format!("HTTP/1.1 {} It is\r\nContent-Length: {length}\r\n", reply.status);
        for (name, value) in &reply.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{head}\r\n").as_bytes())?;
        let mut body = &reply.body[..reply.stops.unwrap_or(reply.body.len()).min(reply.body.len())];
        if let Some((told, bytes)) = &reply.held {
            let (first, rest) = body.split_at(body.len().min(*bytes));
            stream.write_all(first)?;
            while !told.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
            }
            body = rest;
        }
        let (pause, bytes) = reply.slow.unwrap_or((Duration::ZERO, usize::MAX));
        for chunk in body.chunks(bytes) {
            std::thread::sleep(pause);
            stream.write_all(chunk)?;
        }
        if reply.stops.is_some() || reply.claims.is_some() {
            return Ok(());
        }
    }
    Ok(())
}

fn read(reader: &mut impl BufRead) -> std::io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    Ok(Some(Request { method, path, headers }))
}

/// The folder of the repository in a cache.
pub fn folder(cache: &Path) -> PathBuf {
    cache.join("models--owner--some-GGUF")
}

/// Bytes without a pattern.
pub fn noise(count: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as u8
    };
    (0..count).map(|_| next()).collect()
}

/// Reads a file that may not be there.
pub fn contents(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.read_to_end(&mut bytes).unwrap();
    Some(bytes)
}
