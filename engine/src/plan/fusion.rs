//! Selects the steps that are fused, which means computed in one dispatch. A dispatch that waits for the previous one
//! costs time, however little it does. Every fusion can be switched off, so that an error can be located by bisection.

use crate::error::{Error, Result};

/// The fusions that are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fusions {
    /// Norms are computed inside the products that follow them.
    pub norm: bool,
    /// The compressed query and the latent come from one product.
    pub latent: bool,
    /// The KV row is written by the step that computes the heads' queries.
    pub cache: bool,
    /// Queries are projected to the latent and rotated in one step.
    pub absorb: bool,
    /// The splits of attention are merged inside the product that follows.
    pub merge: bool,
    /// The activations of an int8 product are rounded by the step that computes them.
    pub round: bool,
    /// The shared experts, and the weighted sum, are part of the experts' steps.
    pub experts: bool,
    /// Every workgroup of the gate and up products selects the experts itself.
    pub route: bool,
}

impl Default for Fusions {
    /// All fusions.
    fn default() -> Self {
        Self::all()
    }
}

impl Fusions {
    /// The names of the fusions for [`Fusions::without`].
    pub const NAMES: [&'static str; 8] = ["norm", "latent", "cache", "absorb", "merge", "round", "experts", "route"];

    /// Turns all fusions on.
    pub const fn all() -> Self {
        Self {
            norm: true,
            latent: true,
            cache: true,
            absorb: true,
            merge: true,
            round: true,
            experts: true,
            route: true,
        }
    }

    /// Turns all fusions off.
    pub const fn none() -> Self {
        Self {
            norm: false,
            latent: false,
            cache: false,
            absorb: false,
            merge: false,
            round: false,
            experts: false,
            route: false,
        }
    }

    /// All fusions except those in a comma-separated list of names; `all` excludes all of them.
    ///
    /// # Errors
    /// [`Error::Argument`] for a name that is not one of [`Fusions::NAMES`].
    pub fn without(list: &str) -> Result<Self> {
        let mut on = Self::all();
        for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            if name == "all" {
                on = Self::none();
                continue;
            }
            *on.switch(name).ok_or_else(|| unknown(name))? = false;
        }
        Ok(on)
    }

    fn switch(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "norm" => &mut self.norm,
            "latent" => &mut self.latent,
            "cache" => &mut self.cache,
            "absorb" => &mut self.absorb,
            "merge" => &mut self.merge,
            "round" => &mut self.round,
            "experts" => &mut self.experts,
            "route" => &mut self.route,
            _ => return None,
        })
    }
}

fn unknown(name: &str) -> Error {
    let expected = format!("a list of {}, or all", Fusions::NAMES.join(", "));
    Error::Argument { argument: "unfuse", expected, found: format!("`{name}`") }
}
