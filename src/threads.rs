//! Threads that live no longer than the call they work for, and never bring their caller down.
//!
//! A system may refuse a thread. Then the others do its jobs, and where there are none, the caller's own does them all.

use crate::error::{Error, Result};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle, available_parallelism, scope};
use std::time::Duration;

/// The longest time that the caller's thread waits before it asks again whether to go on.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Whether to go on: asked between two pieces of work, and an error if the work is to end.
pub type GoOn<'a> = dyn FnMut() -> Result<()> + 'a;

/// What a thread does. It asks whether to go on as often as it can.
pub type Job<'a> = Box<dyn FnOnce(&mut GoOn<'_>) -> Result<()> + Send + 'a>;

/// As many as work at once, and at least one.
pub fn cores() -> usize {
    available_parallelism().map_or(1, |n| n.get())
}

/// A lock that a panic of another thread leaves as good as it was.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does each of `jobs` on a thread of its own, and `here` meanwhile on the caller's, which then waits for the others.
/// There `go_on` is asked: again and again while it waits, whenever a job on another thread asks, and whenever `here`
/// does. After a failure or a refusal every job is told to end where it asks next, and `go_on` is asked no more.
///
/// # Errors
/// That of `go_on`; the first of a job, in their order; that of `here`. [`Error::Worker`] for a job that panics.
pub fn work<'a, T>(
    doing: &'static str,
    jobs: Vec<Job<'a>>,
    here: impl FnOnce(&mut GoOn<'_>) -> Result<T>,
    go_on: &mut GoOn<'_>,
) -> Result<T> {
    work_on(jobs.len(), doing, jobs, here, go_on)
}

/// As [`work`], on `threads` threads beside the caller's, or fewer.
fn work_on<'a, T>(
    threads: usize,
    doing: &'static str,
    jobs: Vec<Job<'a>>,
    here: impl FnOnce(&mut GoOn<'_>) -> Result<T>,
    go_on: &mut GoOn<'_>,
) -> Result<T> {
    let (total, queue) = (jobs.len(), Mutex::new(jobs.into_iter().enumerate().collect()));
    let crew = Crew { doing, queue, failures: Mutex::default(), stop: AtomicBool::new(false) };
    let mut refused = None;
    let mut ask = || {
        crew.going()?;
        go_on().map_err(|error| {
            crew.stop.store(true, Ordering::Relaxed);
            refused = Some(error);
            Error::Cancelled
        })
    };
    let done = scope(|scope| {
        let (asks, asked) = channel();
        let mut workers = Vec::new();
        for _ in 0..threads {
            let asks = asks.clone();
            // A caller who hears no more has told the crew to stop.
            let Some(worker) = crew.spawn(scope, move || asks.send(()).unwrap_or_default()) else { break };
            workers.push(worker);
        }
        drop(asks);
        let done = here(&mut ask);
        crew.stop.fetch_or(done.is_err(), Ordering::Relaxed);
        if workers.is_empty() {
            crew.work(&mut ask);
        }
        while !matches!(asked.recv_timeout(ASK_EVERY), Err(RecvTimeoutError::Disconnected)) {
            let _ = ask(); // who refuses has told the crew to stop
            asked.try_iter().for_each(drop); // what was asked meanwhile: a slow answer is not to hold the others up
        }
        workers.into_iter().for_each(|worker| worker.join().unwrap_or_else(|_| crew.fail(total, crew.died())));
        done
    });
    refused.map_or(Ok(()), Err)?;
    match (crew.result(), done) {
        (Err(Error::Cancelled), Err(error)) | (Err(error), _) => Err(error),
        (Ok(()), done) => done,
    }
}

/// What the threads share.
struct Crew<'a> {
    doing: &'static str,
    /// Jobs that nobody has taken, with their places.
    queue: Mutex<VecDeque<(usize, Job<'a>)>>,
    failures: Mutex<Vec<(usize, Error)>>,
    stop: AtomicBool,
}

