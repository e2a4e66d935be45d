//! Reads the pages of prompts back from disk.
//!
//! A thread reads the pages ahead, a few of them. Each round gives those that are ready to the session, so that other
//! replies continue meanwhile. Once the disk turns out to be slower than computing, or does not respond, the rest of
//! the prompt is computed.

use super::engine::Engine;
use super::storing::ROUND;
use crate::disk::{DiskCache, PATIENCE, PageName, ReadPage};
use crate::error::{Error, Result};
use crate::plan::PAGE;
use crate::session::Session;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How many pages a round takes.
const PAGES: usize = 4;

/// The pages of a prompt that may be on disk.
pub(super) struct Reading {
    names: Vec<[PageName; 2]>,
    /// The place of the next page, and the pages from there on; `None` before the first round, and after an error.
    ahead: Option<(usize, Receiver<ReadPage>)>,
    /// How many pages were read, and for how long.
    read: (u32, Duration),
    /// When the wait for the next page began.
    awaited: Instant,
}

impl Engine {
    /// The pages of a prompt that may be on disk, if the slot lacks any. Its last token has to be computed in any case.
    pub(super) fn reading(&self, index: usize, prompt: &[u32]) -> Option<Reading> {
        let disk = self.disk.as_ref()?;
        let names = names(&self.slots[index].session, &prompt[..prompt.len().saturating_sub(1)]);
        disk.use_now(&names);
        if names.len() <= self.slots[index].session.reusable(prompt) / PAGE {
            return None;
        }
        Some(Reading { names, ahead: None, read: (0, Duration::ZERO), awaited: Instant::now() })
    }

    /// Gives a slot the next pages of its prompt from disk; `waits` for them if there is nothing else to do. Returns
    /// false if there are none, so that the prompt has to be computed from here.
    pub(super) fn bring_back(&mut self, index: usize, waits: bool) -> bool {
        let Some(disk) = self.disk.clone() else { return false };
        let Some(mut reading) = self.slots[index].work.as_mut().and_then(|work| work.reading.take()) else {
            return false;
        };
        let (rate, wait) = (self.prompt_rate, if waits { ROUND } else { Duration::ZERO });
        let next = self.attempt(index, |task, session| {
            task.with_stop_signal(|task| reading.next(&disk, task.cacheable(task.prompt()), session, (wait, rate)))
        });
        let (goes_on, result) = match next {
            Ok(goes_on) => (goes_on, Ok(())),
            Err(error @ (Error::PoolFull { .. } | Error::DeviceLost { .. } | Error::Cancelled)) => {
                reading.ahead = None;
                (true, Err(error))
            }
            Err(error) => {
                tracing::warn!("cannot use the disk cache: {error}");
                (false, Ok(()))
            }
        };
        if goes_on {
            if let Some(work) = &mut self.slots[index].work {
                work.reading = Some(reading);
            }
            self.conclude(index, result);
        }
        goes_on
    }
}

impl Reading {
    /// Gives the session the pages that are ready. Returns whether there may be more.
    fn next(
        &mut self,
        disk: &DiskCache,
        prompt: &[u32],
        session: &mut Session,
        (wait, rate): (Duration, f64),
    ) -> Result<bool> {
        let Ok(held) = session.keep_common(prompt) else { return Ok(false) }; // computing reports the error
        let held = held / PAGE;
        if self.ahead.as_ref().is_none_or(|(place, _)| *place != held) {
            let bytes = [false, true].map(|with_block| session.page_bytes(with_block));
            let names = self.names.get(held..).unwrap_or_default();
            self.ahead = Some((held, disk.read_ahead(names.to_vec(), bytes)));
            self.awaited = Instant::now();
        }
        let Some((place, ahead)) = &mut self.ahead else { return Ok(false) };
        let first = ahead.recv_timeout(wait);
        let ended = matches!(first, Err(RecvTimeoutError::Disconnected));
        let pages: Vec<ReadPage> = first.into_iter().chain(ahead.try_iter()).take(PAGES).collect();
        let rows: Vec<Vec<u8>> = pages
            .into_iter()
            .map(|page| {
                self.read = (self.read.0 + 1, self.read.1 + page.time);
                page.rows
            })
            .collect();
        if !rows.is_empty() {
            session.append_pages(held, &prompt[held * PAGE..(held + rows.len()) * PAGE], &rows)?;
            *place += rows.len();
            self.awaited = Instant::now();
        }
        let waited = self.awaited.elapsed();
        let hangs = !ended && hangs(waited, rate);
        if hangs {
            disk.hangs(waited);
        }
        Ok(!ended && !hangs && !is_slow(self.read, rate))
    }
}

/// Whether the rest of a prompt is computed sooner than read, if pages took this time, and the last prompt was computed
/// with this many tokens per second; 0 if that is not known.
fn is_slow((pages, time): (u32, Duration), rate: f64) -> bool {
    pages as usize >= PAGES && f64::from(pages) * (PAGE as f64) < rate * time.as_secs_f64()
}

/// Whether a page was awaited for too long: the pages of a round would have been computed in that time, as far as that
/// is known.
fn hangs(awaited: Duration, rate: f64) -> bool {
    let computed = awaited.as_secs_f64() * rate;
    awaited > PATIENCE && (rate == 0.0 || computed > (PAGES * PAGE) as f64)
}

/// The names of the full pages of some tokens: without the KV rows of the multi-token-prediction block, and with them.
pub(super) fn names(session: &Session, tokens: &[u32]) -> Vec<[PageName; 2]> {
    let start = PageName::start(&[&session.paging_identity()[..], &[session.tenant()]].concat());
    let block = session.paging_block();
    let next = |name: &mut PageName, page: &[u32]| {
        *name = name.then(page);
        Some([*name, if block == 0 { *name } else { name.with_block(block) }])
    };
    tokens.chunks_exact(PAGE).scan(start, next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_disk_is_given_up() {
        let seconds = Duration::from_secs;
        assert!(!is_slow((PAGES as u32, seconds(1000)), 0.0), "nothing was computed yet");
        assert!(!is_slow((3, seconds(1000)), 1000.0), "too few to tell");
        assert!(!is_slow((8, seconds(2)), 1000.0) && is_slow((8, seconds(3)), 1000.0));
        assert!(!hangs(seconds(2), 1e6) && hangs(seconds(4), 1000.0), "it may have to spin up");
        assert!(!hangs(seconds(40), 20.0) && hangs(seconds(60), 20.0), "computing takes longer");
        assert!(hangs(seconds(4), 0.0), "nothing was computed yet");
    }
}
