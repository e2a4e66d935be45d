//! Worker threads that end before the call that started them returns, and whose panics become errors. Only a driver's
//! compiler, which may never finish, runs on a [detached](detach) thread.
//!
//! The operating system may refuse to start a thread. The remaining threads then do its jobs, and if there are none,
//! the calling thread does them all.

mod wakers;

pub use wakers::WakerCalls;

use crate::error::{Error, Result, unpoisoned};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{Builder, Scope, ScopedJoinHandle, available_parallelism, scope};
use std::time::Duration;

/// The longest time between two calls of the callback that decides whether work continues.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// The stack of a thread that does a caller's work: as large as a main thread's.
const STACK: usize = 8 << 20;

/// A callback that decides whether work continues. It is called between two steps of the work; an error ends the work.
pub type StopCheck<'a> = dyn FnMut() -> Result<()> + 'a;

/// A job for a worker thread. The job should call the callback as often as it can.
pub type Job<'a> = Box<dyn FnOnce(&mut StopCheck<'_>) -> Result<()> + Send + 'a>;

thread_local! {
    /// Returns whether the work of this thread should stop.
    static STOPPED: RefCell<Option<Rc<dyn Fn() -> bool>>> = const { RefCell::new(None) };
}

/// Runs work that should stop once `stopped` returns true. Deep inside calls that take no callback, the work asks
/// [`should_stop`] while it waits for something other than the GPU.
pub fn with_stop_signal<T>(stopped: impl Fn() -> bool + 'static, work: impl FnOnce() -> T) -> T {
    struct Restore(Option<Rc<dyn Fn() -> bool>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            STOPPED.set(self.0.take());
        }
    }
    let _restore = Restore(STOPPED.replace(Some(Rc::new(stopped))));
    work()
}

/// Runs work that should stop once `stopped` returns true, or once the work that encloses it should: see
/// [`with_stop_signal`].
pub fn with_nested_stop_signal<T>(stopped: impl Fn() -> bool + 'static, work: impl FnOnce() -> T) -> T {
    let outer = STOPPED.with_borrow(Clone::clone);
    with_stop_signal(move || stopped() || outer.as_ref().is_some_and(|stopped| stopped()), work)
}

/// Whether the work of this thread should stop: see [`with_stop_signal`].
pub fn should_stop() -> bool {
    let stopped = STOPPED.with_borrow(Clone::clone);
    stopped.is_some_and(|stopped| stopped())
}

/// The number of threads that can run at once, at least one.
pub fn cores() -> usize {
    available_parallelism().map_or(1, |n| n.get())
}

/// Locks a mutex, whatever happened to the thread that held it before: see [`unpoisoned`].
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    unpoisoned(mutex.lock())
}

/// Runs a job on a thread of its own that nobody waits for, so the job owns everything it needs. If the system refuses
/// the thread, the calling one does the job.
pub fn detach<F: FnOnce() + Send + 'static>(doing: &'static str, job: F) {
    let job = Arc::new(Mutex::new(Some(job)));
    let theirs = job.clone();
    let run = |job: &Mutex<Option<F>>| {
        let job = lock(job).take();
        job.into_iter().for_each(|job| job());
    };
    let spawned = Builder::new().name(format!("wglm {doing}")).spawn(move || run(&theirs));
    if let Err(reason) = spawned {
        tracing::warn!("cannot start a thread for {doing}: {reason}");
        run(&job);
    }
}

/// Runs a job on a thread of its own, so that the calling thread can call `check_stop` at short intervals whatever the
/// job does. When the job itself calls `check_stop`, it waits for the answer. After a refusal `check_stop` is not
/// called again. If the system refuses the thread, the calling one does the job.
///
/// # Errors
/// The error of `check_stop`, otherwise that of the job; [`Error::Worker`] if it panics.
pub fn beside<T: Send>(
    doing: &'static str,
    job: impl FnOnce(&mut StopCheck<'_>) -> Result<T> + Send,
    check_stop: &mut StopCheck<'_>,
) -> Result<T> {
    let (stop, job) = (Arc::new(AtomicBool::new(false)), Mutex::new(Some(job)));
    let died = || Error::Worker { doing };
    let run = |check_stop: &mut StopCheck<'_>| {
        let job = lock(&job).take().ok_or_else(died)?;
        catch_unwind(AssertUnwindSafe(|| job(check_stop))).unwrap_or_else(|_| Err(died()))
    };
    let (mut refused, mut done) = (None, None);
    scope(|scope| {
        let ((asks, asked), (answers, answered)) = (channel(), channel());
        let (stopped, run) = (stop.clone(), &run);
        let relayed = move || {
            let mut relay = || match asks.send(()) {
                Ok(()) => answered.recv().unwrap_or(Err(Error::Cancelled)),
                Err(_) => Err(Error::Cancelled),
            };
            with_stop_signal(move || stopped.load(Ordering::Relaxed), || run(&mut relay))
        };
        let spawned = Builder::new().name(format!("wglm {doing}")).stack_size(STACK).spawn_scoped(scope, relayed);
        let Ok(worker) = spawned.inspect_err(|reason| tracing::warn!("cannot start a thread for {doing}: {reason}"))
        else {
            return;
        };
        loop {
            let request = asked.recv_timeout(ASK_EVERY);
            if matches!(request, Err(RecvTimeoutError::Disconnected)) {
                break;
            }
            refused = refused.take().or_else(|| check_stop().err());
            stop.store(refused.is_some(), Ordering::Relaxed);
            if request.is_ok() {
                let _ = answers.send(if refused.is_some() { Err(Error::Cancelled) } else { Ok(()) });
            }
        }
        done = worker.join().ok();
    });
    refused.map_or(Ok(()), Err)?;
    done.unwrap_or_else(|| run(check_stop))
}

