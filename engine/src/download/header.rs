//! Reads headers of remote models by range requests.
//!
//! Most of a header is the vocabulary, which takes megabytes and is the same in all files of a repository. If the first
//! bytes of a file show the same vocabulary as a file that was read before, it is taken from there, and reading
//! continues after it. If what follows does not parse, the vocabularies differed, and the header is read in full.

use super::client::{Attempt, Client, LATER, RequestFailure, receive};
use super::{RemoteModel, Repository};
use crate::error::{Error, Result, unpoisoned};
use crate::gguf::Gguf;
use crate::threads::{Job, StopCheck, lock, work};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The key at which the common part of headers begins.
const COMMON: &str = "tokenizer.ggml.tokens";
/// The keys in that part with long values.
const LONG: [&str; 4] = [COMMON, "tokenizer.ggml.scores", "tokenizer.ggml.token_type", "tokenizer.ggml.merges"];
/// The minimum size of a fetch in bytes, at first and after the common part.
const MIN_FETCH: usize = 512 << 10;
/// The same while no common part is known.
const MIN_FETCH_WITHOUT_COMMON: usize = 2 << 20;
/// Each request fetches at least one `GROWTH_DIVISOR`th of the bytes so far, so that a long header takes few requests.
const GROWTH_DIVISOR: usize = 2;
/// The same after the common part.
const GROWTH_DIVISOR_AFTER_COMMON: usize = 16;

/// The common part of headers, from the first of the keys to the end of the last value.
struct Common(Vec<u8>);

impl Common {
    fn of(file: &Gguf) -> Option<Self> {
        let header = file.header_bytes();
        let start = position(header, COMMON.as_bytes())?;
        let end = LONG.iter().filter_map(|key| Some(file.value_range(key)?.end)).max()?;
        Some(Self(header.get(start..end)?.to_vec()))
    }

    /// The range of the common part in a file that begins with these bytes, which must contain as much of it as they
    /// reach.
    fn place(&self, first: &[u8]) -> Option<Range<usize>> {
        let start = position(first, COMMON.as_bytes())?;
        let both = first[start..].iter().zip(&self.0);
        both.clone().all(|(a, b)| a == b).then(|| start..start + self.0.len())
    }
}

fn position(bytes: &[u8], of: &[u8]) -> Option<usize> {
    bytes.windows(of.len()).position(|window| window == of)
}

/// Reads the headers of models of a repository: the first alone, then the others over several connections. `each`
/// extracts what is needed from a header as soon as it arrives, so that not all of them are held in memory.
pub(super) fn read<T: Send>(
    client: &Client,
    repository: &Repository,
    models: &[&RemoteModel],
    connections: usize,
    each: &(dyn Fn(Result<Gguf>) -> T + Sync),
    check_stop: &mut StopCheck<'_>,
) -> Result<Vec<T>> {
    let results: Mutex<Vec<Option<T>>> = Mutex::new(models.iter().map(|_| None).collect());
    let first = Mutex::new(None);
    let alone = |check_stop: &mut StopCheck<'_>| {
        if let Some(model) = models.first() {
            let header = header(client, repository, model, None, check_stop);
            cancelled(&header)?;
            *lock(&first) = header.as_ref().ok().and_then(Common::of);
            lock(&results)[0] = Some(each(header));
        }
        Ok(())
    };
    work("reading a header", vec![Box::new(alone) as Job<'_>], |_| Ok(()), check_stop)?;
    let common = unpoisoned(first.into_inner());
    let next = Mutex::new(1..models.len());
    let others = |check_stop: &mut StopCheck<'_>| {
        loop {
            let Some(index) = lock(&next).next() else { return Ok(()) };
            let header = header(client, repository, models[index], common.as_ref(), check_stop);
            cancelled(&header)?;
            let taken = each(header);
            lock(&results)[index] = Some(taken);
        }
    };
    let jobs = (1..models.len()).take(connections).map(|_| Box::new(others) as Job<'_>);
    work("reading headers", jobs.collect(), |_| Ok(()), check_stop)?;
    let results = unpoisoned(results.into_inner());
    Ok(results.into_iter().map(|result| result.unwrap_or_else(|| each(Err(Error::Cancelled)))).collect())
}

fn cancelled(header: &Result<Gguf>) -> Result<()> {
    if matches!(header, Err(Error::Cancelled)) { Err(Error::Cancelled) } else { Ok(()) }
}

fn header(
    client: &Client,
    repository: &Repository,
    model: &RemoteModel,
    common: Option<&Common>,
    check_stop: &mut StopCheck<'_>,
) -> Result<Gguf> {
    match parsed(client, repository, model, common, check_stop) {
        // The part from another file may have been different.
        Err(error) if common.is_some() && !matches!(error, Error::Cancelled | Error::Download { .. }) => {
            parsed(client, repository, model, None, check_stop)
        }
        done => done,
    }
}

fn parsed(
    client: &Client,
    repository: &Repository,
    model: &RemoteModel,
    common: Option<&Common>,
    check_stop: &mut StopCheck<'_>,
) -> Result<Gguf> {
    let paths: Vec<PathBuf> =
        model.files.iter().map(|file| Path::new(&repository.name.to_string()).join(&file.path)).collect();
    let files: Vec<(&Path, u64)> =
        paths.iter().map(PathBuf::as_path).zip(model.files.iter().map(|f| f.bytes)).collect();
    let mut beginnings: Vec<Beginning<'_>> = model
        .files
        .iter()
        .map(|file| Beginning {
            client,
            url: client.file(&repository.name, &repository.commit, &file.path),
            path: &file.path,
            size: usize::try_from(file.bytes).unwrap_or(usize::MAX),
            there: Vec::new(),
            passed: 0,
            common,
        })
        .collect();
    Gguf::of_headers(&files, &mut |index, at, into| {
        // Each byte is requested once, and in order.
        let beginning = &mut beginnings[index];
        beginning.extend(at + into.len(), check_stop)?;
        into.copy_from_slice(&beginning.there[..into.len()]);
        beginning.pass(into.len());
        Ok(())
    })
}

/// The first bytes of a remote file.
struct Beginning<'a> {
    client: &'a Client,
    url: String,
    path: &'a str,
    size: usize,
    /// The bytes that were fetched and not yet passed on.
    there: Vec<u8>,
    /// The number of those that were passed on.
    passed: usize,
    common: Option<&'a Common>,
}

