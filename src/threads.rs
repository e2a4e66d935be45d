//! Worker threads that never bring their caller down.

use crate::error::{Error, Result};
use std::thread::ScopedJoinHandle;

/// Joins every worker, then returns the first failure. A worker that died is a failure like any other.
pub fn joined(workers: Vec<ScopedJoinHandle<'_, Result<()>>>, doing: &'static str) -> Result<()> {
    let died = |_| Err(Error::Worker { doing });
    let results: Vec<Result<()>> = workers.into_iter().map(|worker| worker.join().unwrap_or_else(died)).collect();
    results.into_iter().collect()
}
