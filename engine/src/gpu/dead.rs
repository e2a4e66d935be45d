//! Finds out whether a device that returned no result still works.
//!
//! After an error Metal may ignore everything that is later submitted to the same queue ("Ignored (for causing
//! prior/excessive GPU errors)"), and wgpu 30 reports such work as done. One missing result can have other causes: the
//! memory was full for a moment, and the next submission may succeed. So each time a result is missing, probes follow:
//! submissions that need no memory and do nothing but return a number. If one of them arrives, the queue is alive. If
//! [`MISSING`] results in a row are missing, the caller's own included, the device counts as lost: a new device has a
//! new queue.

use super::{Fetch, Gpu};
use crate::error::{Error, Result};

/// The number of results in a row after which a device counts as lost, if none of them arrives. The first may be
/// missing because memory was full. Metal also drops work that is queued after failed work, but a probe is submitted
/// only after the missing result was read, so it is never queued there. The second probe is for a GPU that restarts
/// during the first. Treating a working device as lost only costs loading the model again.
pub const MISSING: u32 = 3;

impl Gpu {
    /// The error for a result that is missing: [`Error::NoResult`] if the queue still works, or else
    /// [`Error::DeviceLost`]. Every thread sends its own probes, because one failure may lose the results of several
    /// threads.
    pub(super) fn result_missing(&self) -> Error {
        for _ in 1..MISSING {
            match self.probe() {
                Ok(false) => {}
                Err(lost @ Error::DeviceLost { .. }) => return lost,
                Ok(true) | Err(_) => return Error::NoResult,
            }
        }
        tracing::warn!("{MISSING} results in a row are missing: treating the device as lost");
        self.lost(&format!("the last {MISSING} submissions to it returned nothing"))
    }

    /// Whether a submission that only copies a number returns it.
    fn probe(&self) -> Result<bool> {
        Fetch::new(self, 0)?.arrives()
    }
}
