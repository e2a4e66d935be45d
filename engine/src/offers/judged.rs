//! Determines what a file is, and whether it fits this machine.

use crate::error::{Error, Size};
use crate::gguf::Gguf;
use crate::gpu::Gpu;
use crate::model::{Estimate, Fit, LoadOptions, Model};
use serde::Serialize;
use std::collections::BTreeMap;

/// What is known of a model before it is loaded.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Judged {
    /// The architecture that the file names.
    pub architecture: Option<String>,
    /// The format of most of its bytes.
    pub format: Option<String>,
    /// The number of its weights.
    pub parameters: Option<u64>,
    /// The average bits per weight.
    pub bits_per_weight: Option<f64>,
    /// The GPU memory that it needs, in bytes.
    pub needs: Option<u64>,
    /// Whether it fits; `None` if that is unknown.
    pub fits: Option<bool>,
    /// Why it does not fit, cannot run at all, or is unknown; or the condition on which it fits.
    pub why_not: Option<String>,
    /// What it needs its memory for, if it can run.
    #[serde(skip)]
    pub estimate: Option<Estimate>,
}

impl Judged {
    /// Judges a model by its header, or by the error of reading it, as if it were loaded with `options` in place of
    /// everything that wglm holds on the GPU. Without a GPU it is unknown whether it fits.
    ///
    /// ```
    /// use wglm::Gguf;
    /// use wglm::catalog::{Places, local_models};
    /// use wglm::offers::Judged;
    ///
    /// for model in local_models(&Places::default()) {
    ///     println!("{}: {}", model.name, Judged::of(&Gguf::open(&model.path), &Default::default(), None));
    /// }
    /// ```
    pub fn of(file: &crate::error::Result<Gguf>, options: &LoadOptions, gpu: Option<&Gpu>) -> Self {
        let file = match file {
            Ok(file) => file,
            // An error of a server says nothing about the model.
            Err(Error::Download { reason, .. }) => return Self { why_not: Some(reason.clone()), ..Self::default() },
            Err(error) => return Self::unfit(error.cause().to_string()),
        };
        let mut formats: BTreeMap<&str, u64> = BTreeMap::new();
        let (mut bytes, mut parameters) = (0u64, 0u64);
        for tensor in file.tensors() {
            *formats.entry(tensor.ty.name).or_default() += tensor.bytes as u64;
            // A listing may claim any size.
            let values = tensor.dims.iter().fold(1, |product: u64, dim| product.saturating_mul(*dim as u64));
            bytes = bytes.saturating_add(tensor.bytes as u64);
            parameters = parameters.saturating_add(values);
        }
        let judged = Self {
            architecture: file.opt_string("general.architecture").ok().flatten().map(str::to_owned),
            format: formats.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(name, _)| name.to_owned()),
            parameters: Some(parameters).filter(|count| *count > 0),
            bits_per_weight: (parameters > 0).then(|| 8.0 * bytes as f64 / parameters as f64),
            ..Self::default()
        };
        match Model::estimate(file, options, gpu) {
            Err(error) => Self { fits: Some(false), why_not: Some(reason(&error)), ..judged },
            Ok(mut estimate) => {
                let held = gpu.map_or(0, |gpu| gpu.memory().held);
                if matches!(estimate.fit, Fit::Memory { needed, available } if needed <= available + held) {
                    estimate.fit = Fit::Fits;
                }
                let (fits, why_not) = verdict(&estimate.fit);
                Self { needs: Some(estimate.most()), fits, why_not, estimate: Some(estimate), ..judged }
            }
        }
    }

    /// A model that cannot run, and why.
    pub fn unfit(why_not: impl Into<String>) -> Self {
        Self { fits: Some(false), why_not: Some(why_not.into()), ..Self::default() }
    }

    /// Whether there is no reason not to try it.
    pub fn may_fit(&self) -> bool {
        self.fits != Some(false)
    }
}

/// The verdict: `yes`, or `no: needs 40.0 GiB, 24.0 GiB available`.
impl std::fmt::Display for Judged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.fits, &self.why_not) {
            (Some(true), None) => write!(f, "yes"),
            (Some(true), Some(why)) => write!(f, "yes, {why}"),
            (Some(false), Some(why)) => write!(f, "no: {why}"),
            (Some(false), None) => write!(f, "no"),
            (None, Some(why)) => write!(f, "unknown: {why}"),
            (None, None) => write!(f, "unknown"),
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
        Fit::Unknown => return (None, None),
        Fit::Memory { needed, available } => {
            (false, format!("needs {}, {} available", Size(*needed), Size(*available)))
        }
        Fit::Context { most, .. } => (true, format!("with a context of at most {most} tokens")),
        Fit::Piece { tensor, bytes, allowed, .. } => {
            (false, format!("`{tensor}` has {}, the GPU allows {}", Size(*bytes), Size(*allowed)))
        }
    };
    (Some(fits), Some(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn verdicts_are_told() {
        let of = |fit| {
            let (fits, why_not) = verdict(&fit);
            Judged { fits, why_not, ..Judged::default() }.to_string()
        };
        assert_eq!(of(Fit::Fits), "yes");
        assert_eq!(of(Fit::Unknown), "unknown");
        assert_eq!(of(Fit::Memory { needed: 40 << 30, available: 24 << 30 }), "no: needs 40.0 GiB, 24.0 GiB available");
        let context = Fit::Context { bytes: 9, allowed: 8, most: 4096 };
        assert_eq!(of(context), "yes, with a context of at most 4096 tokens");
        let (reason, kind) = ("it answers 503".to_owned(), ErrorKind::Network);
        let download = Error::Download { what: "x".into(), reason, remedy: "wait".into(), kind };
        let judged = Judged::of(&Err(download), &LoadOptions::default(), None);
        assert_eq!((judged.to_string().as_str(), judged.may_fit()), ("unknown: it answers 503", true));
        let judged = Judged::of(&Err(Error::NotANumber), &LoadOptions::default(), None);
        assert!(judged.to_string().starts_with("no: all logits") && !judged.may_fit());
    }
}
