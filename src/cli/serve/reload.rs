//! Something that takes a while to load and can be lost: the model on its GPU. While it is there, everybody shares it.
//! What was lost is loaded anew when somebody next asks for it, once, and meanwhile nobody waits for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time from a load that failed to the next attempt.
const PAUSE: Duration = Duration::from_secs(5);

/// Loads what is asked for. It gets what was lost, if that is why it loads.
type Load<T> = dyn Fn(Option<Arc<T>>) -> Result<T, String> + Send + Sync;

/// What is loaded, and how to load it again.
pub struct Reloading<T> {
    state: Arc<Mutex<State<T>>>,
    load: Arc<Load<T>>,
}

enum State<T> {
    Loading,
    Ready(Arc<T>),
    Failed { reason: String, since: Instant },
}

/// Why there is nothing at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Absent {
    Loading,
    Failed(String),
}

fn lock<T>(state: &Mutex<State<T>>) -> MutexGuard<'_, State<T>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Send + Sync + 'static> Reloading<T> {
    /// Nothing yet: the caller loads it for the first time and [`set`](Self::set)s it.
    pub fn new(load: impl Fn(Option<Arc<T>>) -> Result<T, String> + Send + Sync + 'static) -> Self {
        Self { state: Arc::new(Mutex::new(State::Loading)), load: Arc::new(load) }
    }

    pub fn set(&self, loaded: T) {
        *lock(&self.state) = State::Ready(Arc::new(loaded));
    }

    /// What is loaded. If the last load failed, another one begins, unless that was a moment ago.
    pub fn get(&self) -> Result<Arc<T>, Absent> {
        let mut state = lock(&self.state);
        match &*state {
            State::Ready(loaded) => Ok(loaded.clone()),
            State::Loading => Err(Absent::Loading),
            State::Failed { reason, since } if since.elapsed() < PAUSE => Err(Absent::Failed(reason.clone())),
            State::Failed { .. } => {
                *state = State::Loading;
                drop(state);
                self.begin(None);
                Err(Absent::Loading)
            }
        }
    }

    /// Whether it is there, without loading it.
    pub fn peek(&self) -> Result<Arc<T>, Absent> {
        match &*lock(&self.state) {
            State::Ready(loaded) => Ok(loaded.clone()),
            State::Loading => Err(Absent::Loading),
            State::Failed { reason, .. } => Err(Absent::Failed(reason.clone())),
        }
    }

    /// Says that `lost` is of no use any more. The first one who says so of what is there begins to load it anew, and
    /// is told so.
    pub fn lost(&self, lost: &Arc<T>) -> bool {
        let mut state = lock(&self.state);
        let is_there = matches!(&*state, State::Ready(there) if Arc::ptr_eq(there, lost));
        if is_there {
            *state = State::Loading;
            drop(state);
            self.begin(Some(lost.clone()));
        }
        is_there
    }

    fn begin(&self, lost: Option<Arc<T>>) {
        let (state, load) = (self.state.clone(), self.load.clone());
        let failed = |reason| State::Failed { reason, since: Instant::now() };
        let run = move || {
            // A driver's binding that panics must not leave everybody waiting.
            let next = match catch_unwind(AssertUnwindSafe(|| load(lost))) {
                Ok(Ok(loaded)) => State::Ready(Arc::new(loaded)),
                Ok(Err(reason)) => failed(reason),
                Err(_) => failed("the load panicked".into()),
            };
            *lock(&state) = next;
        };
        if let Err(error) = std::thread::Builder::new().name("load".into()).spawn(run) {
            *lock(&self.state) = failed(error.to_string());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::{Absent, Reloading};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    #[test]
    fn what_is_lost_is_loaded_once_by_whoever_says_so_first() {
        let (go, gone) = mpsc::channel::<()>();
        let gone = std::sync::Mutex::new(gone);
        let loads = Arc::new(AtomicUsize::new(0));
        let counted = loads.clone();
        let reloading = Reloading::new(move |_| {
            gone.lock().unwrap().recv().unwrap();
            Ok(counted.fetch_add(1, Ordering::SeqCst) + 1)
        });
        assert_eq!(reloading.get(), Err(Absent::Loading));
        reloading.set(0);
        let first = reloading.get().unwrap();
        assert!(reloading.lost(&first) && !reloading.lost(&first));
        assert_eq!(reloading.get(), Err(Absent::Loading));
        go.send(()).unwrap();
        let second = (0..500).find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            reloading.get().ok()
        });
        assert_eq!(second.as_deref(), Some(&1));
        assert!(!reloading.lost(&first), "which is long gone");
        assert!(reloading.get().is_ok());
        assert_eq!(loads.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_load_that_fails_says_why() {
        let fails: fn(_) -> Result<usize, String> = |_| Err("no GPU".into());
        let panics: fn(_) -> Result<usize, String> = |_| panic!("in a driver");
        for (load, reason) in [(fails, "no GPU"), (panics, "the load panicked")] {
            let reloading = Reloading::<usize>::new(load);
            reloading.set(1);
            let there = reloading.get().unwrap();
            reloading.lost(&there);
            let failed = (0..500).find_map(|_| {
                std::thread::sleep(Duration::from_millis(10));
                reloading.peek().err().filter(|absent| *absent != Absent::Loading)
            });
            assert_eq!(failed, Some(Absent::Failed(reason.into())));
            assert_eq!(reloading.get(), failed.map(Err).unwrap(), "and is not tried again at once");
        }
    }
}