impl<'a> Crew<'a> {
    /// A thread that takes jobs; none if the system refuses it.
    fn spawn<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        ask: impl Fn() + Send + 'scope,
    ) -> Option<ScopedJoinHandle<'scope, ()>> {
        let work = move || {
            self.work(&mut || {
                ask();
                self.going()
            })
        };
        let spawned = Builder::new().name(format!("wglm {}", self.doing)).spawn_scoped(scope, work);
        spawned.inspect_err(|reason| tracing::warn!("no more threads for {}: {reason}", self.doing)).ok()
    }

    fn going(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Does jobs until there are none.
    fn work(&self, go_on: &mut GoOn<'_>) {
        loop {
            let next = lock(&self.queue).pop_front();
            let Some((place, job)) = next else { return };
            if self.going().is_err() {
                return;
            }
            let done = catch_unwind(AssertUnwindSafe(|| job(go_on))).unwrap_or_else(|_| Err(self.died()));
            done.unwrap_or_else(|error| self.fail(place, error));
        }
    }

    fn died(&self) -> Error {
        Error::Worker { doing: self.doing }
    }

    fn fail(&self, place: usize, error: Error) {
        self.stop.store(true, Ordering::Relaxed);
        lock(&self.failures).push((place, error));
    }

    /// The failure of the first job that was not stopped by another's.
    fn result(&self) -> Result<()> {
        let mut failures = std::mem::take(&mut *lock(&self.failures));
        failures.sort_by_key(|(place, error)| (matches!(error, Error::Cancelled), *place));
        failures.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::thread::current;

    /// Jobs that each count once.
    fn counting(count: &AtomicUsize, jobs: usize) -> Vec<Job<'_>> {
        let job = |go_on: &mut GoOn<'_>| {
            go_on()?;
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        (0..jobs).map(|_| Box::new(job) as Job<'_>).collect()
    }

    fn failing<'a>(error: Error) -> Job<'a> {
        Box::new(|_| Err(error))
    }

    /// Goes on for as long as it may.
    fn endless(go_on: &mut GoOn<'_>) -> Result<()> {
        loop {
            go_on()?;
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn full() -> Error {
        Error::ContextFull { needed: 2, context: 1 }
    }

    /// However many threads the system grants, and with none of them the caller's own.
    #[test]
    fn every_job_is_done_once_on_any_number_of_threads() -> Result<()> {
        for threads in [0, 1, 2, 7] {
            let (count, mut asked) = (AtomicUsize::new(0), 0);
            let mut go_on = || {
                asked += 1;
                Ok(())
            };
            let here = work_on(threads, "counting", counting(&count, 7), |_| Ok(current().id()), &mut go_on)?;
            assert_eq!((count.into_inner(), here), (7, current().id()), "on {threads} threads");
            assert!(asked >= if threads == 0 { 7 } else { 1 }, "on {threads} threads, asked {asked} times");
        }
        Ok(())
    }

    /// Whoever refuses is not asked again, and nothing is begun after that.
    #[test]
    fn a_refusal_ends_everything() {
        for threads in [0, 1, 3] {
            let mut asked = 0;
            let mut go_on = || {
                asked += 1;
                if asked < 3 { Ok(()) } else { Err(full()) }
            };
            let jobs: Vec<Job<'_>> = (0..3).map(|_| Box::new(endless) as Job<'_>).collect();
            let found = work_on(threads, "waiting", jobs, |_| Ok(()), &mut go_on);
            assert!(matches!(found, Err(Error::ContextFull { .. })), "on {threads} threads: {found:?}");
            assert_eq!(asked, 3, "on {threads} threads");
        }
    }

    /// A job that never asks is waited for; meanwhile it is asked whether to go on.
    #[test]
    fn the_caller_is_asked_while_it_waits() -> Result<()> {
        let (ended, mut asked) = (AtomicBool::new(false), 0);
        let wait = |_: &mut GoOn<'_>| {
            while !ended.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        };
        let mut go_on = || {
            asked += 1;
            ended.store(asked == 3, Ordering::Relaxed);
            Ok(())
        };
        work("waiting", vec![Box::new(wait)], |_| Ok(()), &mut go_on)
    }

    /// What failed by itself rather than what was stopped by it, whether here or there.
    #[test]
    fn the_first_failure_is_told() {
        for threads in [0, 1, 2] {
            let jobs =
                if threads == 2 { vec![Box::new(endless) as Job<'_>, failing(full())] } else { vec![failing(full())] };
            let found = work_on(threads, "failing", jobs, |_| Ok(()), &mut || Ok(()));
            assert!(matches!(found, Err(Error::ContextFull { .. })), "on {threads} threads: {found:?}");
            let here = |_: &mut GoOn<'_>| -> Result<()> { Err(full()) };
            let found = work_on(threads, "failing", vec![Box::new(|go_on| go_on())], here, &mut || Ok(()));
            assert!(matches!(found, Err(Error::ContextFull { .. })), "on {threads} threads: {found:?}");
        }
    }

    #[test]
    #[allow(clippy::panic)]
    fn a_job_that_panics_is_a_failure() {
        for threads in [0, 1] {
            let jobs: Vec<Job<'_>> = vec![Box::new(|_| panic!("on purpose"))];
            let found = work_on(threads, "failing", jobs, |_| Ok(()), &mut || Ok(()));
            assert!(matches!(found, Err(Error::Worker { doing: "failing" })), "on {threads} threads: {found:?}");
        }
    }
}
