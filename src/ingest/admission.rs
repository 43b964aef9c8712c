//! The bytes in flight: every request takes its room before it takes memory.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::IngestError;

/// A place in the bytes in flight. It grows as a body arrives and is given back when the request
/// is acked or refused.
#[derive(Debug)]
pub struct Admission {
    pub(super) permit: Option<OwnedSemaphorePermit>,
    pub(super) bytes: Arc<Semaphore>,
    pub(super) limit: usize,
    pub(super) in_flight: metrics::Gauge,
}

impl Admission {
    /// Takes room for `bytes` more.
    ///
    /// # Errors
    /// [`IngestError::Overloaded`] when there is none.
    pub fn grow(&mut self, bytes: usize) -> Result<(), IngestError> {
        let overloaded = IngestError::Overloaded { limit: self.limit, key: "ingest.bytes_in_flight" };
        let count = u32::try_from(bytes).map_err(|_| overloaded.clone())?;
        let more = self.bytes.clone().try_acquire_many_owned(count).map_err(|_| overloaded)?;
        self.in_flight.increment(count);
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            None => self.permit = Some(more),
        }
        Ok(())
    }

    /// How much room it has taken.
    #[must_use]
    pub fn size(&self) -> usize {
        self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.in_flight.decrement(u32::try_from(self.size()).unwrap_or(u32::MAX));
    }
}
