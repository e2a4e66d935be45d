//! Allocates host memory whose size a file or a request decides. A failed allocation is an error instead of an abort.

use crate::error::{Error, Result};
use bytemuck::Zeroable;

/// A vector of `count` zeros.
///
/// # Errors
/// [`Error::HostMemory`] if the allocation fails.
pub fn zeros<T: Zeroable + Copy>(count: usize, doing: &'static str) -> Result<Vec<T>> {
    let mut values = Vec::new();
    resize(&mut values, count, doing)?;
    Ok(values)
}

/// Resizes a vector to `count` values. New values are zero.
///
/// # Errors
/// [`Error::HostMemory`] if the allocation fails.
pub fn resize<T: Zeroable + Copy>(values: &mut Vec<T>, count: usize, doing: &'static str) -> Result<()> {
    let more = count.saturating_sub(values.len());
    let bytes = (count as u64).saturating_mul(size_of::<T>() as u64);
    values.try_reserve_exact(more).map_err(|_| Error::HostMemory { doing, bytes })?;
    values.resize(count, T::zeroed());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_machine_has_is_an_error() {
        for count in [usize::MAX, isize::MAX as usize / 4, 1 << 60] {
            let found = zeros::<f32>(count, "trying").map(drop);
            assert!(matches!(found, Err(Error::HostMemory { doing: "trying", .. })), "{count}: {found:?}");
        }
        assert_eq!(zeros::<u32>(3, "trying").ok(), Some(vec![0; 3]));
    }
}
