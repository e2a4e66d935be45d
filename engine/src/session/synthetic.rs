//! Sessions of any length without computing them, for benchmarks.

use super::Session;
use crate::error::Result;
use crate::gpu::{Buffer, BufferUse};
use crate::kernels::kv_blocks::BlockRow;
use crate::kernels::{Cache, CacheType};
use crate::model::Model;
use crate::plan::PAGE;
use crate::quant::F32;

/// Values of noise. They are enough for many tokens, and are repeated.
const NOISE: usize = 1 << 20;

impl Session {
    /// Gives the session `tokens` tokens that were never fed, over a cache of noise: always the same, finite, and of
    /// moderate size. What follows is meaningless text at the usual speed, because the time of a token depends on the
    /// size of the cache and not on its content.
    ///
    /// # Errors
    /// [`Error::ContextFull`](crate::Error::ContextFull), or any error from the device.
    #[doc(hidden)]
    pub fn set_synthetic_depth(&mut self, tokens: usize) -> Result<()> {
        self.check(tokens, &[])?;
        let tokens = vec![0; tokens];
        self.wait()?;
        self.rewind(0);
        let (mut state, sequence) = self.enter()?;
        state.reach(sequence, tokens.len())?;
        let caches = state.plans.shared.caches.iter().collect::<Vec<_>>();
        fill_with_noise(&state.model, state.cache.ty, &caches)?;
        sequence.offered = tokens.len() / PAGE; // they are not offered to other sequences
        (sequence.confirmed, sequence.tokens) = (tokens.len(), tokens);
        Ok(())
    }
}

/// Fills caches with noise of moderate size.
///
/// # Errors
/// Any error from the device.
pub(crate) fn fill_with_noise(model: &Model, ty: CacheType, caches: &[&Buffer]) -> Result<()> {
    let (gpu, config) = (model.gpu(), model.config());
    let bytes = noise(ty, config.latent_rank, config.rotary);
    let noise = gpu.buffer("noise", bytes.len() as u64, BufferUse::Storage)?;
    gpu.write(&noise, 0, &bytes)?;
    gpu.fill(&noise, caches)
}

/// Noise of moderate size in the form of a cache of such latents and rotary keys: in whole KV rows if these consist of
/// blocks.
fn noise(ty: CacheType, rank: usize, rotary: usize) -> Vec<u8> {
    let bytes = F32.sample(NOISE, 0);
    match ty {
        CacheType::F32 => bytes,
        CacheType::F16 => {
            let values = bytes.as_chunks().0.iter().map(|value| half::f16::from_f32(f32::from_le_bytes(*value)));
            values.flat_map(half::f16::to_le_bytes).collect()
        }
        CacheType::Q8_0 => {
            let values: Vec<f32> = bytes.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
            let kv_rows = values.chunks_exact(Cache::row_values(rank, rotary));
            let row = BlockRow { rank, rotary };
            kv_rows.flat_map(|values| row.packed(&values[..rank + rotary])).collect()
        }
    }
}
