//! Worker threads that never bring their caller down.

use crate::error::{Error, Result};
use std::thread::ScopedJoinHandle;

/// Joins a worker. One that died is a failure like any other.
pub fn join<T>(worker: ScopedJoinHandle<'_, Result<T>>, doing: &'static str) -> Result<T> {
    worker.join().unwrap_or_else(|_| Err(Error::Worker { doing }))
}

/// Joins every worker, then returns the first failure.
pub fn joined(workers: Vec<ScopedJoinHandle<'_, Result<()>>>, doing: &'static str) -> Result<()> {
    let results: Vec<Result<()>> = workers.into_iter().map(|worker| join(worker, doing)).collect();
    results.into_iter().collect()
}
