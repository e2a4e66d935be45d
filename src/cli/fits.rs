//! Tells what a file is, and whether it fits this machine.

use super::args::GpuArgs;
use super::output;
use super::table::Column;
use serde::Serialize;
use std::collections::BTreeMap;
use wglm::{Error, Fit, Gguf, Gpu, LoadOptions, Model};

/// What is known of a model before it is loaded.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Judged {
    pub architecture: Option<String>,
    /// The format of most of its bytes.
    pub format: Option<String>,
    pub parameters: Option<u64>,
    pub bits_per_weight: Option<f64>,
    /// The GPU memory that it needs with default options, in bytes.
    pub needs: Option<u64>,
    /// Whether it fits; null where nobody knows.
    pub fits: Option<bool>,
    /// Why it does not fit, cannot run at all, or is not known.
    pub why_not: Option<String>,
}

/// Opens the GPU to judge by, if there is one.
pub fn device(args: &GpuArgs) -> Option<Gpu> {
    Gpu::open(&args.options()).inspect_err(|error| output::note(format_args!("note: {error}"))).ok()
}

/// Judges a file by its header.
pub fn judge(file: &wglm::Result<Gguf>, gpu: Option<&Gpu>) -> Judged {
    let file = match file {
        Ok(file) => file,
        // Trouble with the server tells nothing of the model.
        Err(Error::Download { reason, .. }) => return Judged { why_not: Some(reason.clone()), ..Judged::default() },
        Err(error) => {
            return Judged { fits: Some(false), why_not: Some(error.cause().to_string()), ..Judged::default() };
        }
    };
    let mut formats: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut bytes, mut parameters) = (0, 0);
    for tensor in file.tensors() {
        *formats.entry(tensor.ty.name).or_default() += tensor.bytes as u64;
        bytes += tensor.bytes as u64;
        parameters += tensor.dims.iter().product::<usize>() as u64;
    }
    let judged = Judged {
        architecture: file.opt_string("general.architecture").ok().flatten().map(str::to_owned),
        format: formats.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(name, _)| name.to_owned()),
        parameters: Some(parameters).filter(|count| *count > 0),
        bits_per_weight: (parameters > 0).then(|| 8.0 * bytes as f64 / parameters as f64),
        ..Judged::default()
    };
    match Model::estimate(file, &LoadOptions::default(), gpu) {
        Err(error) => Judged { fits: Some(false), why_not: Some(reason(&error)), ..judged },
        Ok(estimate) => {
            let (fits, why_not) = verdict(&estimate.fit);
            Judged { needs: Some(estimate.most()), fits, why_not, ..judged }
        }
    }
}

fn reason(error: &Error) -> String {
    match error.cause() {
        Error::Unsupported { what, found, .. } => format!("{what} is not supported: {found}"),
        other => other.to_string(),
    }
}

fn verdict(fit: &Fit) -> (Option<bool>, Option<String>) {
    let (fits, why) = match fit {
        Fit::Fits => return (Some(true), None),
        Fit::Memory { needed, available } => {
            (false, format!("needs {} of {}", output::bytes(*needed), output::bytes(*available)))
        }
        Fit::Context { most, .. } => (true, format!("with -c {most} at most")),
        Fit::Piece { tensor, bytes, allowed, .. } => {
            (false, format!("`{tensor}` has {}, the GPU allows {}", output::bytes(*bytes), output::bytes(*allowed)))
        }
        _ => return (None, None),
    };
    (Some(fits), Some(why))
}

impl Judged {
    /// The verdict in words.
    pub fn words(&self) -> String {
        match (self.fits, &self.why_not) {
            (Some(true), None) => "yes".into(),
            (Some(true), Some(why)) => format!("yes, {why}"),
            (Some(false), Some(why)) => format!("no: {why}"),
            (Some(false), None) => "no".into(),
            (None, Some(why)) => format!("not known: {why}"),
            (None, None) => "not known".into(),
        }
    }

    /// The memory that it needs, for a table.
    pub fn needed(&self) -> String {
        self.needs.map(output::bytes).unwrap_or_default()
    }
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
