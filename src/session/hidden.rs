//! What the layers make of tokens, before the head makes logits of it.

use super::{Session, going_on};
use crate::error::{Error, Result};
use crate::gpu::{BufferRange, Fetch};
use crate::model::Outputs;
use std::ops::ControlFlow;

impl Session {
    /// The hidden state {width} of the last token fed: the sum of all layers, normalised by `output_norm`. Its products
    /// with the rows of the output matrix are the [logits](Session::logits). It is what llama.cpp calls a token's
    /// embedding, and transformers its `last_hidden_state`.
    ///
    /// # Errors
    /// As [`Session::logits`]; [`Error::Argument`] also where nothing was fed since a snapshot was restored, which holds
    /// the logits alone.
    pub fn hidden(&mut self) -> Result<Vec<f32>> {
        let output = self.output()?.clone();
        if !self.has_hidden {
            let expected = "a token fed since the snapshot was restored".to_owned();
            return Err(Error::Argument { argument: "session", expected, found: "none".into() });
        }
        self.read(&output)?; // the choice vouches for what it was computed from
        let bytes = 4 * self.model.config().width as u64;
        let hidden = self.executor.local(self.planned.hidden);
        let read = Fetch::new(self.executor.gpu(), bytes)?.read(hidden, 0, bytes)?;
        let norm = self.output_norm()?;
        Ok(normalised(&bytemuck::pod_collect_to_vec(&read), &norm, self.model.config().epsilon))
    }

    /// Feeds tokens and has `visit` see each one's place among them and its hidden state {width}, as
    /// [`Session::hidden`] tells it, in order.
    ///
    /// # Errors
    /// As [`Session::feed`], and [`Error::Cancelled`] if `visit` says so; what was fed until then stays.
    pub fn feed_hidden(
        &mut self,
        tokens: &[u32],
        visit: &mut dyn FnMut(usize, &[f32]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.check(self.tokens.len(), tokens)?;
        let norm = self.output_norm()?;
        let epsilon = self.model.config().epsilon;
        let mut rest = tokens;
        self.parts.begin(self.tokens.len());
        while !rest.is_empty() {
            let first = tokens.len() - rest.len();
            let count = self.part(rest);
            if !self.chunks.options.chunks(count) {
                self.feed(&rest[..1])?;
                going_on(visit(first, &self.hidden()?))?;
                rest = &rest[1..];
                continue;
            }
            self.output = None;
            let (part, then) = rest.split_at(count);
            let fed = self.feed_part(part, rest.len() == tokens.len(), &mut |_| ControlFlow::Continue(()));
            if self.or_rewound(fed)? {
                let rows = self.chunk_rows(count, Outputs::Last);
                let (rows, stride) = self.or_rewound(rows)?;
                self.confirmed = self.tokens.len();
                for (row, place) in rows.chunks(stride).zip(first..) {
                    going_on(visit(place, &normalised(&row[..norm.len()], &norm, epsilon)))?;
                }
                rest = then;
            }
        }
        if self.output.is_none() && !tokens.is_empty() { self.finish_prompt() } else { Ok(()) }
    }

    /// The mean of the [hidden states](Session::hidden) {width} of a text's tokens: a vector that texts may be compared
    /// by, by the cosine of the angle between two of them. The model was made to foretell text, not to compare it:
    /// models made for that do it better. The text stands alone, without the chat template; whatever the session held
    /// before is gone, and afterwards it holds the text.
    ///
    /// # Errors
    /// [`Error::Argument`] for a text without tokens, [`Error::Tokenizer`]; otherwise as [`Session::feed`].
    pub fn embed(&mut self, text: &str) -> Result<Vec<f32>> {
        let tokens = self.model.tokenizer()?.encode(text, false)?;
        if tokens.is_empty() {
            let expected = "a text of at least one token".to_owned();
            return Err(Error::Argument { argument: "text", expected, found: "an empty one".into() });
        }
        self.check(0, &tokens)?;
        self.rewind(0);
        let mut sums = vec![0f64; self.model.config().width];
        self.feed_hidden(&tokens, &mut |_, row| {
            sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value));
            ControlFlow::Continue(())
        })?;
        Ok(sums.into_iter().map(|sum| (sum / tokens.len() as f64) as f32).collect())
    }

    /// The weights {width} of the norm before the head.
    fn output_norm(&self) -> Result<Vec<f32>> {
        const NAME: &str = "output_norm.weight";
        let missing = || Error::Tensor { name: NAME.into(), expected: "a vector".into(), found: "nothing".into() };
        let index = self.planned.plan.weights.iter().position(|weight| *weight.name == *NAME).ok_or_else(missing)?;
        let bytes = 4 * self.model.config().width as u64;
        let from = &self.model.weights()[index];
        let read = Fetch::new(self.executor.gpu(), bytes)?.read_pieces(&[BufferRange { from, offset: 0, bytes }])?;
        Ok(bytemuck::pod_collect_to_vec(&read))
    }
}

/// A row divided by its root mean square and multiplied by a norm's weights.
fn normalised(row: &[f32], weights: &[f32], epsilon: f32) -> Vec<f32> {
    let squares: f64 = row.iter().map(|value| f64::from(*value).powi(2)).sum();
    let scale = (squares / row.len() as f64 + f64::from(epsilon)).sqrt().recip();
    row.iter().zip(weights).map(|(value, weight)| (f64::from(*value) * scale * f64::from(*weight)) as f32).collect()
}
