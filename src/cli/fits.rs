//! The GPU by which models are judged, and tables of what was found.

use super::args::GpuArgs;
use super::output;
use super::table::Column;
use wglm::{Gpu, Judged};

/// Opens the GPU to judge by, if there is one.
pub fn device(args: &GpuArgs) -> Option<Gpu> {
    let opened = args.options().and_then(|options| Gpu::open(&options));
    opened.inspect_err(|error| output::note(format_args!("note: {error}"))).ok()
}

/// The memory that a model needs, for a table.
pub fn needed(judged: &Judged) -> String {
    judged.needs.map(output::bytes).unwrap_or_default()
}

/// A table of these columns, as wide as their cells need. Those with numbers are aligned to the right.
pub fn table(titles: &[(&'static str, bool)], rows: &[Vec<String>]) -> Vec<String> {
    let columns: Vec<Column> = titles
        .iter()
        .enumerate()
        .map(|(index, (title, right))| {
            let widest = rows.iter().map(|row| row[index].chars().count()).max().unwrap_or(0);
            Column { title, width: widest.max(title.len()), right: *right }
        })
        .collect();
    let rows = rows.iter().map(|row| super::table::row(&columns, row));
    super::table::head(&columns).into_iter().chain(rows).collect()
}