impl Beginning<'_> {
    /// Drops bytes that were passed on.
    fn pass(&mut self, count: usize) {
        self.there.drain(..count);
        self.passed += count;
    }

    /// Ensures that bytes up to `end`, which is inside the file, are present.
    fn extend(&mut self, end: usize, check_stop: &mut StopCheck<'_>) -> Result<()> {
        if self.passed == 0 && self.there.is_empty() {
            self.fetch(MIN_FETCH.max(end), check_stop)?;
            if let Some(place) = self.common.and_then(|common| common.place(&self.there)) {
                let rest = self.common.map(|common| &common.0[self.there.len().min(place.end) - place.start..]);
                self.there.extend_from_slice(rest.unwrap_or_default());
            } else {
                self.common = None;
            }
        }
        let there = self.passed + self.there.len();
        if there < end {
            let step = match self.common {
                Some(_) => MIN_FETCH.max(there / GROWTH_DIVISOR_AFTER_COMMON),
                None => MIN_FETCH_WITHOUT_COMMON.max(there / GROWTH_DIVISOR),
            };
            self.fetch(end.max(there + step), check_stop)?;
        }
        Ok(())
    }

    /// Fetches the bytes up to `end`, or to the end of the file.
    fn fetch(&mut self, end: usize, check_stop: &mut StopCheck<'_>) -> Result<()> {
        let end = end.min(self.size);
        let Self { client, url, path, there, passed, .. } = self;
        client.persist(path, LATER, check_stop, &|_| {}, |check_stop| {
            let before = there.len();
            let result = more(client, url, (there, *passed), end, check_stop);
            Attempt { result, progress: there.len() > before }
        })
    }
}

/// Fetches the bytes of a file up to `end`. The first `passed` bytes were passed on already; `there` has the bytes
/// after these, and gets the new ones.
fn more(
    client: &Client,
    url: &str,
    (there, passed): (&mut Vec<u8>, usize),
    end: usize,
    check_stop: &mut StopCheck<'_>,
) -> Result<(), RequestFailure> {
    let begin = passed + there.len();
    if begin >= end {
        return Ok(());
    }
    let answer = client.get(url, Some(begin as u64..end as u64), None)?;
    if answer.is_page() {
        return Err(RequestFailure::Transient("the server sent a web page instead of the file".into(), None));
    }
    // A server without ranges sends the file from its beginning on.
    let mut skipped = if answer.is_range { 0 } else { begin };
    let mut body = answer.into_reader();
    let mut block = vec![0; 64 << 10];
    while passed + there.len() < end {
        check_stop().map_err(RequestFailure::Permanent)?;
        let count = receive(&mut body, &mut block)?;
        if count == 0 {
            return Err(RequestFailure::Transient("the server closed the connection early".into(), None));
        }
        let new = &block[skipped.min(count)..count];
        skipped = skipped.saturating_sub(count);
        there.extend_from_slice(&new[..new.len().min(end - passed - there.len())]);
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::Common;

    #[test]
    fn a_common_part_is_found_only_where_it_is_the_same() {
        let common = Common(b"tokenizer.ggml.tokens and what follows".to_vec());
        assert_eq!(common.place(b"xyz tokenizer.ggml.tokens and wh"), Some(4..42));
        assert_eq!(common.place(b"tokenizer.ggml.tokens and what follows, and more"), Some(0..38));
        assert_eq!(common.place(b"tokenizer.ggml.tokens or what follows"), None);
        assert_eq!(common.place(b"nothing"), None);
    }
}
