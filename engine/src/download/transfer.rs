//! Fetches a file in pieces, over several connections, into its part.
//!
//! Pieces are taken in order, and a connection that is too far ahead of the part's end waits, to limit memory. The
//! first answer shows whether the server sends ranges at all. If not, one connection fetches the whole file, and skips
//! the bytes that are there already.
//!
//! Only the hash decides at the end whether the part is good, and an answer about another file counts as a transient
//! failure: a proxy's page or a server that is being replaced must not discard the work of hours.

use super::RemoteFile;
use super::client::{Answer, Attempt, Client, RequestFailure, receive};
use super::part::PartFile;
use crate::error::{Error, Result, unpoisoned};
use crate::threads::{Job, StopCheck, lock, work};
use std::io::Read;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How far a connection may be ahead of the part's end, in pieces per connection.
const AHEAD: u64 = 2;
/// The bytes that are received at a time.
const BLOCK: usize = 128 << 10;

/// Why a file was not fetched.
pub(super) enum Failure {
    /// The file on the server has changed.
    Changed,
    Error(Error),
}

/// The state that all connections share.
pub(super) struct Transfer<'a> {
    client: &'a Client,
    file: &'a RemoteFile,
    /// The address at the hub.
    url: String,
    /// The address that it redirected to, while it is valid, and the tag of the file there.
    direct: Mutex<Option<String>>,
    tag: Mutex<Option<String>>,
    /// The SHA-256 that the hub sent with the file.
    listed: Mutex<Option<String>>,
    part: Mutex<PartFile>,
    /// Where the next piece begins.
    next: Mutex<u64>,
    /// Whether the server is known to send ranges.
    ranges: AtomicBool,
    /// Whether one connection fetches all of the file.
    whole: AtomicBool,
    /// The bytes present at first, plus those received since.
    done: AtomicU64,
    changed: AtomicBool,
    trouble: Mutex<Option<String>>,
}

impl<'a> Transfer<'a> {
    pub fn new(client: &'a Client, file: &'a RemoteFile, url: String, part: PartFile) -> Self {
        let written = part.written();
        Self {
            client,
            file,
            url,
            direct: Mutex::default(),
            tag: Mutex::default(),
            listed: Mutex::new(file.sha256.clone()),
            part: Mutex::new(part),
            next: Mutex::new(written),
            ranges: AtomicBool::new(false),
            whole: AtomicBool::new(false),
            done: AtomicU64::new(written),
            changed: AtomicBool::new(false),
            trouble: Mutex::default(),
        }
    }

    /// The number of bytes so far, and what the transfer waits for.
    pub fn progress(&self) -> (u64, Option<String>) {
        (self.done.load(Ordering::Relaxed).min(self.file.bytes), lock(&self.trouble).clone())
    }

    /// The part, and the SHA-256 that the file should have, if the hub sent it.
    pub fn into_part(self) -> (PartFile, Option<String>) {
        (unpoisoned(self.part.into_inner()), unpoisoned(self.listed.into_inner()))
    }

