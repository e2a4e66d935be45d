//! The input of the multi-token-prediction block: embeddings and hidden states, each normalised.

use super::computes::{DraftInput, Kept};
use super::keep_hidden::KEPT_ROWS;
use super::matvec::Norm;
use super::{Kernel, expect_shape, params};
use crate::error::Result;
use crate::plan::{Builder, Cost, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/draft_input.wgsl");
const WORKGROUP: usize = 256;

params! { width: u32, epsilon: f32, embedding_pitch: u32, hidden_pitch: u32, y_pitch: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "draft_input", op: OP, params: Params::FIELDS, matrices: &[] };

/// Where the block's hidden states come from.
#[derive(Clone, Copy)]
pub enum HiddenStates {
    /// The hidden states of all rows {n, rows}.
    Rows(Tensor),
    /// The ring buffer, at the position of each row.
    Kept(Kept),
}

impl Builder {
    /// y {2 n, rows} = for each row the embedding {n}, normalised, followed by the row's hidden state {n}, normalised
    /// with another norm.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the widths differ.
    pub fn draft_input(
        &mut self,
        label: &str,
        embedding: (&Tensor, &Norm),
        hidden: (HiddenStates, &Norm),
    ) -> Result<Tensor> {
        let ((x, x_norm), (states, norm)) = (embedding, hidden);
        let [width, rows] = x.shape;
        let (buffer, pitch, of) = match states {
            HiddenStates::Rows(rows) => (rows.buffer, rows.pitch, rows.shape[0]),
            HiddenStates::Kept(ring) => (ring.buffer, ring.width, ring.width),
        };
        expect_shape(KERNEL.name, "the hidden states", of, width)?;
        for norm in [x_norm, norm] {
            expect_shape(KERNEL.name, &norm.weight.name, norm.weight.shape[0], width)?;
        }
        let y = self.tensor(label, [2 * width, rows]);
        let variant = self
            .batch_files(VariantBuilder::new(KERNEL.name, OP, WORKGROUP).usual_team(self.target_for(KERNEL.name)))
            .switch("KEPT", "k", matches!(states, HiddenStates::Kept(_)))
            .constant("RING_LENGTH", "", KEPT_ROWS)
            .file(source!("lib/ring.wgsl"));
        let bindings = vec![
            self.bound_batch(),
            self.bound("embedding", x.buffer),
            self.bound("hidden", buffer),
            self.bound("embedding_norm", x_norm.weight.buffer()),
            self.bound("hidden_norm", norm.weight.buffer()),
            self.bound("y", y.buffer),
        ];
        let params = Params {
            width: width as u32,
            epsilon: norm.epsilon,
            embedding_pitch: x.pitch as u32,
            hidden_pitch: pitch as u32,
            y_pitch: y.pitch as u32,
        };
        let weights = x_norm.weight.matrix_bytes() + norm.weight.matrix_bytes();
        let cost = Cost { weights, activations: 2 * y.bytes(), ..Cost::default() };
        let computes = DraftInput { embedding: *x, hidden: states, norms: [x_norm.clone(), norm.clone()], y };
        self.computes(KERNEL.name, computes);
        self.step(label, variant, bindings, &params, [2, rows, 1], cost)?;
        Ok(y)
    }
}
