//! Prints a plan.

use super::{Cost, Plan, Step};
use std::fmt;

/// A plan as a table: one line a step, then the totals.
pub struct Table<'a> {
    plan: &'a Plan,
    tokens: u64,
    verbose: bool,
}

impl Plan {
    /// The plan as a table, the cache's bytes for a token that has `depth` others before it.
    pub fn table(&self, depth: u64) -> Table<'_> {
        Table { plan: self, tokens: depth.saturating_add(1), verbose: false }
    }
}

impl Table<'_> {
    /// Whether each line ends in the full name of the kernel's variant.
    pub fn verbose(self, verbose: bool) -> Self {
        Self { verbose, ..self }
    }

    fn line(&self, f: &mut fmt::Formatter<'_>, step: &Step) -> fmt::Result {
        let [x, y, z] = step.grid;
        let Cost { weights, cache, activations, .. } = step.cost;
        let bytes = [weights, cache.saturating_mul(self.tokens), activations].map(short);
        let [weights, cache, other] = bytes;
        let grid = format!("{x}x{y}x{z}");
        write!(f, "{:<20} {:<26} {grid:>11} {weights:>8} {cache:>8} {other:>8}", step.label, step.kernel)?;
        if self.verbose {
            write!(f, "  {}", self.plan.variants[step.variant].label)?;
        }
        writeln!(f)
    }
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<20} {:<26} {:>11} {:>8} {:>8} {:>8}", "step", "kernel", "grid", "weights", "cache", "other")?;
        self.plan.steps.iter().try_for_each(|step| self.line(f, step))?;
        let Cost { weights, cache, activations, .. } = self.plan.cost();
        let [weights, cache, other] = [weights, cache.saturating_mul(self.tokens), activations].map(short);
        writeln!(f, "{} dispatches, {} pipelines", self.plan.steps.len(), self.plan.variants.len())?;
        write!(f, "a token moves {weights}B of weights, {cache}B of cache, {other}B of activations")
    }
}

/// Bytes in three or four digits.
fn short(bytes: u64) -> String {
    const UNITS: [(&str, f64); 3] = [("G", 1e9), ("M", 1e6), ("k", 1e3)];
    let bytes = bytes as f64;
    let unit = UNITS.iter().find(|(_, size)| bytes >= 10.0 * size || (*size == 1e9 && bytes >= *size));
    unit.map_or(format!("{bytes:.0} "), |(name, size)| {
        format!("{:.*} {name}", if bytes < 100.0 * size { 2 } else { 0 }, bytes / size)
    })
}
