//! The token with the largest logit.

use super::case::Kind;
use super::{Case, CaseBuilder, Kernel, params};
use crate::error::Result;
use crate::plan::{Builder, Moved, Target, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/argmax.wgsl");
const WORKGROUP: usize = 256;

params! { count: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "argmax", op: OP, params: Params::FIELDS, cases };

/// What [`Builder::argmax`] writes where no logit is a number.
pub const NO_TOKEN: u32 = u32::MAX;

impl Builder {
    /// token {1} = the index of the largest of logits {n}, the lowest of equals; [`NO_TOKEN`] if none is
    /// a number.
    ///
    /// # Errors
    /// See [`Builder::step`].
    pub fn argmax(&mut self, label: &str, logits: &Tensor) -> Result<Tensor> {
        let token = self.tensor(label, [1, 1]);
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP);
        let bindings = vec![self.bound("logits", logits.buffer), self.bound("token", token.buffer)];
        let params = Params { count: logits.shape[0] as u32 };
        let moved = Moved { activations: logits.bytes() + 4, ..Moved::default() };
        self.step(label, variant, bindings, &params, [1, 1, 1], moved)?;
        Ok(token)
    }
}

/// Makes a case out of noise.
type Edit = fn(&mut [f32]);

fn cases(target: Target) -> Result<Vec<Case>> {
    let case = |(name, count, edit): (&str, usize, Edit)| {
        let mut case = CaseBuilder::new(target, 1);
        let logits = case.plan.tensor("logits", [count, 1]);
        let mut values = case.noise(count);
        edit(&mut values);
        case.fill(&logits, &values);
        let token = case.plan.argmax("token", &logits)?;
        let best = values.iter().enumerate().filter(|(_, v)| v.is_finite()).fold(None, |best, (i, &v)| match best {
            Some((_, top)) if v <= top => best,
            _ => Some((i, v)),
        });
        let want = best.map_or(NO_TOKEN as f64, |(i, _)| i as f64);
        case.expect_at(token.buffer, Kind::U32, 0, vec![want], 0.0);
        Ok(case.finish(format!("{name}, {count}")))
    };
    let cases: [(&str, usize, Edit); 6] = [
        ("one", 1, |_| {}),
        ("noise", 2048, |_| {}),
        ("a tie", 1000, |v| (v[17], v[900]) = (5.0, 5.0)),
        ("the last", 154_880, |v| v[154_879] = 9.0),
        ("nothing", 300, |v| v.fill(f32::NAN)),
        ("infinities", 300, |v| (v[3], v[4], v[5]) = (f32::INFINITY, f32::NEG_INFINITY, 7.0)),
    ];
    cases.into_iter().map(case).collect()
}
