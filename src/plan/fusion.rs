//! Which steps are computed in one dispatch. A dispatch that waits for the one before costs time however little
//! it does; every fusion can be switched off, so that an error is found by halving.

use crate::error::{Error, Result};

/// The fusions that are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fusions {
    /// Norms inside the products that follow them.
    pub norm: bool,
    /// The compressed query and the latent from one product.
    pub latent: bool,
    /// The cache's line written beside the heads' queries.
    pub cache: bool,
    /// Queries brought to the latent and turned.
    pub absorb: bool,
    /// The splits of attention joined inside the product that follows.
    pub merge: bool,
    /// What a product of bytes multiplies with rounded by the step that leaves it.
    pub round: bool,
    /// The choice of experts inside their first half; the shared experts and the sum inside either half.
    pub experts: bool,
}

impl Default for Fusions {
    /// All of them.
    fn default() -> Self {
        Self::all()
    }
}

impl Fusions {
    /// Their names, as [`Fusions::without`] takes them.
    pub const NAMES: [&'static str; 7] = ["norm", "latent", "cache", "absorb", "merge", "round", "experts"];

    /// All of them.
    pub const fn all() -> Self {
        Self { norm: true, latent: true, cache: true, absorb: true, merge: true, round: true, experts: true }
    }

    /// None of them.
    pub const fn none() -> Self {
        Self { norm: false, latent: false, cache: false, absorb: false, merge: false, round: false, experts: false }
    }

    /// All but those in a comma list of names; `all` for none.
    ///
    /// # Errors
    /// [`Error::Argument`] for a name that is none of [`Fusions::NAMES`].
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
            _ => return None,
        })
    }
}

fn unknown(name: &str) -> Error {
    let expected = format!("a list of {}, or all", Fusions::NAMES.join(", "));
    Error::Argument { argument: "unfuse", expected, found: format!("`{name}`") }
}