    /// Fetches the missing bytes over at most `connections` connections, in pieces of `piece` bytes.
    pub fn run(&self, connections: usize, piece: u64, check_stop: &mut StopCheck<'_>) -> Result<(), Failure> {
        let missing = self.file.bytes.saturating_sub(lock(&self.part).written());
        let useful = usize::try_from(missing.div_ceil(piece)).unwrap_or(usize::MAX);
        let connections = connections.min(useful);
        let window = AHEAD * piece * connections as u64;
        let jobs = (0..connections).map(|index| {
            // The first connection finds out whether the server sends ranges.
            Box::new(move |check_stop: &mut StopCheck<'_>| self.connection(index == 0, (piece, window), check_stop))
                as Job<'_>
        });
        let done = work("downloading", jobs.collect(), |_| Ok(()), check_stop);
        match done {
            Err(Error::Cancelled) if !self.changed.load(Ordering::Relaxed) => Err(Failure::Error(Error::Cancelled)),
            _ if self.changed.load(Ordering::Relaxed) => Err(Failure::Changed),
            Err(error) => Err(Failure::Error(error)),
            Ok(()) => Ok(()),
        }
    }

    /// Fetches pieces until none is left.
    fn connection(&self, first: bool, (piece, window): (u64, u64), check_stop: &mut StopCheck<'_>) -> Result<()> {
        while !first && !self.ranges.load(Ordering::Relaxed) {
            if lock(&self.part).written() >= self.file.bytes {
                return Ok(());
            }
            wait(check_stop)?;
        }
        loop {
            check_stop()?;
            let piece = {
                let mut next = lock(&self.next);
                let start = *next;
                if start >= self.file.bytes {
                    return Ok(());
                }
                *next = self.file.bytes.min(start.saturating_add(piece));
                start..*next
            };
            while piece.start > lock(&self.part).written() + window {
                wait(check_stop)?;
            }
            self.piece(piece, check_stop)?;
        }
    }

    fn piece(&self, piece: Range<u64>, check_stop: &mut StopCheck<'_>) -> Result<()> {
        let mut at = piece.start;
        let tell = |trouble| *lock(&self.trouble) = trouble;
        self.client.persist(&self.file.path, check_stop, &tell, |check_stop| {
            let before = at;
            let result = self.attempt(&mut at, piece.end, check_stop);
            Attempt { result, progress: at > before }
        })
    }

    /// Requests bytes from `at` on, and advances it by the bytes received.
    fn attempt(&self, at: &mut u64, end: u64, check_stop: &mut StopCheck<'_>) -> Result<(), RequestFailure> {
        let end = if self.whole.load(Ordering::Relaxed) { self.file.bytes } else { end };
        let direct = lock(&self.direct).clone();
        let tag = lock(&self.tag).clone();
        let asked = self.client.get(direct.as_deref().unwrap_or(&self.url), Some(*at..end), tag.as_deref());
        let answer = match asked {
            Err(RequestFailure::RangeNotSatisfiable(Some(total))) if total != self.file.bytes => {
                return Err(self.is_other());
            }
            Err(RequestFailure::Expired) => {
                *lock(&self.direct) = None;
                return Err(RequestFailure::Expired);
            }
            asked => asked?,
        };
        self.check(&answer, *at)?;
        *lock(&self.direct) = Some(answer.url.clone());
        if answer.is_range {
            self.ranges.store(true, Ordering::Relaxed);
            return self.receive(&mut answer.into_reader(), at, end, check_stop);
        }
        if self.ranges.load(Ordering::Relaxed) {
            return Err(RequestFailure::Transient(
                "the server sent the whole file instead of the requested part".into(),
                None,
            ));
        }
        self.whole(answer, at, check_stop)
    }

    /// Checks that an answer is about the listed file, and the same one as in other answers.
    fn check(&self, answer: &Answer, at: u64) -> Result<(), RequestFailure> {
        let sizes = match answer.is_range {
            true => answer.extent().and_then(|extent| extent.total),
            false => answer.length(),
        };
        if let Some(hash) = answer.hash()
            && *lock(&self.listed).get_or_insert_with(|| hash.clone()) != hash
        {
            return Err(self.is_changed());
        }
        let mut tag = lock(&self.tag);
        let other_tag = tag.as_deref().zip(answer.tag()).is_some_and(|(before, now)| plain(before) != plain(now));
        let other_size = sizes.is_some_and(|size| size != self.file.bytes);
        if other_tag || other_size || answer.is_page() {
            return Err(self.is_other());
        }
        if answer.is_range && answer.extent().and_then(|extent| extent.start) != Some(at) {
            return Err(RequestFailure::Transient("the server sent a part other than the requested one".into(), None));
        }
        if tag.is_none() {
            *tag = answer.tag().map(str::to_owned);
        }
        Ok(())
    }

    /// The trouble with an answer whose tag or size is that of another file.
    fn is_other(&self) -> RequestFailure {
        *lock(&self.direct) = None; // the hub may redirect elsewhere now
        RequestFailure::Transient("the server sent a file other than the one it lists".into(), None)
    }

    fn is_changed(&self) -> RequestFailure {
        self.changed.store(true, Ordering::Relaxed);
        RequestFailure::Permanent(super::changed(&self.file.path))
    }

    /// Receives a range, or as much of it as arrives.
    fn receive(
        &self,
        body: &mut impl Read,
        at: &mut u64,
        end: u64,
        check_stop: &mut StopCheck<'_>,
    ) -> Result<(), RequestFailure> {
        blocks(body, end.saturating_sub(*at), check_stop, |block| {
            lock(&self.part).put(*at, block)?;
            *at += block.len() as u64;
            self.done.fetch_add(block.len() as u64, Ordering::Relaxed);
            Ok(())
        })
    }

    /// Receives the whole file from a server without ranges, and takes the bytes after `at`. The other connections have
    /// nothing to do.
    fn whole(&self, answer: Answer, at: &mut u64, check_stop: &mut StopCheck<'_>) -> Result<(), RequestFailure> {
        *lock(&self.next) = self.file.bytes;
        self.whole.store(true, Ordering::Relaxed);
        let mut body = answer.into_reader();
        blocks(&mut body, *at, check_stop, |_| Ok(()))?;
        self.receive(&mut body, at, self.file.bytes, check_stop)
    }
}

/// Receives this many bytes, and passes them to `take` as they arrive.
fn blocks(
    body: &mut impl Read,
    mut bytes: u64,
    check_stop: &mut StopCheck<'_>,
    mut take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<(), RequestFailure> {
    let mut block = vec![0; BLOCK];
    while bytes > 0 {
        check_stop().map_err(RequestFailure::Permanent)?;
        let most = usize::try_from(bytes).unwrap_or(BLOCK).min(BLOCK);
        let count = receive(body, &mut block[..most])?;
        if count == 0 {
            return Err(RequestFailure::Transient("the server closed the connection early".into(), None));
        }
        take(&block[..count]).map_err(RequestFailure::Permanent)?;
        bytes -= count as u64;
    }
    Ok(())
}

/// A tag without the prefix of weak tags, which servers of the same storage set differently.
fn plain(tag: &str) -> &str {
    tag.strip_prefix("W/").unwrap_or(tag)
}

/// Waits a moment for what other connections do.
fn wait(check_stop: &mut StopCheck<'_>) -> Result<()> {
    check_stop()?;
    std::thread::sleep(Duration::from_millis(10));
    Ok(())
}
