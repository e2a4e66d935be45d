//! Prints a plan.

use super::{Cost, Plan, Step};
use std::fmt;

/// A plan as a table: one line for each step, then the totals.
pub struct Table<'a> {
    plan: &'a Plan,
    tokens: u64,
    verbose: bool,
}

impl Plan {
    /// The plan as a table. The bytes of the cache are those of a token with `depth` others before it.
    pub fn table(&self, depth: u64) -> Table<'_> {
        Table { plan: self, tokens: depth.saturating_add(1), verbose: false }
    }
}

impl Table<'_> {
    /// Sets whether each line ends with the full name of the shader variant.
    pub fn verbose(self, verbose: bool) -> Self {
        Self { verbose, ..self }
    }

    fn line(&self, f: &mut fmt::Formatter<'_>, step: &Step) -> fmt::Result {
        let [x, y, z] = step.grid;
        let Cost { weights, cache, activations, .. } = step.cost;
        let bytes = [weights, cache.saturating_mul(self.tokens), activations].map(short);
        let [weights, cache, other] = bytes;
        let cells = [&step.label, step.kernel, &format!("{x}x{y}x{z}"), &weights, &cache, &other];
        match self.verbose {
            true => writeln!(f, "{}  {}", row(cells), self.plan.variants[step.variant].label),
            false => writeln!(f, "{}", row(cells).trim_end()),
        }
    }
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", row(["step", "kernel", "grid", "weights", "cache", "other"]))?;
        self.plan.steps.iter().try_for_each(|step| self.line(f, step))?;
        let Cost { weights, cache, activations, .. } = self.plan.cost();
        let [weights, cache, other] = [weights, cache.saturating_mul(self.tokens), activations].map(short);
        writeln!(f, "{} dispatches, {} pipelines", self.plan.steps.len(), self.plan.variants.len())?;
        write!(f, "a token moves {weights}B of weights, {cache}B of cache, {other}B of activations")
    }
}

/// A line of 80 columns, not counting the name after it.
fn row([step, kernel, grid, weights, cache, other]: [&str; 6]) -> String {
    format!("{step:<17} {kernel:<23} {grid:>11} {weights:>8} {cache:>8} {other:>8}")
}

/// A number of bytes in three or four digits.
fn short(bytes: u64) -> String {
    const UNITS: [(&str, f64); 3] = [("G", 1e9), ("M", 1e6), ("k", 1e3)];
    let bytes = bytes as f64;
    let unit = UNITS.iter().find(|(_, size)| bytes >= 10.0 * size || (*size == 1e9 && bytes >= *size));
    unit.map_or(format!("{bytes:.0} "), |(name, size)| {
        format!("{:.*} {name}", if bytes < 100.0 * size { 2 } else { 0 }, bytes / size)
    })
}
