//! A shared value that takes a while to load and can be lost: the model on its GPU. When it is lost, it is loaded again
//! in the background, once, and meanwhile requests are refused instead of waiting.

use super::lock;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The time between a failed load and the next attempt.
const PAUSE: Duration = Duration::from_secs(5);

/// Loads the value. The argument is the value that was lost, if there was one.
type Load<T> = dyn Fn(Option<Arc<T>>) -> Result<T, String> + Send + Sync;

/// A value, and how to load it again.
pub struct Reloading<T> {
    state: Arc<Mutex<State<T>>>,
    load: Arc<Load<T>>,
}

enum State<T> {
    Loading,
    Ready(Arc<T>),
    Failed { reason: String, since: Instant },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Absent {
    Loading,
    Failed(String),
}

impl<T> State<T> {
    fn value(&self) -> Result<Arc<T>, Absent> {
        match self {
            Self::Ready(value) => Ok(value.clone()),
            Self::Loading => Err(Absent::Loading),
            Self::Failed { reason, .. } => Err(Absent::Failed(reason.clone())),
        }
    }
}

impl<T: Send + Sync + 'static> Reloading<T> {
    /// No value yet. The caller loads the first one and [`set`](Self::set)s it.
    pub fn new(load: impl Fn(Option<Arc<T>>) -> Result<T, String> + Send + Sync + 'static) -> Self {
        Self { state: Arc::new(Mutex::new(State::Loading)), load: Arc::new(load) }
    }

    /// Loads the first value in the background.
    pub fn begin_first(&self) {
        self.begin(None);
    }

    pub fn set(&self, loaded: T) {
        *lock(&self.state) = State::Ready(Arc::new(loaded));
    }

    /// The value. If the last load failed, another one begins, unless it failed a moment ago.
    pub fn get(&self) -> Result<Arc<T>, Absent> {
        let mut state = lock(&self.state);
        let again = matches!(&*state, State::Failed { since, .. } if since.elapsed() >= PAUSE);
        if again {
            *state = State::Loading;
        }
        let value = state.value();
        drop(state);
        if again {
            self.begin(None);
        }
        value
    }

    /// The value, without loading it.
    pub fn peek(&self) -> Result<Arc<T>, Absent> {
        lock(&self.state).value()
    }

    /// Reports that a value was lost. The first report of the current value begins a load and returns true.
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
            // After a panic in a driver the state must not stay `Loading`.
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
    fn a_lost_value_is_loaded_once() {
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
        assert!(!reloading.lost(&first), "it was replaced");
        assert!(reloading.get().is_ok());
        assert_eq!(loads.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_failed_load_has_a_reason() {
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
            assert_eq!(reloading.get(), failed.map(Err).unwrap(), "the load is not tried again at once");
        }
    }
}