/// Runs each of `jobs` on a thread of its own and `here` on the calling thread, which then waits for the jobs.
/// `check_stop` is always called on the calling thread: whenever a job or `here` asks, and at short intervals while the
/// calling thread waits. After a failure, or once `check_stop` refuses, every job is stopped the next time it asks, and
/// `check_stop` is not called again.
///
/// # Errors
/// The error of `check_stop`; otherwise that of the first job that failed, in the order of `jobs`; otherwise that of
/// `here`. A job that panics fails with [`Error::Worker`].
pub fn work<'a, T>(
    doing: &'static str,
    jobs: Vec<Job<'a>>,
    here: impl FnOnce(&mut StopCheck<'_>) -> Result<T>,
    check_stop: &mut StopCheck<'_>,
) -> Result<T> {
    work_on(jobs.len(), doing, jobs, here, check_stop)
}

/// Like [`work`], with at most `threads` threads besides the calling one.
fn work_on<'a, T>(
    threads: usize,
    doing: &'static str,
    jobs: Vec<Job<'a>>,
    here: impl FnOnce(&mut StopCheck<'_>) -> Result<T>,
    check_stop: &mut StopCheck<'_>,
) -> Result<T> {
    let (total, queue) = (jobs.len(), Mutex::new(jobs.into_iter().enumerate().collect()));
    let pool = ThreadPool { doing, queue, failures: Mutex::default(), stop: Arc::default() };
    let mut refused = None;
    let mut ask = || {
        pool.going()?;
        check_stop().map_err(|error| {
            pool.stop.store(true, Ordering::Relaxed);
            refused = Some(error);
            Error::Cancelled
        })
    };
    let done = scope(|scope| {
        let (asks, asked) = channel();
        let mut workers = Vec::new();
        for _ in 0..threads {
            let asks = asks.clone();
            // The receiver is dropped only after the pool was stopped.
            let Some(worker) = pool.spawn(scope, move || asks.send(()).unwrap_or_default()) else { break };
            workers.push(worker);
        }
        drop(asks);
        let done = here(&mut ask);
        pool.stop.fetch_or(done.is_err(), Ordering::Relaxed);
        if workers.is_empty() {
            pool.work(&mut ask);
        }
        while !matches!(asked.recv_timeout(ASK_EVERY), Err(RecvTimeoutError::Disconnected)) {
            let _ = ask(); // a refusal has already stopped the pool
            asked.try_iter().for_each(drop); // one answer serves all: a slow `check_stop` must not delay the jobs
        }
        workers.into_iter().for_each(|worker| worker.join().unwrap_or_else(|_| pool.fail(total, pool.died())));
        done
    });
    refused.map_or(Ok(()), Err)?;
    match (pool.result(), done) {
        (Err(Error::Cancelled), Err(error)) | (Err(error), _) => Err(error),
        (Ok(()), done) => done,
    }
}

/// The state that all threads of one call to [`work`] share.
struct ThreadPool<'a> {
    doing: &'static str,
    /// The jobs that no thread has taken yet, with their indices.
    queue: Mutex<VecDeque<(usize, Job<'a>)>>,
    failures: Mutex<Vec<(usize, Error)>>,
    stop: Arc<AtomicBool>,
}

impl<'a> ThreadPool<'a> {
    /// Starts a thread that takes jobs; `None` if the system refuses it.
    fn spawn<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        ask: impl Fn() + Send + 'scope,
    ) -> Option<ScopedJoinHandle<'scope, ()>> {
        let stop = self.stop.clone();
        let work = move || {
            let mut check_stop = || {
                ask();
                self.going()
            };
            with_stop_signal(move || stop.load(Ordering::Relaxed), || self.work(&mut check_stop));
        };
        let spawned = Builder::new().name(format!("wglm {}", self.doing)).spawn_scoped(scope, work);
        spawned.inspect_err(|reason| tracing::warn!("cannot start another thread for {}: {reason}", self.doing)).ok()
    }

    fn going(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Takes and runs jobs until none is left.
    fn work(&self, check_stop: &mut StopCheck<'_>) {
        loop {
            let next = lock(&self.queue).pop_front();
            let Some((place, job)) = next else { return };
            if self.going().is_err() {
                return;
            }
            let done = catch_unwind(AssertUnwindSafe(|| job(check_stop))).unwrap_or_else(|_| Err(self.died()));
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

    /// The error of the first job that failed by itself, rather than because another failure stopped it.
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

    /// Jobs that each add one to `count`.
    fn counting(count: &AtomicUsize, jobs: usize) -> Vec<Job<'_>> {
        let job = |check_stop: &mut StopCheck<'_>| {
            check_stop()?;
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        (0..jobs).map(|_| Box::new(job) as Job<'_>).collect()
    }

    fn failing<'a>(error: Error) -> Job<'a> {
        Box::new(|_| Err(error))
    }

    /// A job that ends only when `check_stop` refuses.
    fn endless(check_stop: &mut StopCheck<'_>) -> Result<()> {
        loop {
            check_stop()?;
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn full() -> Error {
        Error::ContextFull { needed: 2, context: 1 }
    }

    /// Tests every number of threads that the system may grant; with none, the calling thread does everything.
    #[test]
    fn every_job_is_done_once_on_any_number_of_threads() -> Result<()> {
        for threads in [0, 1, 2, 7] {
            let (count, mut asked) = (AtomicUsize::new(0), 0);
            let mut check_stop = || {
                asked += 1;
                Ok(())
            };
            let here = work_on(threads, "counting", counting(&count, 7), |_| Ok(current().id()), &mut check_stop)?;
            assert_eq!((count.into_inner(), here), (7, current().id()), "on {threads} threads");
            assert!(asked >= if threads == 0 { 7 } else { 1 }, "on {threads} threads, asked {asked} times");
        }
        Ok(())
    }

    /// After a refusal `check_stop` is not called again and no further job starts.
    #[test]
    fn a_refusal_ends_everything() {
        for threads in [0, 1, 3] {
            let mut asked = 0;
            let mut check_stop = || {
                asked += 1;
                if asked < 3 { Ok(()) } else { Err(full()) }
            };
            let jobs: Vec<Job<'_>> = (0..3).map(|_| Box::new(endless) as Job<'_>).collect();
            let found = work_on(threads, "waiting", jobs, |_| Ok(()), &mut check_stop);
            assert!(matches!(found, Err(Error::ContextFull { .. })), "on {threads} threads: {found:?}");
            assert_eq!(asked, 3, "on {threads} threads");
        }
    }

    /// `check_stop` is called on the calling thread, even if the job never asks, and a refusal ends the job.
    #[test]
    fn a_job_beside_asks_on_the_calling_thread() -> Result<()> {
        let (here, mut asked) = (current().id(), 0);
        let mut check_stop = || {
            assert_eq!(current().id(), here);
            asked += 1;
            Ok(())
        };
        let there = beside("working", |check_stop| check_stop().map(|()| current().id()), &mut check_stop)?;
        assert!(there != here && asked >= 1, "{asked}");

        let (started, mut asked) = (AtomicBool::new(false), 0);
        let silent = |_: &mut StopCheck<'_>| {
            started.store(true, Ordering::Relaxed);
            while !should_stop() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        };
        let mut check_stop = || {
            asked += 1;
            if asked == 3 { Err(full()) } else { Ok(()) }
        };
        assert!(matches!(beside("working", silent, &mut check_stop), Err(Error::ContextFull { .. })));
        assert_eq!((asked, started.into_inner()), (3, true));
        assert!(matches!(beside("working", endless, &mut || Err(full())), Err(Error::ContextFull { .. })));
        Ok(())
    }

    #[test]
    #[allow(clippy::panic)]
    fn a_job_beside_that_panics_is_a_failure() {
        let panics = |_: &mut StopCheck<'_>| -> Result<()> { panic!("on purpose") };
        assert!(matches!(beside("failing", panics, &mut || Ok(())), Err(Error::Worker { doing: "failing" })));
    }

    /// While the calling thread waits for a job that never asks, it calls `check_stop` by itself.
    #[test]
    fn the_caller_is_asked_while_it_waits() -> Result<()> {
        let (ended, mut asked) = (AtomicBool::new(false), 0);
        let wait = |_: &mut StopCheck<'_>| {
            while !ended.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        };
        let mut check_stop = || {
            asked += 1;
            ended.store(asked == 3, Ordering::Relaxed);
            Ok(())
        };
        work("waiting", vec![Box::new(wait)], |_| Ok(()), &mut check_stop)
    }

    /// The error returned is the original failure, not that of a job which was stopped because of it.
    #[test]
    fn the_first_failure_is_returned() {
        for threads in [0, 1, 2] {
            let jobs =
                if threads == 2 { vec![Box::new(endless) as Job<'_>, failing(full())] } else { vec![failing(full())] };
            let found = work_on(threads, "failing", jobs, |_| Ok(()), &mut || Ok(()));
            assert!(matches!(found, Err(Error::ContextFull { .. })), "on {threads} threads: {found:?}");
            let here = |_: &mut StopCheck<'_>| -> Result<()> { Err(full()) };
            let found = work_on(threads, "failing", vec![Box::new(|check_stop| check_stop())], here, &mut || Ok(()));
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
